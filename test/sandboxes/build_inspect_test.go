package sandboxes

import (
	"strings"
	"testing"

	"github.com/cove-sandbox/cove/internal/terminal"
	"github.com/cove-sandbox/cove/internal/terminal/terminaltest"
	"github.com/cove-sandbox/cove/test/debian"
)

// TestBuildOnErrorShell: a person at a terminal looks with a shell into the state before a command that has failed, as
// its user, in its directory; the end of the shell ends the build, and leaves nothing. Without a terminal
// that is refused.
func TestBuildOnErrorShell(t *testing.T) {
	made := debian.Root(t)
	l := newLab(t)
	l.must("cp", "-a", made, l.in("root"))
	l.must("cove", "image", "import", "dir:"+l.in("root"), "--name", "debian")
	const dockerfile = "FROM debian\nRUN useradd -m -k /nowhere ada && echo before >/state\nUSER ada\n" +
		"ENV GREETING=hello\nWORKDIR /home/ada\nRUN touch half && ls /nothing-of-the-kind\n"
	out, err := l.built(dockerfile, "--on-error", "shell")
	if err == nil || !strings.Contains(out, "needs a terminal") {
		t.Errorf("without a terminal: %v\n%s", err, out)
	}
	p := terminaltest.Sit(t, terminal.Size{Rows: 40, Columns: 120}, l.command("cove", "image", "build", "--on-error",
		"shell", "-t", "failed", "ctx"))
	p.Sees(`=> \[stage-0 2/6\] RUN useradd[^\n]*s\n`)
	p.Sees(`What failed: RUN touch half && ls /nothing-of-the-kind`)
	p.Types("echo \"is $(id -un) $(pwd) $GREETING $(cat /state) $(ls)\" end\r")
	p.Sees(`is ada /home/ada hello before +end`)
	p.Types("sleep 1000 & exit\r")
	p.Sees(`line 6 of the Dockerfile: the command ended with exit code 2`)
	p.Leaves(120)
	if left := l.unfinished(); len(left) > 0 {
		t.Errorf("there is %q", left)
	}
	if out := l.must("cove", "image", "list"); strings.Contains(out, "failed") {
		t.Errorf("there is an image: %s", out)
	}
}
