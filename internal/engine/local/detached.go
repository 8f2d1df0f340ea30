//go:build linux

// Package local holds what engines share that make sandboxes on this host: the user ids of sandboxes, the names of
// control groups, the ownership of mounts, and the directory of a detached sandbox, which outlives the process of Cove
// that made it.
//
// That directory lies below the run directory. It has a file that the process of Cove locks which manages the sandbox,
// a record for the next process, and the door at which the guest waits for it. A detached sandbox is an instance of its
// own, alive as long as its guest, which holds the instance's lock. So whatever becomes of the process of Cove that
// made it, a sweep leaves alone what carries the instance's name while the guest runs, and removes it afterwards.
package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/atomicfile"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/filelock"
	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/instance"
	"github.com/cove-sandbox/cove/internal/linux/unixconn"
)

// Dir holds the directories of detached sandboxes, below the run directory: a directory for each engine, and in it one
// for each sandbox.
const Dir = "lasting"

// Files of a detached sandbox's directory.
const (
	ownerFile  = "owner"  // locked by the process of Cove that manages the sandbox
	recordFile = "record" // Record, for the next process
	doorFile   = "door"   // the guest waits there for the next connection
)

// fresh begins the name of a directory that does not have its sandbox's name yet.
const fresh = ".new-"

// Registry manages the directories of one engine's detached sandboxes.
type Registry struct {
	RunDir string
	Engine string // its name
}

// Detached is the directory of one detached sandbox.
type Detached struct {
	Record Record

	runDir string
	dir    string
	owner  *os.File
	self   *instance.Instance // until the guest holds the lock
}

// Record holds what the next process of Cove needs to manage a detached sandbox.
type Record struct {
	Instance cove.InstanceID
	// Name is its control group, or its container. Under is the parent group, or the daemon of the container.
	Under    string
	Name     string
	Tasks    int64 // the guest's own
	Template engine.Template
	// Executor is PID 1 where that is one.
	Executor *guest.Executor `json:",omitempty"`
}

// New makes the directory of a new sandbox, which owns self from then on. Errors: Conflict, StorageFull,
// Unavailable.
func (r Registry) New(self *instance.Instance, record Record) (*Detached, error) {
	record.Instance = self.ID
	d := &Detached{Record: record, runDir: r.RunDir, dir: r.dirOf(record.Template.ID), self: self}
	err := os.MkdirAll(r.dir(), 0o700)
	if err == nil {
		err = d.make(r.dir())
	}
	if err == nil {
		return d, nil
	}
	if errors.Is(err, fs.ErrExist) || errors.Is(err, syscall.ENOTEMPTY) {
		return nil, cove.Errorf(cove.Conflict, "sandbox %s exists already", record.Template.ID)
	}
	if cove.ErrorCode(err) == cove.Unavailable {
		return nil, err
	}
	return nil, noRoom(err)
}

func noRoom(err error) error {
	return cove.Errorf(cove.StorageFull, "cannot make a detached sandbox: %w", err).
		WithHint("free some space in the run directory")
}

// make makes the directory under another name first: one of a sandbox's name is locked from the moment it is there.
// Until then no sweep takes it for the remains of a process that died, since a sweep waits for the lock.
func (d *Detached) make(parent string) error {
	unlock, err := lock(parent)
	if err != nil {
		return err
	}
	defer unlock()
	made, err := os.MkdirTemp(parent, fresh+"*")
	if err != nil {
		return err
	}
	if d.owner, err = lockOwner(made, os.O_CREATE); err == nil {
		err = os.Rename(made, d.dir)
	}
	if err != nil {
		os.RemoveAll(made)
		if d.owner != nil {
			d.owner.Close()
			d.owner = nil
		}
	}
	return err
}

// lock locks the directory of all sandboxes of an engine, while one is made and while a process looks for those that
// none manages. The lock of a process that is killed is free at once. Errors: Unavailable, fs.ErrNotExist.
func lock(dir string) (unlock func(), err error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), lockWait, filelock.ErrHeld)
	defer cancel()
	if err := filelock.Wait(ctx, f, filelock.Exclusive); err != nil {
		f.Close()
		return nil, cove.Errorf(cove.Unavailable, "cannot lock %s within %v: %w", dir, lockWait, err).
			WithHint("if a process of Cove was stopped, let it go on or kill it; fuser -v %s finds it", dir)
	}
	return func() { unlockFile(f) }, nil
}

// unlockFile unlocks a file as well as closing it: a process that is being started may share it for a moment more.
func unlockFile(f *os.File) error {
	return errors.Join(syscall.Flock(int(f.Fd()), syscall.LOCK_UN), f.Close())
}

func (r Registry) dir() string { return filepath.Join(r.RunDir, Dir, r.Engine) }

func (r Registry) dirOf(id cove.SandboxID) string { return filepath.Join(r.dir(), string(id)) }

// Has reports whether a sandbox has a directory, in whatever state.
func (r Registry) Has(id cove.SandboxID) bool {
	_, err := os.Stat(r.dirOf(id))
	return !errors.Is(err, fs.ErrNotExist)
}

var errOwned = errors.New("another process of Cove manages it")

// lockOwner makes this process the one that manages the sandbox of a directory. flag is os.O_CREATE for a new one: in
// another a missing file is one that is being removed.
func lockOwner(dir string, flag int) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, ownerFile), os.O_RDWR|flag, 0o600)
	if err != nil {
		return nil, err
	}
	if err := filelock.Try(f, filelock.Exclusive); err != nil {
		f.Close()
		return nil, errOwned
	}
	return f, nil
}

// Path is that of a file in the sandbox's directory, which root alone may enter.
func (d *Detached) Path(name string) string { return filepath.Join(d.dir, name) }

// Bind adds to a plan the descriptors that the guest keeps, after those that the plan has already: the door, the
// instance's lock, and hold. The caller calls sent once the guest has them, or will not get them.
func (d *Detached) Bind(plan *guest.Bind, fds []*os.File,
	hold ...*os.File) (all []*os.File, sent func(bound bool), err error) {
	door, err := unixconn.Listen(d.Path(doorFile))
	if err != nil {
		return nil, nil, noRoom(err)
	}
	data, err := json.Marshal(d.Record)
	if err == nil {
		// First: a guest without a record would run for ever.
		err = atomicfile.Write(d.Path(recordFile), data, 0o600)
	}
	if err != nil {
		door.Close()
		return nil, nil, noRoom(err)
	}
	plan.Door = new(len(fds))
	all = append(append(all, fds...), door)
	for _, f := range append([]*os.File{d.self.Lock()}, hold...) {
		plan.Hold = append(plan.Hold, len(all))
		all = append(all, f)
	}
	return all, func(bound bool) {
		door.Close()
		if bound {
			d.self.Entrust()
			d.self = nil
		}
	}, nil
}

// Connect connects to the guest, which waits at the door after the connection before has ended, and takes over its
// listeners. The protocol is spoken over the connection as speak returns it; nil leaves it as it is. Errors:
// Unavailable.
func (d *Detached) Connect(ctx context.Context,
	speak func(*unixconn.Conn) guest.Conn) (*guest.Client, []*os.File, error) {
	var client *guest.Client
	conn, err := unixconn.Dial(d.Path(doorFile))
	if err == nil {
		var over guest.Conn = conn
		if speak != nil {
			over = speak(conn)
		}
		client, err = guest.NewClient(ctx, over)
	}
	id := d.Record.Template.ID
	if err != nil {
		return nil, nil, cove.Errorf(cove.Unavailable, "the guest of sandbox %s does not answer: %w", id, err)
	}
	listeners, err := client.Listeners(ctx)
	if err != nil {
		client.Close()
		return nil, nil, cove.Errorf(cove.Unavailable, "the guest of sandbox %s does not hand over its sockets: %w", id, err)
	}
	return client, listeners, nil
}

// Disown lets another process manage the sandbox.
func (d *Detached) Disown() error { return unlockFile(d.owner) }

// Remove removes the directory of a sandbox that has been destroyed.
func (d *Detached) Remove() error {
	err := removeAll(d.dir)
	if d.self != nil {
		err = errors.Join(err, d.self.Release())
	} else if !d.released() {
		err = errors.Join(err, fmt.Errorf("the guest of sandbox %s lives on", d.Record.Template.ID))
	}
	instance.Forget(d.runDir, d.Record.Instance)
	return errors.Join(err, d.Disown())
}

// A process that this one starts shares the guest's lock from its fork to its exec, after the guest has died, too.
const (
	lockGrace = 2 * time.Second
	lockPoll  = 2 * time.Millisecond
	lockWait  = 10 * time.Second // for a sweep, which takes milliseconds unless its process is stopped
)

// released waits until the lock of a guest that has been killed is free, and reports whether it is.
func (d *Detached) released() bool {
	for deadline := time.Now().Add(lockGrace); d.runs(); time.Sleep(lockPoll) {
		if time.Now().After(deadline) {
			return false
		}
	}
	return true
}

// runs reports whether the guest lives, or the process that is to bind it.
func (d *Detached) runs() bool { return instance.Alive(d.runDir, d.Record.Instance) }

// Runs reports whether a sandbox runs, whichever process manages it.
func (r Registry) Runs(id cove.SandboxID) (bool, error) {
	d, err := r.takeSoon(id)
	switch {
	case errors.Is(err, errOwned):
		return true, nil
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, err
	}
	return d.runs(), d.Disown()
}

// Left lists the sandboxes that run and that no process manages.
func (r Registry) Left() ([]cove.SandboxID, error) {
	var left []cove.SandboxID
	_, err := r.eachLeft(func(d *Detached) error {
		if id, err := cove.ParseSandboxID(filepath.Base(d.dir)); err == nil && d.runs() {
			left = append(left, id)
		}
		return d.Disown()
	})
	return left, err
}

// Sweep removes the directories of sandboxes that ended while no process managed them, and what a process has left that
// died while it made or removed one.
func (r Registry) Sweep() (removed []string, err error) {
	unowned, err := r.eachLeft(func(d *Detached) error {
		if d.runs() {
			return d.Disown()
		}
		removed = append(removed, "detached sandbox "+filepath.Base(d.dir))
		return errors.Join(os.RemoveAll(d.dir), d.Disown())
	})
	errs := []error{err}
	for _, dir := range unowned {
		errs = append(errs, os.RemoveAll(dir))
	}
	return removed, errors.Join(errs...)
}

// list returns the directories of detached sandboxes, and apart from them those without an owner's file, which a
// process was making or removes.
func (r Registry) list() (owned, unowned []string, err error) {
	entries, err := os.ReadDir(r.dir())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, cove.Errorf(cove.Unavailable, "cannot list the detached sandboxes: %w", err)
	}
	for _, entry := range entries {
		dir := filepath.Join(r.dir(), entry.Name())
		if _, err := os.Stat(filepath.Join(dir, ownerFile)); err != nil {
			unowned = append(unowned, dir)
		} else {
			owned = append(owned, dir)
		}
	}
	return owned, unowned, nil
}

// eachLeft calls f with every sandbox that no process manages. f disowns it. Meanwhile none is made. It returns the
// directories without an owner's file, which no process makes a sandbox in any more.
func (r Registry) eachLeft(f func(*Detached) error) (unowned []string, err error) {
	unlock, err := lock(r.dir())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer unlock()
	owned, unowned, err := r.list()
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, dir := range owned {
		d, err := r.take(dir)
		if errors.Is(err, errOwned) || errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = f(d)
		}
		errs = append(errs, err)
	}
	return unowned, errors.Join(errs...)
}

// take makes this process the one that manages a sandbox, which may have ended. A sandbox that was never bound has no
// record.
func (r Registry) take(dir string) (*Detached, error) {
	d := &Detached{runDir: r.RunDir, dir: dir}
	var err error
	if d.owner, err = lockOwner(dir, 0); err != nil {
		return nil, err
	}
	data, err := os.ReadFile(d.Path(recordFile))
	if err == nil {
		err = json.Unmarshal(data, &d.Record)
		d.Record.Template.Lifetime = cove.LifetimeDetached // which records of earlier versions say otherwise
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		d.Disown()
		return nil, cove.Errorf(cove.Corrupt, "the record of sandbox %s cannot be read: %w", filepath.Base(dir), err)
	}
	return d, nil
}

// takeSoon takes a sandbox, and waits a moment if it is owned: a process that is being started shares the lock of a
// manager that has been killed, and a sweep locks each sandbox for as long as it looks at it.
func (r Registry) takeSoon(id cove.SandboxID) (d *Detached, err error) {
	for deadline := time.Now().Add(lockGrace); ; time.Sleep(lockPoll) {
		if d, err = r.take(r.dirOf(id)); !errors.Is(err, errOwned) || time.Now().After(deadline) {
			return d, err
		}
	}
}

// Take makes this process the one that manages a running sandbox, if the sandbox's Record.Under is this process's own.
// Errors: NotFound when it does not run; Conflict when another process manages it, or when its Under differs, with the
// setting that chooses it in the hint.
func (r Registry) Take(id cove.SandboxID, under, setting string) (*Detached, error) {
	gone := cove.Errorf(cove.NotFound, "no sandbox %s runs", id)
	d, err := r.takeSoon(id)
	switch {
	case errors.Is(err, errOwned):
		return nil, cove.Errorf(cove.Conflict, "sandbox %s cannot be adopted: %w", id, err)
	case errors.Is(err, fs.ErrNotExist):
		return nil, gone
	case err != nil:
		return nil, err
	case !d.runs():
		d.Disown()
		return nil, gone
	case d.Record.Under != under:
		d.Disown()
		return nil, cove.Errorf(cove.Conflict,
			"sandbox %s cannot be adopted: it is under %q, and this process makes its own under %q", id, d.Record.Under, under).
			WithHint("set %s to %s", setting, d.Record.Under)
	}
	return d, nil
}

// Adopt adds a sandbox of the record k, and connects it to its guest, or disowns k. Errors: those of Add and connect.
func (p *Present[S]) Adopt(k *Detached, s S, connect func() error) error {
	err := p.Add(s)
	if err == nil {
		if err = connect(); err != nil {
			p.Remove(s)
		}
	}
	if err != nil {
		k.Disown()
	}
	return err
}

// removeAll is os.RemoveAll for a directory into which a Bind may write meanwhile.
func removeAll(dir string) (err error) {
	for range 10 {
		if err = os.RemoveAll(dir); !errors.Is(err, unix.ENOTEMPTY) {
			break
		}
	}
	return err
}
