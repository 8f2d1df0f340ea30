package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/hostdisk"
	"github.com/cove-sandbox/cove/internal/runtime"
	"github.com/cove-sandbox/cove/internal/store"
	"github.com/cove-sandbox/cove/internal/workspace"
)

// diskOf returns the size of a sandbox's disk, which holds its workspace and its home. It has at most a file for each
// block, so that the table of its files is small beside it.
func diskOf(l cove.Limits) workspace.Disk {
	const block = 4096
	return workspace.Disk{Bytes: l.Disk, Inodes: min(l.Inodes, l.Disk/block)}
}

// checkDisk refuses a sandbox whose disk limit the kernel cannot hold, unless the machine's owner asks for it or has
// accepted that Cove watches the disks of others.
func (rs *residents) checkDisk(ctx context.Context, who cove.Principal) error {
	if who.IsOwner() || rs.host.WatchedDisks {
		return nil
	}
	err := rs.host.Disks.Bounds(ctx)
	if err == nil {
		return nil
	}
	hint := "the owner of the machine may accept disks that Cove watches itself: sandbox.lasting.watched_disks"
	if more := cove.ErrorHint(err); more != "" {
		hint = more + "; or " + hint
	}
	return cove.Errorf(cove.Unsupported, "the limit of the disk cannot be enforced: %w", err).WithHint("%s", hint)
}

// resize changes the size of a sandbox's disk, which is its limit from then on. A larger one is on record before it is
// made, so that the disks of an API key are never more together than the key may have.
func (rd *records) resize(ctx context.Context, record *store.Sandbox, bytes int64) error {
	if _, err := rd.o.Bounds.Resolve(runtime.Runtime{}, cove.Limits{Disk: bytes}); err != nil {
		return err
	}
	was := record.Spec.Limits
	if bytes > was.Disk {
		if err := rd.reserve(ctx, record, bytes); err != nil {
			return err
		}
	}
	now := was
	now.Disk = bytes
	err := rd.host.Disks.Resize(ctx, record.ID, diskOf(now), record.State != cove.StateStopped)
	if err != nil {
		now = was
	}
	return errors.Join(err, rd.change(context.WithoutCancel(ctx), record, func(s *store.SandboxSpec) { s.Limits = now }))
}

// reserve records the limit of a disk that is to grow. Errors: Conflict when it is too much for its owner's key.
func (rd *records) reserve(ctx context.Context, record *store.Sandbox, bytes int64) error {
	rd.enrolling.Lock()
	defer rd.enrolling.Unlock()
	return rd.within(record.Owner, "", func(room store.Room) error {
		if room.Disk > 0 {
			others, err := rd.limitsOf(ctx, record.Owner, record.ID)
			if err != nil {
				return err
			}
			now := record.Spec.Limits.Disk
			if err := room.Fits(others+now, bytes-now); err != nil {
				return err
			}
		}
		return rd.change(ctx, record, func(s *store.SandboxSpec) { s.Limits.Disk = bytes })
	})
}

// diskWatch pauses sandboxes that write what the host has no room for, and those beyond their limit that the kernel
// does not hold to it.
type diskWatch struct {
	*supervisor
	measuring sync.WaitGroup

	places chan struct{} // of those that measure at once
	known  sync.Mutex
	seen   map[cove.SandboxID]seenDisk // guarded by known
}

// seenDisk is the last measurement of a disk.
type seenDisk struct {
	used  workspace.Used
	there bool      // it was measured
	wrong error     // why it cannot be
	grew  bool      // since the measurement before, until it was judged
	next  time.Time // not measured before
	busy  bool      // it is being measured
}

// measures is how many disks are measured at once.
const measures = 4

// WatchDisks looks at the disks of running sandboxes until ctx ends.
func (v *supervisor) WatchDisks(ctx context.Context) {
	w := &diskWatch{supervisor: v, places: make(chan struct{}, measures), seen: map[cove.SandboxID]seenDisk{}}
	defer w.measuring.Wait()
	for {
		wait := diskPoll
		if v.owns() == nil {
			wait = w.look(ctx)
		}
		timer := v.o.Clock.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

// Intervals of looking at the disks of running sandboxes.
const (
	diskPoll  = 2 * time.Second
	diskHurry = 50 * time.Millisecond // the shortest
	diskSpeed = 4 << 30               // bytes that are written in a second at most
	// diskPatience is how long a look waits for measurements. A tree that takes longer, or a disk that is being
	// repaired, is judged by a later look, and delays that of others no more.
	diskPatience = 200 * time.Millisecond
)

// untilNextLook returns the time until the next look at the disks: half of that in which the room above the floor could
// be written. It is pure.
func untilNextLook(room hostdisk.Room) time.Duration {
	wait := time.Duration(float64(room.Left()) / diskSpeed / 2 * float64(time.Second))
	return min(max(wait, diskHurry), diskPoll)
}

// look looks at all disks once, and returns the time until the next look.
func (w *diskWatch) look(ctx context.Context) time.Duration {
	room, err := w.host.Disks.Free()
	if err != nil {
		w.o.Log.Warn("cannot look at the disk of the machine", "error", err)
		return diskPoll
	}
	ids := w.boxes()
	w.measureAll(ctx, ids)
	now := w.latest(ids)
	for _, d := range now {
		room.Free -= d.used.Unwritten
	}
	for id, d := range now {
		if err := w.judge(ctx, id, room, d); err != nil && ctx.Err() == nil {
			w.o.Log.Warn("a sandbox that fills the disk cannot be paused", "sandbox", id, "error", err)
		}
	}
	return untilNextLook(room)
}

// measureAll measures the disks whose time has come, each by itself, and waits for them for a while.
func (w *diskWatch) measureAll(ctx context.Context, ids []cove.SandboxID) {
	patience, enough := context.WithTimeout(ctx, diskPatience)
	defer enough()
	var all []chan struct{}
	for _, id := range ids {
		if !w.begin(id) {
			continue
		}
		done := make(chan struct{})
		all = append(all, done)
		w.measuring.Go(func() {
			defer close(done)
			w.places <- struct{}{}
			defer func() { <-w.places }()
			w.measure(ctx, id)
		})
	}
	for _, done := range all {
		select {
		case <-done:
		case <-patience.Done():
			return
		}
	}
}

// begin reports whether a disk is to be measured now, and notes that.
func (w *diskWatch) begin(id cove.SandboxID) bool {
	w.known.Lock()
	defer w.known.Unlock()
	d := w.seen[id]
	if d.busy || w.o.Clock.Now().Before(d.next) {
		return false
	}
	d.busy = true
	w.seen[id] = d
	return true
}

// measure measures a disk.
func (w *diskWatch) measure(ctx context.Context, id cove.SandboxID) {
	began := w.o.Clock.Now()
	used, err := w.host.Disks.Used(ctx, id)
	ended := w.o.Clock.Now()
	w.known.Lock()
	defer w.known.Unlock()
	before := w.seen[id]
	// A large tree takes long to measure: a twentieth of a processor is enough for that.
	now := seenDisk{used: used, there: err == nil, wrong: err, next: ended.Add(20 * ended.Sub(began))}
	if errors.Is(err, fs.ErrNotExist) || cove.ErrorCode(err) == cove.NotFound || ctx.Err() != nil {
		now.wrong = nil // it is being removed
	}
	now.grew = now.there && before.there && (before.grew || used.Bytes > before.used.Bytes)
	w.seen[id] = now
}

// latest returns the last measurements of disks, failed ones too, as to be judged now, and forgets those of others.
func (w *diskWatch) latest(ids []cove.SandboxID) map[cove.SandboxID]seenDisk {
	w.known.Lock()
	defer w.known.Unlock()
	now := map[cove.SandboxID]seenDisk{}
	for id, d := range w.seen {
		if !slices.Contains(ids, id) && !d.busy {
			delete(w.seen, id)
		} else if (d.there || d.wrong != nil) && slices.Contains(ids, id) {
			now[id] = d
			d.grew = false
			w.seen[id] = d
		}
	}
	return now
}

// boxes returns the sandboxes that run in this process.
func (w *diskWatch) boxes() (ids []cove.SandboxID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, r := range w.held {
		if r.box != nil {
			ids = append(ids, id)
		}
	}
	return ids
}

// judge pauses a sandbox if it has to stop writing.
func (w *diskWatch) judge(ctx context.Context, id cove.SandboxID, room hostdisk.Room, seen seenDisk) error {
	record, err := w.own().Sandbox(ctx, id)
	if err != nil || record.State != cove.StateRunning {
		return err
	}
	why := mustPause(record, room, seen)
	if why == "" {
		return nil
	}
	r, leave := w.tryEnter(id)
	if r == nil {
		return nil // the next look finds it
	}
	defer leave()
	if record, err = w.current(ctx, cove.System(""), id); err != nil || record.State != cove.StateRunning {
		return err
	}
	err = w.hold(ctx, r, record, why)
	w.auditLife(ctx, cove.System(""), "disk-pause", record, err)
	w.o.Log.Warn("a sandbox is paused", "sandbox", id, "name", record.Name, "reason", why, "error", err)
	return err
}

// mustPause returns why a sandbox may write no more; empty if it may. It is pure.
func mustPause(record store.Sandbox, room hostdisk.Room, seen seenDisk) string {
	used, limit, watched := seen.used, record.Spec.Limits, seen.used.Kind == workspace.DiskWatched
	goOn := "then let it go on: cove resume " + record.Name
	switch {
	case watched && seen.wrong != nil:
		return fmt.Sprintf("nothing bounds its disk while it cannot be measured (%v): make all of %s readable, or "+
			"remove it, %s", seen.wrong, record.Spec.Directory, goOn)
	case watched && limit.Disk > 0 && used.Bytes > limit.Disk:
		return fmt.Sprintf("its workspace and home hold %d MiB, and its disk has %d: remove some of it in %s, or give it "+
			"more (cove limits %s --disk SIZE), %s", used.Bytes>>20, limit.Disk>>20, record.Spec.Directory, record.Name, goOn)
	case watched && limit.Inodes > 0 && used.Files > limit.Inodes:
		return fmt.Sprintf("its workspace and home hold %d files, and may hold %d: remove some of them in %s, %s",
			used.Files, limit.Inodes, record.Spec.Directory, goOn)
	case seen.grew && room.Short():
		return fmt.Sprintf("it writes, and the disk of this machine has %d MiB left, of which Cove leaves %d alone: free "+
			"some space, %s", room.Free>>20, room.Floor()>>20, goOn)
	}
	return ""
}

// hold pauses a sandbox, or stops it where that is not possible. Its turn must be held.
func (w *diskWatch) hold(ctx context.Context, r *resident, record store.Sandbox, why string) error {
	bx, _ := w.running(r)
	if bx == nil {
		return nil
	}
	if pauser, ok := bx.Sandbox.(engine.Pauser); ok {
		if err := pauser.Pause(ctx); err == nil {
			if err := w.own().MoveSandbox(ctx, record.ID, record.State, cove.StatePaused, why); err != nil {
				w.o.Log.Warn("cannot note that a sandbox is paused", "sandbox", record.ID, "error", err)
			}
			bx.Become(cove.StatePaused)
			return nil
		}
	}
	if err := w.vacate(r); err != nil {
		return err
	}
	return w.own().MoveSandbox(ctx, record.ID, record.State, cove.StateStopped, why)
}
