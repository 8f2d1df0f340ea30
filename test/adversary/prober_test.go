package adversary

import (
	"os"
	"testing"

	"github.com/cove-sandbox/cove/test/adversary/outcome"
)

// TestProber makes attempts together in one process: what one changes is not
// the next one's, and one that ends the process is told from a refusal.
func TestProber(t *testing.T) {
	if !asRoot() {
		t.Skip("needs root: the environment of controls has namespaces of its own")
	}
	s := &suite{}
	s.findProbe(t)
	if s.missing != "" {
		t.Fatal(s.missing)
	}
	starts := 0
	dir := t.TempDir()
	p := &prober{start: func() (*serving, error) { starts++; return s.serveOutside(dir) }}
	defer p.end()
	for _, step := range []struct {
		attempt string
		kind    outcome.Kind
		errno   string
		starts  int // processes so far
	}{
		{"list /sys", outcome.Succeeded, "", 1},
		{"umount /sys", outcome.Succeeded, "", 1},
		{"list /sys", outcome.Succeeded, "", 1},
		{"capset", outcome.Succeeded, "", 1},
		{"chroot_escape", outcome.Succeeded, "", 1},
		{"chroot", outcome.Succeeded, "", 1},
		{"seccomp_listener", outcome.Succeeded, "", 1},
		{"no_new_privs_0", outcome.Refused, "EINVAL", 1},
		{"read  /no/such/file", outcome.Refused, "ENOENT", 1},
		{"no_such_attempt", outcome.Broken, "", 1},
		{"abort " + dir, outcome.Refused, "aborted", 1},
		{"getpid", outcome.Succeeded, "", 2},
		{"echo", outcome.Succeeded, "", 2},
	} {
		if r := p.try(step.attempt); r.Outcome != step.kind || r.Errno != step.errno || starts != step.starts {
			t.Errorf("%q: %s with %d processes, want %s %s with %d", step.attempt, say(r), starts, step.kind,
				step.errno, step.starts)
		}
	}
	if _, err := os.Stat("/sys/kernel"); err != nil {
		t.Errorf("an attempt has changed this process: %v", err)
	}
}
