package sandboxes

import (
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/cove-sandbox/cove/test/debian"
)

// TestUserOfAnImage: programs are the user that an image says, or that a request names, with its groups and its home.
// Those of a long-lived sandbox have the home that lasts, also when another server goes on with it.
func TestUserOfAnImage(t *testing.T) {
	made := debian.Root(t)
	l := newLab(t)
	l.must("cp", "-a", made, l.in("root"))
	l.must("cove", "image", "import", "dir:"+l.in("root"), "--name", "debian")
	out, err := l.built(`FROM debian
RUN useradd -m -u 1001 -G adm,games -s /bin/bash node
RUN echo kept > /home/node/of-image && chown node /home/node/of-image
RUN useradd -r -d /nowhere -s /usr/sbin/nologin service
USER node
`, "-t", "node")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	const who = `echo $(id -u):$(id -g) $(id -G) $HOME $USER $LOGNAME $SHELL`
	for _, c := range []struct {
		args string
		want string
	}{
		{"--image node", "1001:1001 1001 4 60 /home/node node node /bin/bash\n"},
		{"--image node --user node:games", "1001:60 60 /home/node node node /bin/bash\n"},
		{"--image debian --user 33", "33:33 33 /home/cove www-data www-data /bin/sh\n"},
		{"--image debian --user 4321", "4321:0 0 /home/cove 4321 4321 /bin/sh\n"},
		{"--image debian", "65534:65534 65534 /home/cove nobody nobody /bin/sh\n"},
		{"--image node --user service", "999:999 999 /home/cove service service /bin/sh\n"},
		{"--image node --root", "0:0 0 /root root root /bin/sh\n"},
		{"--image node --root --user node", "1001:1001 1001 4 60 /home/node node node /bin/bash\n"},
	} {
		if said := l.must(append([]string{"cove", "run", "bash", "-c", who}, strings.Fields(c.args)...)...); said != c.want {
			t.Errorf("%s: %q, want %q", c.args, said, c.want)
		}
	}
	const names = "id -un; id -gn; getent passwd $(id -u) | cut -d: -f6; head -n 1 /etc/passwd | cut -d: -f1"
	for args, want := range map[string]string{
		"--image debian --user 4321":      "4321\nroot\n/home/cove\nroot\n",
		"--image debian --user 4321:4322": "4321\n4321\n/home/cove\nroot\n",
		"--image debian":                  "nobody\nnogroup\n/nonexistent\nroot\n",
	} {
		if said := l.must(append([]string{"cove", "run", "bash", "-c", names}, strings.Fields(args)...)...); said != want {
			t.Errorf("%s: the names are %q, want %q", args, said, want)
		}
	}
	const own = "cat ~/of-image && echo more >> ~/of-image && cat ~/of-image && echo x > /work/x && stat -c %U:%G /work/x"
	if said := l.must("cove", "run", "bash", "-c", own, "--image", "node"); said != "kept\nkept\nmore\nnode:node\n" {
		t.Errorf("of its home it has %q", said)
	}
	for args, want := range map[string]string{
		"--image node --user root":      "--root",
		"--image node --user bob":       "has no user \"bob\"",
		"--image node --user node:bobs": "has no group \"bobs\"",
		"--image node --user 70000":     "from 0 to 65535",
		"--user www-data":               "--image IMAGE",
	} {
		said, err := l.run(append([]string{"cove", "run", "bash", "-c", who}, strings.Fields(args)...)...)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %q, %v", args, said, err)
		}
	}
	l.must("cove", "new", "--empty", "--name", "box", "--image", "node", "--no-attach")
	inside := func(script string) string {
		t.Helper()
		return l.must("cove", "exec", "box", "--", "bash", "-c", script)
	}
	if out := strings.Fields(l.must("cove", "info", "box")); !strings.Contains(strings.Join(out, " "), " user node ") {
		t.Errorf("it is shown as %q", out)
	}
	const lasting = who + "; pwd; cat ~/mine 2> /dev/null; echo mine >> ~/mine; stat -c %U:%G ~/mine"
	const said = "1001:1001 1001 4 60 /home/cove node node /bin/bash\n/workspace\n"
	if out := inside(lasting); out != said+"node:node\n" {
		t.Errorf("in a long-lived sandbox it says %q", out)
	}
	if err := syscall.Kill(l.serverPID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if out := inside(lasting); out != said+"mine\nnode:node\n" {
		t.Errorf("with the next server it says %q", out)
	}
	l.must("cove", "stop", "box")
	l.must("cove", "start", "box")
	if out := inside(lasting); out != said+"mine\nmine\nnode:node\n" {
		t.Errorf("started again it says %q", out)
	}
	l.must("cove", "destroy", "box", "--yes")
	l.must("cove", "new", "--empty", "--name", "box", "--image", "debian", "--no-attach")
	if out := inside(names); out != "cove\ncove\n/home/cove\nroot\n" {
		t.Errorf("where the image has no such user: %q", out)
	}
	l.must("cove", "destroy", "box", "--yes")
	_, err = l.run("cove", "new", "--empty", "--name", "other", "--image", "node", "--user", "bob", "--no-attach")
	if err == nil || !strings.Contains(err.Error(), "has no user") {
		t.Errorf("an unknown user: %v", err)
	}
	if out := l.must("cove", "list", "--quiet"); out != "" {
		t.Errorf("left is %q", out)
	}
}

// TestProgramOfAnImage: an image without anything but its program runs, as its user and in its directory, with its own
// arguments or others. What it has not is said, and so is a program of another architecture.
func TestProgramOfAnImage(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to build an image")
	}
	l := newLab(t)
	l.inContext("main.go", `package main

import (
	"fmt"
	"os"
)

func main() {
	dir, _ := os.Getwd()
	fmt.Println(os.Args, os.Getuid(), os.Getgid(), dir, os.Getenv("WORD"))
	if len(os.Args) > 2 && os.Args[2] == "fail" {
		os.Exit(7)
	}
}
`)
	other := "arm64"
	if runtime.GOARCH == other {
		other = "amd64"
	}
	for name, architecture := range map[string]string{"program": runtime.GOARCH, "foreign": other} {
		build := exec.CommandContext(t.Context(), "go", "build", "-o", l.in("ctx/"+name), l.in("ctx/main.go"))
		build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOARCH="+architecture)
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	out, err := l.built(`FROM scratch
COPY program /app/run
COPY foreign /foreign
ENV WORD=word
USER 65532
WORKDIR /app
VOLUME /data
ENTRYPOINT ["./run", "entry"]
CMD ["cmd"]
`, "-t", "small")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	run := func(args ...string) (string, error) {
		return l.run(append([]string{"cove", "run", "--image", "small"}, args...)...)
	}
	for args, want := range map[string]string{
		"":                         "[./run entry cmd] 65532 0 /app word\n",
		"-- a b":                   "[./run entry a b] 65532 0 /app word\n",
		"--entrypoint /app/run":    "[/app/run] 65532 0 /app word\n",
		"--user 7:8 --env WORD=x":  "[./run entry cmd] 7 8 /app x\n",
		"--entrypoint ./run -- -c": "[./run -c] 65532 0 /app word\n",
	} {
		if out, err := run(strings.Fields(args)...); err != nil || out != want {
			t.Errorf("%s: %q, %v, want %q", args, out, err, want)
		}
	}
	for args, want := range map[string]string{
		"-- fail":               "exit status 7",
		"--entrypoint sh":       `the image "small" has no program "sh"`,
		"--entrypoint /nothing": `the image "small" has no program "/nothing"`,
		"--entrypoint /foreign": "binfmt_misc",
		"bash -c id":            `the image "small" has no bash`,
	} {
		if out, err := run(strings.Fields(args)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %q, %v, want %q", args, out, err, want)
		}
	}
	if out, err = l.built("FROM small\nENTRYPOINT []\n", "-t", "none"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	_, err = l.run("cove", "run", "--image", "none")
	if err == nil || !strings.Contains(err.Error(), "--entrypoint PROGRAM") {
		t.Errorf("an image without a program: %v", err)
	}
	l.must("cove", "new", "--empty", "--name", "box", "--image", "small", "--no-attach")
	if out := l.must("cove", "exec", "box", "--", "/app/run"); out != "[/app/run] 65532 0 /workspace word\n" {
		t.Errorf("in a long-lived sandbox it says %q", out)
	}
	for program, want := range map[string]string{"sh": "not in the sandbox", "/foreign": "binfmt_misc"} {
		if out, err := l.run("cove", "exec", "box", "--", program); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %q, %v", program, out, err)
		}
	}
	l.must("cove", "destroy", "box", "--yes")
}
