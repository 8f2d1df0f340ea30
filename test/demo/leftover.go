package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// cgroupName is the control group that holds the demonstration's sandboxes, so
// that what is its own can be told from what else runs here.
const cgroupName = "cove-demo"

// place is where the demonstration finds Cove's default directories empty, and a watch over what it makes on this
// machine.
type place struct {
	dir   string
	state string // where Cove keeps its own by default

	stop chan struct{}
	wait sync.WaitGroup
	most int // control groups that were seen at once; guarded by wait
}

// Root's is a mount namespace of the calling goroutine, which keeps its thread, and of the programs that it starts:
// /var/lib and /run are empty there. Others have an empty home.
func newPlace() (*place, error) {
	dir, err := os.MkdirTemp("", "cove-demo-")
	if err != nil {
		return nil, err
	}
	// Guests pass through it on their way to the run directory.
	if err := os.Chmod(dir, 0o755); err != nil {
		return nil, err
	}
	p := &place{dir: dir, state: filepath.Join(dir, "home/.local/share/cove"), stop: make(chan struct{})}
	if os.Geteuid() == 0 {
		p.state = filepath.Join(dir, "lib/cove")
		if err := p.empty(); err != nil {
			os.RemoveAll(dir)
			return nil, fmt.Errorf("a mount namespace: %w", err)
		}
	} else if err := errors.Join(os.Mkdir(filepath.Join(dir, "home"), 0o755),
		os.Mkdir(filepath.Join(dir, "run"), 0o700)); err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	p.wait.Go(p.watch)
	return p, nil
}

// hidden are the directories that are empty in root's namespace, by the names that they have in the place.
var hidden = map[string]string{"lib": "/var/lib", "run": "/run"}

func (p *place) empty() error {
	runtime.LockOSThread() // for good: the thread ends with the goroutine
	err := errors.Join(unix.Unshare(unix.CLONE_NEWNS), unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	for name, at := range hidden {
		if err == nil {
			dir := filepath.Join(p.dir, name)
			err = errors.Join(os.Mkdir(dir, 0o755), unix.Mount(dir, at, "", unix.MS_BIND, ""))
		}
	}
	return err
}

// environ is this process's without Cove's own settings. The control group is the demonstration's, so that what is
// left of it can be told from what others run.
func (p *place) environ() []string {
	env := []string{"COVE_SANDBOX_CGROUP_PARENT=" + cgroupName}
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "COVE_") && !strings.HasPrefix(e, "XDG_") || strings.HasPrefix(e, "COVE_GUEST=") {
			env = append(env, e)
		}
	}
	if os.Geteuid() != 0 {
		env = append(env, "HOME="+filepath.Join(p.dir, "home"), "XDG_RUNTIME_DIR="+filepath.Join(p.dir, "run"))
	}
	return env
}

// watch counts control groups while programs run: a look that finds none
// afterwards means something only if it found some before.
func (p *place) watch() {
	for {
		p.most = max(p.most, len(p.cgroups()))
		select {
		case <-p.stop:
			return
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// cgroups are those of the demonstration's sandboxes. No process can leave its
// control group, and none with a process in it can be removed.
func (p *place) cgroups() []string {
	var all []string
	filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && filepath.Base(filepath.Dir(path)) == cgroupName {
			all = append(all, path)
		}
		return nil
	})
	return all
}

// mounts are those below the place, and in its namespace below what it has hidden.
func (p *place) mounts() []string {
	var all []string
	data, err := os.ReadFile("/proc/thread-self/mountinfo")
	if err != nil {
		return nil
	}
	below := []string{p.dir + "/"}
	if os.Geteuid() == 0 {
		below = append(below, "/var/lib/cove/", "/run/cove/")
	}
	for line := range strings.Lines(string(data)) {
		fields := strings.Fields(line)
		if len(fields) > 4 && slices.ContainsFunc(below, func(b string) bool { return strings.HasPrefix(fields[4], b) }) {
			all = append(all, fields[4])
		}
	}
	return all
}

// leave removes the place and says what is left of what was made, and whether the look could have seen it.
func (p *place) leave() (left []string, seen bool) {
	close(p.stop)
	p.wait.Wait()
	for _, path := range p.cgroups() {
		left = append(left, "control group "+path)
	}
	for _, path := range p.mounts() {
		left = append(left, "mount at "+path)
	}
	if os.Geteuid() == 0 {
		for _, at := range hidden {
			if err := unix.Unmount(at, unix.MNT_DETACH); err != nil {
				left = append(left, fmt.Sprintf("mount at %s: %v", at, err))
			}
		}
	}
	if err := os.RemoveAll(p.dir); err != nil {
		left = append(left, fmt.Sprintf("files in %s: %v", p.dir, err))
	}
	parents := map[string]bool{}
	filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && d.Name() == cgroupName {
			parents[path] = true
		}
		return nil
	})
	for path := range parents {
		os.Remove(path) // the demonstration's own; it stays when it is not empty
	}
	return left, p.most > 0
}
