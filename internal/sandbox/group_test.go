package sandbox

import (
	"reflect"
	"testing"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/store"
)

// TestNetworkOfService: a service has the rules of its sandbox, and nothing that is set on requests.
func TestNetworkOfService(t *testing.T) {
	rules := cove.Network{Enabled: true, Policies: []cove.PolicyText{{Source: "p.yaml", Text: "rules: []"}},
		Mode: cove.NetworkLimited, Allow: []string{"a.example"}, Deny: []string{"b.example"}, Presets: []string{"npm"},
		PassThrough: []string{"c.example"}}
	with := rules
	with.AllowPR, with.Credentials, with.Providers, with.Budget = true, []string{"key"}, []string{"anthropic"},
		cove.Budget{Requests: 1}
	of := reflect.ValueOf(with) // a new field has to be decided about
	for i := range of.NumField() {
		if of.Field(i).IsZero() {
			t.Errorf("%s is not tried", of.Type().Field(i).Name)
		}
	}
	if got := networkOfService(&with); !reflect.DeepEqual(*got, rules) {
		t.Errorf("%+v", got)
	}
	if got := networkOfService(&cove.Network{Enabled: true, Providers: []string{"anthropic"}}); got != nil {
		t.Errorf("of models alone: %+v", got)
	}
	none := &cove.Network{}
	if got := networkOfService(none); got != none {
		t.Errorf("of none: %+v", got)
	}
	if got := networkOfService(nil); got != nil {
		t.Errorf("of nil: %+v", got)
	}
}

// TestWithNeighbours: a group without a network reaches itself alone, whatever rules are left of a mode that was taken
// back.
func TestWithNeighbours(t *testing.T) {
	rule, err := policy.Args("test", policy.Allow, "a.example")
	if err != nil {
		t.Fatal(err)
	}
	alone := store.Sandbox{}
	group := store.Sandbox{Spec: store.SandboxSpec{Services: []store.Service{{Name: "db"}, {Name: "cache"}}}}
	for _, mode := range []cove.NetworkMode{"", cove.NetworkNone, cove.NetworkLimited, cove.NetworkOpen} {
		n := egress.Network{Mode: mode, Policy: []*policy.Document{rule}, Credentials: []string{"key"}}
		if got := withNeighbours(nil, alone, n); !reflect.DeepEqual(got, n) {
			t.Errorf("%s alone: %+v", mode, got)
		}
		got := withNeighbours(nil, group, n)
		if names := got.Neighbours.Names(); !reflect.DeepEqual(names, []string{"db", "cache"}) {
			t.Errorf("%s: %v", mode, names)
		}
		if closed := mode == "" || mode == cove.NetworkNone; closed != (len(got.Credentials) == 0) ||
			closed != (got.Policy[0] != rule) || closed && got.Mode != cove.NetworkLimited || !closed && got.Mode != mode {
			t.Errorf("%s: %+v", mode, got)
		}
	}
}
