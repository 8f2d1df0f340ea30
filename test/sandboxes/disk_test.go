package sandboxes

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/internal/linux/disk"
)

// attached returns the images below a lab that have a device.
func (l *lab) attached() (images []string) {
	l.t.Helper()
	names, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		l.t.Fatal(err)
	}
	for _, name := range names {
		if image, err := os.ReadFile(name); err == nil && strings.HasPrefix(string(image), l.dir) { // else it is gone
			images = append(images, strings.TrimSpace(string(image)))
		}
	}
	return images
}

func (l *lab) info(name string) (s api.Sandbox) {
	l.t.Helper()
	if err := json.Unmarshal([]byte(l.must("cove", "info", name, "--json")), &s); err != nil {
		l.t.Fatal(err)
	}
	return s
}

// diskLab is a lab whose machine can bound workspaces.
func diskLab(t *testing.T) *lab {
	t.Helper()
	l := newLab(t)
	if _, err := os.Stat("/usr/sbin/mkfs.ext4"); err != nil {
		t.Skip("needs e2fsprogs: ", err)
	}
	return l
}

// size returns the bytes that the lab's directory takes on the host's disk.
func (l *lab) size() (total int64) {
	l.t.Helper()
	syscall.Sync()
	out := l.must("du", "-sx", "--block-size=1", l.dir)
	if _, err := fmt.Sscan(out, &total); err != nil {
		l.t.Fatal(err)
	}
	return total
}

// asKey starts a server, and returns the lab of a caller with an API key, of which flags say what it may do.
func (l *lab) asKey(flags ...string) *lab {
	l.t.Helper()
	key := l.newKey(flags...)
	caller := *l
	caller.env = append(slices.Clone(l.env), "COVE_SERVER="+l.serve("--config", l.in("cove.yaml")), "COVE_API_KEY="+key)
	l.t.Cleanup(func() {
		for _, s := range l.list().Sandboxes {
			l.run("cove", "destroy", "--yes", s.ID)
		}
	})
	return &caller
}

// newKey makes an API key, which servers of the lab take.
func (l *lab) newKey(flags ...string) (key string) {
	l.t.Helper()
	said := l.must(append([]string{"cove", "config", "new-key", "ci"}, flags...)...)
	_, config, _ := strings.Cut(said, "api_keys")
	l.write("cove.yaml", "api_keys"+config)
	for line := range strings.Lines(said) {
		if of, ok := strings.CutPrefix(line, "key:"); ok {
			key = strings.TrimSpace(of)
		}
	}
	return key
}

// client returns a client of this lab's server: as its key, or as the machine's owner.
func (l *lab) client() *client.Client {
	l.t.Helper()
	o := client.Options{Address: "unix:" + l.in("run/cove.sock")}
	for _, kv := range l.env {
		if address, is := strings.CutPrefix(kv, "COVE_SERVER="); is && address != "" {
			o.Address = address
		}
		if key, is := strings.CutPrefix(kv, "COVE_API_KEY="); is {
			o.Key = key
		}
	}
	c, err := client.New(o)
	if err != nil {
		l.t.Fatal(err)
	}
	return c
}

// fillBytes writes to the workspace and the home until nothing more can be written, and prints the errors.
const fillBytes = `for n in 0 1 2 3 4 5; do
	dd if=/dev/zero of=/workspace/$n bs=1M count=50 2>&1; dd if=/dev/zero of=/home/cove/$n bs=1M count=50 2>&1
done; sync`

// fillFiles makes empty files in both until none can be made, and prints the error and their number.
const fillFiles = `import os
for dir in "/workspace", "/home/cove":
    made = 0
    try:
        while made < 3000000:
            os.close(os.open(f"{dir}/{made}", os.O_CREAT | os.O_WRONLY))
            made += 1
    except OSError as e:
        print(e.strerror, made)
`

// TestFilledDisk: a sandbox of a caller with an API key that writes all it can to its workspace and its home, in bytes
// and in files, takes no more of the host's disk than its limit, on whichever engine. Its neighbour goes on, and its
// end leaves nothing. The control is a sandbox with a larger disk, in which the same writes succeed.
func TestFilledDisk(t *testing.T) {
	for _, engine := range []string{"native", "docker"} {
		t.Run(engine, func(t *testing.T) {
			l := diskLab(t)
			if engine == "docker" && exec.Command("docker", "info").Run() != nil {
				t.Skip("needs a Docker daemon")
			}
			c := l.asKey()
			make := func(name, disk string) {
				t.Helper()
				c.must("cove", "new", "--empty", "--no-attach", "--engine", engine, "--name", name, "--disk", disk)
			}
			make("filler", "64M")
			make("neighbour", "64M")
			make("control", "1G")
			before := l.size()
			out := c.must("cove", "exec", "filler", "--", "sh", "-c", fillBytes)
			if strings.Count(out, "No space left") != 11 {
				t.Errorf("its disk is not full: %s", out)
			}
			var ended api.ExecResult
			out, err := c.run("cove", "exec", "filler", "--json", "--", "dd", "if=/dev/zero", "of=/workspace/x", "bs=1M",
				"count=1")
			if json.Unmarshal([]byte(out), &ended) != nil || ended.LimitHit != "disk" || err == nil ||
				!strings.Contains(err.Error(), "disk full (limit 64 MiB") {
				t.Errorf("a command that fails for it: %s, %v", out, err)
			}
			out, err = c.run("cove", "exec", "neighbour", "--json", "--", "false")
			if json.Unmarshal([]byte(out), &ended) != nil || strings.Contains(out, "limit_hit") || err == nil {
				t.Errorf("a command that fails for another reason: %s, %v", out, err)
			}
			const metadata = 16 << 20 // of the file system, and what the server writes meanwhile
			if n := l.size() - before; n > 64<<20+metadata || n < 60<<20 {
				t.Errorf("a disk of 64 MiB takes %d MiB of the host's", n>>20)
			}
			c.must("cove", "exec", "neighbour", "--", "dd", "if=/dev/zero", "of=/workspace/a", "bs=1M", "count=40",
				"conv=fsync")
			c.must("cove", "exec", "filler", "--", "sh", "-c", "rm /workspace/* ~/[0-9]*")
			before = l.size()
			out = c.must("cove", "exec", "filler", "--", "python3", "-c", fillFiles)
			const full = "No space left on device %d\n"
			var first, second int
			_, err = fmt.Sscanf(out, full+full, &first, &second)
			if err != nil || first+second > 25_000 || first < 5_000 {
				t.Errorf("files without end: %q, %v", out, err)
			}
			if n := l.size() - before; n > 64<<20+metadata {
				t.Errorf("empty files take %d MiB of the host's disk", n>>20)
			}
			c.must("cove", "exec", "neighbour", "--", "sh", "-c", "echo more >~/more && mkdir /workspace/dir")

			before = l.size()
			out = c.must("cove", "exec", "control", "--", "sh", "-c", fillBytes)
			if strings.Contains(out, "No space left") {
				t.Errorf("the control: %s", out)
			}
			if n := l.size() - before; n < 500<<20 {
				t.Errorf("the control takes %d MiB of the host's disk: not tested", n>>20)
			}

			c.must("cove", "stop", "filler")
			c.must("cove", "start", "filler")
			df := c.must("cove", "exec", "filler", "--", "df", "-m", "--output=size", "/workspace")
			if size := strings.TrimSpace(strings.TrimPrefix(df, "1M-blocks")); size < "64" || size > "69" {
				t.Errorf("df inside says %q", df)
			}
			for _, name := range []string{"filler", "neighbour", "control"} {
				c.must("cove", "destroy", "--yes", name)
			}
			l.eventually("the disks are gone", func() bool { return l.attached() == nil && len(l.left()) == 0 })
		})
	}
}

// TestThroughput: with a limit of operations, synced writes of a long-lived sandbox take as long as it says, and its
// neighbour's on a server without the limit do not.
func TestThroughput(t *testing.T) {
	const operations, writes = 20, 80
	for _, engine := range []string{"native", "docker"} {
		t.Run(engine, func(t *testing.T) {
			// wrote returns how long the writes of a new sandbox took.
			wrote := func(config string) time.Duration {
				l := diskLab(t)
				if engine == "docker" && exec.Command("docker", "info").Run() != nil {
					t.Skip("needs a Docker daemon")
				}
				l.write("cove.yaml", config)
				l.env = append(l.env, "COVE_CONFIG="+l.in("cove.yaml"))
				l.must("cove", "new", "--empty", "--no-attach", "--engine", engine, "--name", "writer")
				began := time.Now()
				l.must("cove", "exec", "writer", "--", "dd", "if=/dev/zero", "of=/workspace/x", "bs=4k", "oflag=dsync",
					fmt.Sprint("count=", writes))
				took := time.Since(began)
				l.must("cove", "destroy", "--yes", "writer")
				return took
			}
			limited := wrote(fmt.Sprintf("sandbox: {lasting: {throughput: {operations: %d}}}\n", operations))
			free := wrote("")
			// The kernel lets some through at once.
			if least := time.Second * (writes - 2*operations) / operations; limited < least || free >= limited {
				t.Errorf("%d synced writes took %v with %d operations a second, and %v without a limit",
					writes, limited, operations, free)
			}
		})
	}
}

// TestFullMachine: a sandbox whose disk is larger than the room on the machine's is paused before that is full, and
// says why; nothing of its neighbour or the server is lost, no sandbox can be made, and its end makes room.
func TestFullMachine(t *testing.T) {
	l := diskLab(t)
	machine := disk.Image{File: l.in("machine.img"), Dir: l.in("home")}
	err := machine.Make(t.Context(), disk.Size{Bytes: 2 << 30, Inodes: 10_000})
	if err = errors.Join(err, machine.Mount(t.Context())); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		l.run("cove", "destroy", "--yes", "filler")
		l.run("cove", "destroy", "--yes", "neighbour")
		l.run("cove", "server", "stop")
		if err := machine.Unmount(); err != nil {
			t.Error(err)
		}
	})
	l.must("cove", "new", "--empty", "--no-attach", "--name", "neighbour", "--disk", "64M")
	l.must("cove", "exec", "neighbour", "--", "sh", "-c", "echo kept >~/note; sync")
	l.must("cove", "new", "--empty", "--no-attach", "--name", "filler", "--disk", "4G")
	fill := l.command("cove", "exec", "filler", "--", "dd", "if=/dev/zero", "of=/workspace/a", "bs=1M", "count=3900")
	if err := fill.Start(); err != nil {
		t.Fatal(err)
	}
	l.eventually("the sandbox is paused", func() bool { return l.info("filler").State == "paused" })
	why := l.info("filler").Error
	if !strings.Contains(why, "free some space") || !strings.Contains(why, "cove resume") {
		t.Errorf("it says %q", why)
	}
	syscall.Sync()
	used, err := machine.Used()
	if err != nil || used.Room == 0 {
		t.Errorf("%d bytes are left, %v", used.Room, err)
	}
	t.Logf("%d MiB are left on the machine's disk", used.Room>>20)
	text := l.must("cove", "exec", "neighbour", "--", "sh", "-c", "cat ~/note; echo more >~/more && sync")
	if text != "kept\n" {
		t.Errorf("the neighbour has %q", text)
	}
	if _, err := l.run("cove", "new", "--empty", "--no-attach", "--name", "late"); err == nil ||
		!strings.Contains(err.Error(), "free some space") {
		t.Errorf("another one: %v", err)
	}
	l.must("cove", "destroy", "--yes", "filler")
	fill.Wait()
	l.must("cove", "new", "--empty", "--no-attach", "--name", "filler", "--disk", "64M")
	l.must("cove", "exec", "filler", "--", "dd", "if=/dev/zero", "of=/workspace/a", "bs=1M", "count=50", "conv=fsync")
}

// TestNothingPropagates: what the host mounts below a workspace while its sandbox runs does not appear in it, and no
// mount inside is a peer or a slave of one outside. Guests that wait to be used take what the host unmounts, and stop
// when they are.
func TestNothingPropagates(t *testing.T) {
	l := diskLab(t)
	l.must("cove", "new", "--empty", "--no-attach", "--name", "first", "--disk", "16M")
	l.must("cove", "new", "--empty", "--no-attach", "--name", "second", "--disk", "16M") // of a guest that has waited
	for _, name := range []string{"first", "second"} {
		below := filepath.Join(l.info(name).Directory, "below")
		if err := errors.Join(os.Mkdir(below, 0o755), syscall.Mount("none", below, "tmpfs", 0, "")); err != nil {
			t.Fatal(err)
		}
		err := os.WriteFile(filepath.Join(below, "seen"), nil, 0o644)
		inside := l.must("cove", "exec", name, "--", "sh", "-c", "ls /workspace/below; cat /proc/self/mountinfo")
		if err = errors.Join(err, syscall.Unmount(below, 0)); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(inside, " /workspace ") {
			t.Errorf("not tested: %s", inside)
		}
		for _, bad := range []string{"seen", "shared:", "master:", "propagate_from:"} {
			if strings.Contains(inside, bad) {
				t.Errorf("%s has %q: %s", name, bad, inside)
			}
		}
	}
}

// TestDisksOfKilledServer: running sandboxes keep their disks when their server is killed, and the next one finds them;
// a sandbox that was being made leaves nothing.
func TestDisksOfKilledServer(t *testing.T) {
	l := diskLab(t)
	l.must("cove", "new", "--empty", "--no-attach", "--name", "stays", "--disk", "64M")
	l.must("cove", "exec", "stays", "--", "sh", "-c", "echo kept >~/note")
	for range 4 {
		cmd := l.command("cove", "new", "--empty", "--no-attach", "--name", "goes", "--disk", "64M")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		l.eventually("an image is being made", func() bool { return len(l.attached()) > 1 })
		if err := syscall.Kill(l.serverPID(), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		cmd.Wait()
		if text := l.must("cove", "exec", "stays", "--", "sh", "-c", "cat ~/note"); text != "kept\n" {
			t.Errorf("the sandbox has %q", text)
		}
		for _, s := range l.list().Sandboxes {
			if s.Name == "goes" && s.State == "running" { // it was made before the server was killed
				l.must("cove", "destroy", "--yes", "goes")
			}
		}
		l.eventually("what was being made is gone", func() bool { return len(l.attached()) == 1 })
	}
	entries, err := os.ReadDir(l.in("home/workspaces"))
	for _, e := range entries {
		if e.IsDir() && !strings.HasPrefix(e.Name(), "sb_") {
			t.Errorf("left: %s", e.Name())
		}
	}
	if err != nil {
		t.Error(err)
	}
}

// TestDiskLimits changes a disk's size by command, and removes a disk from a machine that was restarted.
func TestDiskLimits(t *testing.T) {
	l := diskLab(t)
	l.must("cove", "new", "--empty", "--no-attach", "--name", "grows", "--disk", "32M")
	if _, err := l.run("cove", "limits", "grows", "--disk", "16M"); err == nil {
		t.Error("a disk shrank while its sandbox ran")
	}
	l.must("cove", "stop", "grows")
	l.must("cove", "limits", "grows", "--disk", "128M")
	l.must("cove", "start", "grows")
	l.must("cove", "exec", "grows", "--", "dd", "if=/dev/zero", "of=/workspace/x", "bs=1M", "count=100")
	if s := l.info("grows"); s.Limits.DiskMB != 128 {
		t.Errorf("%+v", s.Limits)
	}
	l.must("cove", "stop", "grows")
	if text, err := l.run("cove", "limits", "grows", "--disk", "32M"); err == nil {
		t.Errorf("a disk is smaller than what it holds: %s", text)
	}
	disk := filepath.Dir(l.info("grows").Directory)
	for syscall.Unmount(disk, syscall.MNT_DETACH) == nil { // as after a restart of the machine
	}
	l.must("cove", "start", "grows")
	l.must("cove", "exec", "grows", "--", "test", "-s", "/workspace/x")
}

// TestKeptWorkStays: a sandbox that cannot be removed after its work was kept fails, and another "cove destroy" does
// not remove that work. With --keep-work it ends, and so it does once the work is gone.
func TestKeptWorkStays(t *testing.T) {
	l := diskLab(t)
	for _, name := range []string{"keeps", "loses"} {
		l.must("cove", "new", "--empty", "--no-attach", "--name", name, "--disk", "16M")
		l.must("cove", "exec", name, "--", "sh", "-c", "echo mine >/workspace/work")
		dir := l.info(name).Directory
		below := filepath.Dir(filepath.Dir(dir))
		stuck := filepath.Join(below, "import.git") // a mount cannot be removed
		if err := errors.Join(os.MkdirAll(stuck, 0o700), syscall.Mount("none", stuck, "tmpfs", 0, "")); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { syscall.Unmount(stuck, syscall.MNT_DETACH) })
		if text, err := l.run("cove", "destroy", "--yes", "--keep-work", name); err == nil {
			t.Fatalf("not tested: %s", text)
		}
		if s := l.info(name); s.State != "failed" {
			t.Fatalf("not tested: %s", s.State)
		}
		if err := syscall.Unmount(stuck, 0); err != nil {
			t.Fatal(err)
		}
		_, err := l.run("cove", "destroy", "--yes", name)
		if err == nil || !strings.Contains(err.Error(), "--keep-work") || !strings.Contains(err.Error(), below) {
			t.Errorf("destroyed with the work that was kept: %v", err)
		}
		if name == "keeps" {
			l.must("cove", "destroy", "--yes", "--keep-work", name)
			if work, err := os.ReadFile(filepath.Join(dir, "work")); string(work) != "mine\n" {
				t.Errorf("the work: %q, %v", work, err)
			}
			continue
		}
		if err := os.RemoveAll(filepath.Join(below, "keeping")); err != nil { // the message says where the work is
			t.Fatal(err)
		}
		l.must("cove", "destroy", "--yes", name)
	}
	l.eventually("no sandbox is left", func() bool { return len(l.list().Sandboxes) == 0 })
	if left := l.attached(); left != nil {
		t.Errorf("left: %v", left)
	}
}
