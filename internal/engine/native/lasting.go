//go:build linux

package native

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/atomicfile"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/instance"
	"github.com/cove-sandbox/cove/internal/linux/unixconn"
)

// lastingDir is where lasting sandboxes are kept, a directory each, below the
// run directory.
const lastingDir = "lasting"

// Files of a lasting sandbox's directory.
const (
	ownerFile  = "owner"  // locked by the process of Cove that has the sandbox
	recordFile = "record" // what another process has to know
	doorFile   = "door"   // where its guest waits for the next connection
)

// keep is what a lasting sandbox has on the host beside its group. It is an
// instance of its own, alive for as long as its guest is, because that holds
// the lock: so whatever becomes of the process of Cove that made it, Sweep
// leaves it alone while it runs, and removes what is left of it afterwards.
type keep struct {
	runDir string
	dir    string
	owner  *os.File
	self   *instance.Instance // until the guest holds the lock
	slots  *slots             // the lock on its id range, likewise
	record record
}

// record is what another process of Cove has to know of a lasting sandbox.
type record struct {
	Instance cove.InstanceID
	Parent   string // of Group: Options.CgroupParent
	Group    string
	Tasks    int64
	Template engine.Template
}

// newKeep makes the directory of a lasting sandbox. Errors: Conflict,
// StorageFull.
func (e *Engine) newKeep(t engine.Template) (k *keep, err error) {
	k = &keep{runDir: e.o.RunDir, dir: e.keepDir(t.ID), slots: &slots{path: e.slots.path}, record: record{Template: t, Parent: e.o.CgroupParent}}
	if k.self, err = instance.Hold(e.o.RunDir); err != nil {
		return nil, err
	}
	k.record.Instance = k.self.ID
	parent := filepath.Dir(k.dir)
	if err = os.MkdirAll(parent, 0o700); err == nil {
		err = k.make(parent)
	}
	if err == nil {
		return k, nil
	}
	k.self.Release()
	if errors.Is(err, fs.ErrExist) || errors.Is(err, syscall.ENOTEMPTY) {
		return nil, cove.Errorf(cove.Conflict, "sandbox %s exists already", t.ID)
	}
	return nil, cove.Errorf(cove.StorageFull, "cannot keep a lasting sandbox: %w", err).WithHint("free some space in the run directory")
}

// make makes the directory under another name first: one of a sandbox's name
// is locked from the moment it is there.
func (k *keep) make(parent string) error {
	fresh, err := os.MkdirTemp(parent, ".new-*")
	if err != nil {
		return err
	}
	if k.owner, err = lockOwner(fresh); err == nil {
		err = os.Rename(fresh, k.dir)
	}
	if err != nil {
		os.RemoveAll(fresh)
		if k.owner != nil {
			k.owner.Close()
		}
	}
	return err
}

func (e *Engine) keepDir(id cove.SandboxID) string {
	return filepath.Join(e.o.RunDir, lastingDir, string(id))
}

// errOwned says that another process has a sandbox.
var errOwned = errors.New("another process of Cove has it")

// disown lets another process have the sandbox. It unlocks, because a process
// that is just being started may share the file for a moment more.
func (k *keep) disown() error {
	return errors.Join(syscall.Flock(int(k.owner.Fd()), syscall.LOCK_UN), k.owner.Close())
}

// lockOwner makes this process the one that has the sandbox of a directory.
func lockOwner(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, ownerFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return nil, errOwned
	}
	return f, nil
}

// bind adds to a binding what the guest is to keep, after the descriptors that
// it has already. sent is called once the guest has all of it, or will not.
func (k *keep) bind(plan *guest.Bind, fds []*os.File) (all []*os.File, sent func(bound bool), err error) {
	door, err := unixconn.Listen(filepath.Join(k.dir, doorFile))
	if err != nil {
		return nil, nil, cove.Errorf(cove.StorageFull, "cannot keep a lasting sandbox: %w", err).WithHint("free some space in the run directory")
	}
	data, err := json.Marshal(k.record)
	if err == nil {
		// First, because a guest that nobody knows of would last for ever.
		err = atomicfile.Write(filepath.Join(k.dir, recordFile), data, 0o600)
	}
	if err != nil {
		door.Close()
		return nil, nil, cove.Errorf(cove.StorageFull, "cannot keep a lasting sandbox: %w", err).WithHint("free some space in the run directory")
	}
	plan.Door = new(len(fds))
	all = append(append(all, fds...), door)
	for _, f := range []*os.File{k.self.Lock(), k.slots.file} {
		if f != nil {
			plan.Hold = append(plan.Hold, len(all))
			all = append(all, f)
		}
	}
	return all, func(bound bool) {
		door.Close()
		if bound {
			k.self.Entrust()
			k.self = nil
			k.slots.close()
		}
	}, nil
}

// remove forgets a sandbox that has been removed.
func (k *keep) remove() error {
	err := os.RemoveAll(k.dir)
	if k.self != nil {
		err = errors.Join(err, k.self.Release())
	} else if instance.Alive(k.runDir, k.record.Instance) {
		err = errors.Join(err, fmt.Errorf("the guest of sandbox %s lives on", k.record.Template.ID))
	}
	k.slots.close()
	instance.Forget(k.runDir, k.record.Instance)
	return errors.Join(err, k.disown())
}

// Left implements engine.Adopter.
func (e *Engine) Left(context.Context) ([]cove.SandboxID, error) {
	var left []cove.SandboxID
	err := e.eachLeft(func(k *keep) error {
		if id, err := cove.ParseSandboxID(filepath.Base(k.dir)); err == nil && instance.Alive(e.o.RunDir, k.record.Instance) {
			left = append(left, id)
		}
		return k.disown()
	})
	return left, err
}

// sweepLasting removes what is left of lasting sandboxes that have ended while
// nobody had them.
func (e *Engine) sweepLasting() (removed []string, err error) {
	err = e.eachLeft(func(k *keep) error {
		if instance.Alive(e.o.RunDir, k.record.Instance) {
			return k.disown()
		}
		removed = append(removed, "lasting sandbox "+filepath.Base(k.dir))
		return errors.Join(os.RemoveAll(k.dir), k.disown())
	})
	return removed, err
}

// eachLeft calls f with every lasting sandbox that no process has. f closes its
// owner.
func (e *Engine) eachLeft(f func(*keep) error) error {
	parent := filepath.Join(e.o.RunDir, lastingDir)
	entries, err := os.ReadDir(parent)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return cove.Errorf(cove.Unavailable, "cannot list the lasting sandboxes: %w", err)
	}
	var errs []error
	for _, entry := range entries {
		dir := filepath.Join(parent, entry.Name())
		if _, err := os.Stat(filepath.Join(dir, ownerFile)); err != nil {
			continue // being made, or being removed
		}
		k, err := e.take(dir)
		if errors.Is(err, errOwned) || errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = f(k)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// take makes this process the one that has a sandbox, which may have ended. One
// that was never bound has no record.
func (e *Engine) take(dir string) (*keep, error) {
	k := &keep{runDir: e.o.RunDir, dir: dir, slots: &slots{path: e.slots.path}}
	var err error
	if k.owner, err = lockOwner(dir); err != nil {
		return nil, err
	}
	data, err := os.ReadFile(filepath.Join(dir, recordFile))
	if err == nil {
		err = json.Unmarshal(data, &k.record)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		k.disown()
		return nil, cove.Errorf(cove.Corrupt, "the record of lasting sandbox %s cannot be read: %w", filepath.Base(dir), err)
	}
	return k, nil
}

// Adopt implements engine.Adopter.
func (e *Engine) Adopt(ctx context.Context, id cove.SandboxID) (engine.Sandbox, error) {
	gone := cove.Errorf(cove.NotFound, "no lasting sandbox %s runs", id)
	dir := e.keepDir(id)
	if _, err := os.Stat(dir); err != nil {
		return nil, gone
	}
	k, err := e.take(dir)
	switch {
	case errors.Is(err, errOwned):
		return nil, cove.Errorf(cove.Conflict, "sandbox %s cannot be adopted: %w", id, err)
	case errors.Is(err, fs.ErrNotExist):
		return nil, gone
	case err != nil:
		return nil, err
	case !instance.Alive(e.o.RunDir, k.record.Instance):
		k.disown()
		return nil, gone
	case k.record.Parent != e.o.CgroupParent:
		k.disown()
		return nil, cove.Errorf(cove.Conflict, "sandbox %s cannot be adopted: its control group is below %q, and this process has %q", id, k.record.Parent, e.o.CgroupParent).
			WithHint("set sandbox.cgroup_parent to %s", k.record.Parent)
	}
	s := &sandbox{engine: e, template: k.record.Template, bound: true, lasts: true, keep: k}
	if err := e.register(s); err != nil {
		k.disown()
		return nil, err
	}
	if err := s.adopt(ctx); err != nil {
		e.forget(s)
		k.disown()
		return nil, err
	}
	return s, nil
}

// adopt connects to the guest, which does not answer while it is paused.
func (s *sandbox) adopt(ctx context.Context) error {
	if err := s.engine.hierarchy.Group(s.keep.record.Group).Thaw(); err != nil {
		return cove.Errorf(cove.Unavailable, "sandbox %s cannot be resumed: %w", s.ID(), err)
	}
	conn, err := unixconn.Dial(filepath.Join(s.keep.dir, doorFile))
	if err != nil {
		return cove.Errorf(cove.Unavailable, "the guest of sandbox %s does not answer: %w", s.ID(), err)
	}
	client, err := guest.NewClient(ctx, conn)
	if err != nil {
		return cove.Errorf(cove.Unavailable, "the guest of sandbox %s does not answer: %w", s.ID(), err)
	}
	if s.listeners, err = client.Listeners(ctx); err != nil {
		client.Close()
		return cove.Errorf(cove.Unavailable, "the guest of sandbox %s does not hand over its sockets: %w", s.ID(), err)
	}
	s.blank = &blank{
		client: client, group: s.engine.hierarchy.Group(s.keep.record.Group), tasks: s.keep.record.Tasks,
		releaseIDs: func() {}, adopted: true, done: make(chan struct{}),
	}
	go s.blank.collect()
	return nil
}

// waitEmpty waits until nothing of an adopted sandbox runs any more: its PID 1
// is nobody's child whom this process could wait for.
func (b *blank) waitEmpty() {
	for deadline := time.Now().Add(removalPatience); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if b.group.Empty() {
			return
		}
	}
}

// lastingGroup is the name of a lasting sandbox's group: of its own instance.
func (e *Engine) lastingGroup(k *keep) string {
	return strings.Join([]string{e.realm, string(k.record.Instance), "1"}, ".")
}
