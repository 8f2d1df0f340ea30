//go:build linux

package git

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove/test/await"

	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/git/gittest"
)

// TestAskedPush: the host pushes what somebody else allows, and nothing that
// somebody denies or nobody says anything about.
func TestAskedPush(t *testing.T) {
	l := newLab(t, gittest.Options{})
	l.lasting()
	r := l.server.Create("repo.git")
	l.write("cove.yaml", fmt.Sprintf("gateway:\n  extra_cas: [%s]\n  approval_timeout: 3s\n", l.server.CA))
	l.cove("new", l.remote("repo.git"), "own", "--name", "box", "--no-attach")
	if out, code := l.in("box",
		"git -c user.name=A -c user.email=a@x.example commit -q --allow-empty -m 'Say hello'"); code != 0 {
		t.Fatal(out)
	}
	for _, c := range []struct {
		answer []string // of "cove approve"; nil is none
		pushed bool
		says   string
	}{
		{nil, false, "403"},
		{[]string{"--deny", "--scope", "once"}, false, "403"},
		{[]string{}, true, "pushed "},
	} {
		cmd := l.command("push", "box", "--ask")
		var said bytes.Buffer
		cmd.Stdout, cmd.Stderr = &said, &said
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		if c.answer != nil {
			l.cove(append([]string{"approve", l.held("box", "own")}, c.answer...)...)
		}
		if err := <-ended; (err == nil) != c.pushed || !strings.Contains(said.String(), c.says) {
			t.Errorf("answered with %q: %v\n%s", c.answer, err, &said)
		}
		if got := strings.Contains(r.Refs(), "refs/heads/own "); got != c.pushed {
			t.Errorf("answered with %q, it has\n%s", c.answer, r.Refs())
		}
	}
	log := l.cove("audit", "--json")
	for _, want := range []string{`"sandbox-push"`, `"approve"`} {
		if !strings.Contains(log, want) {
			t.Errorf("the audit log has no %s:\n%s", want, log)
		}
	}
}

// TestGuardedBranch: a sandbox whose own branch is one that others build upon pushes to it when somebody allows it, and
// says so when it is made.
func TestGuardedBranch(t *testing.T) {
	l := newLab(t, gittest.Options{})
	l.lasting()
	r := l.server.Create("repo.git")
	l.write("cove.yaml", fmt.Sprintf("gateway:\n  extra_cas: [%s]\n  approval_timeout: 60s\n", l.server.CA))
	made := l.command("new", l.remote("repo.git"), "main", "--name", "box", "--no-attach")
	if out, err := made.CombinedOutput(); err != nil || !strings.Contains(string(out), "to main are asked about") {
		t.Fatalf("%v: %s", err, out)
	}
	before := r.Refs()
	for _, answer := range []string{"--deny", ""} {
		ended := make(chan string, 1)
		go func() {
			out, _ := l.in("box", "git -c user.name=A -c user.email=a@x.example commit -q --allow-empty -m more; "+
				"git push -q 2>&1; echo code $?")
			ended <- out
		}()
		l.cove(strings.Fields("approve " + l.waits() + " --scope once " + answer)...)
		out := <-ended
		if denied := answer != ""; strings.Contains(out, "code 0") == denied || (r.Refs() == before) != denied {
			t.Errorf("answered %q: %s", answer, out)
		}
	}
}

// held waits for a push that waits for an answer, and says what it is.
func (l *lab) held(name, branch string) (id string) {
	l.t.Helper()
	await.That(l.t, "a push waits for an answer", func() bool {
		var list api.HoldList
		if err := json.Unmarshal([]byte(l.cove("approve", "--json")), &list); err != nil {
			l.t.Fatal(err)
		}
		for _, h := range list.Holds {
			if h.Execution == name && strings.Contains(h.Reason, " to "+branch+" of ") {
				id = h.ID
			}
		}
		return id != ""
	})
	return id
}
