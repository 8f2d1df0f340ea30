//go:build linux

package pid1

import (
	"cmp"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/guest/guestd"
)

// files implements guestd.Files. Every call runs on the files thread, with the user's rights.
type files struct{ w *world }

func (f files) on(p string, do func() error) error {
	if !path.IsAbs(p) || len(p) >= unix.PathMax {
		return &guest.Failure{Kind: guest.FailInvalid, Message: "the path must be absolute and shorter than 4096 bytes"}
	}
	return f.w.files.do(do)
}

// openRegular opens a regular file without waiting for a FIFO's other end, and refuses everything else. It refuses the
// files of /proc too: some of them judge their reader, and the guest may see more of itself than the user may.
func openRegular(name string, flags int, mode fs.FileMode) (*os.File, error) {
	f, err := os.OpenFile(name, flags|unix.O_NONBLOCK|unix.O_NOCTTY, mode)
	if errors.Is(err, unix.ENXIO) { // a FIFO without a reader
		return nil, notRegular
	}
	if err != nil {
		return nil, err
	}
	if fi, err := f.Stat(); err != nil || !fi.Mode().IsRegular() {
		f.Close()
		return nil, errors.Join(err, notRegular)
	}
	var on unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &on); err != nil || on.Type == unix.PROC_SUPER_MAGIC {
		f.Close()
		return nil, errors.Join(err, notRegular)
	}
	return f, nil
}

var notRegular = &guest.Failure{Kind: guest.FailInvalid, Message: "not a regular file"}

func (f files) Write(w guest.WriteFile, data []byte) error {
	return f.on(w.Path, func() error {
		flags := os.O_WRONLY | os.O_CREATE
		if w.Offset == 0 {
			flags |= os.O_TRUNC
			if err := os.MkdirAll(path.Dir(w.Path), 0o755); err != nil {
				return err
			}
		}
		file, err := openRegular(w.Path, flags, fs.FileMode(w.Mode)&fs.ModePerm)
		if err != nil {
			return err
		}
		defer file.Close()
		if w.Offset == 0 {
			if err := file.Chmod(fs.FileMode(w.Mode) & fs.ModePerm); err != nil {
				return err
			}
		}
		_, err = file.WriteAt(data, w.Offset)
		return err
	})
}

func (f files) Read(r guest.ReadFile) (data []byte, info guest.FileInfo, err error) {
	err = f.on(r.Path, func() error {
		file, err := openRegular(r.Path, os.O_RDONLY, 0)
		if err != nil {
			return err
		}
		defer file.Close()
		fi, err := file.Stat()
		if err != nil {
			return err
		}
		info = describe(path.Dir(r.Path), fi)
		data = make([]byte, guest.MaxChunk)
		n, err := file.ReadAt(data, r.Offset)
		data = data[:n]
		if errors.Is(err, io.EOF) {
			return nil
		}
		return err
	})
	return data, info, err
}

func (f files) Stat(p string) (info guest.FileInfo, err error) {
	err = f.on(p, func() error {
		fi, err := os.Lstat(p)
		if err == nil {
			info = describe(path.Dir(p), fi)
		}
		return err
	})
	return info, err
}

func (f files) List(p string) (infos []guest.FileInfo, err error) {
	err = f.on(p, func() error {
		d, err := os.OpenFile(p, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
		if err != nil {
			return err
		}
		defer d.Close()
		entries, err := d.Readdir(guestd.MaxEntries)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		infos = make([]guest.FileInfo, 0, len(entries))
		for _, fi := range entries {
			infos = append(infos, describe(p, fi))
		}
		return nil
	})
	return infos, err
}

func (f files) Mkdir(w guest.WriteFile) error {
	return f.on(w.Path, func() error { return os.MkdirAll(w.Path, fs.FileMode(w.Mode)&fs.ModePerm) })
}

func (f files) Remove(p string) error { return f.on(p, func() error { return os.RemoveAll(p) }) }

// Park implements guestd.Files. The pipe is open for both directions, so that its readers neither wait to open it nor
// find its end.
func (f files) Park(p string) error {
	return f.on(p, func() error {
		if err := unix.Mkfifo(p, 0o600); err != nil {
			return &os.PathError{Op: "mkfifo", Path: p, Err: err}
		}
		fd, err := unix.Open(p, unix.O_RDWR|unix.O_NONBLOCK|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			return &os.PathError{Op: "open", Path: p, Err: err}
		}
		f.w.leaveParked()
		f.w.parked = fd
		return nil
	})
}

func (w *world) leaveParked() {
	unix.Close(w.parked)
	w.parked = -1
}

// Release implements guestd.Files. The file is complete before the reader goes on, which may open it.
func (f files) Release(w guest.WriteFile, data []byte) error {
	return f.on(w.Path, func() error {
		made, mode := path.Join(path.Dir(w.Path), guest.ReleaseName), fs.FileMode(w.Mode)&fs.ModePerm
		file, err := os.OpenFile(made, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, mode)
		if err != nil {
			return err
		}
		_, err = file.Write(data)
		if err = errors.Join(err, file.Chmod(mode), file.Close()); err != nil {
			return err
		}
		if err := os.Rename(made, w.Path); err != nil {
			return err
		}
		if n, err := unix.Write(f.w.parked, data); err != nil || n < len(data) {
			return &os.PathError{Op: "write", Path: w.Path, Err: cmp.Or(err, error(unix.ENOSPC))}
		}
		f.w.leaveParked()
		return nil
	})
}

func describe(dir string, fi fs.FileInfo) guest.FileInfo {
	info := guest.FileInfo{Name: fi.Name(), Size: fi.Size(), Mode: uint32(fi.Mode()), ModTime: fi.ModTime()}
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		info.Dev, info.Ino = st.Dev, st.Ino
	}
	if fi.Mode()&fs.ModeSymlink != 0 {
		info.Target, _ = os.Readlink(path.Join(dir, fi.Name()))
	}
	return info
}
