package policy

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove"
)

func document(t testing.TB, source, text string) *Document {
	t.Helper()
	d, err := Parse(source, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func compile(t testing.TB, m Machine, texts ...string) *Policy {
	t.Helper()
	var docs []*Document
	for i, text := range texts {
		docs = append(docs, document(t, string(rune('a'+i))+".yaml", text))
	}
	p, err := Compile(m, docs...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// ask parses a request from a line: "dns NAME", "connect HOST:PORT", "METHOD HOST:PORT/PATH", "dial HOST:PORT ADDRESS".
func ask(t testing.TB, line string) Request {
	t.Helper()
	f := strings.Fields(line)
	r := Request{}
	authority, path, hasPath := strings.Cut(f[1], "/")
	var err error
	if f[0] == "dns" {
		r.Layer = LayerDNS
		r.Host, err = ParseHost(f[1])
	} else {
		r.Layer = LayerConnect
		r.Host, r.Port, err = ParseAuthority(authority, 443)
	}
	if err != nil {
		t.Fatal(err)
	}
	switch {
	case f[0] == "dial":
		r.Layer, r.Address = LayerDial, netip.MustParseAddr(f[2])
	case hasPath:
		r.Layer, r.Method = LayerHTTP, f[0]
		if r.Path, err = CanonicalPath("/" + path); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// TestDecide reads as sessions: a policy, then requests with their outcome: verdict, rule, "through" for connections
// that are not intercepted.
func TestDecide(t *testing.T) {
	machine := Machine{Private: []netip.Prefix{netip.MustParsePrefix("172.30.0.0/16")},
		Own: []netip.Addr{netip.MustParseAddr("192.0.2.77"), netip.MustParseAddr("172.30.0.1")}}
	for _, c := range []struct{ name, policy, want string }{
		{"exact host", "rules:\n- hosts: x.lab\n", `
			dns x.lab                   allow a.yaml:2
			dns y.lab                   deny  default
			dns a.x.lab                 deny  default
			connect x.lab:443           allow a.yaml:2
			connect x.lab:80            allow a.yaml:2
			connect x.lab:22            deny  default
			POST x.lab/any              allow a.yaml:2
			dial x.lab:443 198.51.100.9 allow a.yaml:2
			dial y.lab:443 198.51.100.9 deny  default
			dial x.lab:22 198.51.100.9  deny  default`},
		{"methods and paths", "rules:\n- hosts: x.lab\n  methods: [GET, HEAD]\n  paths: [/v1/**, /repos/*]\n", `
			connect x.lab           allow a.yaml:2
			GET x.lab/v1            allow a.yaml:2
			GET x.lab/v1/a/b        allow a.yaml:2
			POST x.lab/v1           deny  default
			GET x.lab/v2            deny  default
			GET x.lab/repos/a       allow a.yaml:2
			GET x.lab/repos/a/b     deny  default
			GET x.lab/repos/a%2Fb   deny  default
			GET x.lab/v1/a%2Fb      allow a.yaml:2
			GET x.lab/v1%2Fb        deny  default`},
		{"deny wins, in any order",
			"rules:\n- hosts: x.lab\n- hosts: x.lab\n  paths: /admin/**\n  action: deny\n- hosts: \"*.lab\"\n", `
			connect x.lab           allow a.yaml:2
			GET x.lab/              allow a.yaml:2
			GET x.lab/admin         deny  a.yaml:3
			GET x.lab/admin/x       deny  a.yaml:3
			GET x.lab/admin%2Fx     deny  a.yaml:3
			GET x.lab/%61dmin       malformed`},
		{"a host denied whole", "mode: open\nrules:\n- hosts: x.lab\n  action: deny\n", `
			dns x.lab      deny a.yaml:3
			connect x.lab  deny a.yaml:3
			GET x.lab/     deny a.yaml:3
			dns y.lab      allow default
			connect y.lab:25 allow default`},
		{"a name all of whose ports are denied is not looked up",
			"rules:\n- hosts: x.lab\n  ports: [443, 80]\n- hosts: x.lab\n  ports: 1-100\n  action: deny\n- hosts: x.lab\n  " +
				"ports: 101-500\n  action: deny\n", `
			dns x.lab      deny default
			connect x.lab  deny a.yaml:7`},
		{"in any order", "rules:\n- hosts: x.lab\n  ports: 400-500\n- hosts: x.lab\n  ports: 411-449\n  action: deny\n- " +
			"hosts: x.lab\n  ports: 450-500\n  action: deny\n- hosts: x.lab\n  ports: 200-410\n  action: deny\n", `
			dns x.lab      deny default`},
		{"a part of the ports is denied",
			"rules:\n- hosts: x.lab\n  ports: [443, 80]\n- hosts: x.lab\n  ports: 80\n  action: deny\n", `
			dns x.lab       allow a.yaml:2
			connect x.lab   allow a.yaml:2
			connect x.lab:80 deny a.yaml:4`},
		{"ask", "rules:\n- hosts: x.lab\n  methods: GET\n- hosts: x.lab\n  action: ask\n- hosts: x.lab\n  methods: " +
			"DELETE\n  action: deny\n", `
			dns x.lab      allow a.yaml:2
			GET x.lab/     allow a.yaml:2
			POST x.lab/    ask a.yaml:4
			DELETE x.lab/  deny a.yaml:6`},
		{"ask only", "rules:\n- hosts: x.lab\n  action: ask\n", `
			dns x.lab      ask a.yaml:2
			connect x.lab  ask a.yaml:2
			dial x.lab:443 198.51.100.9 ask a.yaml:2
			dial x.lab:443 10.0.0.1 deny address`},
		{"pass through", "rules:\n- hosts: \"*.lab\"\n- hosts: x.lab\n  pass_through: true\n", `
			dns x.lab      allow a.yaml:2
			connect x.lab  allow a.yaml:3 through
			connect y.lab  allow a.yaml:2
			POST x.lab/    allow a.yaml:2`},
		{"what is denied inside is looked into",
			"rules:\n- hosts: x.lab\n  pass_through: true\n- hosts: x.lab\n  methods: POST\n  action: deny\n", `
			connect x.lab  allow a.yaml:2
			GET x.lab/     allow a.yaml:2
			POST x.lab/    deny a.yaml:4`},
		{"addresses need rules of their own",
			"rules:\n- hosts: x.lab\n- cidrs: [198.51.100.0/24, \"2001:db8::/32\"]\n  ports: 443\n", `
			connect 198.51.100.7          allow a.yaml:3
			connect [::ffff:198.51.100.7] allow a.yaml:3
			connect 3325256711            allow a.yaml:3
			connect 198.51.100.7:80       deny default
			connect 203.0.113.7           deny default
			connect [2001:db8::1]         allow a.yaml:3
			dial 198.51.100.7:443 198.51.100.7 allow a.yaml:3
			dial 198.51.100.7:443 198.51.100.8 deny malformed
			dial x.lab:443 203.0.113.7    allow a.yaml:2`},
		{"reserved addresses", "rules:\n- hosts: [x.lab, y.lab]\n  ports: [443, 5432]\n- cidrs: 10.1.0.0/16\n  ports: 5432\n",
			`
			dial x.lab:443 10.1.2.3        deny address
			dial x.lab:5432 10.1.2.3       allow a.yaml:2
			dial x.lab:5432 ::ffff:10.1.2.3 allow a.yaml:2
			dial x.lab:5432 10.2.2.3       deny address
			dial x.lab:443 127.0.0.1       deny address
			dial x.lab:443 ::1             deny address
			dial x.lab:443 169.254.169.254 deny address
			dial x.lab:443 ::ffff:169.254.169.254 deny address
			dial x.lab:5432 64:ff9b::a01:203 deny address
			dial x.lab:443 0.0.0.0         deny address
			dial x.lab:443 100.64.0.1      deny address
			dial x.lab:443 fd00::1         deny address
			dial x.lab:443 fe80::1         deny address
			dial x.lab:443 172.30.9.9      allow a.yaml:2
			dial x.lab:443 172.30.0.1      deny address
			dial x.lab:443 192.0.2.77      deny address
			connect 10.1.2.3:5432          allow a.yaml:4
			connect 10.1.2.3:443           deny default`},
		{"a wide range opens nothing of the machine",
			"rules:\n- cidrs: [0.0.0.0/0, \"::/0\"]\n  ports: 1-65535\n- hosts: x.lab\n", `
			connect 127.0.0.1              deny address
			connect 0.0.0.0                deny address
			connect 2130706433             deny address
			connect [::1]                  deny address
			connect [::]                   deny address
			connect 169.254.169.254:80     deny address
			connect [::ffff:a9fe:a9fe]     deny address
			connect [64:ff9b::a9fe:a9fe]   deny address
			connect [2002:7f00:1::]        deny address
			connect [fd00:ec2::254]        deny address
			connect 192.0.2.77             deny address
			connect 10.0.0.1               deny address
			connect 100.64.0.1             deny address
			connect [fd00::1]              deny address
			connect [2001:db8::1]          allow a.yaml:2
			dial x.lab:443 10.0.0.1        deny address
			dial x.lab:443 192.168.1.1     deny address
			dial x.lab:443 fd00::1         deny address
			dial x.lab:443 198.51.100.1    allow a.yaml:4
			connect 198.51.100.1:25        allow a.yaml:2
			dial x.lab:443 169.254.169.254 deny address
			dial x.lab:443 192.0.2.77      deny address`},
		{"a range opens the reserved range that it lies within, and no other",
			"rules:\n- cidrs: [10.0.0.0/8, 192.168.0.0/15, 172.0.0.0/11, 96.0.0.0/3, 100.64.0.0/10, \"fc00::/7\", " +
				"\"2000::/3\"]\n- hosts: x.lab\n", `
			connect 10.0.0.1            allow a.yaml:2
			connect 192.168.1.1         deny address
			connect 192.169.1.1         allow a.yaml:2
			connect 172.16.0.1          deny address
			connect 172.15.0.1          allow a.yaml:2
			connect 100.64.0.1          allow a.yaml:2
			connect 100.128.0.1         allow a.yaml:2
			connect 127.0.0.1           deny address
			connect [fd00::1]           allow a.yaml:2
			connect [2002:a00:1::]      deny address
			connect [2001:db8::1]       allow a.yaml:2
			dial x.lab:443 10.0.0.1     allow a.yaml:3
			dial x.lab:443 192.168.1.1  deny address
			dial x.lab:443 172.31.0.1   deny address
			dial x.lab:443 100.64.0.1   allow a.yaml:3`},
		{"a wide range asks about nothing reserved", "rules:\n- cidrs: 0.0.0.0/0\n  action: ask\n- hosts: x.lab\n", `
			connect 10.0.0.1            deny address
			connect 198.51.100.1        ask a.yaml:2
			dial x.lab:443 192.168.1.1  deny address`},
		{"an address of the machine, named by itself", "rules:\n- cidrs: 192.0.2.77\n", `
			connect 192.0.2.77   allow a.yaml:2
			connect 192.0.2.77:22 deny default`},
		{"the embedded address must be open as well",
			"rules:\n- cidrs: \"64:ff9b::/96\"\n- cidrs: 10.1.0.0/16\n- cidrs: 198.51.100.7\n  action: deny\n", `
			connect [64:ff9b::808:808]    allow a.yaml:2
			connect [64:ff9b::a01:1]      allow a.yaml:2
			connect [64:ff9b::a02:1]      deny address
			connect [64:ff9b::c633:6407]  deny a.yaml:4`},
		{"denied ranges", "mode: open\nrules:\n- cidrs: 198.51.100.0/24\n  action: deny\n", `
			dial x.lab:443 198.51.100.9  deny a.yaml:3
			dial x.lab:443 203.0.113.9   allow default
			connect 198.51.100.9         deny a.yaml:3
			connect 203.0.113.9          allow default
			connect 10.0.0.1             deny default
			connect [::1]                deny default
			connect 192.0.2.77           deny default
			dial x.lab:443 10.0.0.1      deny address
			dial x.lab:443 192.0.2.77    deny address`},
		{"asked for an address", "rules:\n- hosts: x.lab\n- cidrs: 10.0.0.0/8\n  action: ask\n", `
			dial x.lab:443 10.0.0.1   ask a.yaml:3
			dial x.lab:443 8.8.8.8    allow a.yaml:2
			connect 10.0.0.1          ask a.yaml:3`},
		{"a rule on requests to an address opens it to no name",
			"rules:\n- hosts: x.lab\n- cidrs: 10.0.0.1\n  methods: GET\n", `
			dial x.lab:443 10.0.0.1     deny address
			connect 10.0.0.1            allow a.yaml:3
			GET 10.0.0.1/               allow a.yaml:3
			POST 10.0.0.1/              deny default
			dial 10.0.0.1:443 10.0.0.1  allow a.yaml:3`},
		{"services of the machine", "mode: host-only\nrules:\n- hosts: host.cove.internal\n  ports: [5432, 6379]\n- hosts: " +
			"[x.lab, \"*.internal\", \"*.cove.lab\"]\n", `
			dns host.cove.internal           allow a.yaml:3
			connect host.cove.internal:5432  allow a.yaml:3
			connect host.cove.internal:22    deny default
			dial host.cove.internal:5432 127.0.0.1 allow a.yaml:3
			dial host.cove.internal:5432 ::1       allow a.yaml:3
			dial host.cove.internal:5432 10.0.0.1  deny address
			dial host.cove.internal:22 127.0.0.1   deny default
			connect x.lab                    deny default
			dns x.lab                        deny default
			connect 198.51.100.9             deny default`},
		{"services of the machine are closed", "mode: open\n", `
			dns host.cove.internal          deny default
			connect host.cove.internal:80   deny default
			dial host.cove.internal:80 127.0.0.1 deny default`},
		{"names that no rule opens", "mode: open\nrules:\n- hosts: [\"*.google.internal\", \"*.internal\"]\n", `
			dns localhost                        deny default
			connect a.localhost                  deny default
			GET metadata.google.internal/        deny default
			connect x.metadata.google.internal   deny default
			connect gateway.cove.internal        deny default
			connect cove.internal                deny default
			connect METADATA.google.internal.    deny default`},
		{"depth", "rules:\n- hosts: \"*.x.lab\"\n  depth: 2\n", `
			connect a.b.x.lab   allow a.yaml:2
			connect a.b.c.x.lab deny default
			connect x.lab       deny default`},
		{"none", "mode: none\nrules:\n- hosts: x.lab\n", `
			dns x.lab      deny default
			connect x.lab  deny default
			dial x.lab:443 198.51.100.9 deny default`},
		{"nothing", "", `
			dns x.lab      deny default
			connect x.lab  deny default`},
		{"no rules", "mode: limited\nrules: []\n", `
			dns x.lab      deny default
			connect 198.51.100.9 deny default`},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := compile(t, machine, c.policy)
			for line := range strings.Lines(strings.TrimSpace(c.want)) {
				if before, malformed := strings.CutSuffix(strings.TrimSpace(line), "malformed"); malformed &&
					!strings.Contains(line, "deny") {
					_, path, _ := strings.Cut(strings.Fields(before)[1], "/")
					if _, err := CanonicalPath("/" + path); err == nil {
						t.Errorf("%s: is canonical", line)
					}
					continue
				}
				f := strings.Fields(line)
				at := 0
				for i, word := range f {
					if word == "allow" || word == "ask" || word == "deny" {
						at = i
					}
				}
				v := p.Decide(ask(t, strings.Join(f[:at], " ")))
				through := ""
				if v.PassThrough {
					through = "through"
				}
				if got := strings.TrimSpace(v.Action.String() + " " + v.Rule + " " + through); got != strings.Join(f[at:], " ") {
					t.Errorf("%s: %s (%s)", strings.TrimSpace(line), got, v.Reason)
				}
				if v.Reason == "" {
					t.Errorf("%s: no reason", line)
				}
			}
		})
	}
}

func TestNoPolicyDenies(t *testing.T) {
	empty, err := Compile(Machine{})
	if err != nil {
		t.Fatal(err)
	}
	absent, err := Compile(Machine{}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, p := range map[string]*Policy{"nil": nil, "zero": {}, "empty": empty, "absent": absent,
		"of nil": (*Policy)(nil).For("s"), "documents of nothing": compile(t, Machine{}, "", "# nothing\n", "rules: []\n",
			"mode: limited\n", "presets: []\n")} {
		for _, line := range []string{"dns x.lab", "connect x.lab:443", "GET x.lab/", "dial x.lab:443 198.51.100.9",
			"connect 198.51.100.9", "dial 198.51.100.9 198.51.100.9"} {
			if strings.HasPrefix(line, "dial 198") {
				line = "dial 198.51.100.9:443 198.51.100.9"
			}
			if v := p.Decide(ask(t, line)); v.Action != Deny || v.PassThrough {
				t.Errorf("%s: %s: %+v", name, line, v)
			}
		}
	}
	if (&Policy{}).Mode() != cove.NetworkNone || (*Policy)(nil).Mode() != cove.NetworkNone {
		t.Error("no policy has a network")
	}
	if (Verdict{}).Action != Deny {
		t.Error("the zero verdict allows")
	}
}

func TestIncompleteRequestsAreDenied(t *testing.T) {
	p := compile(t, Machine{},
		"mode: open\nrules:\n- hosts: x.lab\n  ports: 1-65535\n- cidrs: 0.0.0.0/0\n  ports: 1-65535\n")
	x, _ := ParseHost("x.lab")
	a := HostOf(netip.MustParseAddr("198.51.100.9"))
	good := Request{Layer: LayerHTTP, Host: x, Port: 443, Method: "GET", Path: "/",
		Address: netip.MustParseAddr("198.51.100.9")}
	if v := p.Decide(good); v.Action != Allow {
		t.Fatalf("control: %+v", v)
	}
	for name, r := range map[string]Request{
		"nothing":             {},
		"no host":             {Layer: LayerConnect, Port: 443},
		"no port":             {Layer: LayerConnect, Host: x},
		"no method":           {Layer: LayerHTTP, Host: x, Port: 443, Path: "/"},
		"no path":             {Layer: LayerHTTP, Host: x, Port: 443, Method: "GET"},
		"lower case":          {Layer: LayerHTTP, Host: x, Port: 443, Method: "get", Path: "/"},
		"TRACE":               {Layer: LayerHTTP, Host: x, Port: 443, Method: "TRACE", Path: "/"},
		"CONNECT":             {Layer: LayerHTTP, Host: x, Port: 443, Method: "CONNECT", Path: "/"},
		"method with a space": {Layer: LayerHTTP, Host: x, Port: 443, Method: "GET /", Path: "/"},
		"dots":                {Layer: LayerHTTP, Host: x, Port: 443, Method: "GET", Path: "/../x"},
		"encoded dots":        {Layer: LayerHTTP, Host: x, Port: 443, Method: "GET", Path: "/%2E%2E/x"},
		"relative":            {Layer: LayerHTTP, Host: x, Port: 443, Method: "GET", Path: "x"},
		"no address":          {Layer: LayerDial, Host: x, Port: 443},
		"another address":     {Layer: LayerDial, Host: a, Port: 443, Address: netip.MustParseAddr("198.51.100.8")},
		"a zone":              {Layer: LayerDial, Host: x, Port: 443, Address: netip.MustParseAddr("fe80::1%eth0")},
		"no such layer": {Layer: 9, Host: x, Port: 443, Method: "GET", Path: "/",
			Address: netip.MustParseAddr("198.51.100.9")},
		"an address asked of": {Layer: LayerDNS, Host: a},
	} {
		if v := p.Decide(r); v.Action != Deny || v.Rule != "malformed" || v.Remedy != "" {
			t.Errorf("%s: %+v", name, v)
		}
	}
}

// TestRemedies: the remedy's command allows the denied request.
func TestRemedies(t *testing.T) {
	machine := Machine{Own: []netip.Addr{netip.MustParseAddr("192.0.2.77")}}
	base := "rules:\n- hosts: denied.lab\n  action: deny\n- hosts: get.lab\n  methods: GET\n- hosts: [\"*.w.lab\", " +
		"db.lab]\n  ports: [443, 5432]\n- hosts: asked.lab\n  action: ask\n"
	for line, want := range map[string]string{
		"dns x.lab":                                 "cove policy allow SANDBOX x.lab",
		"connect x.lab:443":                         "cove policy allow SANDBOX x.lab",
		"connect x.lab:22":                          "cove policy allow SANDBOX x.lab:22",
		"POST get.lab/":                             "cove policy allow SANDBOX get.lab",
		"GET get.lab:8080/":                         "cove policy allow SANDBOX get.lab:8080",
		"connect 10.0.0.1:443":                      "cove policy allow SANDBOX 10.0.0.1",
		"connect 10.0.0.1:22":                       "cove policy allow SANDBOX 10.0.0.1:22",
		"connect [fd00::1]:443":                     "cove policy allow SANDBOX fd00::1",
		"connect [fd00::1]:22":                      "cove policy allow SANDBOX [fd00::1]:22",
		"dial db.lab:5432 10.0.0.9":                 "cove policy allow SANDBOX 10.0.0.9:5432",
		"dial db.lab:443 192.0.2.77":                "cove policy allow SANDBOX 192.0.2.77",
		"connect host.cove.internal:80":             "cove policy allow SANDBOX host.cove.internal:80",
		"connect asked.lab:443":                     "cove policy allow SANDBOX asked.lab",
		"dns host.cove.internal":                    "",
		"connect denied.lab:443":                    "",
		"connect 127.0.0.1:443":                     "",
		"connect [64:ff9b::7f00:1]:443":             "",
		"connect 169.254.169.254:80":                "",
		"dial db.lab:443 169.254.169.254":           "",
		"dial db.lab:443 127.0.0.1":                 "",
		"connect localhost:443":                     "",
		"connect metadata.google.internal:80":       "",
		"connect gateway.cove.internal:80":          "",
		"dial host.cove.internal:5432 198.51.100.9": "cove policy allow SANDBOX host.cove.internal:5432",
	} {
		r := ask(t, line)
		v := compile(t, machine, base).Decide(r)
		if v.Action == Allow || v.Remedy != want {
			t.Errorf("%s: %+v, want %q", line, v, want)
		}
		if v.Remedy == "" || strings.HasPrefix(line, "dial host") {
			continue
		}
		more, err := Args("allow", Allow, strings.TrimPrefix(v.Remedy, "cove policy allow SANDBOX "))
		if err != nil {
			t.Errorf("%s: the remedy %q: %v", line, v.Remedy, err)
			continue
		}
		p, err := Compile(machine, document(t, "a.yaml", base), more)
		if err != nil {
			t.Errorf("%s: the remedy %q: %v", line, v.Remedy, err)
		} else if v := p.Decide(r); v.Action != Allow {
			t.Errorf("%s: after the remedy: %+v", line, v)
		}
	}
	if v := compile(t, machine, base).For("sb-1").Decide(ask(t, "dns x.lab")); v.Remedy != "cove policy allow sb-1 x.lab" {
		t.Errorf("of a sandbox: %q", v.Remedy)
	}
}

func TestReasonsSayHowNear(t *testing.T) {
	p := compile(t, Machine{}, "rules:\n- hosts: get.lab\n  methods: GET\n- hosts: \"*.w.lab\"\n- hosts: no.lab\n  "+
		"action: deny\n  note: ask the owner\n")
	for line, want := range map[string]string{
		"connect x.lab:443":         "no rule allows x.lab:443",
		"dns x.lab":                 "no rule allows x.lab",
		"POST get.lab/a":            "a.yaml:2 allows get.lab, but not POST /a",
		"connect get.lab:22":        "a.yaml:2 allows get.lab, but not port 22",
		"connect a.b.w.lab:443":     "a.yaml:4 allows *.w.lab, but a.b.w.lab has more labels than its depth",
		"connect no.lab:443":        "a.yaml:5 denies no.lab: ask the owner",
		"connect 10.0.0.1:443":      "no rule allows 10.0.0.1:443 (private)",
		"dial get.lab:443 10.0.0.1": "get.lab is at 10.0.0.1 (private), which no rule by cidrs names",
	} {
		if v := p.Decide(ask(t, line)); v.Reason != want {
			t.Errorf("%s: %q, want %q", line, v.Reason, want)
		}
	}
}

// TestMerge: template, profile, tenant, sandbox.
func TestMerge(t *testing.T) {
	const request = "connect x.lab:443"
	for _, c := range []struct {
		name   string
		layers []string
		want   string
	}{
		{"extend", []string{"rules:\n- hosts: y.lab\n", "rules:\n- hosts: x.lab\n"}, "allow b.yaml:2"},
		{"what was allowed stays", []string{"rules:\n- hosts: x.lab\n", "rules:\n- hosts: y.lab\n"}, "allow a.yaml:2"},
		{"replace drops what was allowed", []string{"rules:\n- hosts: x.lab\n",
			"merge: replace\nmode: limited\nrules:\n- hosts: y.lab\n"}, "deny default"},
		{"replace drops what was asked", []string{"rules:\n- hosts: x.lab\n  action: ask\n",
			"merge: replace\nmode: limited\n"}, "deny default"},
		{"replace drops no denial", []string{"rules:\n- hosts: x.lab\n  action: deny\n",
			"merge: replace\nmode: open\nrules:\n- hosts: x.lab\n"}, "deny a.yaml:2"},
		{"an earlier denial wins", []string{"rules:\n- hosts: x.lab\n  action: deny\n", "rules:\n- hosts: x.lab\n"},
			"deny a.yaml:2"},
		{"a later denial wins", []string{"rules:\n- hosts: x.lab\n", "rules:\n- hosts: x.lab\n  action: deny\n"},
			"deny b.yaml:2"},
		{"the last mode counts", []string{"mode: open\n", "mode: limited\n"}, "deny default"},
		{"and widens if it says so", []string{"mode: limited\n", "mode: open\n"}, "allow default"},
		{"what says no mode keeps it", []string{"mode: open\n", "rules:\n- hosts: y.lab\n"}, "allow default"},
		{"none", []string{"mode: none\n", "rules:\n- hosts: x.lab\n"}, "deny default"},
	} {
		v := compile(t, Machine{}, c.layers...).Decide(ask(t, request))
		if got := v.Action.String() + " " + v.Rule; got != c.want {
			t.Errorf("%s: %s", c.name, got)
		}
	}
}

func TestCompileRefusals(t *testing.T) {
	for name, c := range map[string]struct{ text, says string }{
		"loopback":            {"rules:\n- cidrs: 127.0.0.1\n", "a.yaml:2: 127.0.0.1/32 is this machine"},
		"a part of loopback":  {"rules:\n- cidrs: 127.8.0.0/16\n  action: ask\n", "host.cove.internal"},
		"loopback of IPv6":    {"rules:\n- cidrs: \"::1\"\n", "this machine"},
		"0.0.0.0":             {"rules:\n- cidrs: 0.0.0.0\n", "this machine"},
		"metadata":            {"rules:\n- cidrs: 169.254.169.254/32\n", "cloud metadata"},
		"metadata of IPv6":    {"rules:\n- cidrs: \"fd00:ec2::254\"\n", "cloud metadata"},
		"metadata of Alibaba": {"rules:\n- cidrs: 100.100.100.200\n", "gateway's own configuration"},
		"a registry":          {"presets: [npm]\n", "a.yaml:1: the preset npm needs the configuration of npm"},
	} {
		_, err := Compile(Machine{}, document(t, "a.yaml", c.text))
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// The gateway's own configuration opens the ranges it names.
	for _, private := range []string{"169.254.169.254/32", "127.0.0.0/8"} {
		m := Machine{Private: []netip.Prefix{netip.MustParsePrefix(private)}}
		a := m.Private[0].Addr().String()
		d, err := Args("--allow", Allow, a, "x.lab")
		if err != nil {
			t.Fatal(err)
		}
		p, err := Compile(m, d)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range []string{"connect " + a, "dial x.lab:443 " + a} {
			if v := p.Decide(ask(t, line)); v.Action != Allow {
				t.Errorf("%s: %s: %+v", private, line, v)
			}
		}
	}
	m := Machine{Private: []netip.Prefix{netip.MustParsePrefix("169.254.0.0/16")}}
	if v := compile(t, m, "rules:\n- hosts: x.lab\n").Decide(ask(t, "dial x.lab:443 169.254.169.254")); v.Action != Deny {
		t.Errorf("metadata is opened by the way: %+v", v)
	}
}

func TestForeign(t *testing.T) {
	private := []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}
	for target, refused := range map[string]bool{"x.lab": false, "198.51.100.0/24": false, "10.1.2.0/24": false,
		"10.2.0.0/16": true, "10.0.0.0/8": true, "0.0.0.0/0": true,
		"host.cove.internal:5432": true, "fd00::1": true, "[::ffff:0:0]:80": true, "::/0": true, "2001:db8::/32": false,
		"4000::/16": true, "172.17.0.1:2375": true, "100.64.0.0/10": true} {
		d, err := Args("--allow", Allow, target)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Foreign(private); (err != nil) != refused || err != nil && cove.ErrorCode(err) != cove.Forbidden {
			t.Errorf("%s: %v", target, err)
		}
		d, err = Args("--deny", Deny, target)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Foreign(private); err != nil {
			t.Errorf("to deny %s: %v", target, err)
		}
	}
}

func TestArgs(t *testing.T) {
	for target, want := range map[string]string{
		"x.lab": "x.lab", "X.Lab.:8443": "x.lab port 8443", "*.x.lab": "*.x.lab", "x.lab:8000-8100": "x.lab port 8000-8100",
		"10.0.0.0/8:5432": "10.0.0.0/8 port 5432",
		"10.0.0.1":        "10.0.0.1/32", "10.0.0.1:22": "10.0.0.1/32 port 22", "[fd00::1]:22": "fd00::1/128 port 22",
		"fd00::1": "fd00::1/128", "[fd00::1]": "fd00::1/128",
		"tcp://x.lab:22": "x.lab port 22 passing through", "tcp://10.0.0.1:5432": "10.0.0.1/32 port 5432 passing through",
		"tcp://[fd00::1]:22": "fd00::1/128 port 22 passing through",
		"tcp://x.lab":        "", "tcp://": "", "udp://x.lab:53": "", "TCP://x.lab:1": "", "fd00::/8": "fd00::/8",
		"[fd00::/8]:22": "fd00::/8 port 22",
		"":              "", "*": "", "x.lab:": "", "x.lab:0": "", "x.lab:080": "", ":443": "", "http://x.lab": "",
		"x.lab/path": "", "10.0.0.1/8": "", "2130706433": "", "localhost": "",
		"metadata.google.internal": "", "host.cove.internal": "", "fd00::1%eth0": "", "a@b": "", "10.0.0.0/33": "",
		"x.lab:80:80": "", "host.cove.internal:1-9": "", "::ffff:10.0.0.0/104": "",
	} {
		d, err := Args("--allow", Allow, target)
		if (err != nil) != (want == "") {
			t.Errorf("%q: %v", target, err)
		} else if err == nil && (d.Rules[0].describe() != want || d.Rules[0].ID != "--allow "+target) {
			t.Errorf("%q: %s (%s)", target, d.Rules[0].describe(), d.Rules[0].ID)
		} else if err != nil && cove.ErrorHint(err) == "" {
			t.Errorf("%q: no hint in %v", target, err)
		}
	}
}

// TestArgsAddress: an address of the web is no target, and the hint names what to write.
func TestArgsAddress(t *testing.T) {
	for target, want := range map[string]string{"http://x.lab/path": `"x.lab"`, "https://x.lab:8443": `"x.lab:8443"`} {
		if _, err := Args("--allow", Allow, target); err == nil || !strings.HasPrefix(cove.ErrorHint(err), "write "+want) {
			t.Errorf("%q: %v", target, err)
		}
	}
}

// TestDenied: rules can deny the gateway's own endpoints too.
func TestDenied(t *testing.T) {
	d, err := Args("--deny", Deny, GatewayService, "api.example.com", "192.0.2.0/24")
	if err != nil {
		t.Fatal(err)
	}
	p, err := Compile(Machine{}, d)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		host, path, address string
		layer               Layer
		want                bool
	}{
		{host: GatewayService, layer: LayerDNS, want: true},
		{host: GatewayService, layer: LayerConnect, want: true},
		{host: "api.example.com", layer: LayerHTTP, path: "/v1/messages", want: true},
		{host: "other.example.com", layer: LayerHTTP, path: "/v1/messages"},
		{host: "other.example.com", layer: LayerDial, address: "192.0.2.7", want: true},
		{host: "other.example.com", layer: LayerDial, address: "198.51.100.7"},
		{host: "other.example.com", layer: LayerHTTP, path: "/a//b", want: true}, // malformed
	} {
		h, err := ParseHost(c.host)
		if err != nil {
			t.Fatal(err)
		}
		r := Request{Layer: c.layer, Host: h, Port: 80, Method: "POST", Path: c.path}
		if c.address != "" {
			r.Address = netip.MustParseAddr(c.address)
		}
		if v, got := p.Denied(r); got != c.want || v.Action != Deny {
			t.Errorf("%+v: %v %+v", c, got, v)
		}
	}
}

// TestPassable: an allowed and intercepted connection could be passed through, by a command, except where a part of it
// is denied.
func TestPassable(t *testing.T) {
	p := compile(t, Machine{}, "rules:\n  - hosts: web.lab\n  - hosts: part.lab\n  - {hosts: part.lab, paths: /x, "+
		"action: deny}\n  - {hosts: tcp.lab, ports: 22, pass_through: true}\n").For("x")
	for line, want := range map[string]bool{
		"connect web.lab:443": true, "connect part.lab:443": false, "connect other.lab:443": false, "GET web.lab:443/": false,
		"dns web.lab": false,
	} {
		if got := p.Decide(ask(t, line)); got.Passable != want {
			t.Errorf("%s: %+v", line, got)
		}
	}
	r := ask(t, "connect web.lab:22")
	if got := p.Through(r.Host, r.Port); got != "cove policy allow x tcp://web.lab:22" {
		t.Error(got)
	}
	if _, err := Args("test", Allow, "tcp://web.lab:22"); err != nil {
		t.Errorf("the command is none: %v", err)
	}
}

// TestWhole: a connection is whole where a rule allows every request in it, and none asks about or denies a part.
func TestWhole(t *testing.T) {
	limited := "- hosts: all.lab\n- {hosts: part.lab, methods: GET}\n- {hosts: both.lab, paths: /a}\n- hosts: both.lab\n" +
		"- hosts: less.lab\n- {hosts: less.lab, paths: /a, action: deny}\n- {hosts: asked.lab, action: ask}\n- {hosts: " +
		"tcp.lab, pass_through: true}\n"
	for mode, wants := range map[string]map[string]bool{
		"limited": {"all.lab": true, "part.lab": false, "both.lab": true, "less.lab": false, "asked.lab": false,
			"tcp.lab": true, "other.lab": false},
		"open": {"all.lab": true, "both.lab": true, "less.lab": false, "asked.lab": false, "other.lab": true},
	} {
		p := compile(t, Machine{}, "mode: "+mode+"\nrules:\n"+limited+"- {hosts: open.lab, paths: /a, action: ask}\n")
		if mode == "open" {
			wants["open.lab"] = false
		}
		for host, want := range wants {
			if got := p.Decide(ask(t, "connect "+host+":443")); got.Whole != want {
				t.Errorf("%s, %s: %+v", mode, host, got)
			}
		}
	}
}
