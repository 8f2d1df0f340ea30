//go:build linux

package hostdisk

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/filelock"
)

// Disk is the disk below a directory of Cove's home.
type Disk struct {
	dir    string // on it
	ledger string // directory of the reservations
}

// At returns the disk of a directory below Cove's home.
func At(home, dir string) Disk { return Disk{dir: dir, ledger: filepath.Join(home, "reserved")} }

// Judge decides by the room of a disk, less what is reserved, how many bytes are reserved.
type Judge func(Room) (bytes int64, err error)

// Fitting reserves bytes that leave the floor free; what has them. Errors: StorageFull.
func Fitting(what string, bytes int64) Judge {
	return func(r Room) (int64, error) { return bytes, r.Fits(what, bytes) }
}

// Room returns the room of the disk as it is, whatever is reserved of it.
func (d Disk) Room() (Room, error) { return Of(d.dir) }

// Reservation holds the bytes that one writer has reserved and not written yet.
type Reservation struct {
	disk Disk
	dev  uint64

	mu   sync.Mutex
	file *os.File // guarded by mu; locked; nil after End
	left int64    // guarded by mu
}

// Reserve reserves what judge decides. Errors: those of judge, StorageFull.
func (d Disk) Reserve(judge Judge) (*Reservation, error) {
	var st unix.Stat_t
	if err := unix.Stat(d.dir, &st); err != nil {
		return nil, failed("look at "+d.dir, err)
	}
	if err := os.MkdirAll(d.ledger, 0o700); err != nil {
		return nil, failed("reserve room", err)
	}
	r := &Reservation{disk: d, dev: st.Dev}
	err := r.judged(judge)
	if err != nil {
		r.End()
		return nil, err
	}
	return r, nil
}

// Change replaces what is reserved by what judge decides; an error leaves it as it is. Errors: those of judge.
func (r *Reservation) Change(judge Judge) error { return r.judged(judge) }

func (r *Reservation) judged(judge Judge) error {
	l, err := locked(filepath.Join(r.disk.ledger, ".lock"))
	if err != nil {
		return failed("reserve room", err)
	}
	defer l.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	others, err := r.others()
	if err != nil {
		return failed("reserve room", err)
	}
	room, err := r.disk.Room()
	if err != nil {
		return err
	}
	room.Free -= others
	bytes, err := judge(room)
	if err != nil {
		return err
	}
	if err := r.write(max(0, bytes)); err != nil {
		return failed("reserve room", err)
	}
	return nil
}

// others returns what others have reserved of the same disk, and removes what ended processes have left; mu and the
// lock of the ledger are held.
func (r *Reservation) others() (sum int64, err error) {
	entries, err := os.ReadDir(r.disk.ledger)
	if err != nil {
		return 0, err
	}
	for _, e := range entries {
		path := filepath.Join(r.disk.ledger, e.Name())
		if e.Name() == ".lock" || r.file != nil && path == r.file.Name() {
			continue
		}
		f, err := os.Open(path)
		if errors.Is(err, os.ErrNotExist) {
			continue // it has just ended
		}
		if err != nil {
			return 0, err
		}
		if filelock.Try(f, filelock.Exclusive) == nil {
			err = os.Remove(path)
		} else {
			var dev uint64
			var bytes int64
			if _, e := fmt.Fscan(f, &dev, &bytes); e == nil && dev == r.dev { // else it is being written
				sum += bytes
			}
		}
		f.Close()
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return 0, err
		}
	}
	return sum, nil
}

// write writes the reservation; mu is held.
func (r *Reservation) write(bytes int64) (err error) {
	if r.file == nil {
		path := filepath.Join(r.disk.ledger, rand.Text())
		if r.file, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600); err != nil {
			return err
		}
		if err := filelock.Try(r.file, filelock.Exclusive); err != nil {
			return err
		}
	}
	r.left = bytes
	_, err = r.file.WriteAt(fmt.Appendf(nil, "%20d %20d\n", r.dev, bytes), 0) // of one length, so never seen in part
	return err
}

// Wrote lessens what is reserved by bytes that the disk has now.
func (r *Reservation) Wrote(bytes int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.file != nil && r.left > 0 {
		_ = r.write(max(0, r.left-bytes)) // otherwise more stays reserved
	}
}

// Left returns what is reserved and not written.
func (r *Reservation) Left() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.left
}

// End gives back what is reserved. It may be called again, and of nil.
func (r *Reservation) End() {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.file == nil {
		return
	}
	_ = os.Remove(r.file.Name()) // otherwise the next reservation removes it
	r.file.Close()
	r.file, r.left = nil, 0
}

// locked waits for the exclusive lock of a file, which is held for moments only.
func locked(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := filelock.Wait(context.Background(), f, filelock.Exclusive); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Of returns the room of the disk below a directory, whatever is reserved of it.
func Of(dir string) (Room, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return Room{}, failed("look at "+dir, err)
	}
	return Room{Free: int64(st.Bavail) * st.Bsize, Total: int64(st.Blocks) * st.Bsize}, nil
}

func failed(doing string, err error) error {
	return cove.Errorf(cove.StorageFull, "cannot %s: %w", doing, err).
		WithHint("free some space, or make Cove's home writable")
}
