package agents

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove/test/debian"
)

// TestAgentAsRoot: an agent that is root inside finds its files in the home that it has, and its work comes back.
func TestAgentAsRoot(t *testing.T) {
	made := debian.Root(t)
	l := newLab(t, both)
	image := filepath.Join(l.dir, "image")
	if out, err := exec.Command("cp", "-a", made, image).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, a := range agents {
		t.Run(a.name, func(t *testing.T) {
			dir := l.project(t, a.name)
			got := l.cove(t, dir, a.name, "--root", "--image", "dir:"+image, "mend it")
			if got.code != 0 {
				t.Fatalf("%+v", got)
			}
			run := l.last(t)
			if !strings.HasPrefix(run.Result, "The test passes now") || len(run.Changes) == 0 {
				t.Errorf("%+v", run)
			}
			const want = "0\n/root\n/root\n"
			out := l.cove(t, dir, "exec", run.SandboxName, "--", "sh", "-c", "id -u; cd; pwd; readlink /home/cove")
			if out.code != 0 || out.stdout != want {
				t.Errorf("%+v", out)
			}
		})
	}
}
