package sandboxes

import (
	"os/exec"
	"syscall"
	"testing"
)

// TestDevContainerBuildEnds: the build of an image ends with the command that waits for it, by a signal or killed.
func TestDevContainerBuildEnds(t *testing.T) {
	l := newLab(t)
	l.withDebian()
	l.write("src/.devcontainer.json", `{"build": {"dockerfile": "Dockerfile"}}`)
	l.write("src/Dockerfile", "FROM debian\nRUN sleep 43217\n")
	runs := func() bool { return exec.Command("pgrep", "-f", "^sleep 43217$").Run() == nil }
	for sig, want := range map[syscall.Signal]int{syscall.SIGINT: 130, syscall.SIGKILL: -1} {
		r := l.begun("cove", "devcontainer", "up", "--workspace-folder", l.in("src"))
		l.eventually("the command of the build runs", runs)
		r.Process.Signal(sig)
		if r.Wait(); r.ProcessState.ExitCode() != want {
			t.Errorf("%v: exit code %d, want %d: %s", sig, r.ProcessState.ExitCode(), want, r.said.String())
		}
		l.eventually("it ends", func() bool { return !runs() })
	}
}
