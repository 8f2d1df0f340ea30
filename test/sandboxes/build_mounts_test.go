package sandboxes

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove/test/debian"
)

// TestImageBuildMounts: what a command of a build mounts is there for it alone. Files of the context, a stage and an
// image come in, caches last, and secrets are neither in a layer nor in what Cove keeps or says.
func TestImageBuildMounts(t *testing.T) {
	made := debian.Root(t)
	l := newLab(t)
	l.must("cp", "-a", made, l.in("root"))
	l.must("cove", "image", "import", "dir:"+l.in("root"), "--name", "debian")
	const canary, second = "canary-7d1e55b4", "second-line-of-it-91"
	l.inContext("a.txt", "A\n")
	l.inContext("left-out", "left out\n")
	l.inContext(".dockerignore", "left-out\n")
	l.inContext("link", "")
	if err := os.Remove(l.in("ctx/link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc/shadow", l.in("ctx/link")); err != nil {
		t.Fatal(err)
	}
	l.write("key", canary+"\n"+second+"\n")
	l.env = append(l.env, "TOKEN=from-the-environment")
	const dockerfile = `FROM debian AS one
RUN mkdir /made && echo one > /made/file && chown 33:44 /made/file

FROM debian
WORKDIR /src
RUN --mount=target=. --mount=from=one,source=/made,target=/etc/made \
    --mount=from=debian,source=/etc/passwd,target=/m/passwd set -e; cat a.txt /etc/made/file > /result; \
    stat -c %u:%g /etc/made/file >> /result; grep -c ^root: /m/passwd >> /result; \
    test ! -e left-out; test "$(readlink link)" = /etc/shadow; ! touch a.txt; ! touch /m/passwd
RUN --mount=target=.,rw --mount=from=one,source=made,target=/made,rw echo written | tee a.txt > /made/file && cat a.txt
RUN --mount=target=. --mount=from=one,source=/made,target=/made cat a.txt /made/file >> /result
RUN --mount=type=cache,target=/var/cache/mine,uid=7,gid=8,mode=0710 --mount=type=tmpfs,target=/usr/mem \
    set -e; stat -c '%u:%g %a' /var/cache/mine >> /result; echo x > /usr/mem/x; date +%N >> /var/cache/mine/log; \
    wc -l < /var/cache/mine/log >> /result
RUN --mount=type=cache,target=/elsewhere,id=/var/cache/mine,sharing=locked wc -l < /elsewhere/log >> /result
RUN --mount=type=cache,target=/begun,from=one,source=/made cat /begun/file >> /result
RUN --mount=type=secret,id=key,target=/root/.netrc,uid=5,mode=0440 --mount=type=secret,id=TOKEN,env=TOKEN \
    --mount=type=secret,id=absent set -e; stat -c '%u:%g %a' /root/.netrc >> /result; cat /root/.netrc; \
    head -c 20000 /dev/zero | tr '\0' x; cat /root/.netrc | tr -d '\n'; echo $TOKEN; \
    test ! -e /run/secrets/absent; sha256sum < /root/.netrc | cut -c 1-9 >> /result; echo -n "$TOKEN" | wc -c >> /result
USER nobody
RUN --mount=type=secret,id=key ! cat /run/secrets/key
`
	args := []string{"-t", "mounts", "--secret", "id=key,src=" + l.in("key"), "--secret", "id=TOKEN"}
	out, err := l.built(dockerfile, args...)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, value := range []string{canary, second, "from-the-environment"} {
		if strings.Contains(out, value) {
			t.Errorf("the log of the build has %s:\n%.3000s", value, out)
		}
	}
	if !strings.Contains(out, "the secret key enters the sandbox of this command") ||
		!strings.Contains(out, strings.Repeat("*", len(canary))) {
		t.Errorf("it does not say that a secret was used:\n%.3000s", out)
	}
	look := func() string {
		t.Helper()
		return l.must("cove", "run", "--image", "mounts", "bash", "-c", `cat /result
			ls -d /etc/made /m /src/a.txt /made /usr/mem /var/cache/mine /elsewhere /begun /root/.netrc 2> /dev/null || true`)
	}
	sum := strings.Fields(l.must("sha256sum", l.in("key")))[0][:9]
	const want = "A\none\n33:44\n1\nA\none\n7:8 710\n1\n1\none\n5:0 440\n"
	if said := look(); said != want+sum+"\n20\n" {
		t.Errorf("the image has %q, want %q", said, want+sum+"\n20\n")
	}
	err = filepath.WalkDir(l.in("home"), func(name string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(name)
		for _, value := range []string{canary, second, "from-the-environment"} {
			if strings.Contains(string(data), value) {
				t.Errorf("%s has %s", name, value)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	l.write("key", "another value of it\n")
	if out, err = l.built(dockerfile, args...); err != nil || strings.Count(out, "CACHED") != 10 {
		t.Errorf("another secret has other layers: %v, %d\n%s", err, strings.Count(out, "CACHED"), out)
	}
	l.inContext("a.txt", "Z\n")
	out, err = l.built(dockerfile, args...)
	if err != nil || !strings.HasPrefix(look(), "Z\none\n33:44\n1\nZ\none\n7:8 710\n2\n2\n") {
		t.Errorf("with another file: %v, %q\n%s", err, look(), out)
	}
	l.must("cove", "image", "prune")
	if out, err = l.built(dockerfile, args...); err != nil || !strings.Contains(look(), "\n7:8 710\n2\n2\n") {
		t.Errorf("pruned, the layers of an image are gone: %v, %q\n%s", err, look(), out)
	}
	l.must("cove", "image", "remove", "mounts")
	l.must("cove", "image", "prune")
	if out, err = l.built(dockerfile, args...); err != nil || !strings.Contains(look(), "\n7:8 710\n1\n1\n") {
		t.Errorf("pruned, a cache has what it had: %v, %q\n%s", err, look(), out)
	}
	for _, test := range [][2]string{
		{"target=/m,source=../etc", `contains ".."`},
		{"target=/m,from=debian,source=etc/../../..", `contains ".."`},
		{"target=/m,source=nothing", "is not there"},
		{"target=/m,source=left-out", ".dockerignore"},
		{"target=/m,from=debian,source=nothing", "is not there to mount"},
		{"target=/m,from=nothing", "cove image pull nothing"},
		{"target=/proc/1", `a mount at "/proc/1" is not possible`},
		{"type=cache,target=/x/../dev/shm", `a mount at "/dev/shm" is not possible`},
		{"type=tmpfs,target=/run/cove", `a mount at "/run/cove" is not possible`},
		{"type=secret,id=none,required=true", "--secret id=none,src=FILE"},
	} {
		out, err := l.built("FROM debian\nRUN --mount=" + test[0] + " true")
		if err == nil || !strings.Contains(out, test[1]) {
			t.Errorf("%s: %v, want %q\n%s", test[0], err, test[1], out)
		}
	}
	toolCaches(t, l)
}

// toolCaches: with --tool-caches the caches of a project's tools last from build to build. No image has them, and no
// other project.
func toolCaches(t *testing.T, l *lab) {
	t.Helper()
	const dockerfile = `FROM debian
ENV npm_config_cache=/var/npm
ARG N=0
RUN mkdir -p /var/npm && echo x >> /var/npm/log && wc -l < /var/npm/log > /result
`
	for i, tc := range []struct {
		flags []string
		want  string
	}{
		{nil, "1\n/var/npm/log\n"},
		{[]string{"--tool-caches"}, "1\n"},
		{[]string{"--tool-caches"}, "2\n"},
		{[]string{"--tool-caches", "--no-cache"}, "3\n"},
		{nil, "1\n/var/npm/log\n"},
	} {
		args := append([]string{"-t", "tools", "--build-arg", "N=" + strconv.Itoa(i)}, tc.flags...)
		if out, err := l.built(dockerfile, args...); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		said := l.must("cove", "run", "--image", "tools", "bash", "-c", "cat /result; ls /var/npm/log 2> /dev/null || true")
		if said != tc.want {
			t.Errorf("build %d, %q: the image has %q, want %q", i, tc.flags, said, tc.want)
		}
	}
	l.must("cp", "-a", l.in("ctx"), l.in("another"))
	l.must("cove", "image", "build", "--tool-caches", "-t", "tools", l.in("another"))
	if said := l.must("cove", "run", "--image", "tools", "bash", "-c", "cat /result"); said != "1\n" {
		t.Errorf("another project has the caches of this one: %q", said)
	}
	if said := l.must("cove", "image", "rm", "tools"); !strings.Contains(said, "its layers stay for the next build") {
		t.Errorf("it is not said that layers stay: %q", said)
	}
}
