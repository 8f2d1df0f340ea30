package policy

import (
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       []string // severity kind rule
	}{
		{"nothing", "", nil},
		{"tight", "rules:\n- hosts: x.example.com\n  methods: [GET, HEAD]\n", nil},
		{"a top-level domain", "rules:\n- hosts: \"*.com\"\n  methods: GET\n", []string{"warning broad-wildcard a.yaml:2"}},
		{"a public suffix", "rules:\n- hosts: \"*.co.uk\"\n  methods: GET\n", []string{"warning broad-wildcard a.yaml:2"}},
		{"names of anybody", "rules:\n- hosts: \"*.github.io\"\n  methods: GET\n",
			[]string{"warning broad-wildcard a.yaml:2"}},
		{"names of one owner", "rules:\n- hosts: \"*.example.com\"\n  methods: GET\n", nil},
		{"deep", "rules:\n- hosts: \"*.example.com\"\n  methods: GET\n  depth: 4\n",
			[]string{"note broad-wildcard a.yaml:2"}},
		{"write-capable", "rules:\n- hosts: x.example.com\n", []string{"note write-capable a.yaml:2"}},
		{"a method that writes", "rules:\n- hosts: x.example.com\n  methods: [GET, PATCH]\n",
			[]string{"note write-capable a.yaml:2"}},
		{"unseen", "rules:\n- hosts: x.example.com\n  pass_through: true\n", []string{"note unseen a.yaml:2"}},
		{"open", "mode: open\n", []string{"warning open mode"}},
		{"an address", "rules:\n- cidrs: 198.51.100.7\n  methods: GET\n", []string{"note address a.yaml:2"}},
		{"a private address", "rules:\n- cidrs: 10.0.0.7\n  methods: GET\n", []string{"note address a.yaml:2"}},
		{"a wide range", "rules:\n- cidrs: 10.0.0.0/8\n  methods: GET\n",
			[]string{"warning broad-range a.yaml:2", "note address a.yaml:2"}},
		{"a wide range of IPv6", "rules:\n- cidrs: \"2600::/16\"\n  methods: GET\n",
			[]string{"warning broad-range a.yaml:2", "note address a.yaml:2"}},
		{"every port", "rules:\n- hosts: x.example.com\n  ports: 1-65535\n  methods: GET\n",
			[]string{"warning broad-ports a.yaml:2"}},
		{"another protocol", "rules:\n- hosts: x.example.com\n  ports: [5432, 443]\n",
			[]string{"note protocol a.yaml:2", "note write-capable a.yaml:2"}},
		{"another protocol, let through", "rules:\n- hosts: x.example.com\n  ports: 5432\n  pass_through: true\n",
			[]string{"note unseen a.yaml:2"}},
		{"denied anyway", "rules:\n- hosts: x.example.com\n  methods: GET\n- hosts: \"*.example.com\"\n  action: deny\n",
			[]string{"warning unreachable a.yaml:2"}},
		{"denied in part", "rules:\n- hosts: x.example.com\n  methods: GET\n- hosts: \"*.example.com\"\n  methods: POST\n  " +
			"action: deny\n", nil},
		{"denied on the same paths", "rules:\n- hosts: x.example.com\n  methods: GET\n  paths: [/a/*]\n- hosts: " +
			"x.example.com\n  paths: [/b, /a/*]\n  action: deny\n", []string{"warning unreachable a.yaml:2"}},
		{"twice", "rules:\n- hosts: x.example.com\n  methods: GET\n- hosts: x.example.com\n  methods: GET\n",
			[]string{"warning redundant a.yaml:4"}},
		{"narrower than another", "rules:\n- hosts: x.example.com\n  methods: GET\n  paths: /a\n- hosts: x.example.com\n  " +
			"methods: GET\n", []string{"warning redundant a.yaml:2"}},
		{"a port more", "rules:\n- hosts: x.example.com\n  methods: GET\n  ports: [80, 443, 8443]\n- hosts: " +
			"x.example.com\n  methods: GET\n", []string{"warning redundant a.yaml:5"}},
		{"passing through is not the same", "rules:\n- hosts: x.example.com\n  methods: GET\n- hosts: x.example.com\n  " +
			"pass_through: true\n", []string{"note unseen a.yaml:4"}},
		{"asked though allowed", "rules:\n- hosts: x.example.com\n  methods: GET\n  action: ask\n- hosts: x.example.com\n  " +
			"methods: [GET, HEAD]\n", []string{"warning unreachable a.yaml:2"}},
		{"denied twice", "rules:\n- hosts: x.example.com\n  action: deny\n- hosts: \"*.example.com\"\n  action: deny\n",
			[]string{"warning redundant a.yaml:2"}},
		{"wider than a reserved range", "rules:\n- cidrs: [0.0.0.0/0, \"2001::/16\"]\n  methods: GET\n",
			[]string{"warning broad-range a.yaml:2", "warning address a.yaml:2", "warning broad-range a.yaml:2",
				"warning address a.yaml:2"}},
		{"reserved ranges", "rules:\n- cidrs: [10.0.0.0/16, 192.168.0.0/16]\n  methods: GET\n",
			[]string{"note address a.yaml:2", "note address a.yaml:2"}},
		{"ranges in ranges", "rules:\n- cidrs: 198.51.100.7\n  methods: GET\n- cidrs: 198.51.100.0/24\n  methods: GET\n",
			[]string{"warning redundant a.yaml:2", "note address a.yaml:4"}},
		{"without a network", "mode: none\nrules:\n- hosts: x.example.com\n", []string{"warning unreachable a.yaml:3"}},
		{"the machine only", "mode: host-only\nrules:\n- hosts: x.example.com\n- hosts: host.cove.internal\n  ports: " +
			"5432\n  methods: GET\n", []string{"warning unreachable a.yaml:3"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			findings, err := Check(Machine{}, document(t, "a.yaml", c.text))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, f := range findings {
				got = append(got, string(f.Severity)+" "+f.Kind+" "+f.Rule)
				if f.Message == "" {
					t.Errorf("%+v says nothing", f)
				}
			}
			if strings.Join(got, "\n") != strings.Join(c.want, "\n") {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
	if _, err := Check(Machine{}, document(t, "a.yaml", "presets: [npm]\n")); err == nil {
		t.Error("what does not compile is checked")
	}
}

// TestPresetsPassTheirOwnCheck: Check does not warn of presets.
func TestPresetsPassTheirOwnCheck(t *testing.T) {
	all, err := Presets()
	if err != nil {
		t.Fatal(err)
	}
	for _, preset := range all {
		findings, err := Check(Machine{}, &Document{Source: preset.Name, Mode: "limited", Rules: preset.Rules})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range findings {
			if f.Severity == Warning {
				t.Errorf("%+v", f)
			}
		}
	}
}
