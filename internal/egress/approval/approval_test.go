package approval

import (
	"net/netip"
	"testing"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress/policy"
)

func request(t *testing.T, host string, port uint16, method, path string) policy.Request {
	t.Helper()
	h, err := policy.ParseHost(host)
	if err != nil {
		t.Fatal(err)
	}
	return policy.Request{Layer: policy.LayerHTTP, Host: h, Port: port, Method: method, Path: path}
}

// TestOf: a subject has exactly the fields that the rules look at.
func TestOf(t *testing.T) {
	post := request(t, "API.example.com.", 443, "POST", "/v1/items")
	six := request(t, "2001:db8::1", 8443, "GET", "/")
	dial := post
	dial.Layer, dial.Address = policy.LayerDial, netip.MustParseAddr("::ffff:10.0.0.7")
	for _, c := range []struct {
		r    policy.Request
		asks policy.Asks
		want string
	}{
		{post, policy.Asks{}, "api.example.com:443"},
		{post, policy.Asks{Method: true}, "POST api.example.com:443"},
		{post, policy.Asks{Path: true}, "api.example.com:443/v1/items"},
		{post, policy.Asks{Method: true, Path: true}, "POST api.example.com:443/v1/items"},
		{dial, policy.Asks{Address: true}, "api.example.com:443 at 10.0.0.7"},
		{six, policy.Asks{Method: true}, "GET [2001:db8::1]:8443"},
	} {
		if got := Of(c.r, policy.Verdict{Asks: c.asks}).String(); got != c.want {
			t.Errorf("%+v: %q, want %q", c.asks, got, c.want)
		}
	}
}

// TestRules: a caller that may not open a place may not approve it either.
func TestRules(t *testing.T) {
	for _, c := range []struct {
		s       Subject
		foreign bool
	}{
		{Subject{Host: "api.example.com", Port: 443}, false},
		{Subject{Host: "93.184.216.34", Port: 443}, false},
		{Subject{Host: "2606:2800:220:1::34", Port: 443}, false},
		{Subject{Host: "10.0.0.7", Port: 443}, true},
		{Subject{Host: "fd00::7", Port: 443}, true},
		{Subject{Host: policy.HostService, Port: 5432}, true},
		{Subject{Host: "api.example.com", Port: 443, Address: "10.0.0.7"}, true},
		{Subject{Host: "api.example.com", Port: 443, Address: "fd00::7"}, true},
	} {
		d, err := c.s.Rules()
		if err != nil {
			t.Errorf("%s: %v", c.s, err)
		} else if err := d.Foreign(nil); (err != nil) != c.foreign {
			t.Errorf("%s: %v", c.s, err)
		}
	}
}

func TestNormal(t *testing.T) {
	for _, c := range []struct{ a, want Answer }{
		{Answer{Allow: true}, Answer{Allow: true, Scope: Once}},
		{Answer{}, Answer{Scope: Sandbox}},
		{Answer{Scope: Once}, Answer{Scope: Once}},
		{Answer{Allow: true, Scope: Sandbox, For: time.Hour}, Answer{Allow: true, Scope: Sandbox, For: time.Hour}},
		{Answer{Allow: true, Scope: Policy}, Answer{Allow: true, Scope: Policy, For: DefaultLife}},
	} {
		if got, err := c.a.Normal(); err != nil || got != c.want {
			t.Errorf("%+v: %+v, %v", c.a, got, err)
		}
	}
	for _, a := range []Answer{
		{Allow: true, For: time.Hour},
		{Allow: true, Scope: "ever"},
		{Scope: Policy},
		{Allow: true, Scope: Sandbox, For: -time.Second},
		{Allow: true, Scope: Policy, For: MaxLife + 1},
	} {
		if _, err := a.Normal(); cove.ErrorCode(err) != cove.InvalidArgument {
			t.Errorf("%+v: %v", a, err)
		}
	}
}
