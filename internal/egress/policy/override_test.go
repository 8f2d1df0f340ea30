package policy

import "testing"

func TestOverrides(t *testing.T) {
	for name, want := range map[string]bool{"X-Http-Method-Override": true, "X_HTTP_Method": true, "x-original-url": true,
		"X-HTTP-Method": true, "X-Method-Override": true, "x_method": true,
		"X-Rewrite-Url": true, "X-Forwarded-For": false, "X-Forwarded-Proto": false, "Accept": false, "": false} {
		if Overrides(name) != want {
			t.Errorf("%q: %v", name, !want)
		}
	}
}

func TestLimits(t *testing.T) {
	for name, x := range map[string]struct {
		rules string
		want  bool
	}{
		"every request":             {"rules: [{hosts: api.test}]", false},
		"by methods":                {"rules: [{hosts: api.test, methods: [GET]}]", true},
		"by paths":                  {"rules: [{hosts: '*.test', paths: /v1/**}]", true},
		"another rule allows all":   {"rules: [{hosts: api.test, paths: /v1/**}, {hosts: '*.test'}]", false},
		"another port":              {"rules: [{hosts: api.test, ports: 80, paths: /v1/**}, {hosts: '*.test'}]", false},
		"a path is denied":          {"rules: [{hosts: api.test}, {hosts: api.test, paths: /admin/**, action: deny}]", true},
		"a path is denied, open":    {"mode: open\nrules: [{hosts: api.test, paths: /admin/**, action: deny}]", true},
		"a path is denied, apart":   {"rules: [{hosts: api.test}, {hosts: b.test, paths: /admin/**, action: deny}]", false},
		"a method is asked about":   {"mode: open\nrules: [{hosts: api.test, methods: [POST], action: ask}]", true},
		"the host is asked about":   {"rules: [{hosts: api.test, action: ask}]", false},
		"open, and a rule by paths": {"mode: open\nrules: [{hosts: api.test, paths: /v1/**}]", false},
	} {
		d, err := Parse("policy.yaml", []byte(x.rules))
		if err != nil {
			t.Fatal(name, err)
		}
		p, err := Compile(Machine{}, d)
		if err != nil {
			t.Fatal(name, err)
		}
		h, err := ParseHost("api.test")
		if err != nil {
			t.Fatal(err)
		}
		if got := p.Limits(Request{Layer: LayerHTTP, Host: h, Port: 443, Method: "GET", Path: "/v1/x"}); got != x.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
