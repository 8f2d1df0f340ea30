package sandboxes

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/instance"
)

// TestDockerLeavesNothing: what a server that was killed has made with a Docker daemon is removed by the next one,
// whichever engine that one uses, also what the daemon makes after the server's death. Long-lived sandboxes stay. While
// there is no daemon, the next server says that something may be left, and removes it when there is one.
func TestDockerLeavesNothing(t *testing.T) {
	host := os.Getenv("DOCKER_HOST")
	if host == "" {
		t.Skip("needs a Docker daemon: DOCKER_HOST=$(scripts/start-docker.sh)")
	}
	for _, c := range []struct {
		name string
		next []string // what the next server does
		away bool     // the daemon is not there at first
		stay int      // long-lived sandboxes, for which the next server opens the engine
	}{
		{"docker first", []string{"cove", "run", "--engine", "docker", "bash", "-c", "true"}, false, 0},
		{"with a long-lived sandbox", []string{"cove", "run", "--engine", "native", "bash", "-c", "true"}, false, 1},
		{"native alone", []string{"cove", "run", "--engine", "native", "bash", "-c", "true"}, false, 0},
		{"no daemon at first", []string{"cove", "run", "--engine", "native", "bash", "-c", "true"}, true, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t)
			daemon := l.in("docker.sock") // a name for the daemon's socket, which can be taken away
			if err := os.Symlink(strings.TrimPrefix(host, "unix://"), daemon); err != nil {
				t.Fatal(err)
			}
			l.env = append(l.env, "DOCKER_HOST=unix://"+daemon)
			mine := func() []string {
				out, err := exec.Command("docker", "--host", host, "ps", "--all", "--quiet", "--filter",
					"label=cove.realm="+instance.Realm(l.in("run"))).Output()
				if err != nil {
					t.Fatal(err)
				}
				return strings.Fields(string(out))
			}
			l.must("cove", "server", "start")
			for range c.stay {
				l.must("cove", "new", "--engine", "docker", "--empty", "--no-attach", "--name", "lasts")
			}
			for range 6 {
				l.begun("cove", "run", "--engine", "docker", "--timeout", "1h", "bash", "-c", "sleep 4010")
				time.Sleep(100 * time.Millisecond) // sleep: the server is to die while containers are at every stage
			}
			l.eventually("containers run", func() bool { return len(mine()) > 3 })
			server := l.serverPID()
			if err := syscall.Kill(server, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			l.eventually("the server is dead", func() bool { return syscall.Kill(server, 0) != nil })
			if c.away {
				if err := os.Rename(daemon, daemon+".away"); err != nil {
					t.Fatal(err)
				}
			}
			l.must(c.next...)
			l.must("cove", "server", "start")
			if c.away {
				l.eventually("the server says that something may be left", func() bool {
					log, _ := os.ReadFile(l.in("home/logs/server.log"))
					return strings.Contains(string(log), "what a dead process may have left with the engine docker cannot be removed")
				})
				if err := os.Rename(daemon+".away", daemon); err != nil {
					t.Fatal(err)
				}
				l.must("cove", "server", "stop")
				l.must("cove", "server", "start")
			}
			l.eventually("all but the long-lived sandbox is gone", func() bool {
				known, err := instance.List(l.in("run"))
				dead := func(id cove.InstanceID) bool { return !instance.Alive(l.in("run"), id) }
				return err == nil && len(mine()) == c.stay && !slices.ContainsFunc(known, dead)
			})
			for range c.stay {
				if out := l.must("cove", "exec", "lasts", "--", "echo", "here"); out != "here\n" {
					t.Errorf("the long-lived sandbox says %q", out)
				}
				l.must("cove", "destroy", "lasts", "--yes")
			}
			if left := mine(); len(left) > 0 {
				t.Errorf("left are %q", left)
			}
		})
	}
}
