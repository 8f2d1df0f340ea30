//go:build linux

// Package keep is what a sandbox that lasts has on the host, whatever engine
// made it: a directory below the run directory, with a file that is locked by
// the process of Cove that has the sandbox, a record for the next one, and the
// door at which the guest waits for it.
//
// It is also an instance of its own, alive for as long as the guest is, because
// that holds its lock: so whatever becomes of the process of Cove that made it,
// what carries the instance's name is left alone while it runs, and swept
// afterwards.
package keep

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/atomicfile"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/instance"
	"github.com/cove-sandbox/cove/internal/linux/unixconn"
)

// Dir is where lasting sandboxes are kept, below the run directory: a directory
// for each engine, and in it one for each sandbox.
const Dir = "lasting"

// Files of a lasting sandbox's directory.
const (
	ownerFile  = "owner"  // locked by the process of Cove that has the sandbox
	recordFile = "record" // what another process has to know
	doorFile   = "door"   // where its guest waits for the next connection
)

// Keeper keeps the lasting sandboxes of one engine.
type Keeper struct {
	RunDir string
	Engine string // its name
}

// Keep is what one of them has.
type Keep struct {
	Record Record

	runDir string
	dir    string
	owner  *os.File
	self   *instance.Instance // until the guest holds the lock
}

// Record is what another process of Cove has to know of a lasting sandbox.
type Record struct {
	Instance cove.InstanceID
	// Under and Name say what it is made of: a control group and what that is
	// below, a container and the daemon that has it.
	Under    string
	Name     string
	Tasks    int64 // the guest's own
	Template engine.Template
}

// New makes what a new sandbox has, self among it from then on. Errors: Conflict,
// StorageFull.
func (r Keeper) New(self *instance.Instance, record Record) (*Keep, error) {
	record.Instance = self.ID
	k := &Keep{Record: record, runDir: r.RunDir, dir: r.dirOf(record.Template.ID), self: self}
	err := os.MkdirAll(r.dir(), 0o700)
	if err == nil {
		err = k.make(r.dir())
	}
	if err == nil {
		return k, nil
	}
	if errors.Is(err, fs.ErrExist) || errors.Is(err, syscall.ENOTEMPTY) {
		return nil, cove.Errorf(cove.Conflict, "sandbox %s exists already", record.Template.ID)
	}
	return nil, noRoom(err)
}

func noRoom(err error) error {
	return cove.Errorf(cove.StorageFull, "cannot keep a lasting sandbox: %w", err).WithHint("free some space in the run directory")
}

// make makes the directory under another name first: one of a sandbox's name
// is locked from the moment it is there.
func (k *Keep) make(parent string) error {
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

func (r Keeper) dir() string { return filepath.Join(r.RunDir, Dir, r.Engine) }

func (r Keeper) dirOf(id cove.SandboxID) string { return filepath.Join(r.dir(), string(id)) }

// Has reports whether a sandbox is kept, in whatever state.
func (r Keeper) Has(id cove.SandboxID) bool {
	_, err := os.Stat(r.dirOf(id))
	return !errors.Is(err, fs.ErrNotExist)
}

// errOwned says that another process has a sandbox.
var errOwned = errors.New("another process of Cove has it")

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

// Path is that of a file in the sandbox's directory, which root alone may enter.
func (k *Keep) Path(name string) string { return filepath.Join(k.dir, name) }

// Bind adds to a binding what the guest is to keep, after the descriptors that
// it has already: the door, the instance's lock, and what else is to be held
// for as long as it lives. sent is called once the guest has all of it, or will
// not.
func (k *Keep) Bind(plan *guest.Bind, fds []*os.File, hold ...*os.File) (all []*os.File, sent func(bound bool), err error) {
	door, err := unixconn.Listen(k.Path(doorFile))
	if err != nil {
		return nil, nil, noRoom(err)
	}
	data, err := json.Marshal(k.Record)
	if err == nil {
		// First, because a guest that nobody knows of would last for ever.
		err = atomicfile.Write(k.Path(recordFile), data, 0o600)
	}
	if err != nil {
		door.Close()
		return nil, nil, noRoom(err)
	}
	plan.Door = new(len(fds))
	all = append(append(all, fds...), door)
	for _, f := range append([]*os.File{k.self.Lock()}, hold...) {
		plan.Hold = append(plan.Hold, len(all))
		all = append(all, f)
	}
	return all, func(bound bool) {
		door.Close()
		if bound {
			k.self.Entrust()
			k.self = nil
		}
	}, nil
}

// Dial connects to the guest, which waits at the door once the connection
// before has ended.
func (k *Keep) Dial() (*unixconn.Conn, error) {
	conn, err := unixconn.Dial(k.Path(doorFile))
	if err != nil {
		return nil, cove.Errorf(cove.Unavailable, "the guest of sandbox %s does not answer: %w", k.Record.Template.ID, err)
	}
	return conn, nil
}

// Disown lets another process have the sandbox. It unlocks, because a process
// that is just being started may share the file for a moment more.
func (k *Keep) Disown() error {
	return errors.Join(syscall.Flock(int(k.owner.Fd()), syscall.LOCK_UN), k.owner.Close())
}

// Remove forgets a sandbox that has been removed.
func (k *Keep) Remove() error {
	err := os.RemoveAll(k.dir)
	if k.self != nil {
		err = errors.Join(err, k.self.Release())
	} else if k.runs() {
		err = errors.Join(err, fmt.Errorf("the guest of sandbox %s lives on", k.Record.Template.ID))
	}
	instance.Forget(k.runDir, k.Record.Instance)
	return errors.Join(err, k.Disown())
}

// runs reports whether the guest lives, or who is to bind it. One that was never
// bound has no record, and nobody does.
func (k *Keep) runs() bool { return instance.Alive(k.runDir, k.Record.Instance) }

// Left lists the sandboxes that run and that no process has.
func (r Keeper) Left() ([]cove.SandboxID, error) {
	var left []cove.SandboxID
	err := r.eachLeft(func(k *Keep) error {
		if id, err := cove.ParseSandboxID(filepath.Base(k.dir)); err == nil && k.runs() {
			left = append(left, id)
		}
		return k.Disown()
	})
	return left, err
}

// Sweep removes what is kept of sandboxes that have ended while nobody had them.
func (r Keeper) Sweep() (removed []string, err error) {
	err = r.eachLeft(func(k *Keep) error {
		if k.runs() {
			return k.Disown()
		}
		removed = append(removed, "lasting sandbox "+filepath.Base(k.dir))
		return errors.Join(os.RemoveAll(k.dir), k.Disown())
	})
	return removed, err
}

// eachLeft calls f with every lasting sandbox that no process has. f disowns it.
func (r Keeper) eachLeft(f func(*Keep) error) error {
	entries, err := os.ReadDir(r.dir())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return cove.Errorf(cove.Unavailable, "cannot list the lasting sandboxes: %w", err)
	}
	var errs []error
	for _, entry := range entries {
		dir := filepath.Join(r.dir(), entry.Name())
		if _, err := os.Stat(filepath.Join(dir, ownerFile)); err != nil {
			continue // being made, or being removed
		}
		k, err := r.take(dir)
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
func (r Keeper) take(dir string) (*Keep, error) {
	k := &Keep{runDir: r.RunDir, dir: dir}
	var err error
	if k.owner, err = lockOwner(dir); err != nil {
		return nil, err
	}
	data, err := os.ReadFile(k.Path(recordFile))
	if err == nil {
		err = json.Unmarshal(data, &k.Record)
		k.Record.Template.Lifetime = cove.LifetimeDetached // which records of earlier versions say otherwise
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		k.Disown()
		return nil, cove.Errorf(cove.Corrupt, "the record of lasting sandbox %s cannot be read: %w", filepath.Base(dir), err)
	}
	return k, nil
}

// Take makes this process the one that has a sandbox that runs and is made of
// something under what this process makes its own under. Errors: NotFound when
// it does not run, Conflict when another process has it or it is under something
// else, of which setting says how to choose it.
func (r Keeper) Take(id cove.SandboxID, under, setting string) (*Keep, error) {
	gone := cove.Errorf(cove.NotFound, "no lasting sandbox %s runs", id)
	if !r.Has(id) {
		return nil, gone
	}
	k, err := r.take(r.dirOf(id))
	switch {
	case errors.Is(err, errOwned):
		return nil, cove.Errorf(cove.Conflict, "sandbox %s cannot be adopted: %w", id, err)
	case errors.Is(err, fs.ErrNotExist):
		return nil, gone
	case err != nil:
		return nil, err
	case !k.runs():
		k.Disown()
		return nil, gone
	case k.Record.Under != under:
		k.Disown()
		return nil, cove.Errorf(cove.Conflict, "sandbox %s cannot be adopted: it is under %q, and this process makes its own under %q", id, k.Record.Under, under).
			WithHint("set %s to %s", setting, k.Record.Under)
	}
	return k, nil
}
