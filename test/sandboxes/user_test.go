package sandboxes

import (
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
	} {
		if said := l.must(append([]string{"cove", "run", "bash", "-c", who}, strings.Fields(c.args)...)...); said != c.want {
			t.Errorf("%s: %q, want %q", c.args, said, c.want)
		}
	}
	const own = "cat ~/of-image && echo more >> ~/of-image && cat ~/of-image && echo x > /work/x && stat -c %U:%G /work/x"
	if said := l.must("cove", "run", "bash", "-c", own, "--image", "node"); said != "kept\nkept\nmore\nnode:node\n" {
		t.Errorf("of its home it has %q", said)
	}
	for args, want := range map[string]string{
		"--image node --user root":        "--root",
		"--image node --user bob":         "has no user \"bob\"",
		"--image node --user node:bobs":   "has no group \"bobs\"",
		"--image node --user 70000":       "from 0 to 65535",
		"--image node --user node --root": "leave --root or --user out",
		"--user www-data":                 "--image IMAGE",
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
	_, err = l.run("cove", "new", "--empty", "--name", "other", "--image", "node", "--user", "bob", "--no-attach")
	if err == nil || !strings.Contains(err.Error(), "has no user") {
		t.Errorf("an unknown user: %v", err)
	}
	if out := l.must("cove", "list", "--quiet"); out != "" {
		t.Errorf("left is %q", out)
	}
}
