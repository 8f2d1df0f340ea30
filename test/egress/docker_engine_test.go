//go:build linux

package egress

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove/internal/engine/enginetest"
)

// TestDocker: a container's ways out are those of any sandbox.
func TestDocker(t *testing.T) {
	if os.Getenv("DOCKER_HOST") == "" {
		t.Skip("needs a Docker daemon of its own: DOCKER_HOST=$(scripts/start-docker.sh)")
	}
	containers(t)
}

// TestDockerOverTCP: so are those of one whose daemon counts as one of another machine.
func TestDockerOverTCP(t *testing.T) {
	overTCP(t)
	containers(t)
}

// overTCP has the daemon of DOCKER_HOST reached over TCP.
func overTCP(t *testing.T) {
	t.Helper()
	address := os.Getenv("DOCKER_HOST")
	if address == "" {
		t.Skip("needs a Docker daemon of its own: DOCKER_HOST=$(scripts/start-docker.sh)")
	}
	t.Setenv("DOCKER_HOST", enginetest.OverTCP(t, address))
}

func containers(t *testing.T) {
	l := newLab(t)
	got := l.inside(t, `echo "$LAB_TOKEN"
curl -sS --max-time 60 https://key.lab.test/mirror
curl -sS --max-time 60 --noproxy '*' -4 https://good.lab.test/a
curl -sS --max-time 60 --noproxy '*' -6 https://good.lab.test/b
curl -sS --max-time 60 --noproxy '*' https://bad.lab.test/c
curl -sS --max-time 60 --noproxy '*' --insecure -o /dev/null -w '%{http_code}' https://93.184.216.34/d`,
		"--engine", "docker", "--allow", "key.lab.test", "--allow", "good.lab.test", "--credential", "lab")
	if !strings.HasPrefix(got.stdout, "lab_") || strings.Contains(got.stdout, "canary") ||
		!strings.HasSuffix(got.stdout, "403") {
		t.Errorf("inside there is %+v", got)
	}
	if want := []string{"Bearer " + key}; !slices.Equal(l.keys(), want) {
		t.Errorf("keys that arrived: %q, want %q", l.keys(), want)
	}
	if want := []string{"GET key.lab.test/mirror", "GET good.lab.test/a",
		"GET good.lab.test/b"}; !slices.Equal(l.seen(), want) {
		t.Errorf("arrived: %q, want %q", l.seen(), want)
	}
	if !strings.Contains(got.stderr, "policy denied bad.lab.test") {
		t.Errorf("it is said: %s", got.stderr)
	}
}
