//go:build linux

package docker

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
	"go.uber.org/goleak"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/rootfs"
)

// smallTree is a root filesystem with a shell and a few programs, copied from the host with the libraries they need.
func smallTree(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	put := func(name string) {
		real, err := filepath.EvalSymlinks(name)
		if err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(real)
		if err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, data, 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	for _, program := range []string{"/bin/sh", "/bin/cat", "/bin/ls", "/bin/sleep", "/usr/bin/id", "/usr/bin/env"} {
		put(program)
		for _, lib := range libraries(t, program) {
			if _, err := os.Stat(filepath.Join(dir, lib)); err != nil {
				put(lib)
			}
		}
	}
	if err := errors.Join(
		os.MkdirAll(filepath.Join(dir, "etc"), 0o755), os.Mkdir(filepath.Join(dir, "tmp"), 0o777),
		os.WriteFile(filepath.Join(dir, "etc/passwd"), []byte("root:x:0:0::/:/bin/sh\n"), 0o644),
		os.WriteFile(filepath.Join(dir, "etc/flavour"), []byte("vanilla\n"), 0o644),
		os.Chmod(dir, 0o755),
	); err != nil {
		t.Fatal(err)
	}
	return dir
}

// libraries are the interpreter and the shared libraries of a program.
func libraries(t *testing.T, program string) []string {
	t.Helper()
	f, err := elf.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var libs []string
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			name, err := io.ReadAll(p.Open())
			if err != nil {
				t.Fatal(err)
			}
			libs = append(libs, string(bytes.TrimRight(name, "\x00")))
		}
	}
	needed, err := f.ImportedLibraries()
	if err != nil {
		t.Fatal(err)
	}
	for _, lib := range needed {
		found, _ := filepath.Glob("/lib/*-linux-gnu/" + lib)
		if len(found) != 1 {
			t.Skipf("%s is not where Debian has it", lib)
		}
		libs = append(libs, found[0])
		for _, deeper := range libraries(t, found[0]) {
			if !slices.Contains(libs, deeper) {
				libs = append(libs, deeper)
			}
		}
	}
	return libs
}

func command(args ...string) guest.ProcessSpec {
	return guest.ProcessSpec{Args: args, Env: []string{"PATH=/usr/bin:/bin"}, Dir: "/work"}
}

func images(t *testing.T, repository string) []string {
	t.Helper()
	r, err := ask(t).ImageList(t.Context(), client.ImageListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var tags []string
	for _, img := range r.Items {
		for _, tag := range img.RepoTags {
			if strings.HasPrefix(tag, repository+":") {
				tags = append(tags, tag)
			}
		}
	}
	slices.Sort(tags)
	return tags
}

// TestDirectory: a tree is imported once, and again when it has changed; what
// the sandbox does with it never reaches the tree.
func TestDirectory(t *testing.T) {
	e := open(t, options(t))
	dir := smallTree(t)
	before := len(images(t, dirImage))
	from := func(tmpl *engine.Template) { tmpl.Rootfs = engine.Rootfs{Kind: engine.RootfsDir, Dir: dir} }
	if got := say(t, bound(t, e, from),
		"cat /etc/flavour; id -u; ls /work; ls /usr/bin"); got != "vanilla\n65534\nenv\nid\n" {
		t.Errorf("%q", got)
	}
	say(t, bound(t, e, from), "echo gone > /etc/flavour; echo new > /etc/new")
	if n := len(images(t, dirImage)) - before; n != 1 {
		t.Errorf("%d images were made of one tree", n)
	}
	if err := os.WriteFile(filepath.Join(dir, "etc/flavour"), []byte("pistachio\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := say(t, bound(t, e, from), "cat /etc/flavour; ls /etc"); !strings.HasPrefix(got, "pistachio\n") ||
		strings.Contains(got, "new") {
		t.Errorf("%q", got)
	}
	withDigest := func(tmpl *engine.Template) {
		from(tmpl)
		tmpl.Rootfs.Digest = "sha256:" + strings.Repeat("ab", 32)
	}
	if got := say(t, bound(t, e, withDigest), "cat /etc/flavour"); got != "pistachio\n" {
		t.Errorf("%q", got)
	}
	if tags := images(t, dirImage); !slices.Contains(tags, dirImage+":sha256-"+strings.Repeat("ab", 32)) {
		t.Errorf("images %q", tags)
	}
	for _, digest := range []string{"sha256:short", "md5:" + strings.Repeat("ab", 32), "../../x",
		"sha256:" + strings.Repeat("zz", 32)} {
		tmpl := template()
		tmpl.Rootfs = engine.Rootfs{Kind: engine.RootfsDir, Dir: dir, Digest: digest}
		if _, err := e.Prepare(t.Context(), tmpl); cove.ErrorCode(err) != cove.InvalidArgument {
			t.Errorf("digest %q: %v", digest, err)
		}
	}
}

// TestImportsAreOne: many who need one tree at once import it once.
func TestImportsAreOne(t *testing.T) {
	x := newWire(t)
	e := through(t, x)
	e.api.timeout = callTimeout // five sandboxes are made at once
	imports := make(chan string, 100)
	x.set(func(_ http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "/images/create") {
			imports <- r.URL.RawQuery
		}
		return false
	})
	dir := smallTree(t)
	done := make(chan error, 5)
	for range cap(done) {
		go func() {
			tmpl := template()
			tmpl.Rootfs = engine.Rootfs{Kind: engine.RootfsDir, Dir: dir}
			sb, err := e.Prepare(t.Context(), tmpl)
			if err == nil {
				err = sb.Destroy(t.Context())
			}
			done <- err
		}()
	}
	for range cap(done) {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if len(imports) != 1 {
		t.Errorf("%d imports", len(imports))
	}
}

// TestLinkedPlaces: where an image has a symlink for a writable place, runc mounts the place wherever that leads.
func TestLinkedPlaces(t *testing.T) {
	e := open(t, options(t))
	for _, test := range []struct{ target, refused string }{{"/tmp", ""}, {"/etc", "the image's /var/tmp leads to /etc"}} {
		dir := smallTree(t)
		if err := errors.Join(os.Mkdir(filepath.Join(dir, "var"), 0o755),
			os.Symlink(test.target, filepath.Join(dir, "var/tmp"))); err != nil {
			t.Fatal(err)
		}
		tmpl := template()
		tmpl.Rootfs = engine.Rootfs{Kind: engine.RootfsDir, Dir: dir}
		sb, err := e.Prepare(t.Context(), tmpl)
		if err != nil {
			t.Fatal(err)
		}
		err = sb.Bind(t.Context(), engine.Binding{})
		if got := fmt.Sprint(err); err == nil != (test.refused == "") || !strings.Contains(got, test.refused) {
			t.Errorf("/var/tmp leads to %s: %v", test.target, err)
		}
	}
}

// hostileImage makes an image whose configuration tries everything.
func hostileImage(t *testing.T, tag string) {
	t.Helper()
	dir := smallTree(t)
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	var archive bytes.Buffer
	if err := writeTree(t.Context(), &archive, rootfs.ViewOf(root)); err != nil {
		t.Fatal(err)
	}
	answer, err := ask(t).ImageImport(t.Context(), client.ImageImportSource{Source: &archive, SourceName: "-"}, tag,
		client.ImageImportOptions{Changes: []string{
			`ENTRYPOINT ["/bin/sh", "-c", "echo entrypoint; sleep 600"]`, `CMD ["cmd"]`, "USER 1:1", "WORKDIR /proc/self/fd/7",
			"ENV GODEBUG=madvdontneed=1 LD_PRELOAD=/evil.so FLAVOUR=vanilla", "VOLUME /data /tmp /work/deep", "EXPOSE 80",
			`HEALTHCHECK --interval=1s CMD echo x >> /tmp/health`,
			"LABEL " + labelInstance + "=" + string(cove.NewInstanceID()) + " " + labelSandbox + "=" +
				string(cove.NewSandboxID()) + " " + labelRealm + "=x",
		}})
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Close()
	if _, err := io.Copy(io.Discard, answer); err != nil {
		t.Fatal(err)
	}
}

func TestHostileImage(t *testing.T) {
	const tag = "cove-test/hostile:1"
	e := open(t, options(t))
	hostileImage(t, tag)
	root, err := e.Resolve(t.Context(), tag)
	if err != nil || root.Kind != engine.RootfsImage || !slices.Contains(root.Env, "FLAVOUR=vanilla") ||
		!strings.HasPrefix(root.Digest, "sha256:") {
		t.Fatalf("Resolve: %+v, %v", root, err)
	}
	sb := bound(t, e, func(tmpl *engine.Template) { tmpl.Rootfs = root })
	got := say(t, sb,
		`id -u; cat /etc/flavour; echo x > /data/f; echo x > /etc/f; echo x > /work/deep/f; echo ok > /tmp/f; cat /tmp/f; sleep 2; ls /tmp`)
	if !strings.HasPrefix(got, "65534\nvanilla\n") || strings.Count(got, "cannot create") != 3 ||
		!strings.HasSuffix(got, "ok\nf\n") {
		t.Errorf("%q", got)
	}
	made, err := ask(t).ContainerInspect(t.Context(), containerName(sb.ID()), client.ContainerInspectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c := made.Container
	if slices.ContainsFunc(c.Config.Env, func(kv string) bool {
		return strings.Contains(kv, "GODEBUG=") ||
			strings.Contains(kv, "LD_PRELOAD=")
	}) {
		t.Errorf("PID 1 has the image's environment: %q", c.Config.Env)
	}
	for _, m := range c.Mounts {
		if m.Type == "volume" {
			t.Errorf("a volume was made: %+v", m)
		}
	}
	if c.Config.Labels[labelSandbox] != string(sb.ID()) || c.Config.Labels[labelInstance] != string(e.o.Instance) {
		t.Errorf("the image's labels won: %v", c.Config.Labels)
	}
}

// TestForgedLabels: a container that only looks like Cove's is nobody's to remove.
func TestForgedLabels(t *testing.T) {
	const tag = "cove-test/forged:1"
	e := open(t, options(t))
	hostileImage(t, tag)
	c := ask(t)
	labels := map[string]string{labelRealm: e.realm, labelInstance: string(cove.NewInstanceID()),
		labelSandbox: string(cove.NewSandboxID())}
	foreign, err := c.ContainerCreate(t.Context(), client.ContainerCreateOptions{Name: "cove-foreign",
		Config: &container.Config{Image: tag, Labels: labels}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.ContainerRemove(context.Background(), foreign.ID, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
	})
	if s, err := e.Sweep(t.Context()); err != nil || s.Sandboxes != 0 {
		t.Errorf("Sweep: %+v, %v", s, err)
	}
	if _, err := c.ContainerInspect(t.Context(), foreign.ID, client.ContainerInspectOptions{}); err != nil {
		t.Errorf("the foreign container: %v", err)
	}
}

// TestOtherRunDirectory: who is dead cannot be told from elsewhere.
func TestOtherRunDirectory(t *testing.T) {
	one, two := options(t), options(t)
	one.Instance = cove.NewInstanceID() // dead, but in its own run directory
	a, b := open(t, one), open(t, two)
	sb := bound(t, a)
	if s, err := b.Sweep(t.Context()); err != nil || s.Sandboxes != 0 {
		t.Errorf("Sweep: %+v, %v", s, err)
	}
	if got := say(t, sb, "echo alive"); got != "alive\n" {
		t.Errorf("%q", got)
	}
}

// TestNothingIsPulled: an image that is missing stays missing.
func TestNothingIsPulled(t *testing.T) {
	x := newWire(t)
	e := through(t, x)
	pulled := false
	x.set(func(_ http.ResponseWriter, r *http.Request) bool {
		pulled = pulled || strings.HasSuffix(r.URL.Path, "/images/create")
		return false
	})
	for _, ref := range []string{"debian:stable-slim", "cove.invalid/x@sha256:" + strings.Repeat("0", 64),
		"UPPER:case", "", "-x"} {
		if _, err := e.Resolve(t.Context(), ref); cove.ErrorCode(err) != cove.ImageMissing || cove.ErrorHint(err) == "" {
			t.Errorf("%q: %v", ref, err)
		}
	}
	if pulled {
		t.Error("the daemon was asked to pull")
	}
}

// TestSwappedMount: a directory that is changed between the judgement and the mount is not what the sandbox gets.
func TestSwappedMount(t *testing.T) {
	x := newWire(t)
	e := through(t, x)
	base := t.TempDir()
	project, secret := filepath.Join(base, "project"), filepath.Join(base, "secret")
	if err := errors.Join(os.Mkdir(project, 0o755), os.Mkdir(secret, 0o755),
		os.WriteFile(filepath.Join(secret, "key"), []byte("canary"), 0o644)); err != nil {
		t.Fatal(err)
	}
	for name, swap := range map[string]func() error{
		"another directory": func() error {
			return errors.Join(os.Rename(project, project+".old"),
				os.Rename(secret, project))
		},
		"a link": func() error { return errors.Join(os.Rename(project, project+".old"), os.Symlink(secret, project)) },
	} {
		t.Run(name, func(t *testing.T) {
			sb, err := e.Prepare(t.Context(), template())
			if err != nil {
				t.Fatal(err)
			}
			defer sb.Destroy(context.Background())
			swapped := false
			x.set(func(_ http.ResponseWriter, r *http.Request) bool {
				if strings.HasSuffix(r.URL.Path, "/containers/create") && !swapped {
					swapped = true
					if err := swap(); err != nil {
						t.Error(err)
					}
				}
				return false
			})
			defer x.heal()
			err = sb.Bind(t.Context(), engine.Binding{Mounts: []cove.Mount{{Source: project, Target: cove.Workspace}}})
			if cove.ErrorCode(err) != cove.Forbidden || !swapped {
				t.Errorf("Bind: %v; swapped: %t", err, swapped)
			}
			<-sb.Done() // and nobody can use it
			x.heal()
			if err := errors.Join(os.RemoveAll(project+".old"), os.RemoveAll(project), os.MkdirAll(project, 0o755),
				os.MkdirAll(secret, 0o755)); err != nil {
				t.Fatal(err)
			}
		})
	}
	// The control.
	sb, err := e.Prepare(t.Context(), template())
	if err != nil {
		t.Fatal(err)
	}
	defer sb.Destroy(context.Background())
	if err := sb.Bind(t.Context(),
		engine.Binding{Mounts: []cove.Mount{{Source: project, Target: cove.Workspace}}}); err != nil {
		t.Errorf("Bind without a swap: %v", err)
	}
}

// TestWeakerContainer: a daemon that leaves a wall out is found out before anything runs.
func TestWeakerContainer(t *testing.T) {
	x := newWire(t)
	e := through(t, x)
	before := leftovers(t)
	started := false
	x.set(func(w http.ResponseWriter, r *http.Request) bool {
		started = started || strings.HasSuffix(r.URL.Path, "/start")
		if !strings.HasSuffix(r.URL.Path, "/containers/create") {
			return false
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		weak := bytes.Replace(body, []byte(`"ReadonlyRootfs":true`), []byte(`"ReadonlyRootfs":false`), 1)
		if bytes.Equal(weak, body) {
			t.Error("nothing was weakened")
		}
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(weak)), int64(len(weak))
		r.Header.Del("Content-Length")
		return false
	})
	_, err := e.Prepare(t.Context(), template())
	if cove.ErrorCode(err) != cove.Unsupported || !strings.Contains(err.Error(), "read-only root") {
		t.Errorf("Prepare: %v", err)
	}
	if started {
		t.Error("it was started all the same")
	}
	x.heal()
	if after := leftovers(t); len(after) > len(before) {
		t.Errorf("left: %q", after)
	}
}

// TestStatsFromTheDaemon: where the control groups cannot be seen, the daemon is asked.
func TestStatsFromTheDaemon(t *testing.T) {
	e := open(t, options(t))
	sb := bound(t, e).(*sandbox)
	say(t, sb, "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done")
	here, err := sb.Stats(t.Context())
	if err != nil || sb.current.group == nil {
		t.Fatalf("%+v, %v", here, err)
	}
	sb.current.group = nil
	there, err := sb.Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if there.CPUTime < here.CPUTime || there.CPUTime > 2*here.CPUTime || there.MemoryPeak < here.MemoryPeak/2 ||
		there.PIDs != here.PIDs {
		t.Errorf("the kernel says %+v, the daemon %+v", here, there)
	}
}

// TestOutOfMemoryOfPIDOne: when even the guest is killed for memory, it is said that memory was the reason.
func TestOutOfMemoryOfPIDOne(t *testing.T) {
	e := open(t, options(t))
	sb := bound(t, e, func(tmpl *engine.Template) {
		tmpl.Limits.Memory, tmpl.Limits.Disk = 32<<20, 200<<20 // files in memory, whose owner cannot be killed
	})
	p, err := sb.Guest().Start(t.Context(), command("sh", "-c",
		"cat /dev/zero > /work/a & cat /dev/zero > /home/cove/b & cat /dev/zero > /tmp/c & wait"))
	if err != nil {
		t.Fatal(err)
	}
	p.Wait(t.Context())
	stats, err := sb.Stats(t.Context())
	if err != nil || stats.OOMKills < 1 {
		t.Errorf("%+v, %v", stats, err)
	}
}

// TestNoGoroutineStays: after Close nothing of the engine's runs.
func TestNoGoroutineStays(t *testing.T) {
	o := options(t) // starts the daemon, whose command may leave some
	before := goleak.IgnoreCurrent()
	e, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	sb, err := e.Prepare(t.Context(), template())
	if err != nil {
		t.Fatal(err)
	}
	if err := sb.Bind(t.Context(), engine.Binding{Hostname: "other"}); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Prepare(t.Context(), template()); err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	goleak.VerifyNone(t, before)
}

// TestGuestOfAnotherBuild: something else than the guest is no sandbox.
func TestGuestOfAnotherBuild(t *testing.T) {
	o := options(t)
	o.Guest = "/bin/true"
	e := open(t, o)
	before := leftovers(t)
	_, err := e.Prepare(t.Context(), template())
	if cove.ErrorCode(err) != cove.Unavailable || !strings.Contains(cove.ErrorHint(err), "one build") {
		t.Errorf("Prepare: %v", err)
	}
	if after := leftovers(t); len(after) > len(before) {
		t.Errorf("left: %q", after)
	}
}

// TestTasksAreTheUsers: the user has all of the limit of tasks, and the guest its own on top, neither more nor less.
func TestTasksAreTheUsers(t *testing.T) {
	e := open(t, options(t))
	sb := bound(t, e, func(tmpl *engine.Template) { tmpl.Limits.PIDs = 20 })
	got := say(t, sb, "i=1; while [ $i -lt 60 ]; do sleep 600 & i=$((i+1)); echo $i; done")
	lines := strings.Split(strings.TrimSpace(got), "\n")
	// The shell is the first of twenty; a thread of the guest's may come or go.
	if n := slices.IndexFunc(lines, func(s string) bool { return strings.Contains(s, "fork") }); n < 18 || n > 21 {
		t.Errorf("%d processes beside the shell: %q", n, got)
	}
}
