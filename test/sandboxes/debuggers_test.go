package sandboxes

import (
	"errors"
	"os/exec"
	"strings"
	"testing"
)

// tracedByParent makes the guest the tracer of a program, stops for it, and executes another program, as one does that
// wants to know whether it is traced.
const tracedByParent = `import ctypes, os, signal
if ctypes.CDLL(None).ptrace(0, 0, 0, 0): exit(1) # PTRACE_TRACEME
os.kill(os.getpid(), signal.SIGURG)
os.execvp("sh", ["sh", "-c", "echo on; exit 7"])`

// TestDebuggers: strace and gdb trace programs of their sandbox where it has been made for that, and only there. A
// program that makes Cove's own its tracer goes on, and its end is its own.
func TestDebuggers(t *testing.T) {
	l := newLab(t)
	said := func(args ...string) (string, int) {
		c := l.command(args...)
		out, err := c.CombinedOutput()
		if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		return string(out), c.ProcessState.ExitCode()
	}
	out, code := said("cove", "run", "sh", "-c", "strace true")
	if code == 0 || !strings.Contains(out, "Operation not permitted") {
		t.Errorf("without --debuggers: %d, %s", code, out)
	}
	strace := []string{"strace", "-f", "-e", "trace=execve", "sh", "-c", "/bin/echo traced"}
	gdb := []string{"gdb", "-q", "-batch", "-ex", "run", "--args", "sh", "-c", "exit 9"}
	traced := []string{"/usr/bin/python3", "-c", tracedByParent}
	l.must("cove", "new", "--empty", "--name", "box", "--debuggers", "--no-attach")
	for name, begin := range map[string][]string{
		"a run":                          {"cove", "run", "--debuggers", "sh", "-c", `exec "$@"`, "--"},
		"a program of a lasting sandbox": {"cove", "exec", "box", "--"},
	} {
		if out, code := said(append(begin, strace...)...); code != 0 || !strings.Contains(out, `execve("/bin/echo"`) {
			t.Errorf("%s: strace: %d, %s", name, code, out)
		}
		out, code := said(append(begin, gdb...)...)
		if code != 0 || !strings.Contains(out, "exited with code 011") || strings.Contains(out, "randomization") {
			t.Errorf("%s: gdb: %d, %s", name, code, out)
		}
		if out, code := said(append(begin, traced...)...); code != 7 || out != "on\n" {
			t.Errorf("%s: traced by its parent: %d, %q", name, code, out)
		}
	}
	if out := l.must("cove", "list", "--json"); !strings.Contains(out, `"debuggers": true`) {
		t.Errorf("it is not shown: %s", out)
	}
}
