//go:build linux

package egress

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove/test/await"
)

// boxed is all there is in a container: it sleeps, or says what is at a URL.
const boxed = `package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

func main() {
	if len(os.Args) == 1 {
		time.Sleep(24 * time.Hour)
	}
	r, err := http.Get(os.Args[1])
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Print(r.StatusCode, " ")
	io.Copy(os.Stdout, r.Body)
}
`

// TestGatewayDocker: a container without a network, which Docker has started, reaches what its policy allows.
func TestGatewayDocker(t *testing.T) {
	if os.Getenv("DOCKER_HOST") == "" {
		t.Skip("needs a Docker daemon: DOCKER_HOST=$(scripts/start-docker.sh)")
	}
	l := newLab(t)
	docker := func(args ...string) string {
		t.Helper()
		out, err := exec.Command("docker", args...).CombinedOutput()
		if err != nil {
			t.Fatalf("docker %q: %v\n%s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	root := t.TempDir()
	source := filepath.Join(t.TempDir(), "main.go")
	if err := os.WriteFile(source, []byte(boxed), 0o644); err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "build", "-o", filepath.Join(root, "box"), source)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	archive := filepath.Join(t.TempDir(), "box.tar")
	if out, err := exec.Command("tar", "-C", root, "-cf", archive, "box").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	name := fmt.Sprintf("cove-gateway-test-%d", os.Getpid())
	docker("import", archive, name)
	t.Cleanup(func() { exec.Command("docker", "image", "rm", "--force", name).Run() })
	docker("run", "--detach", "--network", "none", "--name", name, name, "/box")
	t.Cleanup(func() { exec.Command("docker", "rm", "--force", name).Run() })

	l.gateway(t)
	pid := docker("inspect", "--format", "{{.State.Pid}}", name)
	a := l.stays(t, "attached process", "gateway", "attach", "--pid", pid, "--name", "box", "--allow",
		"good.lab.test", "--env")
	await.That(t, "the environment is printed", func() bool { return strings.HasSuffix(a.stdout.String(), "\n") })
	file := filepath.Join(l.dir, "box.env")
	if err := os.WriteFile(file, []byte(a.stdout.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	inside := func(args ...string) string {
		out, _ := exec.Command("docker", append([]string{"exec"}, args...)...).CombinedOutput()
		return string(out)
	}
	if got := inside("--env-file", file, name, "/box",
		"https://good.lab.test/x"); got != "200 GET good.lab.test/x over https\n" {
		t.Errorf("by the proxy: %s", got)
	}
	if got := inside("--env", "SSL_CERT_FILE=/etc/cove/ca-certificates.crt", name, "/box",
		"https://good.lab.test/x"); got != "200 GET good.lab.test/x over https\n" {
		t.Errorf("past the proxy: %s", got)
	}
	l.Forget()
	if got := inside(name, "/box", "http://bad.lab.test/x"); strings.HasPrefix(got, "200") || len(l.seen()) > 0 ||
		len(l.Asked()) > 0 {
		t.Errorf("denied: %s; arrived: %q", got, l.seen())
	}
	docker("rm", "--force", name)
	<-a.ended
	if a.ProcessState.ExitCode() != 0 {
		t.Errorf("at the end of the container: %s", a.stderr.String())
	}
}
