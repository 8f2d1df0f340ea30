package adversary

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
)

// lifecycleRows are attempts to be left behind, and to be taken for somebody
// else's (H6, H5; C10, H4 and X10 of PROBES.md).
func lifecycleRows() []row {
	return []row{
		{id: "C10.crowd", invariant: "H6", what: "be forgotten in a crowd: 30 at once, all destroyed", test: crowd},
		{id: "C10.canceled", invariant: "H6", what: "be left by a caller who went away while the sandbox was being made",
			test: canceled},
		{id: "C10.destroy_race", invariant: "H6", what: "be destroyed by several at once, while processes are being started",
			test: destroyRace},
		{id: "H4.host_names", invariant: "H1", what: "inject into whoever uses the host name", test: hostileNames},
		{id: "H4.ids", invariant: "H1", what: "inject into whoever uses the sandbox's id", test: hostileIDs},
		{id: "H5.foreign_groups", invariant: "H6",
			what: "have a stranger's control groups swept: similar names, other instances", test: foreignGroups},
		{id: "X10.sweep_live", invariant: "H6", what: "be swept while alive, by another instance, again and again",
			test: sweepLive},
		{id: "H1.host_unchanged", invariant: "H1",
			what: "have changed a setting or an account of the host's in all of the above", test: valuesUnchanged},
	}
}

// baseline are the directories in which the engine keeps its control groups.
func (c *trial) baseline() {
	c.Helper()
	if c.suite.parentGroups != nil {
		return
	}
	t := c.occupied(boxOptions{})
	for _, dir := range t.traces().cgroups {
		c.suite.parentGroups = append(c.suite.parentGroups, filepath.Dir(dir))
	}
	t.destroy(c)
}

// settles compares two censuses; connections and caches of this process may take a moment.
func (c *trial) settles(before census) {
	c.Helper()
	var now census
	ok := eventually(patience, func() bool {
		now = c.census()
		return now.fds <= before.fds+2 && now.goroutines <= before.goroutines+2 && now.children <= before.children &&
			len(now.cgroups) <= len(before.cgroups) &&
			len(now.mounts) <= len(before.mounts)
	})
	if !ok {
		c.Errorf("left behind (H6): descriptors %d, were %d; goroutines %d, were %d; children %d, were %d; control groups "+
			"%d, were %d; mounts %d, were %d",
			now.fds, before.fds, now.goroutines, before.goroutines, now.children, before.children, len(now.cgroups),
			len(before.cgroups), len(now.mounts), len(before.mounts))
	}
	c.remark("descriptors %d→%d, goroutines %d→%d, groups %d→%d, mounts %d→%d", before.fds, now.fds, before.goroutines,
		now.goroutines,
		len(before.cgroups), len(now.cgroups), len(before.mounts), len(now.mounts))
}

func crowd(c *trial) {
	c.baseline()
	before := c.steadyCensus()
	const n = 30
	var mu sync.Mutex
	var tenants []*tenant
	var wait sync.WaitGroup
	for range n {
		wait.Go(func() {
			b, err := c.suite.make(c, boxOptions{limits: func(l *cove.Limits) { l.Disk = 32 << 20 }})
			if err != nil {
				c.Errorf("not tested: %v", err)
				return
			}
			t := c.occupy(b)
			mu.Lock()
			defer mu.Unlock()
			tenants = append(tenants, t)
		})
	}
	wait.Wait()
	var all []traces
	seen := map[string]bool{}
	for _, t := range tenants {
		tr := t.traces()
		all = append(all, tr)
		for _, ns := range tr.namespaces {
			seen[ns] = true
		}
		wait.Go(func() { t.destroy(c) })
	}
	wait.Wait()
	for _, tr := range all {
		c.gone(tr)
	}
	if len(seen) < 6*len(tenants) {
		c.Errorf("HOLE: %d sandboxes had %d namespaces together", len(tenants), len(seen))
	}
	if len(tenants) != n {
		c.Errorf("not tested: %d sandboxes lived at once", len(tenants))
	}
	tenants = nil
	c.settles(before)
}

// canceled gives up at many points of Prepare.
func canceled(c *trial) {
	c.baseline()
	c.works(c.box(), "getpid")
	before := c.steadyCensus()
	made := 0
	for i := range 40 {
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(i*i)*20*time.Microsecond)
		t := engine.Template{ID: cove.NewSandboxID(), Rootfs: c.suite.options.Rootfs, Network: cove.NetworkNone,
			Shape: cove.Shape{Limits: c.suite.limits(), User: c.suite.options.user()}}
		sb, err := c.suite.engine.Prepare(ctx, t)
		if err == nil {
			made++
			if err := sb.Bind(ctx, engine.Binding{Hostname: "sandbox"}); err == nil {
				sb.Guest().Health(ctx)
			}
			if err := sb.Destroy(ctx); err != nil {
				c.Errorf("Destroy with a context that has ended: %v", err)
				sb.Destroy(context.Background())
			}
		}
		cancel()
		if left := namedAfter(c.suite.state, string(t.ID)); len(left) > 0 {
			c.Errorf("left behind (H6): %v", left)
		}
	}
	c.remark("%d of 40 were made in time", made)
	c.settles(before)
}

func destroyRace(c *trial) {
	for range 5 {
		t := c.occupied(boxOptions{})
		tr := t.traces()
		var wait sync.WaitGroup
		for range 4 {
			wait.Go(func() {
				for range 10 {
					if p, err := t.sandbox.Guest().Start(context.Background(), spec("true")); err == nil {
						p.Wait(context.Background())
					}
				}
			})
			wait.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				defer cancel()
				time.Sleep(2 * time.Millisecond)
				if err := t.sandbox.Destroy(ctx); err != nil {
					c.Errorf("Destroy: %v", err)
				}
			})
			wait.Go(func() { t.sandbox.Kill() })
		}
		wait.Wait()
		c.gone(tr)
	}
}

func hostileNames(c *trial) {
	was, _ := os.Hostname()
	for _, name := range []string{"a;touch /tmp/cove-pwned", "$(touch /tmp/cove-pwned)", "`id`", "../../etc", "a b",
		"a\nb", "-rf", strings.Repeat("n", 64), strings.Repeat("n", 65),
		strings.Repeat("n", 5000), "a\x00b", "ünïcödé", "a'b\"c", "%s%n", "name", "127.0.0.1"} {
		b, err := c.suite.make(c, boxOptions{host: name})
		if err != nil {
			c.Logf("%.40q is refused: %v", name, err)
			continue
		}
		r := b.try(c, "read /proc/sys/kernel/hostname")
		shown, _, _ := strings.Cut(name, "\x00") // the kernel keeps the rest, and nobody sees it
		if got := strings.TrimSuffix(r.Detail, "\n"); got != shown {
			c.Errorf("the name %.40q became %.40q", name, got)
		}
		b.destroy(c)
	}
	if now, _ := os.Hostname(); now != was {
		c.Errorf("HOLE: the host's name is %q", now)
	}
	if _, err := os.Stat("/tmp/cove-pwned"); err == nil {
		c.Error("HOLE: a host name was executed")
	}
}

func hostileIDs(c *trial) {
	for _, id := range []string{"../../../tmp/cove-pwned", "sb_../../x", "/tmp/cove-pwned", "", ".", "..",
		"sb_a;touch /tmp/cove-pwned", "sb_\x00", strings.Repeat("i", 5000), "sb_a b\nc"} {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		sb, err := c.suite.engine.Prepare(ctx, engine.Template{ID: cove.SandboxID(id),
			Shape:  cove.Shape{Limits: c.suite.limits(), User: c.suite.options.user()},
			Rootfs: c.suite.options.Rootfs, Network: cove.NetworkNone})
		if err != nil {
			c.Logf("%.40q is refused: %v", id, err)
		} else if err := sb.Destroy(ctx); err != nil {
			c.Errorf("Destroy of %.40q: %v", id, err)
		}
		cancel()
	}
	for _, path := range []string{"/tmp/cove-pwned", "/x", "/tmp/x"} {
		if _, err := os.Stat(path); err == nil {
			c.Errorf("HOLE: an id became %s", path)
		}
	}
	c.works(c.box(), "getpid")
}

// foreignGroups makes control groups that look like the engine's and are not, each with a process in it, and sweeps.
func foreignGroups(c *trial) {
	if !asRoot() {
		c.lacking("only root makes control groups beside the engine's")
	}
	t := c.occupied(boxOptions{})
	var made []string
	bystander := exec.Command(c.suite.path, "hold", token())
	must(c, bystander.Start())
	defer func() { bystander.Process.Kill(); bystander.Wait() }()
	for _, dir := range t.traces().cgroups {
		base, parent := filepath.Base(dir), filepath.Dir(dir)
		for _, name := range []string{base + "x", "x" + base, string(cove.NewInstanceID()) + ".1",
			string(cove.NewInstanceID()), "cove", "cove-1", "sb_1", "in_1.1", "in_" + strings.Repeat("0", 26)} {
			path := filepath.Join(parent, name)
			if err := os.Mkdir(path, 0o755); err != nil {
				continue
			}
			made = append(made, path)
		}
	}
	defer func() {
		bystander.Process.Kill()
		bystander.Wait()
		for _, path := range made {
			eventually(patience, func() bool { return os.Remove(path) == nil })
		}
	}()
	if len(made) == 0 {
		c.Fatal("not tested: no control group could be made")
	}
	for _, path := range made {
		os.WriteFile(filepath.Join(path, "cgroup.procs"), []byte(fmt.Sprint(bystander.Process.Pid)), 0)
	}
	swept, err := c.suite.engine.Sweep(c.Context())
	if err != nil {
		c.Errorf("Sweep: %v", err)
	}
	for _, path := range made {
		if _, err := os.Stat(path); err != nil {
			c.Errorf("HOLE: a stranger's control group %s was swept: %v", path, swept.Items)
		}
	}
	if p, ok := readProcess(bystander.Process.Pid); !ok || strings.HasPrefix(p.status["State"], "Z") {
		c.Error("HOLE: a stranger's process was killed")
	}
	if !t.alive() {
		c.Error("HOLE: a living sandbox was swept")
	}
	c.remark("%d groups", len(made))
}

// sweepLive sweeps with two instances while sandboxes come and go. X1 has the
// control: there the same call removes what a dead instance left.
func sweepLive(c *trial) {
	second := c.suite.open(c.T, c.suite.state)
	defer second.Close()
	var done atomic.Bool
	var sweeps atomic.Int64
	var sweepers, workers sync.WaitGroup
	for _, e := range []engine.Engine{second, c.suite.engine} {
		sweepers.Go(func() {
			for !done.Load() {
				if _, err := e.Sweep(context.Background()); err != nil {
					c.Errorf("Sweep: %v", err)
				}
				sweeps.Add(1)
				time.Sleep(20 * time.Millisecond)
			}
		})
	}
	for range 3 {
		workers.Go(func() {
			for range 8 {
				b, err := c.suite.make(c, boxOptions{})
				if err != nil {
					c.Errorf("HOLE: not made while sweeping: %v", err)
					continue
				}
				if r := b.try(c, "fork"); r.Outcome != "succeeded" {
					c.Errorf("HOLE: a living sandbox was harmed: %s", say(r))
				}
				b.destroy(c)
			}
		})
	}
	workers.Wait()
	done.Store(true)
	sweepers.Wait()
	c.remark("%d sweeps", sweeps.Load())
}
