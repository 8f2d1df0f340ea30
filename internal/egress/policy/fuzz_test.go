package policy

import (
	"net/netip"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

func FuzzParseHost(f *testing.F) {
	for _, s := range []string{"x.lab", "X.Lab.", "2130706433", "0x7f.1", "0177.0.0.1", "[::1]", "::ffff:127.0.0.1",
		"bücher.lab", "１２７.０.０.１", "xn--bcher-kva.lab", "a\x00b", "a..b", "[::1%25eth0]", "①.lab"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		h, err := ParseHost(s)
		if err != nil {
			if !h.IsZero() {
				t.Errorf("ParseHost(%q) = %v with an error", s, h)
			}
			return
		}
		if again, err := ParseHost(h.String()); err != nil || again != h {
			t.Errorf("ParseHost(%q) = %v, read again %v (%v)", s, h, again, err)
		}
		if a, ok := h.Addr(); ok {
			if h.Name() != "" || a.Zone() != "" || a.Is4In6() || HostOf(a) != h {
				t.Errorf("ParseHost(%q) = %+v", s, h)
			}
			return
		}
		name := h.Name()
		if name == "" || len(name) > maxName || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-.") != "" ||
			strings.HasSuffix(name, ".") || strings.Contains(name, "..") {
			t.Errorf("ParseHost(%q) = %q", s, name)
		}
		if _, err := netip.ParseAddr(name); err == nil {
			t.Errorf("ParseHost(%q) = %q, an address taken for a name", s, name)
		}
		if a, ok := inetAton(name); ok {
			t.Errorf("ParseHost(%q) = %q, which is %v", s, name, a)
		}
	})
}

func FuzzParsePort(f *testing.F) {
	for _, s := range []string{"443", "0", "065535", "+1", "65536"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if port, err := ParsePort(s); err == nil && (portRange{port, port}).String() != s || err != nil && port != 0 {
			t.Errorf("ParsePort(%q) = %d, %v", s, port, err)
		}
	})
}

func FuzzParseAuthority(f *testing.F) {
	for _, s := range []string{"x.lab:443", "[::1]:80", "x.lab", "::1:80", "a@b:1", "[::1]", "x:80:80"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		h, port, err := ParseAuthority(s, 0)
		if err != nil {
			return
		}
		if again, p, err := ParseAuthority(h.Authority(port), 0); err != nil || again != h || p != port || port == 0 {
			t.Errorf("ParseAuthority(%q) = %v %d, read again %v %d (%v)", s, h, port, again, p, err)
		}
	})
}

// FuzzCanonicalPath: the judged path is the one that a server reads, whether it decodes once, cleans, or splits at
// encoded slashes.
func FuzzCanonicalPath(f *testing.F) {
	for _, s := range []string{"/", "/a/b", "/a%2fb", "/%2e%2e/", "/a/../b", "/%252e", "/caf%c3%a9", "/a;b", "//", "/a%25",
		"/..%2f", "/%c0%ae"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		path, err := CanonicalPath(s)
		if err != nil {
			if path != "" {
				t.Errorf("CanonicalPath(%q) = %q with an error", s, path)
			}
			return
		}
		if again, err := CanonicalPath(path); err != nil || again != path {
			t.Errorf("CanonicalPath(%q) = %q, read again %q (%v)", s, path, again, err)
		}
		u, err := url.ParseRequestURI(path)
		if err != nil || u.RawQuery != "" || u.Host != "" {
			t.Fatalf("CanonicalPath(%q) = %q, which a server reads as %+v (%v)", s, path, u, err)
		}
		if !utf8.ValidString(u.Path) || strings.ContainsFunc(u.Path, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			t.Errorf("CanonicalPath(%q) decodes to %q", s, u.Path)
		}
		if twice, err := url.PathUnescape(u.Path); err == nil && twice != u.Path {
			t.Errorf("CanonicalPath(%q) decodes twice, to %q", s, twice)
		}
		for _, segment := range strings.FieldsFunc(u.Path, func(r rune) bool { return r == '/' || r == '\\' }) {
			if segment == "." || segment == ".." || strings.Contains(segment, ";") {
				t.Errorf("CanonicalPath(%q) has the segment %q", s, segment)
			}
		}
		if strings.Contains(u.Path, "//") {
			t.Errorf("CanonicalPath(%q) has an empty segment", s)
		}
	})
}

// FuzzParseURL: the standard library finds the same host, port and path.
func FuzzParseURL(f *testing.F) {
	for _, s := range []string{"http://x.lab/", "https://[::1]:8443/a?b", "http://a@b/", "http://x.lab#@y.lab/",
		"wss://x.lab", "http://x.lab\\@y.lab/", "http://0x7f.1/"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		u, err := ParseURL(s)
		if err != nil {
			return
		}
		if again, err := ParseURL(u.String()); err != nil || again != u {
			t.Errorf("ParseURL(%q) = %+v, read again %+v (%v)", s, u, again, err)
		}
		decoded, _ := appendDecoded(nil, u.Path, '/')
		std, err := url.Parse(u.String())
		if err != nil || std.User != nil || std.Fragment != "" || std.Hostname() != u.Host.String() ||
			std.Path != string(decoded) {
			t.Errorf("ParseURL(%q) = %+v, the standard library says %+v (%v)", s, u, std, err)
		}
	})
}

// FuzzParse: a document is refused or compiles, and never panics.
func FuzzParse(f *testing.F) {
	f.Add([]byte("mode: limited\nmerge: replace\npresets: [github]\nrules:\n- hosts: [x.lab, \"*.y.lab\"]\n  depth: 2\n " +
		" ports: [443, 1-2]\n  methods: GET\n  paths: /a/**\n  note: n\n"))
	f.Add([]byte("rules:\n- cidrs: [10.0.0.0/8]\n  action: deny\n- hosts: z\n  pass_through: true\n"))
	f.Add([]byte("? [a]\n: b\n"))
	x, _ := ParseHost("x.lab")
	f.Fuzz(func(t *testing.T, data []byte) {
		d, err := Parse("p.yaml", data)
		if err != nil {
			if d != nil || !strings.Contains(err.Error(), "p.yaml") {
				t.Errorf("got %+v, %v", d, err)
			}
			return
		}
		p, err := Compile(Machine{}, d)
		if err != nil {
			return
		}
		if v := p.Decide(Request{Layer: LayerConnect, Host: x, Port: 443}); v.Action == Allow && d.Mode != "open" &&
			len(d.Rules)+len(d.Presets) == 0 {
			t.Errorf("without a rule: %+v", v)
		}
	})
}

// FuzzArgs: an accepted target gives a rule that a policy accepts.
func FuzzArgs(f *testing.F) {
	for _, s := range []string{"x.lab", "*.x.lab:443", "10.0.0.0/8:1-2", "[::1]:80", "fd00::1", "x:80:80"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, target string) {
		d, err := Args("--allow", Allow, target)
		if err != nil {
			return
		}
		text, err := d.YAML()
		if err != nil {
			t.Fatal(err)
		}
		again, err := Parse("p.yaml", text)
		if err != nil || len(again.Rules) != 1 || again.Rules[0].describe() != d.Rules[0].describe() {
			t.Errorf("%q is %s, read again %+v (%v)", target, text, again, err)
		}
	})
}

// FuzzGlob compares patterns with equivalent regular expressions.
func FuzzGlob(f *testing.F) {
	f.Add("/a/**/b/*", "/a/x%2Fy/b/c")
	f.Add("/**/a/**", "/b/a")
	f.Add("/*/", "/a/")
	f.Add("/a/**", "/a")
	f.Fuzz(func(t *testing.T, pattern, path string) {
		g, err := parseGlob(pattern)
		if err != nil || len(g.segments) > 8 {
			return
		}
		path, err = CanonicalPath(path)
		if err != nil {
			return
		}
		// Each segment includes the slash before it; "**" is any number of segments.
		expression, whole := "(?s)^", false
		for i, s := range g.segments {
			switch {
			case g.literal[i]:
				expression += "/" + regexp.QuoteMeta(strings.ReplaceAll(s, "/", "\x00"))
				whole = whole || strings.Contains(s, "/") // split segments contain no slash
			case s == "*":
				expression += "/[^/]+"
			default:
				expression += "(?:/[^/]*)*"
			}
		}
		same := regexp.MustCompile(expression + "$")
		decoded, _ := appendDecoded(nil, path, encodedSlash)
		apart := strings.ReplaceAll(string(decoded), "\x00", "/")
		if want := same.Match(decoded); g.match(decoded, false) != want {
			t.Errorf("%s on %s: not %v", pattern, path, want)
		}
		if want := same.MatchString(apart) && !whole; g.match(decoded, true) != want {
			t.Errorf("%s on %s, split: not %v", pattern, path, want)
		}
	})
}

// FuzzDecide: any request under a policy with every kind of rule; the machine stays closed and the layers agree.
func FuzzDecide(f *testing.F) {
	f.Add(2, "x.lab", uint16(443), "GET", "/a", "198.51.100.7")
	f.Add(3, "x.lab", uint16(443), "", "", "::ffff:127.0.0.1")
	f.Add(1, "64:ff9b::7f00:1", uint16(80), "", "", "")
	f.Add(2, "x.lab", uint16(443), "POST", "/a%2Fb", "")
	p := compile(f, Machine{},
		"mode: open\nrules:\n- hosts: [x.lab, \"*.y.lab\"]\n  methods: GET\n  paths: [/a/**, /*/b]\n- cidrs: [0.0.0.0/0, "+
			"\"::/0\"]\n  ports: 1-65535\n- hosts: z.lab\n  action: ask\n- hosts: x.lab\n  paths: /c/**\n  action: deny\n")
	f.Fuzz(func(t *testing.T, layer int, host string, port uint16, method, path, address string) {
		h, _ := ParseHost(host)
		a, _ := netip.ParseAddr(address)
		r := Request{Layer: Layer(layer), Host: h, Port: port, Method: method, Path: path, Address: a}
		v := p.Decide(r)
		if again := p.Decide(r); again != v {
			t.Fatalf("%+v: %+v, then %+v", r, v, again)
		}
		if v.Reason == "" || v.Rule == "" {
			t.Errorf("%+v: %+v says nothing", r, v)
		}
		if v.Action == Deny {
			return
		}
		dialled := h.addr
		if r.Layer == LayerDial {
			dialled = a.Unmap()
		}
		if dialled.IsValid() && (dialled.IsLoopback() || dialled.IsUnspecified() || metadata(dialled)) {
			t.Errorf("%+v: %+v", r, v)
		}
		if r.Layer == LayerHTTP {
			if canonical, err := CanonicalPath(path); err != nil || !strings.EqualFold(canonical, path) {
				t.Errorf("%+v: %+v, though the path is %q (%v)", r, v, canonical, err)
			}
			r.Layer = LayerConnect
			if o := p.Decide(r); o.Action < v.Action {
				t.Errorf("%+v: %+v, but to connect %+v", r, v, o)
			}
		}
	})
}

// BenchmarkDecide measures a request that the last of 100 rules allows.
func BenchmarkDecide(b *testing.B) {
	var text strings.Builder
	text.WriteString("rules:\n")
	for i := range 99 {
		switch i % 4 {
		case 0:
			text.WriteString("- hosts: \"*.some-longer-name.example.lab\"\n  depth: 2\n")
		case 1:
			text.WriteString("- hosts: [a.example.lab, b.example.lab, c.example.lab]\n  methods: [GET, HEAD]\n  paths: " +
				"[/v1/**]\n")
		case 2:
			text.WriteString("- cidrs: [198.51.100.0/24, 10.0.0.0/8]\n  ports: [443, 8000-8100]\n")
		case 3:
			text.WriteString("- hosts: bad.example.lab\n  action: deny\n")
		}
	}
	text.WriteString("- hosts: api.example.lab\n  methods: [GET, POST]\n  paths: [/v2/**, /repos/*/*/issues/**]\n")
	p := compile(b, Machine{}, text.String())
	h, _ := ParseHost("api.example.lab")
	for name, r := range map[string]Request{
		"dns":     {Layer: LayerDNS, Host: h},
		"connect": {Layer: LayerConnect, Host: h, Port: 443},
		"http":    {Layer: LayerHTTP, Host: h, Port: 443, Method: "GET", Path: "/repos/cove-sandbox/cove/issues/3/comments"},
		"encoded": {Layer: LayerHTTP, Host: h, Port: 443, Method: "GET", Path: "/v2/%40scope%2Fname"},
		"dial":    {Layer: LayerDial, Host: h, Port: 443, Address: netip.MustParseAddr("198.51.100.7")},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if v := p.Decide(r); v.Action != Allow {
					b.Fatalf("%+v", v)
				}
			}
		})
	}
	b.Run("denied", func(b *testing.B) {
		b.ReportAllocs()
		r := Request{Layer: LayerConnect, Host: h, Port: 22}
		for b.Loop() {
			p.Decide(r)
		}
	})
}

// TestAllowedCostsNoAllocation: an allowed request allocates nothing.
func TestAllowedCostsNoAllocation(t *testing.T) {
	p := compile(t, Machine{}, "rules:\n- hosts: x.lab\n  methods: GET\n  paths: /a/**\n")
	for _, line := range []string{"dns x.lab", "connect x.lab:443", "GET x.lab/a/b%20c", "dial x.lab:443 198.51.100.7"} {
		r := ask(t, line)
		if n := testing.AllocsPerRun(100, func() { p.Decide(r) }); n != 0 {
			t.Errorf("%s: %v allocations", line, n)
		}
	}
}

// String returns the URL in full, without the scheme's default port.
func (u URL) String() string {
	authority := u.Host.Authority(u.Port)
	if u.Scheme == "http" && u.Port == 80 || u.Scheme == "https" && u.Port == 443 {
		authority = authority[:strings.LastIndexByte(authority, ':')]
	}
	return u.Scheme + "://" + authority + u.Path + u.Query
}
