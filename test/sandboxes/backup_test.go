package sandboxes

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cove-sandbox/cove/api"
)

// beside is the lab with another home and another run directory.
func (l *lab) beside(name string) *lab {
	l.t.Helper()
	o := *l
	o.env = append(slices.Clone(l.env), "COVE_HOME="+l.in(name), "COVE_RUN_DIR="+l.in(name+"-run"))
	l.t.Cleanup(func() {
		for _, s := range o.list().Sandboxes {
			o.run("cove", "destroy", "--yes", s.ID)
		}
		o.run("cove", "server", "stop")
	})
	return &o
}

// someTree makes files of all kinds in a sandbox, and digestOfTree tells whether they are the same.
const someTree = `mkdir -p d/e && head -c 300000 /dev/urandom >d/e/noise && ln d/e/noise d/link &&
ln -s /nowhere d/symbolic && chmod 711 d/e/noise && truncate -s 50M d/holes &&
echo end >>d/holes && mkfifo d/pipe && echo own >~/own &&
git add d/e && git commit -qm noise`

const digestOfTree = `cd / && find workspace home/cove -printf '%p %y %m %s %l %T@\n' | sort | sha256sum &&
find workspace home/cove -type f -print0 | sort -z | xargs -0 sha256sum | sha256sum`

// TestStopWritesOut: what a sandbox holds when it is stopped is in the file of its disk, which no device has; a copy of
// the home of a stopped server has all work. What looks at a stopped sandbox mounts its disk for itself alone.
func TestStopWritesOut(t *testing.T) {
	l := diskLab(t)
	l.must("cove", "new", "src", "--name", "box", "--no-attach")
	l.must("cove", "exec", "box", "--", "sh", "-c", "echo kept >k && git add k && git commit -qm k && echo open >o")
	used := l.info("box").DiskUsed
	l.must("cove", "stop", "box")
	rests := func(after string) {
		t.Helper()
		if all := l.attached(); len(all) > 0 {
			t.Errorf("after %s: attached: %v", after, all)
		}
	}
	rests("a stop")
	l.must("cove", "server", "stop")
	l.must("cp", "-a", "--sparse=always", l.in("home"), l.in("copy"))
	o := l.beside("copy")
	o.must("cove", "start", "box")
	out := o.must("cove", "exec", "box", "--", "sh", "-c", "cat k o; git log --format=%s -1")
	if out != "kept\nopen\nk\n" {
		t.Errorf("the copy has %q", out)
	}
	o.must("cove", "destroy", "box", "--yes")

	if s := l.info("box"); s.DiskUsed < used/2 || s.DiskUsed > used*2 {
		t.Errorf("at rest it holds %d bytes, and held %d", s.DiskUsed, used)
	}
	rests("info")
	if out := l.must("cove", "diff", "box", "--name-only"); out != "k\no\n" {
		t.Errorf("diff: %q", out)
	}
	rests("diff")
	l.must("cove", "limits", "box", "--disk", "3GB")
	rests("a change of its size")
	l.must("cove", "start", "box")
	l.must("cove", "exec", "box", "--", "test", "-e", "o")
	// One that ends by itself rests, too.
	l.must("cove", "exec", "--detach", "box", "--", "sleep", "4001")
	syscall.Kill(l.serverPID(), syscall.SIGKILL)
	l.must("cove", "stop", "box")
	rests("a stop by another server")

	// A disk without a checkout says so, and where files are.
	s := l.info("box")
	dir := strings.TrimSuffix(s.Directory, "/disk/checkout")
	l.must("sh", "-c", "mkdir m && mount -o loop "+dir+"/disk.img m && rm -r m/checkout && umount m")
	if _, err := l.run("cove", "start", "box"); err == nil || !strings.Contains(err.Error(), "no checkout on the disk") ||
		!strings.Contains(err.Error(), dir+"/disk,") {
		t.Errorf("%v", err)
	}
}

// TestBackup: under load, a backup that is killed leaves the older one whole and nothing else; a finished one,
// restored where nothing is, has every execution that was acknowledged before it began, and what is on every disk.
func TestBackup(t *testing.T) {
	l := diskLab(t)
	path := l.in("b.tar.zst")
	digests := map[string]string{}
	for _, name := range []string{"stopped", "runs"} {
		l.must("cove", "new", "src", "--name", name, "--no-attach")
		l.must("cove", "exec", name, "--", "sh", "-c", someTree)
		digests[name] = l.must("cove", "exec", name, "--", "sh", "-c", digestOfTree)
	}
	l.must("cove", "stop", "stopped")
	l.must("cove", "new", "--empty", "--name", "writes", "--no-attach")
	l.must("cove", "exec", "--detach", "writes", "--", "sh", "-c",
		"i=0; while :; do i=$((i+1)); echo $i >>log; head -c 100000 /dev/zero | tr '\\0' $((i%10)) >f$((i%50)); sync; done")
	var load sync.WaitGroup
	var end atomic.Bool
	var mu sync.Mutex
	var acknowledged []string
	load.Go(func() {
		for n := 0; !end.Load(); n++ {
			out, err := l.run("cove", "run", "--json", "sh", "-c", fmt.Sprint("echo ", n))
			var e api.Execution
			if err == nil && json.Unmarshal([]byte(out), &e) == nil && e.ID != "" {
				mu.Lock()
				acknowledged = append(acknowledged, e.ID)
				mu.Unlock()
			}
		}
	})
	load.Go(func() {
		for !end.Load() {
			l.run("cove", "new", "--empty", "--name", "comes-and-goes", "--no-attach")
			l.run("cove", "destroy", "comes-and-goes", "--yes")
		}
	})
	l.must("cove", "backup", path)
	was, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	killed := 0
	for round := range 4 {
		l.must("cove", "server", "start")
		server := l.serverPID()
		c := l.command("cove", "backup", path)
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		after := time.Duration(rand.IntN(200)) * time.Millisecond
		kill := time.AfterFunc(after, func() {
			if round%2 == 0 {
				syscall.Kill(server, syscall.SIGKILL)
			}
			c.Process.Kill()
		})
		failed := c.Wait()
		kill.Stop()
		now, err := os.ReadFile(path)
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		if failed != nil {
			killed++
			if len(now) != len(was) && l.restores(path) != nil {
				t.Fatalf("killed after %v: the older backup is not whole", after)
			}
		}
		was = now
	}
	t.Logf("%d of 4 backups were killed", killed)
	mu.Lock()
	before := slices.Clone(acknowledged)
	mu.Unlock()
	l.must("cove", "backup", path)
	end.Store(true)
	load.Wait()
	left := l.must("sh", "-c", "ls -A "+l.dir+" | grep '^[.]b' || true; ls -A "+l.in("home")+" | grep backup || true")
	if left != "" {
		t.Errorf("left: %s", left)
	}

	o := l.beside("restored")
	o.must("cove", "restore", path)
	if _, err := o.run("cove", "restore", path); err == nil || !strings.Contains(err.Error(), "is not empty") {
		t.Errorf("a second time: %v", err)
	}
	all := o.must("cove", "ps", "--all", "--json")
	if len(before) == 0 {
		t.Error("nothing was acknowledged before the backup")
	}
	for _, id := range before {
		if !strings.Contains(all, id) {
			t.Errorf("the execution %s is not in the history", id)
		}
	}
	for _, s := range o.list().Sandboxes {
		if s.State != "stopped" {
			t.Errorf("%s is %s", s.Name, s.State)
		}
	}
	for name, want := range digests {
		o.must("cove", "start", name)
		if is := o.must("cove", "exec", name, "--", "sh", "-c", digestOfTree); is != want {
			t.Errorf("%s has %s, want %s", name, is, want)
		}
		out := o.must("cove", "exec", name, "--", "git", "status", "--short")
		if out != "?? d/holes\n?? d/link\n?? d/symbolic\n" {
			t.Errorf("%s: git says %q", name, out)
		}
	}
	// Of what wrote, the lines are there up to one of them: nothing changed while it was read.
	o.must("cove", "start", "writes")
	out := o.must("cove", "exec", "writes", "--", "sh", "-c", "seq $(wc -l <log) | cmp - log && "+
		"for f in f*; do [ $(fold -w1 $f | sort -u | wc -l) = 1 ] || [ ! -s $f ] || echo $f; done")
	if strings.Count(out, "\n") > 1 {
		t.Errorf("files of two moments: %q", out)
	}
	for _, disk := range o.attached() {
		if out, err := o.run("sh", "-c", "dumpe2fs -h "+disk+" 2>/dev/null | grep 'Filesystem state'"); err != nil ||
			!strings.Contains(out, "clean") || strings.Contains(out, "errors") {
			t.Errorf("%s: %s %v", disk, out, err)
		}
	}
}

// restores reports whether a backup can be restored.
func (l *lab) restores(path string) error {
	l.t.Helper()
	o := *l
	o.env = append(slices.Clone(l.env), "COVE_HOME="+l.in("trial"))
	_, err := o.run("cove", "restore", path)
	os.RemoveAll(l.in("trial"))
	return err
}
