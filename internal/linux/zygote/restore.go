//go:build linux

package zygote

import (
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove/internal/linux/executor"
)

// Layout finds what the kernel has mapped into an executor, by its /proc/self/maps.
func Layout(maps []byte) (own []Area, err error) {
	all, err := mapped(maps)
	for _, m := range all {
		if m.own() {
			own = append(own, m.area())
		}
	}
	return own, err
}

// Become appends the calls that make a child of an executor a copy: it maps the program of the image, whose descriptor
// is given, and executes it. The child's standard streams and its named pipe are there already. Own is the Layout of
// the executor. A sparse copy shares pages with the image until it writes to them. Files that have changed since are an
// error.
func (i *Image) Become(s *executor.Script, image, pipe executor.Value, own []Area, sparse bool) error {
	if len(own) != len(i.Own) || len(own) == 0 {
		return unsupported("the kernel maps %v", own)
	}
	num := executor.Number[uint64]
	for n, a := range own {
		if a.Name != i.Own[n].Name || a.To-a.From != i.Own[n].To-i.Own[n].From || n > 0 && a.From != own[n-1].To {
			return unsupported("the kernel maps %v", own)
		}
	}
	for n, f := range i.Files {
		i.open(s, f, firstFileFD+n)
	}
	s.Doing("map the zygote")
	s.Do(unix.SYS_DUP3, image, num(imageFD), num(0))
	const fixedNoReplace = 0x100000 // MAP_FIXED_NOREPLACE, 4.17
	s.Do(unix.SYS_MMAP, num(i.Base), num(i.Size), num(unix.PROT_READ|unix.PROT_WRITE),
		num(unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|fixedNoReplace), num(0), num(0))
	s.Do(unix.SYS_PREAD64, num(imageFD), num(i.Base), num(i.Size), num(0))
	set := func(n, arg int, v uint64) {
		s.Store(num(i.Table+uint64(n)*uint64(unsafe.Sizeof(call{}))+uint64(8*(1+arg))), 8, num(v))
	}
	first, last := own[0].From, own[len(own)-1].To
	set(i.Below, 1, first-(i.Base+i.Size))
	set(i.Above, 0, last)
	set(i.Above, 1, topOfMemory-last)
	for n, move := range i.Moves {
		set(move, 0, own[n].From)
	}
	if sparse {
		for _, call := range i.Shared {
			set(call, 1, 0)
		}
	}
	s.Do(unix.SYS_MPROTECT, num(i.Base), num(i.Size), num(unix.PROT_READ|unix.PROT_EXEC))
	s.Do(unix.SYS_DUP3, pipe, executor.Number(i.Pipe), executor.Number(i.Flags&unix.O_CLOEXEC))
	executor.Become(s, num(i.Base), num(i.Table))
	return nil
}

// open opens a mapped file, which has to be as it was.
func (i *Image) open(s *executor.Script, f File, at int) {
	s.Scope(func() {
		s.Doing("open " + f.Path)
		fd := s.Call(unix.SYS_OPENAT, executor.CWD, s.Text(f.Path),
			executor.Number(unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK), executor.Number(0))
		var st unix.Stat_t
		place := s.Space(int(unsafe.Sizeof(st)))
		s.Do(unix.SYS_FSTAT, fd, place)
		for _, is := range []struct {
			offset uintptr
			want   uint64
		}{{unsafe.Offsetof(st.Ino), f.Inode}, {unsafe.Offsetof(st.Size), uint64(f.Size)},
			{unsafe.Offsetof(st.Mtim), uint64(f.Mtime[0])}, {unsafe.Offsetof(st.Mtim) + 8, uint64(f.Mtime[1])},
			{unsafe.Offsetof(st.Ctim), uint64(f.Ctime[0])}, {unsafe.Offsetof(st.Ctim) + 8, uint64(f.Ctime[1])}} {
			s.FailUnless(s.Load(place.At(int(is.offset)), 8), ^uint64(0), is.want, executor.Number(unix.ESTALE))
		}
		s.Do(unix.SYS_DUP3, fd, executor.Number(at), executor.Number(unix.O_CLOEXEC))
	})
}
