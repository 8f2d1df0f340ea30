//go:build linux

package remote

import (
	"io/fs"
	"path"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/guest/build"
	"github.com/cove-sandbox/cove/internal/linux/executor"
)

// Park implements guestd.Files. The pipe is open for both directions, so that its readers neither wait to open it nor
// find its end.
func (f files) Park(p string) error {
	_, err := f.on(p, 0, func(s *executor.Script) { parkAt(s, p) })
	return err
}

func parkAt(s *executor.Script, p string) {
	s.Do(unix.SYS_MKNODAT, executor.CWD, s.Text(p), num(unix.S_IFIFO|0o600), num(0))
	fd := s.Call(unix.SYS_OPENAT, executor.CWD, s.Text(p),
		num(unix.O_RDWR|unix.O_NONBLOCK|unix.O_NOFOLLOW|unix.O_CLOEXEC), num(0))
	s.Keep(fd, slotParked)
}

// Release implements guestd.Files. The file is complete before the reader goes on, which may open it.
func (f files) Release(w guest.WriteFile, data []byte) error {
	mode := w.Mode & uint32(fs.ModePerm)
	_, err := f.on(w.Path, 0, func(s *executor.Script) {
		made := path.Join(path.Dir(w.Path), guest.ReleaseName)
		fd := s.Call(unix.SYS_OPENAT, executor.CWD, s.Text(made),
			num(unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC), num(mode))
		s.Do(unix.SYS_FCHMOD, fd, num(mode))
		build.Write(s, fd, data)
		s.Do(unix.SYS_RENAMEAT, executor.CWD, s.Text(made), executor.CWD, s.Text(w.Path))
		build.Write(s, num(slotParked), data)
		s.Keep(num(0), slotParked)
	})
	return err
}
