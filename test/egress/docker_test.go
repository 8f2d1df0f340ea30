//go:build linux

package egress

import (
	"crypto/rand"
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

// boxArchive is the root file system of a container, as an archive.
func boxArchive(t *testing.T) string {
	t.Helper()
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
	return archive
}

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
	archive := boxArchive(t)
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

// TestGatewayContainers: containers that Docker or Podman has started are attached by their name or a label, again
// after a restart, and forgotten when they are removed. One with another way out is refused.
func TestGatewayContainers(t *testing.T) {
	if os.Getenv("DOCKER_HOST") == "" {
		t.Skip("needs a Docker daemon: DOCKER_HOST=$(scripts/start-docker.sh)")
	}
	archive := boxArchive(t)
	// Podman asks for higher limits than root has on a machine that is itself a guest, and its own runtime knows no
	// control groups of both versions.
	conf := filepath.Join(t.TempDir(), "containers.conf")
	const text = `[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
`
	if err := os.WriteFile(conf, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv("CONTAINERS_CONF", conf)
	for _, program := range []string{"docker", "podman"} {
		t.Run(program, func(t *testing.T) { gatewayContainers(t, program, archive) })
	}
}

func gatewayContainers(t *testing.T, program, archive string) {
	if _, err := exec.LookPath(program); err != nil {
		t.Skipf("needs %s: apt-get install %[1]s", program)
	}
	l := newLab(t)
	l.gateway(t)
	image := fmt.Sprintf("localhost/cove-containers-test-%d", os.Getpid())
	engine := func(args ...string) string {
		t.Helper()
		out, err := exec.Command(program, args...).CombinedOutput()
		if err != nil {
			t.Fatalf("%s %q: %v\n%s", program, args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	of := func(image string) func(name, network string, more ...string) {
		return func(name, network string, more ...string) {
			t.Helper()
			engine(append(append([]string{"run", "--detach", "--network", network, "--name", name}, more...), image, "/box")...)
			t.Cleanup(func() { exec.Command(program, "rm", "--force", name).Run() })
		}
	}
	run := of(image)
	engine("import", archive, image)
	t.Cleanup(func() { exec.Command(program, "image", "rm", "--force", image).Run() })
	unique := fmt.Sprintf("-cove-%d", os.Getpid())
	one, other, open := "one"+unique, "other"+unique, "open"+unique
	run(one, "none")
	attach := []string{"gateway", "attach", "--engine", program, "--allow", "good.lab.test"}
	a := l.stays(t, "attached process", append(attach, "--container", one, "--env")...)
	fetches := func(name string) bool {
		out, _ := exec.Command(program, "exec", "--env", "SSL_CERT_FILE=/etc/cove/ca-certificates.crt", name, "/box",
			"https://good.lab.test/x").CombinedOutput()
		return string(out) == "200 GET good.lab.test/x over https\n"
	}
	if !fetches(one) {
		t.Errorf("it fetches nothing: %s", a.stderr.String())
	}
	engine("restart", "--time", "0", one)
	await.That(t, "it is attached again", func() bool { return strings.Count(a.stderr.String(), "attached process") == 2 })
	if !fetches(one) {
		t.Errorf("restarted, it fetches nothing: %s", a.stderr.String())
	}
	engine("rm", "--force", one)
	<-a.ended
	if a.ProcessState.ExitCode() != 0 || !strings.Contains(a.stderr.String(), one+" was removed") {
		t.Errorf("at the end of the container: %s", a.stderr.String())
	}
	if all := l.cove(t, "gateway", "list"); all.code != 0 || strings.Contains(all.stdout, one) {
		t.Errorf("its client is there still: %+v", all)
	}

	run(open, "host", "--label", "attach=yes")
	for name, want := range map[string]string{open: "start it with --network none", "no-" + one: "there is no container"} {
		if got := l.cove(t, append(attach, "--container", name)...); got.code == 0 || !strings.Contains(got.stderr, want) {
			t.Errorf("%s: %+v, want %q", name, got, want)
		}
	}
	b := l.stays(t, open+" is not attached", append(attach, "--label", "attach=yes")...)
	// A client that is registered already, whose name a container has.
	if got := l.cove(t, "gateway", "add", other, "--transparent", "--allow", "bad.lab.test"); got.code != 0 {
		t.Fatalf("%+v", got)
	}
	run(other, "none", "--label", "attach=yes")
	id := engine("inspect", "--format", "{{.Id}}", other)
	await.That(t, "one that comes later is attached",
		func() bool { return strings.Contains(b.stderr.String(), "as "+id[:12]) })
	if out, _ := exec.Command(program, "exec", other, "/box", "http://bad.lab.test/x").CombinedOutput(); strings.Contains(
		string(out), "200 GET") {
		t.Errorf("by its name it has the policy of another client: %s", out)
	}
	// Labels that others have set: an image, and the file of a repository, by which its container is made.
	labelled := image + "-labelled"
	engine("import", "--change", "LABEL attach=yes", archive, labelled)
	t.Cleanup(func() { exec.Command(program, "image", "rm", "--force", labelled).Run() })
	secret := "cove.devcontainer=" + strings.ToLower(rand.Text())
	ofFile := []string{"--label", "devcontainer.local_folder=" + l.dir, "--label", "attach=yes"}
	for name, c := range map[string]struct {
		why, image string
		labels     []string
	}{
		"image" + unique: {"its image has the label attach", labelled, nil},
		"file" + unique:  {"it is made of a file, which may say the label attach", image, ofFile},
		"compose" + unique: {"it is made of a file", image,
			[]string{"--label=com.docker.compose.project=x", "--label=attach=yes"}},
		"written" + unique: {"it is made of a file", image, append(ofFile, "--label", secret)},
	} {
		of(c.image)(name, "none", c.labels...)
		await.That(t, c.why, func() bool { return strings.Contains(b.stderr.String(), name+" is not attached: "+c.why) })
		if strings.Contains(b.stderr.String(), "as "+name) || fetches(name) {
			t.Errorf("%s is attached: %s", name, b.stderr.String())
		}
	}
	w := l.stays(t, "attached process", append(attach, "--label", secret)...)
	if !fetches("written" + unique) {
		t.Errorf("by the label of a written file: %s", w.stderr.String())
	}
	w.stop()
	if !fetches(other) {
		t.Errorf("found by its label, it fetches nothing: %s", b.stderr.String())
	}
	engine("rm", "--force", other)
	await.That(t, "it is forgotten", func() bool { return strings.Contains(b.stderr.String(), other+" was removed") })
	if code := b.stop(); code != 143 {
		t.Errorf("interrupted: %d, %s", code, b.stderr.String())
	}
}

// TestGatewaySidecar: a container of an engine whose processes cannot be seen from here, as those of another machine,
// is attached by a sidecar: again after a restart, and as long as the command runs.
func TestGatewaySidecar(t *testing.T) {
	if os.Getenv("DOCKER_HOST") == "" {
		t.Skip("needs a Docker daemon: DOCKER_HOST=$(scripts/start-docker.sh)")
	}
	archive := boxArchive(t)
	l := newLab(t)
	t.Setenv("DOCKER_HOST", unseen(t))
	docker := func(args ...string) string {
		t.Helper()
		out, err := exec.Command("docker", args...).CombinedOutput()
		if err != nil {
			t.Fatalf("docker %q: %v\n%s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	docker("import", archive, "box")
	docker("run", "--detach", "--network", "none", "--name", "far", "box", "/box")
	l.gateway(t)
	a := l.stays(t, "by a sidecar", "gateway", "attach", "--engine", "docker", "--container", "far",
		"--allow", "good.lab.test")
	inside := func(url string) string {
		out, _ := exec.Command("docker", "exec", "--env", "SSL_CERT_FILE=/etc/cove/ca-certificates.crt", "far", "/box",
			url).CombinedOutput()
		return string(out)
	}
	const want = "200 GET good.lab.test/x over https\n"
	if got := inside("https://good.lab.test/x"); got != want {
		t.Errorf("allowed: %s", got)
	}
	l.Forget()
	if got := inside("http://bad.lab.test/x"); strings.HasPrefix(got, "200") || len(l.seen()) > 0 ||
		len(l.Asked()) > 0 {
		t.Errorf("denied: %s; arrived: %q", got, l.seen())
	}
	if got := l.cove(t, "gateway", "attach", "--engine", "docker", "--container", "far"); got.code == 0 ||
		!strings.Contains(got.stderr, "attached already") {
		t.Errorf("attached twice: %+v", got)
	}
	if got := inside("https://good.lab.test/x"); got != want {
		t.Errorf("after another one has tried: %s", got)
	}
	docker("restart", "--time", "0", "far")
	await.That(t, "it is attached again", func() bool {
		return strings.Count(a.stderr.String(), "by a sidecar") == 2
	})
	if got := inside("https://good.lab.test/x"); got != want {
		t.Errorf("after a restart: %s", got)
	}
	if n := strings.Fields(docker("ps", "--quiet", "--filter", "label=cove.sidecar_of")); len(n) != 1 {
		t.Errorf("%d sidecars run", len(n))
	}
	a.stop()
	if n := docker("ps", "--all", "--quiet", "--filter", "label=cove.sidecar_of"); n != "" {
		t.Errorf("a sidecar is left: %s", n)
	}
	l.Forget()
	if got := inside("https://good.lab.test/x"); strings.HasPrefix(got, "200") || len(l.Packets()) > 0 {
		t.Errorf("after it was let go: %s, %d packets", got, len(l.Packets()))
	}

	// One with another way out is refused.
	docker("run", "--detach", "--network", "host", "--name", "open", "box", "/box")
	if got := l.cove(t, "gateway", "attach", "--engine", "docker", "--container", "open"); got.code == 0 ||
		!strings.Contains(got.stderr, "past the gateway") {
		t.Errorf("with another way out: %+v", got)
	}
}

// unseen starts a daemon in a process namespace of its own.
func unseen(t *testing.T) (address string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "cove-unseen-") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	const script = "../../scripts/start-docker.sh"
	said := filepath.Join(t.TempDir(), "address")
	daemon := exec.Command("unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c",
		`"$1" "$2" >"$3.part" && mv "$3.part" "$3" && exec sleep infinity`, "sh", script, dir, said)
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		exec.Command("sh", "-c", "docker rm --force $(docker ps --all --quiet)").Run()
		daemon.Process.Kill()
		daemon.Wait()
		exec.Command(script, "--stop", dir).Run()
		os.RemoveAll(dir)
	})
	await.That(t, "the daemon answers", func() bool {
		text, err := os.ReadFile(said)
		address = strings.TrimSpace(string(text))
		return err == nil
	})
	return address
}

// ofUser runs a container of Podman without root, and attaches it, as a user without root. It prints what the container
// gets: denied, and once it was let go.
const ofUser = `cd "$1"
export HOME=$1 XDG_RUNTIME_DIR=$1/run COVE_HOME=$1/home COVE_RUN_DIR=$1/cove CONTAINERS_CONF=$1/containers.conf
podman import --quiet box.tar box >/dev/null
podman run --detach --network none --name far localhost/box /box >/dev/null
"$2/cove" gateway 2>gateway.log & gateway=$!
until grep -q "clients are registered" gateway.log; do sleep 0.1; kill -0 $gateway || exit 1; done
"$2/cove" gateway attach --engine podman --container far --allow good.lab.test 2>attach.log & attach=$!
until grep -q "by a sidecar" attach.log; do sleep 0.1; kill -0 $attach || { cat attach.log; exit 1; }; done
podman exec --env SSL_CERT_FILE=/etc/cove/ca-certificates.crt far /box https://bad.lab.test/x
kill -INT $attach; wait $attach
podman exec far /box http://bad.lab.test/x
podman ps --all --format "left: {{.Names}}"
podman rm --force --time 0 far >/dev/null
kill $gateway; wait $gateway
podman unshare rm -rf .local
kill $(cat run/libpod/tmp/pause.pid)`

// TestGatewaySidecarOfUser: a user without root attaches a container of a Podman without root, whose network can be
// entered by neither.
func TestGatewaySidecarOfUser(t *testing.T) {
	if os.Geteuid() != 0 || os.Getenv("COVE_TEST_LONG") == "" {
		t.Skip("needs root, to be another user, and takes long: set COVE_TEST_LONG=1")
	}
	const user = 60017
	archive := boxArchive(t)
	dir, err := os.MkdirTemp("/tmp", "cove-user-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	for name, text := range map[string]string{
		"ids":    fmt.Sprintf("cove-user:%d:65536\n", 1<<20),
		"passwd": fmt.Sprintf("root:x:0:0:root:/root:/bin/sh\ncove-user:x:%d:%[1]d::%s:/bin/sh\n", user, dir),
		"script": ofUser,
		"containers.conf": "[containers]\ndefault_ulimits = [\"nofile=1024:1024\", \"nproc=1024:1024\"]\n[engine]\n" +
			"runtime = \"runc\"\ncgroup_manager = \"cgroupfs\"\nevents_logger = \"file\"\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	bin := os.Getenv("COVE_TEST_BIN")
	if bin == "" {
		t.Skip("needs the programs: COVE_TEST_BIN")
	}
	run := exec.CommandContext(t.Context(), "unshare", "--mount", "--propagation", "slave", "sh", "-c",
		`mkdir "$0/run" && cp "$3" "$0/box.tar" && chown -R "$1" "$0" && chmod 700 "$0/run" &&
		mount --bind "$0/ids" /etc/subuid && mount --bind "$0/ids" /etc/subgid && mount --bind "$0/passwd" /etc/passwd &&
		exec setpriv --reuid "$1" --regid "$1" --clear-groups sh "$0/script" "$0" "$2"`,
		dir, fmt.Sprint(user), bin, archive)
	out, err := run.CombinedOutput()
	text := string(out)
	if err != nil || !strings.Contains(text, "403 {") || !strings.Contains(text, "connection refused") ||
		!strings.HasSuffix(text, "left: far\n") {
		t.Errorf("%v: %s", err, text)
	}
}
