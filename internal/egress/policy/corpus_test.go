package policy_test

import (
	"net/netip"
	"strconv"
	"testing"

	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/egress/policy/policytest"
)

// reading is the outcome of a spelling.
type reading struct {
	canonical string
	verdict   policy.Verdict
}

// read parses a case as an entry of the gateway does.
func read(p *policy.Policy, c policytest.Case) (reading, error) {
	allowed, err := policy.ParseHost("allowed.lab")
	if err != nil {
		return reading{}, err
	}
	paths, err := policy.ParseHost("paths.lab")
	if err != nil {
		return reading{}, err
	}
	connect := func(h policy.Host, port uint16) policy.Verdict {
		return p.Decide(policy.Request{Layer: policy.LayerConnect, Host: h, Port: port})
	}
	switch c.Kind {
	case policytest.Host:
		h, err := policy.ParseHost(c.Input)
		return reading{h.String(), connect(h, 443)}, err
	case policytest.Port:
		port, err := policy.ParsePort(c.Input)
		return reading{strconv.Itoa(int(port)), connect(allowed, port)}, err
	case policytest.Authority:
		h, port, err := policy.ParseAuthority(c.Input, 0)
		return reading{h.Authority(port), connect(h, port)}, err
	case policytest.Path:
		path, err := policy.CanonicalPath(c.Input)
		return reading{path,
			p.Decide(policy.Request{Layer: policy.LayerHTTP, Host: paths, Port: 443, Method: "GET", Path: path})}, err
	}
	u, err := policy.ParseURL(c.Input)
	return reading{u.String(), p.Decide(policy.Request{Layer: policy.LayerHTTP, Host: u.Host, Port: u.Port, Method: "GET",
		Path: u.Path})}, err
}

// TestHostileForms reads the corpus: each form is refused or has one canonical form, which is judged and is its own
// canonical form.
func TestHostileForms(t *testing.T) {
	p := policytest.Policy(t)
	cases := policytest.Cases(t)
	seen := map[string]bool{}
	for _, c := range cases {
		if key := string(c.Kind) + c.Input; seen[key] {
			t.Errorf("corpus.txt:%d: %s %q is there twice", c.Line, c.Kind, c.Input)
		} else {
			seen[key] = true
		}
		t.Run(c.Name(), func(t *testing.T) {
			got, err := read(p, c)
			outcome := policytest.Denied
			switch {
			case err != nil:
				outcome, got.canonical = policytest.Malformed, ""
			case got.verdict.Action == policy.Allow:
				outcome = policytest.Allowed
			}
			if outcome != c.Outcome || got.canonical != c.Canonical {
				t.Fatalf("corpus.txt:%d (%s): %s %q, want %s %q (%v)", c.Line, c.Why, outcome, got.canonical, c.Outcome,
					c.Canonical, err)
			}
			if err != nil || c.Kind == policytest.Port {
				return
			}
			c.Input = got.canonical
			if again, err := read(p, c); err != nil || again.canonical != got.canonical ||
				again.verdict.Action != got.verdict.Action {
				t.Errorf("read again it is %q, %v (%v)", again.canonical, again.verdict, err)
			}
		})
	}
	if len(cases) < 200 {
		t.Errorf("the corpus has %d forms", len(cases))
	}
}

// TestReserved checks the ranges that other implementations forgot.
func TestReserved(t *testing.T) {
	for a, want := range map[string]string{
		"0.0.0.0": "this network", "0.1.2.3": "this network", "10.0.0.0": "private", "10.255.255.255": "private",
		"100.64.0.0": "shared (CGNAT)", "100.127.255.255": "shared (CGNAT)",
		"127.0.0.1": "loopback", "127.255.255.255": "loopback", "169.254.0.1": "link-local",
		"169.254.169.254": "cloud metadata", "169.254.170.2": "cloud metadata",
		"100.100.100.200": "cloud metadata", "168.63.129.16": "cloud metadata", "192.0.0.192": "cloud metadata",
		"fd00:ec2::254": "cloud metadata",
		"172.16.0.0":    "private", "172.31.255.255": "private", "192.0.0.1": "protocol assignments",
		"192.88.99.1": "6to4 relay", "192.168.0.0": "private", "192.168.255.255": "private",
		"198.18.0.0": "benchmarking", "198.19.255.255": "benchmarking", "224.0.0.1": "multicast",
		"239.255.255.255": "multicast", "240.0.0.1": "reserved", "255.255.255.255": "broadcast",
		"::": "unspecified", "::1": "loopback", "::7f00:1": "IPv4-compatible of 127.0.0.1", "::ffff:127.0.0.1": "loopback",
		"::ffff:10.0.0.1": "private", "::ffff:0:7f00:1": "IPv4-translated of 127.0.0.1",
		"64:ff9b::a00:1": "NAT64 of 10.0.0.1", "64:ff9b::808:808": "NAT64 of 8.8.8.8",
		"64:ff9b:1::7f00:1": "NAT64 of 127.0.0.1", "2001:0:1:2:3:4:80ff:fffe": "Teredo of 127.0.0.1",
		"2001:2::1":  "benchmarking",
		"2001:10::1": "protocol assignments", "2002:7f00:1::": "6to4 of 127.0.0.1", "2002:808:808::": "6to4 of 8.8.8.8",
		"2a00::5efe:a00:1": "ISATAP of 10.0.0.1", "2a00::200:5efe:a00:1": "ISATAP of 10.0.0.1",
		"fc00::1": "unique local", "fdff::1": "unique local", "fe80::1": "link-local", "febf::1": "link-local",
		"fe80::1%eth0": "with a zone", "fec0::1": "site-local", "ff02::1": "multicast",
		"100::1": "not assigned", "4000::1": "not assigned", "5f00::1": "not assigned", "fe00::1": "not assigned",
		// The neighbours are public.
		"9.255.255.255": "", "11.0.0.0": "", "100.63.255.255": "", "100.128.0.0": "", "126.255.255.255": "", "128.0.0.0": "",
		"169.253.255.255": "", "169.255.0.0": "", "172.15.255.255": "", "172.32.0.0": "",
		"192.167.255.255": "", "192.169.0.0": "", "198.17.255.255": "", "198.20.0.0": "", "223.255.255.255": "",
		"168.63.129.17": "", "8.8.8.8": "", "::ffff:8.8.8.8": "",
		"2001:200::1": "", "2003::1": "", "2606:4700::1111": "", "2a00::5eff:a00:1": "", "3fff:ffff::1": "",
	} {
		class, reserved := policy.Reserved(netip.MustParseAddr(a))
		if class != want || reserved != (want != "") {
			t.Errorf("Reserved(%s) = %q, %v, want %q", a, class, reserved, want)
		}
	}
	if class, reserved := policy.Reserved(netip.Addr{}); !reserved {
		t.Errorf("no address is %q", class)
	}
}
