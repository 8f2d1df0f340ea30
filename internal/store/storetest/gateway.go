package storetest

import (
	"reflect"
	"testing"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/store"
)

func gatewayClients(t *testing.T, open Open) {
	dir := t.TempDir()
	s := at(t, open, dir)
	has := func(s store.Store, want ...store.GatewayClient) {
		t.Helper()
		got, err := s.GatewayClients(t.Context())
		must(t, err)
		if len(got)+len(want) > 0 && !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v\nwant %+v", got, want)
		}
	}
	has(s)
	client := func(g store.GatewayRegistration) store.GatewayClient {
		return store.GatewayClient{GatewayRegistration: g, Sandbox: cove.NewSandboxID(), CreatedAt: epoch}
	}
	b := client(store.GatewayRegistration{Name: "b", Transparent: true})
	a := client(store.GatewayRegistration{Name: "a", Listen: "127.0.0.1:3128", Dir: "/etc/cove", Network: cove.Network{
		Mode: "limited", Policies: []cove.PolicyText{{Source: "p.yaml", Text: "rules: []\n'; DROP TABLE \u00e9"}},
		Allow: []string{"a.test"}, Deny: []string{"b.test"}, Credentials: []string{"github"},
		Providers: []string{"anthropic"}, Budget: cove.Budget{Tokens: 5},
	}})
	must(t, s.PutGatewayClient(t.Context(), b))
	must(t, s.PutGatewayClient(t.Context(), a))
	has(s, a, b)
	b.Allow = []string{"c.test"}
	must(t, s.PutGatewayClient(t.Context(), b))
	has(s, a, b)
	has(at(t, open, dir), a, b)
	must(t, s.RemoveGatewayClient(t.Context(), "a"))
	if err := s.RemoveGatewayClient(t.Context(), "a"); cove.ErrorCode(err) != cove.NotFound {
		t.Errorf("removed twice: %v", err)
	}
	has(s, b)
}
