package sandboxes

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove/test/debian"
)

// inArchive returns a file of an archive.
func inArchive(t *testing.T, archive, name string) []byte {
	t.Helper()
	f, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r := tar.NewReader(f)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			t.Fatalf("%s has no %s", archive, name)
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Name == name {
			data, err := io.ReadAll(r)
			if err != nil {
				t.Fatal(err)
			}
			return data
		}
	}
}

// TestImageSave: a build and "cove image save" write archives that have the layers of the steps, are the same for the
// same steps, and come back as they were. Docker loads one and runs it.
func TestImageSave(t *testing.T) {
	made := debian.Root(t)
	l := newLab(t)
	l.must("cp", "-a", made, l.in("root"))
	l.must("cove", "image", "import", "dir:"+l.in("root"), "--name", "debian")
	l.env = append(l.env, "SOURCE_DATE_EPOCH=1700000000")
	l.inContext("a.txt", "A\n")
	const dockerfile = `FROM debian AS below
RUN rm -r /usr/share/bug && echo one > /one && chmod 4711 /one && chown 7:8 /one
FROM below
COPY --chown=55 a.txt /opt/
RUN rm /one && mkdir /dir && ln /opt/a.txt /dir/linked && ln -s /nowhere /dir/link
ENV GREETING=hello
CMD ["sh", "-c", "echo $GREETING; cat /opt/a.txt"]
`
	build := func(output string, more ...string) {
		t.Helper()
		out, err := l.built(dockerfile, append([]string{"-t", "saved", "--output", output}, more...)...)
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	build("type=docker,dest=" + l.in("one.tar"))
	l.must("cove", "image", "prune")
	build("type=docker,dest=" + l.in("two.tar"))
	build("type=oci,dest=" + l.in("oci.tar"))
	l.must("cove", "image", "save", "saved", "-o", l.in("three.tar"))
	c := l.command("cove", "image", "save", "saved")
	streamed, err := c.Output()
	if err != nil {
		t.Fatal(err)
	}
	one, err := os.ReadFile(l.in("one.tar"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"two.tar", "three.tar"} {
		if other, err := os.ReadFile(l.in(name)); err != nil || !bytes.Equal(one, other) {
			t.Errorf("%s is another archive, %v", name, err)
		}
	}
	if !bytes.Equal(one, streamed) {
		t.Error("standard output is another archive")
	}
	var manifest []struct {
		RepoTags, Layers []string
		Config           string
	}
	if err := json.Unmarshal(inArchive(t, l.in("one.tar"), "manifest.json"), &manifest); err != nil {
		t.Fatal(err)
	}
	if len(manifest) != 1 || len(manifest[0].Layers) != 4 || manifest[0].RepoTags[0] != "saved:latest" {
		t.Errorf("the archive has %+v", manifest)
	}
	var config struct {
		History []struct {
			Empty bool `json:"empty_layer"`
		} `json:"history"`
	}
	if err := json.Unmarshal(inArchive(t, l.in("one.tar"), manifest[0].Config), &config); err != nil {
		t.Fatal(err)
	}
	filled := 0
	for _, h := range config.History {
		if !h.Empty {
			filled++
		}
	}
	if filled != 4 {
		t.Errorf("the history has %+v", config.History)
	}
	const look = `stat -c '%n %u:%g %a %h %Y' /opt/a.txt /dir/linked; readlink /dir/link; ls /one /usr/share/bug || true
		find / -xdev -printf '%P %m %U:%G %y %l\n' | grep -v -e ^proc -e ^sys -e ^dev -e ^run -e ^tmp -e ^work -e ^etc/host \
		-e ^etc/resolv -e ^home | sort | sha256sum`
	want := l.must("cove", "run", "--image", "saved", "bash", "-c", look)
	if !strings.HasPrefix(want, "/opt/a.txt 55:55 644 2 1700000000\n/dir/linked 55:55 644 2 1700000000\n/nowhere\n") {
		t.Errorf("the image has %q", want)
	}
	archives := map[string]string{"again": "docker-archive:" + l.in("one.tar"), "layout": "oci:" + l.in("oci.tar")}
	for name, from := range archives {
		l.must("cove", "image", "import", from, "--name", name)
		if got := l.must("cove", "run", "--image", name, "bash", "-c", look); got != want {
			t.Errorf("%s has %q, want %q", from, got, want)
		}
	}
	build("type=local,dest=" + l.in("files"))
	if data, err := os.ReadFile(l.in("files/dir/linked")); err != nil || string(data) != "A\n" {
		t.Errorf("the directory has %q, %v", data, err)
	}
	if out := l.must("find", l.in("files"), "-perm", "/7000", "-o", "-uid", "+0", "-print"); out != "" {
		t.Errorf("files of a directory have owners or modes of their own: %s", out)
	}
	out, err := l.built(dockerfile, "-o", l.in("files"))
	if err == nil || !strings.Contains(out, "not an empty directory") {
		t.Errorf("%v\n%s", err, out)
	}
	l.must("cove", "image", "prune")
	l.must("cove", "image", "save", "saved", "-o", l.in("whole.tar"))
	l.must("cove", "image", "import", "docker-archive:"+l.in("whole.tar"), "--name", "whole")
	if got := l.must("cove", "run", "--image", "whole", "bash", "-c", look); got != want {
		t.Errorf("as one layer it has %q, want %q", got, want)
	}
	t.Run("docker", func(t *testing.T) {
		if os.Getenv("DOCKER_HOST") == "" {
			t.Skip("needs a Docker daemon of its own: DOCKER_HOST=$(scripts/start-docker.sh)")
		}
		for _, name := range []string{"one.tar", "whole.tar"} {
			if out, err := exec.Command("docker", "load", "-i", l.in(name)).CombinedOutput(); err != nil ||
				!strings.Contains(string(out), "saved:latest") {
				t.Fatalf("%s: %v\n%s", name, err, out)
			}
			out, err := exec.Command("docker", "run", "--rm", "--network=none", "saved").CombinedOutput()
			if err != nil || string(out) != "hello\nA\n" {
				t.Errorf("%s: %v\n%s", name, err, out)
			}
			out, err = exec.Command("docker", "run", "--rm", "--network=none", "saved", "sh", "-c",
				"stat -c '%u:%g %a %h' /dir/linked; ls /one").Output() // without the error of ls
			if err == nil || string(out) != "55:55 644 2\n" {
				t.Errorf("%s: %v\n%s", name, err, out)
			}
		}
	})
}
