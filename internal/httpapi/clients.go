package httpapi

import (
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/apispec"
	"github.com/cove-sandbox/cove/internal/gateway/clients"
	"github.com/cove-sandbox/cove/internal/store"
)

// Registration returns the registration of a gateway's client.
func Registration(g api.GatewayRegistration) store.GatewayRegistration {
	return store.GatewayRegistration{Name: g.Name, Listen: g.Listen, Transparent: g.Transparent, Dir: g.Dir,
		Network: *apispec.Network(&api.NetworkPermission{Enabled: true, GatewayPolicy: g.GatewayPolicy,
			Credentials: g.Credentials, ModelPermission: g.ModelPermission})}
}

// gatewayClient returns a client in the wire format.
func gatewayClient(c clients.View) api.GatewayClient {
	n := apispec.NetworkOf(c.Network)
	return api.GatewayClient{
		GatewayRegistration: api.GatewayRegistration{Name: c.Name, GatewayPolicy: n.GatewayPolicy,
			Credentials: n.Credentials, ModelPermission: n.ModelPermission, Listen: c.Listen,
			Transparent: c.Transparent, Dir: c.Dir},
		Sandbox: string(c.Sandbox), Open: c.Open, Files: c.Files, Env: c.Env, Problem: c.Problem,
		Models: apispec.Models(c.Models), Cut: c.Cut,
	}
}
