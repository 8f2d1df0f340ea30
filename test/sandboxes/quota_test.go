package sandboxes

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/client"
)

// TestQuotasOfCommands: commands in a long-lived sandbox are among what its key has at once, and use its CPU time.
func TestQuotasOfCommands(t *testing.T) {
	l := newLab(t)
	c := l.asKey("--concurrent", "1", "--cpu-seconds", "hour=2")
	c.must("cove", "new", "--empty", "--no-attach", "--name", "one")
	c.must("cove", "exec", "one", "--", "true")
	waits := c.command("cove", "exec", "one", "--", "sh", "-c", "echo >/workspace/here; exec sleep 1000")
	if err := waits.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		waits.Process.Kill()
		waits.Wait()
	}()
	l.eventually("a command runs", func() bool {
		_, err := l.run("cove", "exec", "one", "--", "test", "-e", "/workspace/here")
		return err == nil
	})
	if text, err := c.run("cove", "exec", "one", "--", "true"); err == nil ||
		!strings.Contains(err.Error(), "1 executions, runs, commands and terminals of this API key are under way") {
		t.Errorf("a second command at once: %s, %v", text, err)
	}
	waits.Process.Kill()
	waits.Wait()
	l.eventually("its end is known", func() bool {
		_, err := c.run("cove", "exec", "one", "--", "python3", "-c", "import time\nwhile time.process_time() < 2: pass")
		return err == nil
	})
	if text, err := c.run("cove", "exec", "one", "--", "true"); err == nil ||
		!strings.Contains(err.Error(), "of CPU time in the last hour, of 2 s") {
		t.Errorf("with its CPU time used up: %s, %v", text, err)
	}
	l.must("cove", "exec", "one", "--", "true")
}

// TestQuotasOfTerminals: terminals in a long-lived sandbox are among what their key has at once, from the start of a
// program to its end, whether a client is attached or not. Those of the machine's owner are not.
func TestQuotasOfTerminals(t *testing.T) {
	l := newLab(t)
	c := l.asKey("--concurrent", "2")
	c.must("cove", "new", "--empty", "--no-attach", "--name", "one")
	key, owner := c.client(), l.client()
	open := func(of *client.Client) (id string, err error) {
		terminal, err := of.AttachTerminal(t.Context(), "one", client.TerminalOptions{New: true,
			Args: []string{"sleep", "1000"}, Rows: 24, Columns: 80})
		if err != nil {
			return "", err
		}
		defer terminal.Close()
		return terminal.ID(), nil
	}
	var ids []string
	for _, of := range []*client.Client{owner, key, owner, key} {
		id, err := open(of)
		if err != nil {
			t.Fatalf("a terminal within the quota: %v", err)
		}
		ids = append(ids, id)
	}
	const says = "2 executions, runs, commands and terminals of this API key are under way"
	if _, err := open(key); cove.ErrorCode(err) != cove.Overloaded || !strings.Contains(err.Error(), says) {
		t.Errorf("a third terminal at once: %v", err)
	}
	if text, err := c.run("cove", "exec", "one", "--", "true"); err == nil || !strings.Contains(err.Error(), says) {
		t.Errorf("a command beside two terminals: %s, %v", text, err)
	}
	again, err := key.AttachTerminal(t.Context(), "one", client.TerminalOptions{ID: ids[1], Rows: 24, Columns: 80})
	if err != nil {
		t.Fatalf("to attach again: %v", err)
	}
	again.Close()
	if err := key.KillTerminal(t.Context(), "one", ids[1]); err != nil {
		t.Fatal(err)
	}
	c.must("cove", "exec", "one", "--", "true")
	if _, err := open(key); err != nil {
		t.Errorf("a terminal in place of one that has ended: %v", err)
	}
	c.must("cove", "stop", "one")
	c.must("cove", "start", "one")
	if _, err := open(key); err != nil {
		t.Errorf("a terminal after a stop of the sandbox: %v", err)
	}
}

// TestQuotasOfGit: what git on the host does for a key, to bring a repository to a sandbox and work back from it, uses
// the key's CPU time, and is refused where that is used up. It does not use another caller's.
func TestQuotasOfGit(t *testing.T) {
	l := newLab(t)
	c := l.asKey("--cpu-seconds", "hour=0.1")
	many := l.in("many")
	l.must("git", "init", "-q", "-b", "main", many)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 15000 { // which git unpacks and checks out
		l.write(fmt.Sprintf("many/%d", i), fmt.Sprintln(i, random.Uint64(), random.Uint64()))
	}
	l.must("git", "-C", many, "add", ".")
	l.must("git", "-C", many, "commit", "-qm", "many")
	l.must("cove", "new", many, "--no-attach", "--name", "owners")
	c.must("cove", "new", many, "--no-attach", "--name", "keys")
	const says = "of CPU time in the last hour, of 0.1 s"
	for _, args := range [][]string{{"new", many, "--no-attach", "--name", "second"}, {"diff", "keys"},
		{"exec", "keys", "--", "true"}} {
		if text, err := c.run(append([]string{"cove"}, args...)...); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("cove %q with the CPU time used up: %s, %v", args, text, err)
		}
	}
	l.must("cove", "diff", "keys")
	c.must("cove", "destroy", "--yes", "keys")
}

// TestQuotasOfCompanions: what git does beside a key's stopped sandbox, by the sandbox's own configuration, uses the
// key's CPU time.
func TestQuotasOfCompanions(t *testing.T) {
	l := newLab(t)
	c := l.asKey("--cpu-seconds", "hour=2")
	project := l.in("project")
	l.must("git", "init", "-q", "-b", "main", project)
	l.write("project/file", "one\n")
	l.must("git", "-C", project, "add", ".")
	l.must("git", "-C", project, "-c", "user.name=A", "-c", "user.email=a@example.org", "commit", "-qm", "one")
	c.must("cove", "new", project, "--no-attach", "--name", "work")
	burn := `python3 -c "import time; t = time.process_time()
while time.process_time() < t + 2: pass" >&2; cat`
	c.must("cove", "exec", "work", "--", "git", "config", "filter.burn.clean", burn)
	c.must("cove", "exec", "work", "--", "sh", "-c", "echo '* filter=burn' >.gitattributes; echo two >file")
	c.must("cove", "stop", "work")
	c.run("cove", "diff", "work")
	for _, args := range [][]string{{"diff", "work"}, {"start", "work"}, {"runtimes"}} {
		if text, err := c.run(append([]string{"cove"}, args...)...); err == nil ||
			!strings.Contains(err.Error(), "of CPU time in the last hour, of 2 s") {
			t.Errorf("cove %q with its CPU time used up: %s, %v", args, text, err)
		}
	}
}
