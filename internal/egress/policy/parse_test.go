package policy

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove"
)

func TestParseAllKinds(t *testing.T) {
	d := document(t, "p.yaml", `# a comment
mode: limited
merge: replace
presets: [github, anthropic]
rules:
  - hosts: [x.lab, "*.y.lab", Bücher.Lab]
    depth: 3
    ports: [443, 8000-8100]
    methods: [GET, M-SEARCH]
    paths: [/v1/**, /é]
    note: why
  - cidrs: [10.0.0.0/8, "fd00::/8", 192.0.2.1]
    ports: 5432
    action: ask
  - hosts: z.lab
    pass_through: true
  - hosts: no
    action: deny
`)
	want := []string{
		"p.yaml:6 allow GET,M-SEARCH x.lab,*.y.lab,xn--bcher-kva.lab port 443,8000-8100 /v1/**,/é",
		"p.yaml:12 ask 10.0.0.0/8,fd00::/8,192.0.2.1/32 port 5432",
		"p.yaml:15 allow z.lab passing through",
		"p.yaml:17 deny no",
	}
	for i, r := range d.Rules {
		if got := r.ID + " " + r.Action.String() + " " + r.describe(); got != want[i] {
			t.Errorf("rule %d: %s", i, got)
		}
	}
	if d.Mode != cove.NetworkLimited || !d.Replace || len(d.Presets) != 2 ||
		d.Presets[1] != (PresetUse{"anthropic", "p.yaml:4"}) || d.Rules[0].Note != "why" || d.Rules[0].hosts[1].depth != 3 ||
		!d.Rules[2].PassThrough {
		t.Errorf("got %+v", d)
	}
}

// TestParseRefusals: a refusal names the line and a fix.
func TestParseRefusals(t *testing.T) {
	rule := func(lines string) string { return "rules:\n- hosts: x.lab\n" + lines }
	for _, c := range []struct{ name, text, says string }{
		{"unknown key", "mode: limited\nallow: [x.lab]\n",
			`p.yaml:2: the policy has no key "allow" (it has git, github, merge, mode, package_cache, presets, rules)`},
		{"unknown key of a rule", rule("  port: 80\n"), `p.yaml:3: a rule has no key "port"`},
		{"key twice", "mode: open\nmode: limited\n", "p.yaml"},
		{"key of a rule twice", rule("  hosts: y.lab\n"), "p.yaml"},
		{"not YAML", "rules: [\n", "p.yaml is not YAML"},
		{"a tab", "rules:\n\t- hosts: x\n", "not YAML"},
		{"two documents", "mode: open\n---\nmode: none\n", "more than one YAML document"},
		{"a list", "- hosts: x.lab\n", "p.yaml:1: the policy must be a mapping"},
		{"text", "allow everything\n", "p.yaml:1: the policy must be a mapping"},
		{"not UTF-8", "mode: limited\nrules:\n- hosts: x\xff.lab\n", "p.yaml:3: this is not UTF-8"},
		{"NUL", "mode: \"a\x00\"\n", "NUL"},
		{"UTF-16", "\xff\xfem\x00o\x00", "p.yaml:1: this is not UTF-8"},
		{"too large", strings.Repeat("#", maxDocument+1), "larger than 1 MiB"},
		{"too many rules", "rules:\n" + strings.Repeat("- hosts: x.lab\n", maxRules+1), "there may be 5000"},
		{"too many hosts", "rules:\n- hosts: [" + strings.Repeat("x.lab,", maxEntries+1) + "]\n", "there may be 1000"},
		{"anchors", "rules:\n- &a\n  hosts: x.lab\n- *a\n", "p.yaml:2: anchors"},
		{"anchored value", "rules:\n- hosts: &a x.lab\n", "p.yaml:2: anchors"},
		{"merge keys", "rules:\n- <<: {hosts: x.lab}\n", "no key \"<<\""},
		{"a tag", "rules:\n- hosts: !!binary eC5sYWI=\n", "p.yaml:2: hosts has the tag"},
		{"no mode", "mode:\n", "p.yaml:1: mode has no value"},
		{"unknown mode", "mode: bridge\n", `p.yaml:1: "bridge" is no network mode (it is none, limited, host-only or open)`},
		{"unknown merge", "merge: both\n", "p.yaml:1: merge is extend or replace"},
		{"replace without a mode", "merge: replace\nrules: []\n", "says the mode"},
		{"unknown preset", "presets: [githob]\n", `p.yaml:1: there is no preset "githob" (there are agents, anthropic`},
		{"preset of a path", "presets: [../presets/github]\n", "there is no preset"},
		{"rules without a list", "rules: {hosts: x.lab}\n", "p.yaml:1: rules must be a list"},
		{"rules of nothing", "rules:\n", "p.yaml:1: rules must be a list"},
		{"a rule that is text", "rules:\n- x.lab\n", "p.yaml:2: a rule must be a mapping"},
		{"an empty rule", "rules:\n- {}\n", "p.yaml:2: a rule names hosts or cidrs"},
		{"a rule about nothing", "rules:\n- ports: 443\n", "p.yaml:2: a rule names hosts or cidrs"},
		{"hosts and cidrs", rule("  cidrs: 10.0.0.0/8\n"), "p.yaml:2: a rule is about hosts or about cidrs"},
		{"no hosts", "rules:\n- hosts: []\n", "p.yaml:2: hosts is empty, which matches nothing"},
		{"null hosts", "rules:\n- hosts:\n", "p.yaml:2: hosts has no value"},
		{"a null host", "rules:\n- hosts: [x.lab, ~]\n", "p.yaml:2: hosts has no value"},
		{"no ports", rule("  ports: []\n"), "p.yaml:3: ports is empty"},
		{"null ports", rule("  ports:\n"), "p.yaml:3: ports has no value"},
		{"no methods", rule("  methods: []\n"), "p.yaml:3: methods is empty"},
		{"no paths", rule("  paths: []\n"), "p.yaml:3: paths is empty"},
		{"lists in lists", "rules:\n- hosts: [[x.lab]]\n", "p.yaml:2: hosts must be one value"},
		{"everything", "rules:\n- hosts: \"*\"\n", "p.yaml:2: \"*\" is no host pattern"},
		{"a star and a dot", "rules:\n- hosts: \"*.\"\n", "p.yaml:2: the host is empty"},
		{"a star inside", "rules:\n- hosts: a.*.b\n", "is no host pattern"},
		{"a part of a label", "rules:\n- hosts:\n  - y.lab\n  - ex*mple\n", "p.yaml:4: \"ex*mple\" is no host pattern"},
		{"a URL", "rules:\n- hosts: https://x.lab/\n", "p.yaml:2: \"https://x.lab/\" is not a host"},
		{"a port in the host", "rules:\n- hosts: x.lab:443\n", "p.yaml:2:"},
		{"an address as a host", "rules:\n- hosts: 10.0.0.1\n",
			"p.yaml:2: \"10.0.0.1\" is an address, which needs a rule by cidrs (cidrs: [10.0.0.1])"},
		{"a number as a host", "rules:\n- hosts: 2130706433\n", "cidrs: [127.0.0.1]"},
		{"localhost", "rules:\n- hosts: localhost\n", "p.yaml:2: localhost leads to this machine, which no rule opens (a " +
			"service of this machine is host.cove.internal with its port)"},
		{"metadata", "rules:\n- hosts: metadata.google.internal\n", "cloud metadata"},
		{"below Cove's names", "rules:\n- hosts: \"*.cove.internal\"\n", "Cove itself"},
		{"Cove's own name", "rules:\n- hosts: gateway.cove.internal\n", "Cove itself"},
		{"below the host's name", "rules:\n- hosts: \"*.host.cove.internal\"\n", "nothing below"},
		{"the host without a port", "rules:\n- hosts: host.cove.internal\n", "one port at a time"},
		{"many ports of the host", "rules:\n- hosts: host.cove.internal\n  ports: 1-65535\n", "one port at a time"},
		{"depth of nothing", rule("  depth: 2\n"), "depth is for wildcards"},
		{"no depth", "rules:\n- hosts: \"*.x.lab\"\n  depth: 0\n", "p.yaml:3: depth is the number"},
		{"any depth", "rules:\n- hosts: \"*.x.lab\"\n  depth: 99\n", "1 to 5"},
		{"not a network", "rules:\n- cidrs: 10.0.0.0/33\n", "p.yaml:2: \"10.0.0.0/33\" is not an address or range"},
		{"bits beyond", "rules:\n- cidrs: 10.1.2.3/8\n", "did you mean 10.0.0.0/8?"},
		{"mapped", "rules:\n- cidrs: \"::ffff:10.0.0.0/104\"\n", "write it as IPv4"},
		{"octal", "rules:\n- cidrs: 010.0.0.1\n", "is not an address or range"},
		{"port of nothing", rule("  ports: 0\n"), "p.yaml:3: \"0\" is not a port"},
		{"port with a sign", rule("  ports: +443\n"), "is not a port"},
		{"port with a zero", rule("  ports: 0443\n"), "is not a port"},
		{"port beyond", rule("  ports: 65536\n"), "is not a port"},
		{"backward ports", rule("  ports: 90-80\n"), "its end is before its beginning"},
		{"lower case", rule("  methods: get\n"),
			"p.yaml:3: \"get\" is no method for a rule: methods are written in capitals"},
		{"any method", rule("  methods: \"*\"\n"), "is no method"},
		{"TRACE", rule("  methods: TRACE\n"), "is no method"},
		{"relative path", rule("  paths: v1\n"), "p.yaml:3: \"v1\" is no path pattern: it does not begin with a slash"},
		{"dots", rule("  paths: /a/../b\n"), "dot segment"},
		{"part of a segment", rule("  paths: /a*\n"), "stands for a whole segment"},
		{"unknown action", rule("  action: permit\n"), "p.yaml:3: \"permit\" is no action (it is allow, deny or ask)"},
		{"no action", rule("  action:\n"), "action has no value"},
		{"a cache that is half there", "package_cache: half\n", "p.yaml:1: package_cache is allow or deny"},
		{"maybe through", rule("  pass_through: maybe\n"), "p.yaml:3: pass_through is true or false"},
		{"denied through", rule("  pass_through: true\n  action: deny\n"), "p.yaml:2: what is denied does not pass through"},
		{"methods of what passes through", rule("  pass_through: true\n  methods: GET\n"), "cannot be seen"},
		{"paths of what passes through", rule("  pass_through: true\n  paths: /a\n"), "cannot be seen"},
		{"a part of an address denied", "rules:\n- cidrs: 10.0.0.0/8\n  paths: /a\n  action: deny\n",
			"addresses are denied whole"},
		{"a long note", rule("  note: " + strings.Repeat("x", maxNote+1) + "\n"), "the note is longer"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, err := Parse("p.yaml", []byte(c.text))
			if cove.ErrorCode(err) != cove.InvalidArgument {
				t.Fatalf("got %+v, %v", d, err)
			}
			if !strings.Contains(err.Error(), c.says) {
				t.Errorf("%q does not say %q", err, c.says)
			}
		})
	}
}

// TestNetworkOfFlags: presets and hosts that are passed through are rules like those of a file.
func TestNetworkOfFlags(t *testing.T) {
	registry := func(string) ([]Endpoint, error) {
		return []Endpoint{{Host: mustHost(t, "packages.lab"), Port: 443, From: "npm config"}}, nil
	}
	docs, err := Documents(cove.Network{Presets: []string{"agents", "npm"}, PassThrough: []string{"pinned.lab"},
		Allow: []string{"pinned.lab"}, Deny: []string{"denied.lab"}})
	if err != nil {
		t.Fatal(err)
	}
	p, err := Compile(Machine{Registry: registry}, docs...)
	if err != nil {
		t.Fatal(err)
	}
	connect := func(host string) Verdict {
		return p.Decide(Request{Layer: LayerConnect, Host: mustHost(t, host), Port: 443})
	}
	for host, rule := range map[string]string{"api.anthropic.com": "preset anthropic#1",
		"api.openai.com": "preset openai#1", "packages.lab": "preset npm#1"} {
		if v := connect(host); v.Action != Allow || v.Rule != rule || v.PassThrough {
			t.Errorf("%s: %+v", host, v)
		}
	}
	if v := connect("pinned.lab"); v.Action != Allow || !v.PassThrough || v.Rule != "--pass-through pinned.lab" {
		t.Errorf("passed through: %+v", v)
	}
	if v := connect("denied.lab"); v.Action != Deny {
		t.Errorf("denied: %+v", v)
	}
	post := Request{Layer: LayerHTTP, Host: mustHost(t, "packages.lab"), Port: 443, Method: "POST", Path: "/x"}
	if v := p.Decide(post); v.Action != Deny {
		t.Errorf("a preset that reads: %+v", v)
	}
	for _, n := range []cove.Network{{Presets: []string{"npn"}}, {PassThrough: []string{"https://x.lab/"}}} {
		if _, err := Documents(n); cove.ErrorCode(err) != cove.InvalidArgument {
			t.Errorf("%+v: %v", n, err)
		}
	}
}

// TestSourcesOfNetworks: each document of a network is named for the flag that it is of, or for the command that has
// changed the network, and so is each of its rules.
func TestSourcesOfNetworks(t *testing.T) {
	n := cove.Network{Mode: cove.NetworkOpen, Presets: []string{"npm"}, Allow: []string{"a.test"},
		PassThrough: []string{"p.test"}, Deny: []string{"d.test"}, AllowPR: true}
	for _, row := range []struct {
		read func(cove.Network) ([]*Document, error)
		want []string
	}{
		{Documents, []string{"--preset: --preset npm", "--allow: --allow a.test", "--pass-through: --pass-through p.test",
			"--deny: --deny d.test", "--allow-pr:", "--network:"}},
		{Changes, []string{"cove policy allow --preset: cove policy allow --preset npm",
			"cove policy allow: cove policy allow a.test",
			"cove policy allow --pass-through: cove policy allow --pass-through p.test",
			"cove policy deny: cove policy deny d.test", "cove policy allow --allow-pr:", "cove policy mode:"}},
	} {
		docs, err := row.read(n)
		var got []string
		for _, d := range docs {
			s := d.Source + ":"
			for _, p := range d.Presets {
				s += " " + p.ID
			}
			for _, r := range d.Rules {
				s += " " + r.ID
			}
			got = append(got, s)
		}
		if err != nil || !slices.Equal(got, row.want) {
			t.Errorf("got %q, %v, want %q", got, err, row.want)
		}
	}
}

func mustHost(t *testing.T, name string) Host {
	t.Helper()
	h, err := ParseHost(name)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestPresetsAreRight(t *testing.T) {
	all, err := Presets()
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, p := range all {
		names[p.Name] = true
		if p.About == "" || (p.Registry == "") == (len(p.Rules) == 0) || p.Registry != "" && p.methods == nil {
			t.Errorf("%+v", p)
		}
		for _, m := range p.methods {
			if _, err := parseMethod(m); err != nil {
				t.Errorf("%s: %v", p.Name, err)
			}
		}
		for _, r := range p.Rules {
			if r.Action != Allow {
				t.Errorf("%s denies: what it denies nobody could allow", r.ID)
			}
		}
	}
	for _, want := range []string{"github", "github-read", "agents", "anthropic", "gemini", "openai", "openrouter", "npm",
		"pypi",
		"go", "debian", "cargo", "rubygems"} {
		if !names[want] {
			t.Errorf("there is no preset %s", want)
		}
	}
	files, _ := filepath.Glob("presets/*")
	if entries, err := os.ReadDir("presets"); err != nil || len(files) != len(all) || len(entries) != len(all) {
		t.Errorf("%d presets, %d files (%v)", len(all), len(entries), err)
	}
}

func TestPresets(t *testing.T) {
	registry := Machine{Registry: func(tool string) ([]Endpoint, error) {
		mirror, _ := ParseHost("mirror." + tool + ".lab.test")
		address, _ := ParseHost("198.51.100.20")
		return []Endpoint{{Host: mirror, Port: 8443, From: tool + " config"},
			{Host: address, Port: 80, From: tool + " config"}}, nil
	}}
	p := compile(t, registry, "presets: [github-read, anthropic, openai, npm]\n")
	for line, want := range map[string]string{
		"GET api.github.com/repos/a/b":                     "allow preset github-read#1",
		"POST api.github.com/repos/a/b/issues":             "deny default",
		"POST github.com/a/b/git-upload-pack":              "allow preset github-read#2",
		"POST github.com/a/b/git-receive-pack":             "deny default",
		"GET api.github.com:80/repos/a/b":                  "deny default",
		"POST api.anthropic.com/v1/messages":               "allow preset anthropic#1",
		"POST api.anthropic.com/v1/organizations/api_keys": "deny default",
		"POST api.anthropic.com/v1/files":                  "deny default",
		"GET api.anthropic.com/v1/models":                  "allow preset anthropic#2",
		"POST api.openai.com/v1/responses":                 "allow preset openai#1",
		"DELETE api.openai.com/v1/responses/x":             "deny default",
		"GET mirror.npm.lab.test:8443/@types%2Fnode":       "allow preset npm#1",
		"PUT mirror.npm.lab.test:8443/mine":                "deny default",
		"GET 198.51.100.20:80/":                            "allow preset npm#2",
	} {
		v := p.Decide(ask(t, line))
		if got := v.Action.String() + " " + v.Rule; got != want {
			t.Errorf("%s: %s", line, got)
		}
	}
	if v := p.Decide(ask(t, "GET mirror.npm.lab.test:8443/x")); v.Reason != "from npm config" {
		t.Errorf("reason %q", v.Reason)
	}
	broken := Machine{Registry: func(string) ([]Endpoint, error) {
		return nil, cove.Errorf(cove.NotFound, "npm is not installed").WithHint("install npm")
	}}
	if _, err := Compile(broken, document(t, "a.yaml", "mode: open\npresets:\n- github\n- npm\n")); cove.ErrorCode(err) !=
		cove.NotFound || !strings.Contains(err.Error(),
		"a.yaml:4: the preset npm: npm is not installed (install npm)") {
		t.Errorf("got %v", err)
	}
}

// describe returns r in a few words: "GET api.example.com:443 /v1/**".
func (r *Rule) describe() string {
	var parts []string
	add := func(words []string) {
		if len(words) > 0 {
			parts = append(parts, strings.Join(words, ","))
		}
	}
	add(r.methods)
	var targets, ports, paths []string
	for _, h := range r.hosts {
		targets = append(targets, h.String())
	}
	for _, c := range r.cidrs {
		targets = append(targets, c.String())
	}
	add(targets)
	for _, p := range r.ports {
		ports = append(ports, p.String())
	}
	if len(ports) > 0 {
		parts = append(parts, "port "+strings.Join(ports, ","))
	}
	for _, g := range r.paths {
		paths = append(paths, g.text)
	}
	add(paths)
	if r.PassThrough {
		parts = append(parts, "passing through")
	}
	return strings.Join(parts, " ")
}
