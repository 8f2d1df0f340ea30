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
)

// askFirst writes a policy that asks, and returns its file.
func askFirst(t *testing.T, l *lab, more string) string {
	t.Helper()
	file := filepath.Join(l.dir, "ask.yaml")
	text := `rules:
  - {hosts: asked.lab.test, action: ask, note: needs a person}
  - {hosts: forge.lab.test, methods: [GET]}
  - {hosts: forge.lab.test, methods: [POST], paths: /repos/**, action: ask}
  - {hosts: private.lab.test}
  - {cidrs: 10.9.9.9, action: ask, ports: 80}
` + more
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// begin runs a script inside, in the background.
func (l *lab) begin(t *testing.T, script string, flags ...string) <-chan result {
	done := make(chan result, 1)
	go func() { done <- l.inside(t, script, flags...) }()
	return done
}

// held waits until n requests wait for an answer, and returns what does.
func (l *lab) held(t *testing.T, done <-chan result, n int) []api.Hold {
	t.Helper()
	for {
		var list api.HoldList
		if err := json.Unmarshal([]byte(l.cove(t, "approve", "--json").stdout), &list); err != nil {
			t.Fatal(err)
		}
		waiting := 0
		for _, h := range list.Holds {
			waiting += h.Count
		}
		if waiting == n {
			return list.Holds
		}
		if !l.waiting(t, done) {
			t.FailNow()
		}
	}
}

func (l *lab) approve(t *testing.T, args ...string) {
	t.Helper()
	if got := l.cove(t, append([]string{"approve"}, args...)...); got.code != 0 {
		t.Errorf("approve %q: %+v", args, got)
	}
}

// curl has a function that prints what a URL gives, and the status, in a line.
const curl = `get() { echo "$(curl -sS --max-time 60 -w ' %{http_code}' "$@" | tr -d '\n')"; }
`

// TestApproveOnce: a request waits, and goes when somebody in another process
// says so; the next one waits again. Nothing has left before: not even its name.
func TestApproveOnce(t *testing.T) {
	l := newLab(t)
	policy := askFirst(t, l, "")
	done := l.begin(t,
		curl+`get https://asked.lab.test/x; get --noproxy '*' http://asked.lab.test/y; get -d data https://asked.lab.test/z`,
		"--policy", policy)
	h := l.held(t, done, 1)[0]
	if h.Host != "asked.lab.test" || h.Port != 443 || h.Method != "GET" || h.Path != "/x" ||
		h.Reason != "needs a person" || !strings.HasSuffix(h.Rule, ":2") {
		t.Errorf("%+v", h)
	}
	if asked, seen := l.Asked(), l.seen(); len(asked)+len(seen) > 0 {
		t.Errorf("before any answer: asked %q, seen %q", asked, seen)
	}
	l.approve(t, h.ID)
	h = l.held(t, done, 1)[0]
	if h.Port != 80 || h.Path != "/y" {
		t.Errorf("%+v", h)
	}
	l.approve(t, h.ID, "--deny", "--scope", "once")
	h = l.held(t, done, 1)[0]
	if h.Method != "POST" || h.Path != "/z" {
		t.Errorf("%+v", h)
	}
	l.approve(t, "--all", "--execution", h.Execution)
	got := <-done
	lines := strings.Split(strings.TrimSpace(got.stdout), "\n")
	if len(lines) != 3 || lines[0] != "GET asked.lab.test/x over https 200" || !strings.Contains(lines[1], "and denied") ||
		!strings.HasSuffix(lines[1], " 403") || lines[2] != "POST asked.lab.test/z over https 200" {
		t.Errorf("%+v", got)
	}
	if strings.Count(got.stderr, "waits for an answer") != 3 ||
		!strings.Contains(got.stderr, "left: cove approve "+h.ID+" (or --deny)") {
		t.Errorf("said: %q", got.stderr)
	}
	if seen := l.seen(); !slices.Equal(seen, []string{"GET asked.lab.test/x", "POST asked.lab.test/z"}) {
		t.Errorf("arrived: %q", seen)
	}
	audit := l.cove(t, "audit", "--action", "approve", "--object", h.Execution).stdout
	if !strings.Contains(audit, "allowed GET asked.lab.test:443/x ("+policy) ||
		!strings.Contains(audit, "denied GET asked.lab.test:80/y") || strings.Count(audit, "local") != 3 {
		t.Errorf("the record: %s", audit)
	}
}

// TestApproveForTheSandbox: many requests for the same are one question, and
// one answer lets them go and those that follow; a denial stands, too.
func TestApproveForTheSandbox(t *testing.T) {
	l := newLab(t)
	done := l.begin(t, curl+`for i in $(seq 30); do get https://asked.lab.test/$i & done; wait
get https://asked.lab.test/more; get -X DELETE https://asked.lab.test/more
get -X POST https://forge.lab.test/repos/a; get -X POST https://forge.lab.test/repos/a; get https://forge.lab.test/repos/a; get -X POST https://forge.lab.test/other
get http://private.lab.test/`, "--policy", askFirst(t, l, ""), "--pids", "300")
	holds := l.held(t, done, 30)
	if len(holds) != 1 || holds[0].Count != 30 {
		t.Errorf("%d questions: %+v", len(holds), holds)
	}
	l.approve(t, holds[0].ID, "--scope", "sandbox", "--for", "1h")
	post := l.held(t, done, 1)[0]
	if post.About != "POST forge.lab.test:443/repos/a" {
		t.Errorf("%+v", post)
	}
	l.approve(t, post.ID, "--deny")
	inside := l.held(t, done, 1)[0]
	if inside.Host != "private.lab.test" || inside.Address != "10.9.9.9" {
		t.Errorf("%+v", inside)
	}
	l.approve(t, inside.ID)
	got := <-done
	if n := strings.Count(got.stdout, "asked.lab.test"); n != 32 {
		t.Errorf("%d of 32 went: %+v", n, got)
	}
	rest := got.stdout[strings.LastIndex(got.stdout, "DELETE asked"):]
	if strings.Count(rest, "and denied\"} 403\n") != 2 || strings.Count(rest, " 200\n") != 3 ||
		strings.Count(rest, " 403\n") != 3 || !strings.Contains(rest, "GET private.lab.test/ over http 200") {
		t.Errorf("%s", rest)
	}
}

// TestApproveForThePolicy: what is approved for a policy goes in the next
// sandbox that is started with it, in no other, and until it is revoked.
func TestApproveForThePolicy(t *testing.T) {
	l := newLab(t)
	policy := askFirst(t, l, "")
	const script = curl + `get https://asked.lab.test/x; while true; do get https://asked.lab.test/again | grep -q '200$' || break; sleep 0.2; done; echo end`
	first := l.begin(t, curl+`get https://asked.lab.test/x`, "--policy", policy)
	l.approve(t, l.held(t, first, 1)[0].ID, "--scope", "policy")
	if got := <-first; !strings.Contains(got.stdout, " 200\n") {
		t.Errorf("the first: %+v", got)
	}
	other := l.begin(t, curl+`get https://asked.lab.test/x`, "--policy", policy, "--allow", "good.lab.test")
	l.approve(t, l.held(t, other, 1)[0].ID, "--deny")
	if got := <-other; !strings.Contains(got.stdout, " 403\n") {
		t.Errorf("another policy: %+v", got)
	}
	second := l.begin(t, script, "--policy", policy)
	for !slices.Contains(l.seen(), "GET asked.lab.test/again") { // nobody was asked
		if !l.waiting(t, second) {
			return
		}
	}
	listed := l.cove(t, "approvals")
	id, _, _ := strings.Cut(listed.stdout[strings.Index(listed.stdout, "ap_"):], " ")
	if strings.Count(listed.stdout, "ap_") != 1 || !strings.Contains(listed.stdout, "asked.lab.test:443") {
		t.Errorf("listed: %+v", listed)
	}
	if got := l.cove(t, "approvals", "revoke", id); got.code != 0 {
		t.Errorf("revoke: %+v", got)
	}
	h := l.held(t, second, 1)[0] // asked again, at once
	l.approve(t, h.ID, "--deny")
	if got := <-second; !strings.HasPrefix(got.stdout, "GET asked.lab.test/x over https 200") || !strings.Contains(got.stdout, "end") {
		t.Errorf("the second: %+v", got)
	}
	if listed := l.cove(t, "approvals", "--json"); strings.Contains(listed.stdout, "ap_") {
		t.Errorf("after it was revoked: %+v", listed)
	}
}

// TestNobodyAnswers: that is a denial, which says so; and what a program does
// not wait for any more, nobody is asked about.
func TestNobodyAnswers(t *testing.T) {
	l := newLab(t)
	l.config = "  approval_timeout: 3s\n"
	policy := askFirst(t, l, "  - {hosts: raw.lab.test, ports: 443, pass_through: true, action: ask}\n")
	got := l.inside(t, curl+`get https://asked.lab.test/x; curl -sS -k --max-time 60 https://raw.lab.test/`, "--policy", policy)
	if !strings.Contains(got.stdout, "no answer came within 3s") || !strings.Contains(got.stdout, " 403\n") || !strings.Contains(got.stdout, "raw.lab.test port 443: approval was asked for") {
		t.Errorf("%+v", got)
	}
	if seen := l.seen(); len(seen) > 0 {
		t.Errorf("arrived: %q", seen)
	}
	l.config = ""
	done := l.begin(t, curl+`curl -sS --max-time 2 https://asked.lab.test/x; echo "gone $?"; get https://asked.lab.test/y`, "--policy", policy)
	l.held(t, done, 1)
	for {
		holds := l.held(t, done, 1)
		if holds[0].Path == "/y" {
			l.approve(t, holds[0].ID)
			break
		}
	}
	if got := <-done; !strings.HasPrefix(got.stdout, "gone 28\nGET asked.lab.test/y over https 200") {
		t.Errorf("%+v", got)
	}
	done = l.begin(t, curl+`get https://asked.lab.test/x`, "--policy", policy)
	l.held(t, done, 1)
	if id := strings.TrimSpace(l.cove(t, "ps", "-q").stdout); l.cove(t, "kill", id).code != 0 {
		t.Errorf("cannot kill %q", id)
	}
	<-done
	if left := l.cove(t, "approve"); strings.Contains(left.stdout, "ho_") {
		t.Errorf("what has ended waits: %+v", left)
	}
}

// TestPolicyIsAllowedMeanwhile: what is allowed while it waits goes on.
func TestPolicyIsAllowedMeanwhile(t *testing.T) {
	l := newLab(t)
	done := l.begin(t, curl+`get https://asked.lab.test/x`, "--policy", askFirst(t, l, ""))
	h := l.held(t, done, 1)[0]
	if got := l.cove(t, "policy", "allow", h.Execution, "asked.lab.test"); got.code != 0 {
		t.Errorf("%+v", got)
	}
	if got := <-done; !strings.HasPrefix(got.stdout, "GET asked.lab.test/x over https 200") {
		t.Errorf("%+v", got)
	}
}
