package sandboxes

import (
	"os"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove/test/debian"
)

// inContext writes a file of the context of a build.
func (l *lab) inContext(name, text string) {
	l.t.Helper()
	if err := os.MkdirAll(l.in("ctx"), 0o755); err != nil {
		l.t.Fatal(err)
	}
	l.write("ctx/"+name, text)
}

// built runs "cove image build" over the context, and returns what it says.
func (l *lab) built(dockerfile string, args ...string) (string, error) {
	l.t.Helper()
	l.inContext("Dockerfile", dockerfile)
	c := l.command(append(append([]string{"cove", "image", "build"}, args...), "ctx")...)
	out, err := c.CombinedOutput()
	return string(out), err
}

// TestImageBuild builds an image of two stages over a root file system of Debian, without a container engine, and runs
// it: its files have their owners, its commands ran as root inside and as its user, and none had a network.
func TestImageBuild(t *testing.T) {
	made := debian.Root(t)
	l := newLab(t)
	l.must("cp", "-a", made, l.in("root"))
	l.must("cove", "image", "import", "dir:"+l.in("root"), "--name", "debian")
	l.inContext("a.txt", "A\n")
	l.inContext("b.txt", "B\n")
	l.inContext("secret", "secret\n")
	l.inContext(".dockerignore", "secret\n")
	const dockerfile = `ARG BASE=debian
FROM ${BASE} AS build
ARG WORD=none
WORKDIR /src
COPY . .
RUN test ! -e secret && cat a.txt > out && echo $WORD >> out && ! (exec 3<>/dev/tcp/192.0.2.1/80)
RUN <<EOT
#!/bin/bash
set -e
rm -r /usr/share/bug
echo kept > /tmp/kept
echo kept > /root/kept
EOT

FROM debian
ENV GREETING=hello
RUN useradd -m ada
COPY --from=build --chown=ada:55 --chmod=604 /src/out /opt/res/
COPY --from=build /tmp/kept /root/kept /opt/
USER ada
WORKDIR /home/ada
RUN id -un > mine && echo $HOME $GREETING >> mine
CMD ["cat", "mine"]
`
	args := []string{"-t", "built", "--build-arg", "WORD=word"}
	l.env = append(l.env, "SOURCE_DATE_EPOCH=1700000000")
	out, err := l.built(dockerfile, args...)
	if err != nil || strings.Contains(out, "CACHED") {
		t.Fatalf("%v\n%s", err, out)
	}
	const look = `cat /opt/res/out /home/ada/mine; stat -c '%U:%g %a %Y' /opt/res/out; stat -c '%U %n' /home/ada/mine
		cat /opt/kept; ls -d /usr/share/bug /src || true`
	said := l.must("cove", "run", "--image", "built", "bash", "-c", look)
	const want = "A\nword\nada\n/home/ada hello\nada:55 604 1700000000\nada /home/ada/mine\nkept\n/usr/share/bug\n"
	if !strings.HasPrefix(said, want) || strings.Contains(said, "/src") {
		t.Errorf("the image has %q, want %q", said, want)
	}
	digest := func() string {
		t.Helper()
		for line := range strings.Lines(l.must("cove", "image", "list")) {
			if strings.HasPrefix(line, "built:latest") {
				return strings.Fields(line)[1]
			}
		}
		t.Fatal("the image has no name")
		return ""
	}
	first := digest()
	if out, err = l.built(dockerfile, args...); err != nil || strings.Count(out, "CACHED") != 8 || digest() != first {
		t.Errorf("built again it is %s, %v\n%s", first, err, out)
	}
	if out, err = l.built(dockerfile, append(args, "--no-cache")...); err != nil || strings.Contains(out, "CACHED") {
		t.Errorf("%v\n%s", err, out)
	}
	l.inContext("a.txt", "Z\n")
	if out, err = l.built(dockerfile, args...); err != nil || digest() == first {
		t.Errorf("with another file it is the same image: %v\n%s", err, out)
	}
	l.must("cove", "image", "prune")
	if said = l.must("cove", "run", "--image", "built", "bash", "-c", "head -n 1 /opt/res/out"); said != "Z\n" {
		t.Errorf("when layers are pruned the image has %q", said)
	}
	out, err = l.built(dockerfile, append(args, "--target", "build")...)
	if err != nil || strings.Contains(out, "useradd") {
		t.Errorf("%v\n%s", err, out)
	}
	refusals(t, l)
}

// TestImageBuildForOthers builds an image for another machine, whose programs the kernel does not know: all is done but
// them, and what runs one is refused.
func TestImageBuildForOthers(t *testing.T) {
	l := newLab(t)
	l.inContext("program", "\x7fELF\x02\x02\x01"+strings.Repeat("\x00", 9)+"\x00\x02\x00\x16"+strings.Repeat("\x00", 44))
	const dockerfile = "FROM scratch\nCOPY --chmod=755 program /\nCOPY --chmod=755 program /bin/sh\n"
	if out, err := l.built(dockerfile, "-t", "other", "--platform", "linux/s390x"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if out := l.must("cove", "image", "list"); !strings.Contains(out, "linux/s390x") {
		t.Errorf("it is %s", out)
	}
	const want = "register an emulator with binfmt_misc"
	out, err := l.built(dockerfile+"RUN [\"/program\"]\n", "--platform", "linux/s390x")
	if err == nil || !strings.Contains(out, want) {
		t.Errorf("a program is run: %v\n%s", err, out)
	}
	if out, err := l.run("cove", "run", "--image", "other", "--entrypoint", "/program"); err == nil ||
		!strings.Contains(err.Error(), want) {
		t.Errorf("the image runs: %v\n%s", err, out)
	}
	if out, err := l.run("cove", "new", "src", "--name", "box", "--image", "other", "--no-attach"); err == nil ||
		!strings.Contains(err.Error(), want) {
		t.Errorf("a sandbox is made: %v\n%s", err, out)
	}
}

// refusals: what fails, and what is not supported, is said with its line, and leaves no image.
func refusals(t *testing.T, l *lab) {
	for dockerfile, want := range map[string]string{
		"FROM debian\nRUN echo said; exit 3":       "line 2 of the Dockerfile: the command ended with exit code 3",
		"FROM debian\nRUN [\"/nothing\"]":          "the image has no program",
		"FROM debian\nCOPY secret /":               ".dockerignore",
		"FROM debian\nCOPY --chown=bob a.txt /":    "there is no user",
		"FROM debian\nADD https://example.com/x /": "allow it: --allow example.com",
		"FROM debian\nCOPY --parents ** /":         "with --parents is not supported",
		"FROM debian\nRUN --mount=type=ssh true":   "RUN --mount=type=ssh is not supported",
		"FROM nothing-of-the-kind":                 "cove image pull nothing-of-the-kind",
		"FROM --platform=linux/s390x debian":       "and the stage for linux/s390x",
	} {
		out, err := l.built(dockerfile, "-t", "refused")
		if err == nil || !strings.Contains(out, want) {
			t.Errorf("%s\n%v, want %q:\n%s", dockerfile, err, want, out)
		}
	}
	if out := l.must("cove", "image", "list"); strings.Contains(out, "refused") {
		t.Errorf("there is an image: %s", out)
	}
	if left, err := os.ReadDir(l.in("home/images/tmp")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
