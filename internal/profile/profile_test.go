package profile

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
)

const file = `profiles:
  - name: careful
    engine: native
    isolation: container
    image: tar:/srv/root.tar
    limits: {memory_mb: 2048, cpus: 2}
    timeout: 600
    mounts: [{source: /srv/data, target: /data, read_only: true}]
    env: {A: profile, B: profile}
    network:
      allow: [a.example, b.example]
      deny: [c.example]
      credentials: [github]
      providers: [anthropic]
      budget: {requests: 10, cost: 5}
    git: {name: Robo, email: robo@example.com, allow_pr: true}
  - name: bare
    mode: none
    agent: claude
`

// told is a check of what a profile says to agents.
func told(p api.Profile) error {
	if p.PermissionMode != "" {
		return cove.Errorf(cove.InvalidArgument, "no agent can be told that")
	}
	return nil
}

func parsed(t *testing.T, name string) api.Profile {
	t.Helper()
	all, err := Parse("profiles.yaml", []byte(file), told)
	if err != nil {
		t.Fatal(err)
	}
	p, err := Find(all, name)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestParseRefuses(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"unknown key", "profiles:\n  - name: a\n    colour: red\n", `line 3: there is no key "colour" here`},
		{"unknown key of the file", "a: {}\n", `line 1: there is no key "a" here`},
		{"a number for a list", "profiles:\n  - {name: a, mounts: 7}\n", "line 2: !!int `7` does not fit here"},
		{"no list", "profiles: {}\n", "line 1: !!map does not fit here"},
		{"two documents", "profiles: []\n---\nprofiles: []\n", "more than one"},
		{"no name", "profiles:\n  - engine: native\n", "no name for a profile"},
		{"a path for a name", "profiles:\n  - name: ../x\n", "no name for a profile"},
		{"twice", "profiles:\n  - name: a\n  - name: a\n", `"a": it is there twice`},
		{"the word for none", "profiles:\n  - name: default\n", "without a profile"},
		{"mode", "profiles:\n  - {name: a, mode: jail}\n", "none of container, none"},
		{"access", "profiles:\n  - {name: a, access: key}\n", "none of intercept, proxy, token-file"},
		{"no token", "profiles:\n  - {name: a, access: token-file}\n", "needs a token_file"},
		{"a token by the way", "profiles:\n  - {name: a, token_file: {path: /srv/key, variable: KEY}}\n",
			"is for the access token-file"},
		{"a token for others",
			"profiles:\n  - {name: a, access: token-file, provider: team, token_file: {path: /srv/key, variable: KEY}}\n",
			"its own provider"},
		{"a token somewhere", "profiles:\n  - {name: a, access: token-file, token_file: {path: key, variable: KEY}}\n",
			"no absolute path"},
		{"a token for nothing",
			"profiles:\n  - {name: a, access: token-file, token_file: {path: /srv/key, variable: ../key}}\n",
			"no name of a variable"},
		{"a token without a wall",
			"profiles:\n  - {name: a, mode: none, access: token-file, token_file: {path: /srv/key, variable: KEY}}\n",
			"access is about one"},
		{"a wall for none", "profiles:\n  - {name: a, mode: none, limits: {cpus: 1}}\n", "limits is about one"},
		{"sharing nothing", "profiles:\n  - {name: a, mode: none, shared: true}\n", "shared is about one"},
		{"nothing to allow", "profiles:\n  - {name: a, network: {mode: none, allow: [a.example]}}\n", "nothing to allow"},
		{"policy", "profiles:\n  - name: a\n    network: {policy: 'rules: 7'}\n", `the profile "a"`},
		{"isolation", "profiles:\n  - {name: a, isolation: jail}\n", "none of container, gvisor, microvm"},
		{"no time", "profiles:\n  - {name: a, timeout: 1e-12}\n", "more than nothing"},
		{"what agents are told", "profiles:\n  - {name: a, permission_mode: x}\n", `the profile "a": no agent can`},
		{"nothing ignored", "profiles:\n  - {name: a, with_ignored: [deps, ../x]}\n", `with_ignored: "../x" is no path`},
		{"negative", "profiles:\n  - {name: a, timeout: -1}\n", "more than nothing"},
	} {
		t.Run(c.name, func(t *testing.T) {
			all, err := Parse("profiles.yaml", []byte("profiles: [{name: good}]"), told)
			if err != nil || all[0].Problem != "" {
				t.Fatalf("%+v, %v", all, err)
			}
			if all, err = Parse("profiles.yaml", []byte(c.text), told); err == nil {
				_, err = Find(all, all[0].Name)
			}
			if cove.ErrorCode(err) != cove.InvalidArgument || !strings.Contains(err.Error(), c.want) ||
				!strings.HasPrefix(err.Error(), "profiles.yaml") || strings.Contains(err.Error(), "\n") {
				t.Errorf("%v", err)
			}
		})
	}
	if all, err := Parse("profiles.yaml", []byte("# nothing yet\n"), told); err != nil || len(all) != 0 {
		t.Errorf("a file of comments: %v, %v", all, err)
	}
}

// TestOneFailsAlone: an invalid profile, whatever is wrong with it, leaves the others usable.
func TestOneFailsAlone(t *testing.T) {
	const text = "profiles:\n  - name: first\n    timeout: 5\n  - name: key\n    colour: red\n    limits: {cpus: 1}\n" +
		"  - {name: type, timeout: soon, max_turns: many}\n  - name: last\n    engine: native\n  - {name: mode, mode: jail}\n"
	all, err := Parse("profiles.yaml", []byte(text), told)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"first": "", "last": "",
		"key":  `"key": line 5: there is no key "colour" here`,
		"type": `"type": line 7: `, "mode": "none of container, none"} {
		p, err := Find(all, name)
		if want == "" && err != nil || want != "" && (cove.ErrorCode(err) != cove.InvalidArgument ||
			!strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v", name, err)
		}
		if name == "last" && p.Engine != "native" {
			t.Errorf("%+v", p)
		}
	}
}

func TestFindNamesTheOthers(t *testing.T) {
	if _, err := Find([]api.Profile{{Name: "a"}, {Name: "b"}}, "c"); cove.ErrorCode(err) != cove.NotFound ||
		!strings.Contains(cove.ErrorHint(err), "a, b") {
		t.Errorf("%v", err)
	}
	if _, err := Find(nil, "c"); cove.ErrorCode(err) != cove.NotFound {
		t.Errorf("%v", err)
	}
}

func TestApply(t *testing.T) {
	got, err := Apply(parsed(t, "careful"), cove.Spec{
		Image: "host", Shape: cove.Shape{Limits: cove.Limits{CPUs: 1}}, Env: map[string]string{"B": "request"},
		Git:    &cove.GitIdentity{Name: "Ada"},
		Mounts: []cove.Mount{{Source: "/mine", Target: "/data"}, {Source: "/more", Target: "/more"}},
		Network: &cove.Network{
			Enabled: true, Mode: cove.NetworkOpen, Allow: []string{"b.example", "d.example"}, Budget: cove.Budget{Cost: 1},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := cove.Spec{
		Profile: "careful", Engine: "native", Image: "host", Env: map[string]string{"A": "profile", "B": "request"},
		Shape: cove.Shape{
			Isolation: cove.IsolationContainer, Limits: cove.Limits{CPUs: 1, Memory: 2 << 30, Timeout: 10 * time.Minute},
		},
		Git: &cove.GitIdentity{Name: "Ada", Email: "robo@example.com"}, AllowPR: true,
		Mounts: []cove.Mount{{Source: "/mine", Target: "/data"}, {Source: "/more", Target: "/more"}},
		Network: &cove.Network{
			Enabled: true, Mode: cove.NetworkOpen, Allow: []string{"a.example", "b.example", "d.example"},
			Deny:        []string{"c.example"},
			Credentials: []string{"github"}, Providers: []string{"anthropic"}, Budget: cove.Budget{Requests: 10, Cost: 1},
		},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v %+v\nwant %+v %+v", got, got.Network, want, want.Network)
	}
}

// TestApplyAlone: a request that says nothing gets what the profile says.
func TestApplyAlone(t *testing.T) {
	got, err := Apply(parsed(t, "careful"), cove.Spec{Shape: cove.Shape{Limits: cove.Limits{Timeout: 5 * time.Second}}})
	if err != nil {
		t.Fatal(err)
	}
	if got.Limits.Timeout != 5*time.Second || got.Image != "tar:/srv/root.tar" || got.Limits.Memory != 2<<30 ||
		got.Network.Credentials[0] != "github" ||
		!reflect.DeepEqual(got.Mounts, []cove.Mount{{Source: "/srv/data", Target: "/data", ReadOnly: true}}) {
		t.Errorf("%+v", got)
	}
}

// TestWithToken: a token is one more mount, which nobody inside can change.
func TestWithToken(t *testing.T) {
	p := api.Profile{Name: "own", Access: AccessTokenFile, TokenFile: &api.TokenFile{Path: "/srv/key", Variable: "KEY"}}
	want := []cove.Mount{{Source: "/srv/key", Target: "/opt/cove/tokens/KEY", ReadOnly: true}}
	if got := WithToken(p, cove.Spec{}); !reflect.DeepEqual(got.Mounts, want) {
		t.Errorf("%+v", got)
	}
	if got, err := Apply(p, cove.Spec{}); err != nil || len(got.Mounts) > 0 {
		t.Errorf("a token for a snippet: %+v, %v", got, err)
	}
}

func TestNetworkOfBoth(t *testing.T) {
	p := parsed(t, "careful")
	for _, c := range []struct {
		name    string
		profile *api.ProfileNetwork
		asked   *cove.Network
		enabled bool
		allowed int
	}{
		{"the profile's alone", p.Network, nil, true, 2},
		{"none wins", p.Network, &cove.Network{}, false, 0},
		{"the request's alone", nil, &cove.Network{Enabled: true, Allow: []string{"x.example"}}, true, 1},
		{"a profile without one", &api.ProfileNetwork{Mode: "none"}, nil, false, 0},
		{"what a request allows beside none", &api.ProfileNetwork{Mode: "none"},
			&cove.Network{Enabled: true, Mode: "limited", Allow: []string{"x.example"}}, true, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			both, err := Apply(api.Profile{Name: "a", Network: c.profile}, cove.Spec{Network: c.asked})
			if err != nil {
				t.Fatal(err)
			}
			got := both.Network
			if got.Enabled != c.enabled || len(got.Allow) != c.allowed {
				t.Errorf("%+v", got)
			}
		})
	}
	if got, err := Apply(api.Profile{Name: "a"}, cove.Spec{}); err != nil || got.Network != nil {
		t.Errorf("a network out of nothing: %+v, %v", got.Network, err)
	}
}

// TestWithoutAWall holds that nobody gets a sandbox who asked for none.
func TestWithoutAWall(t *testing.T) {
	p := parsed(t, "bare")
	if _, err := Apply(p, cove.Spec{}); cove.ErrorCode(err) != cove.Unsupported {
		t.Errorf("%v", err)
	}
}

func TestTextIsRead(t *testing.T) {
	for _, name := range []string{"careful", "bare"} {
		p := parsed(t, name)
		text, err := Text(p)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Parse("profiles.yaml", []byte(text), told)
		if err != nil || len(again) != 1 || !reflect.DeepEqual(again[0], p) {
			t.Errorf("%v\n%s", err, text)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(file))
	f.Add([]byte("profiles: [{name: a, network: {policy: 'rules: []'}}]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		all, err := Parse("profiles.yaml", data, told)
		if err != nil {
			return
		}
		for _, p := range all {
			if p.Mode == ModeNone {
				continue
			}
			q, err := Apply(p, cove.Spec{Network: &cove.Network{}})
			if err != nil || q.Network.Enabled {
				t.Fatalf("a network for who wants none: %+v, %v", q.Network, err)
			}
		}
	})
}
