package profile

import (
	"reflect"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
)

const file = `profiles:
  - name: careful
    engine: native
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

func parsed(t *testing.T, name string) api.Profile {
	t.Helper()
	all, err := Parse("profiles.yaml", []byte(file))
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
		{"unknown key", "profiles:\n  - name: a\n    colour: red\n", "line 3"},
		{"no list", "profiles: {}\n", "line 1"},
		{"two documents", "profiles: []\n---\nprofiles: []\n", "more than one"},
		{"no name", "profiles:\n  - engine: native\n", "no name for a profile"},
		{"a path for a name", "profiles:\n  - name: ../x\n", "no name for a profile"},
		{"twice", "profiles:\n  - name: a\n  - name: a\n", `"a": it is there twice`},
		{"the word for none", "profiles:\n  - name: default\n", "without a profile"},
		{"mode", "profiles:\n  - {name: a, mode: jail}\n", "none of container, none"},
		{"access", "profiles:\n  - {name: a, access: key}\n", "none of intercept, proxy, token-file"},
		{"no token", "profiles:\n  - {name: a, access: token-file}\n", "needs a token_file"},
		{"a token by the way", "profiles:\n  - {name: a, token_file: {path: /srv/key, variable: KEY}}\n", "is for the access token-file"},
		{"a token for others", "profiles:\n  - {name: a, access: token-file, provider: team, token_file: {path: /srv/key, variable: KEY}}\n", "its own provider"},
		{"a token somewhere", "profiles:\n  - {name: a, access: token-file, token_file: {path: key, variable: KEY}}\n", "no absolute path"},
		{"a token for nothing", "profiles:\n  - {name: a, access: token-file, token_file: {path: /srv/key, variable: ../key}}\n", "no name of a variable"},
		{"a token without a wall", "profiles:\n  - {name: a, mode: none, access: token-file, token_file: {path: /srv/key, variable: KEY}}\n", "access is about one"},
		{"a wall for none", "profiles:\n  - {name: a, mode: none, limits: {cpus: 1}}\n", "limits is about one"},
		{"sharing nothing", "profiles:\n  - {name: a, mode: none, shared: true}\n", "shared is about one"},
		{"nothing to allow", "profiles:\n  - {name: a, network: {mode: none, allow: [a.example]}}\n", "nothing to allow"},
		{"policy", "profiles:\n  - name: a\n    network: {policy: 'rules: 7'}\n", `the profile "a"`},
		{"negative", "profiles:\n  - {name: a, timeout: -1}\n", "more than nothing"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Parse("profiles.yaml", []byte(c.text))
			if cove.ErrorCode(err) != cove.InvalidArgument || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "profiles.yaml") || strings.Contains(err.Error(), "\n") {
				t.Errorf("%v", err)
			}
		})
	}
	if all, err := Parse("profiles.yaml", []byte("# nothing yet\n")); err != nil || len(all) != 0 {
		t.Errorf("a file of comments: %v, %v", all, err)
	}
}

func TestFindNamesTheOthers(t *testing.T) {
	if _, err := Find([]api.Profile{{Name: "a"}, {Name: "b"}}, "c"); cove.ErrorCode(err) != cove.NotFound || !strings.Contains(cove.ErrorHint(err), "a, b") {
		t.Errorf("%v", err)
	}
	if _, err := Find(nil, "c"); cove.ErrorCode(err) != cove.NotFound {
		t.Errorf("%v", err)
	}
}

func TestSandbox(t *testing.T) {
	p := parsed(t, "careful")
	got, err := Sandbox(p, api.SandboxRequest{
		Image: "host", Limits: &api.Limits{CPUs: 1}, Env: map[string]string{"B": "request"}, Git: &api.GitIdentity{Name: "Ada"},
		Mounts:  []api.Mount{{Source: "/mine", Target: "/data"}, {Source: "/more", Target: "/more"}},
		Network: &api.NetworkPermission{Enabled: true, GatewayPolicy: api.GatewayPolicy{Mode: "open", Allow: []string{"b.example", "d.example"}}, ModelPermission: api.ModelPermission{Budget: &api.ModelBudget{Cost: 1}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := api.SandboxRequest{
		Profile: "careful", Engine: "native", Image: "host", Limits: &api.Limits{CPUs: 1, MemoryMB: 2048}, Env: map[string]string{"A": "profile", "B": "request"},
		Git: &api.GitIdentity{Name: "Ada", Email: "robo@example.com"}, AllowPR: true,
		Mounts: []api.Mount{{Source: "/mine", Target: "/data"}, {Source: "/more", Target: "/more"}},
		Network: &api.NetworkPermission{
			Enabled: true, GatewayPolicy: api.GatewayPolicy{Mode: "open", Allow: []string{"a.example", "b.example", "d.example"}, Deny: []string{"c.example"}},
			Credentials: []string{"github"}, ModelPermission: api.ModelPermission{Providers: []string{"anthropic"}, Budget: &api.ModelBudget{Requests: 10, Cost: 1}},
		},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v %+v\nwant %+v %+v", got, got.Network, want, want.Network)
	}
}

// TestSandboxWithToken: a token is one more mount, which nobody inside can change.
func TestSandboxWithToken(t *testing.T) {
	got, err := Sandbox(api.Profile{Name: "own", Access: AccessTokenFile, TokenFile: &api.TokenFile{Path: "/srv/key", Variable: "KEY"}}, api.SandboxRequest{})
	if err != nil || !reflect.DeepEqual(got.Mounts, []api.Mount{{Source: "/srv/key", Target: "/opt/cove/tokens/KEY", ReadOnly: true}}) {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestNetworkOfBoth(t *testing.T) {
	p := parsed(t, "careful")
	for _, c := range []struct {
		name    string
		profile *api.ProfileNetwork
		asked   *api.NetworkPermission
		enabled bool
		allowed int
	}{
		{"the profile's alone", p.Network, nil, true, 2},
		{"none wins", p.Network, &api.NetworkPermission{}, false, 0},
		{"the request's alone", nil, &api.NetworkPermission{Enabled: true, GatewayPolicy: api.GatewayPolicy{Allow: []string{"x.example"}}}, true, 1},
		{"a profile without one", &api.ProfileNetwork{Mode: "none"}, nil, false, 0},
		{"what a request allows beside none", &api.ProfileNetwork{Mode: "none"}, &api.NetworkPermission{Enabled: true, GatewayPolicy: api.GatewayPolicy{Mode: "limited", Allow: []string{"x.example"}}}, true, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := network(c.profile, c.asked)
			if got.Enabled != c.enabled || len(got.Allow) != c.allowed {
				t.Errorf("%+v", got)
			}
		})
	}
	if network(nil, nil) != nil {
		t.Error("a network out of nothing")
	}
}

func TestExecution(t *testing.T) {
	p := parsed(t, "careful")
	got, err := Execution(p, api.ExecuteRequest{Language: "python", Timeout: 5})
	if err != nil {
		t.Fatal(err)
	}
	if got.Timeout != 5 || got.Image != "tar:/srv/root.tar" || got.Limits.MemoryMB != 2048 || got.Permissions == nil || got.Permissions.Network.Credentials[0] != "github" {
		t.Errorf("%+v", got)
	}
}

// TestWithoutAWall holds that nobody gets a sandbox who asked for none.
func TestWithoutAWall(t *testing.T) {
	p := parsed(t, "bare")
	if _, err := Sandbox(p, api.SandboxRequest{}); cove.ErrorCode(err) != cove.Unsupported {
		t.Errorf("%v", err)
	}
	if _, err := Execution(p, api.ExecuteRequest{}); cove.ErrorCode(err) != cove.Unsupported {
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
		again, err := Parse("profiles.yaml", []byte(text))
		if err != nil || len(again) != 1 || !reflect.DeepEqual(again[0], p) {
			t.Errorf("%v\n%s", err, text)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(file))
	f.Add([]byte("profiles: [{name: a, network: {policy: 'rules: []'}}]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		all, err := Parse("profiles.yaml", data)
		if err != nil {
			return
		}
		for _, p := range all {
			if p.Mode == ModeNone {
				continue
			}
			q, err := Sandbox(p, api.SandboxRequest{Network: &api.NetworkPermission{}})
			if err != nil || q.Network.Enabled {
				t.Fatalf("a network for who wants none: %+v, %v", q.Network, err)
			}
		}
	})
}
