package sandboxes

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/crypto/bcrypt"

	"github.com/cove-sandbox/cove/test/debian"
)

// dockerRegistry is Docker's own registry, of a user "ada" with the password "secret".
type dockerRegistry struct {
	at string // HOST:PORT

	mu    sync.Mutex
	asked []string // its requests, METHOD PATH
}

// requests returns what was asked since the last call, of requests that match a pattern.
func (r *dockerRegistry) requests(pattern string) (matching []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := regexp.MustCompile(pattern)
	for _, one := range r.asked {
		if all.MatchString(one) {
			matching = append(matching, one)
		}
	}
	r.asked = nil
	return matching
}

var registryRequest = regexp.MustCompile(`"([A-Z]+ /v2/[^ ]*) HTTP`)

func startDockerRegistry(t *testing.T, l *lab) *dockerRegistry {
	t.Helper()
	program, err := exec.LookPath("docker-registry")
	if err != nil {
		t.Skip("needs Debian's docker-registry")
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &dockerRegistry{at: free.Addr().String()}
	free.Close()
	password, err := bcrypt.GenerateFromPassword([]byte("secret"), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	config, users := filepath.Join(dir, "config.yml"), filepath.Join(dir, "users")
	for name, text := range map[string]string{users: "ada:" + string(password) + "\n",
		config: fmt.Sprintf("version: 0.1\nlog: {accesslog: {disabled: false}}\nstorage: {filesystem: {rootdirectory: %s}}\n"+
			"http: {addr: %q}\nauth: {htpasswd: {realm: cove, path: %s}}\n", filepath.Join(dir, "data"), r.at, users)} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c := exec.CommandContext(t.Context(), program, "serve", config)
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.Stderr = c.Stdout
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	ready := make(chan struct{})
	read := make(chan struct{})
	go func() {
		defer close(read)
		once := sync.OnceFunc(func() { close(ready) })
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if strings.Contains(lines.Text(), "listening on") {
				once()
			}
			if m := registryRequest.FindStringSubmatch(lines.Text()); m != nil {
				r.mu.Lock()
				r.asked = append(r.asked, m[1])
				r.mu.Unlock()
			}
		}
		once()
	}()
	t.Cleanup(func() { c.Process.Kill(); <-read; c.Wait() })
	<-ready
	if _, err := net.Dial("tcp", r.at); err != nil {
		t.Fatalf("the registry does not listen: %v", err)
	}
	return r
}

// TestImagePush: a build is sent to Docker's registry, which both Cove and Docker have it back from; what the registry
// has already is not sent again.
func TestImagePush(t *testing.T) {
	made := debian.Root(t)
	l := newLab(t)
	r := startDockerRegistry(t, l)
	l.must("cp", "-a", made, l.in("root"))
	l.must("cove", "image", "import", "dir:"+l.in("root"), "--name", "debian")
	l.inContext("a.txt", "A\n")
	l.inContext("Dockerfile", "FROM debian\nRUN rm -r /usr/share/bug && install -o 7 -m 4711 /bin/true /opt/su\n"+
		"COPY a.txt /opt/\n"+
		"CMD [\"sh\", \"-c\", \"cat /opt/a.txt; stat -c '%u %a' /opt/su; ls /usr/share/bug 2>/dev/null; true\"]\n")
	name := r.at + "/team/app:1"
	out, err := l.command("cove", "image", "build", "--push", "-t", name, "ctx").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "docker login "+r.at) {
		t.Errorf("without a password: %v\n%s", err, out)
	}
	login := l.command("docker", "login", "-u", "ada", "--password-stdin", r.at)
	login.Env = append(login.Env, "HOME="+l.in("home-of-user"), "DOCKER_CONFIG="+l.in("docker-config"))
	login.Stdin = strings.NewReader("secret")
	if out, err := login.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	l.env = append(l.env, "DOCKER_CONFIG="+l.in("docker-config"))
	r.requests("")
	pushed := l.must("cove", "image", "push", name)
	digest := regexp.MustCompile(`(?m)^sha256:[0-9a-f]{64}$`).FindString(pushed)
	if digest == "" || len(r.requests("^PATCH ")) < 4 {
		t.Errorf("the first time: %s", pushed)
	}
	l.inContext("a.txt", "B\n")
	out, err = l.command("cove", "image", "build", "--push", "-t", r.at+"/team/app:2", "ctx").CombinedOutput()
	if sent := r.requests("^PATCH "); err != nil || len(sent) != 2 { // the configuration, and the layer of COPY
		t.Errorf("after a change: %v, sent %q\n%s", err, sent, out)
	}
	again := l.must("cove", "image", "push", name, name)
	if !strings.Contains(again, digest) || len(r.requests("^PATCH ")) > 0 {
		t.Errorf("the same again: %s", again)
	}

	l.must("cove", "image", "remove", name)
	l.must("cove", "image", "pull", r.at+"/team/app@"+digest)
	const want = "A\n7 4711\n"
	if out := l.must("cove", "run", "--image", r.at+"/team/app@"+digest); out != want {
		t.Errorf("from the registry: %q", out)
	}
	if host := os.Getenv("DOCKER_HOST"); host != "" {
		t.Cleanup(func() { l.run("docker", "rmi", "-f", name) })
		docker := func(args ...string) string {
			t.Helper()
			c := l.command(append([]string{"docker"}, args...)...)
			c.Env = append(c.Env, "DOCKER_HOST="+host)
			out, err := c.CombinedOutput()
			if err != nil {
				t.Fatalf("docker %q: %v\n%s", args, err, out)
			}
			return string(out)
		}
		docker("pull", name)
		if out := docker("run", "--rm", "--network=none", name); out != want {
			t.Errorf("in Docker: %q", out)
		}
	}
	for _, test := range []struct {
		args []string
		says string
	}{
		{[]string{"debian@" + digest}, "HOST/NAME:TAG"},
		{[]string{"nothing"}, "nothing"},
		{[]string{"debian", "tar:/x"}, "HOST/NAME:TAG"},
		{[]string{"debian", "127.0.0.1:1/x"}, "127.0.0.1:1 cannot be reached"},
	} {
		out, err := l.command(slices.Concat([]string{"cove", "image", "push"}, test.args)...).CombinedOutput()
		if err == nil || !strings.Contains(string(out), test.says) {
			t.Errorf("push %q: %v\n%s", test.args, err, out)
		}
	}
	if left, err := os.ReadDir(l.in("home/images/tmp")); err != nil || len(left) > 0 {
		t.Errorf("tmp has %v, %v", left, err)
	}
}
