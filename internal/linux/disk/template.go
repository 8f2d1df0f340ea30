//go:build linux

package disk

import (
	"context"
	"errors"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// Templates hold the bytes that mke2fs has written into new images of the latest sizes. An image of such a size is a
// copy of them, and no program is started for it. Its UUID and the seeds of its hashes are those of the others, by
// which the kernel tells no file systems apart. The zero value is empty. Methods may be called concurrently.
type Templates struct {
	mu  sync.Mutex
	all []template // the latest first
}

type template struct {
	size    Size
	length  int64
	extents []extent
}

// extent is a part of an image that is not zeros.
type extent struct {
	at   int64
	data []byte
}

const (
	mostTemplates = 4
	largest       = 4 << 20 // bytes of a template, which has about 160 KiB
)

// Create makes an image and mounts it. On error nothing is mounted, and the file may be left. Errors: those of Make and
// Mount.
func (t *Templates) Create(ctx context.Context, i Image, s Size) error {
	var err error
	if known, ok := t.find(s); ok {
		err = i.write(known)
	} else if err = i.Make(ctx, s); err == nil {
		t.learn(i, s) // without it the next one is made in the same way
	}
	if err != nil {
		return err
	}
	return i.mountBy(ctx, attachNew)
}

func (t *Templates) find(s Size) (template, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := slices.IndexFunc(t.all, func(known template) bool { return known.size == s })
	if n < 0 {
		return template{}, false
	}
	return t.all[n], true
}

// learn keeps what a new image holds, unless the file system of its file does not tell that from zeros.
func (t *Templates) learn(i Image, s Size) {
	f, err := os.Open(i.File)
	if err != nil {
		return
	}
	defer f.Close()
	read, ok, err := readTemplate(f, s)
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil && ok && !slices.ContainsFunc(t.all, func(known template) bool { return known.size == s }) {
		t.all = slices.Insert(t.all, 0, read)
		t.all = t.all[:min(len(t.all), mostTemplates)]
	}
}

// readTemplate reads the data of a sparse file; ok is false if there is too much.
func readTemplate(f *os.File, s Size) (t template, ok bool, err error) {
	info, err := f.Stat()
	if err != nil {
		return t, false, err
	}
	t = template{size: s, length: info.Size()}
	held := int64(0)
	for at := int64(0); at < t.length; {
		begin, err := unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			break // zeros to the end
		}
		if err != nil {
			return t, false, os.NewSyscallError("lseek", err)
		}
		end, err := unix.Seek(int(f.Fd()), begin, unix.SEEK_HOLE)
		if err != nil {
			return t, false, os.NewSyscallError("lseek", err)
		}
		if held += end - begin; held > largest {
			return t, false, nil
		}
		e := extent{begin, make([]byte, end-begin)}
		if _, err := f.ReadAt(e.data, begin); err != nil {
			return t, false, err
		}
		t.extents, at = append(t.extents, e), end
	}
	return t, true, nil
}

// write makes an image of a template. On error nothing is left.
func (i Image) write(t template) (err error) {
	f, err := os.OpenFile(i.File, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return failed("make", i.File, err)
	}
	err = f.Truncate(t.length)
	for _, e := range t.extents {
		if err == nil {
			_, err = f.WriteAt(e.data, e.at)
		}
	}
	if err == nil {
		err = f.Sync() // as mke2fs does: the record of the disk is on the machine's own next
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(failed("make", i.File, err), os.Remove(i.File))
	}
	return nil
}
