package network

import (
	"context"

	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/cli/session"
)

// Daemon carries out the command of this room that no server does.
type Daemon interface {
	Gateway(ctx context.Context, sess *session.Session, o GatewayOptions) error
}

// GatewayOptions configure a gateway.
type GatewayOptions struct {
	State          string // directory: database, authorities
	Socket         string // path of the unix socket that clients are registered over
	Health         string // HOST:PORT that tells how the gateway is; none if empty
	BeyondLoopback bool   // listeners may be where other machines reach them
	// Default describes the client of the command line, anew at each reload; nil: there is none.
	Default func() (api.GatewayRegistration, error)
}
