//go:build linux

package agents

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/test/await"
)

// inContainers has this lab's Cove make its sandboxes of containers.
func (l *lab) inContainers(t *testing.T) {
	t.Helper()
	if os.Getenv("DOCKER_HOST") == "" {
		t.Skip("needs a Docker daemon of its own: DOCKER_HOST=$(scripts/start-docker.sh)")
	}
	config, err := os.ReadFile(filepath.Join(l.dir, "cove.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	l.write(t, "cove.yaml", "engine: docker\n"+string(config))
}

// TestContainers: agents do their work in containers as they do elsewhere.
func TestContainers(t *testing.T) {
	l := newLab(t, work)
	l.inContainers(t)
	for _, a := range agents {
		t.Run(a.name, func(t *testing.T) {
			l.Forget()
			l.models.Forget()
			dir := l.project(t, "project-"+a.name)
			got := l.cove(t, dir, a.name, "--json", "make the test pass")
			if got.code != 0 {
				t.Fatalf("%+v", got)
			}
			checkMessages(t, inOrder(t, messages(t, got.stdout)))
			run := l.last(t)
			l.checkRun(t, a.name, dir, run)
			l.checkProvider(t, a.host, l.taken(t, dir, run), 8)
			if t.Failed() {
				t.Logf("%+v\n%s\n%s", run, got.stdout, got.stderr)
			}
		})
	}
}

// TestContainersOutlive: a server that is killed while an agent works in a
// container loses nothing, and the next one leads it to its models again.
func TestContainersOutlive(t *testing.T) {
	l := newLab(t, faults)
	l.inContainers(t)
	dir := l.project(t, "project")
	out, wait, _ := l.waits(t, dir, "worker", "wait for me")
	begun := l.last(t)
	l.killServer(t)
	if code := wait(); code == 0 {
		t.Errorf("the command ended well: %s", out)
	}
	// which starts the next server
	if got := l.cove(t, dir, "exec", begun.SandboxName, "--", "touch", "go"); got.code != 0 {
		t.Fatalf("%+v", got)
	}
	if run := l.ended(t); run.Status != api.RunSucceeded || run.Result != "I waited, and am still here." {
		t.Errorf("%+v", run)
	}
	l.kept(t, begun)
	// The dead server is remembered while the daemon may still make a container for it.
	await.That(t, "the server that was killed is forgotten", func() bool {
		return len(globbed(t, filepath.Join(l.dir, "run/instances/*.sock"))) == 1
	})
}
