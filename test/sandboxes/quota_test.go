package sandboxes

import (
	"strings"
	"testing"
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
		!strings.Contains(err.Error(), "1 executions, runs and commands of this API key are under way") {
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
