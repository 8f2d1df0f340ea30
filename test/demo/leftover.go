package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// cgroupName is the control group that holds the demonstration's sandboxes, so
// that what is its own can be told from what else runs here.
const cgroupName = "cove-demo"

// place is a state of its own for the demonstration, and a watch over what it makes on this machine.
type place struct {
	dir string

	stop chan struct{}
	wait sync.WaitGroup
	most int // control groups that were seen at once; guarded by wait
}

func newPlace() (*place, error) {
	dir, err := os.MkdirTemp("", "cove-demo-")
	if err != nil {
		return nil, err
	}
	// Guests pass through it on their way to the run directory.
	if err := os.Chmod(dir, 0o755); err != nil {
		return nil, err
	}
	p := &place{dir: dir, stop: make(chan struct{})}
	p.wait.Go(p.watch)
	return p, nil
}

// environ is this process's, with Cove's own settings replaced.
func (p *place) environ() []string {
	env := []string{"COVE_HOME=" + filepath.Join(p.dir, "home"), "COVE_RUN_DIR=" + filepath.Join(p.dir, "run"),
		"COVE_SANDBOX_CGROUP_PARENT=" + cgroupName}
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "COVE_") || strings.HasPrefix(e, "COVE_GUEST=") {
			env = append(env, e)
		}
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

// mounts are those below the place.
func (p *place) mounts() []string {
	var all []string
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(data)) {
		if fields := strings.Fields(line); len(fields) > 4 && strings.HasPrefix(fields[4], p.dir+"/") {
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
