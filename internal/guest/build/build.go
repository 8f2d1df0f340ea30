//go:build linux

// Package build writes the scripts that build the root of a sandbox, step by step, for an executor. Targets lie in a
// staging directory, and nothing leads out of that.
package build

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"path"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/linux/executor"
)

// ErrChanged is the number of the error that a place is not what a step expects.
const ErrChanged = math.MaxUint16 - 1

// Explain says more of the errors that a script has.
func Explain(err error) error {
	failure, ok := errors.AsType[*executor.Error](err)
	switch {
	case !ok:
		return err
	case failure.Errno == ErrChanged:
		return fmt.Errorf("%s: it was changed meanwhile", failure.Doing)
	case failure.Errno == unix.ELOOP:
		return fmt.Errorf("a symbolic link stands where the sandbox needs a real directory or file: %w", err)
	}
	return err
}

// num is executor.Number.
func num[T ~int | ~int64 | ~uint32 | ~uintptr | ~uint64 | ~uint](n T) executor.Value {
	return executor.Number(n)
}

// Builder is a script of steps, and of whatever else is appended to it.
type Builder struct {
	*executor.Script
	staging int             // descriptor of the staging directory, O_PATH
	files   int             // of the request
	there   map[string]bool // directories that an earlier step has made or passed
}

// usual is how many calls the script of a root has.
const usual = 700

// New returns a Builder for the staging directory at a descriptor, with an answer of bytes and files of the request.
func New(staging, answer, files int) *Builder {
	b := &Builder{Script: executor.New(answer, files), staging: staging, files: files, there: map[string]bool{}}
	b.Grow(usual)
	return b
}

// Steps appends steps. The error is a step that makes no sense.
func (b *Builder) Steps(steps []guest.Step) error {
	for _, s := range steps {
		var err error
		known, may := b.there, s.Optional || s.Existing
		if may { // the step may do nothing
			b.there = maps.Clone(known)
		}
		b.Scope(func() {
			b.Doing(fmt.Sprintf("%s %s", s.Kind, s.Target))
			err = b.step(s)
		})
		if may {
			b.there = known
		}
		if err != nil {
			return fmt.Errorf("%s %s: %w", s.Kind, s.Target, err)
		}
	}
	return nil
}

func (b *Builder) step(s guest.Step) error {
	switch s.Kind {
	case guest.StepDir:
		b.dir(s)
	case guest.StepFile:
		b.file(s)
	case guest.StepSymlink:
		b.inParent(s.Target, func(dir executor.Value, name string) {
			b.Do(unix.SYS_SYMLINKAT, b.Text(s.Source), dir, b.Text(name))
			b.Unless(unix.EEXIST)
		})
	case guest.StepSysctl:
		b.sysctl(s)
	case guest.StepTmpfs:
		b.filesystem(s, "tmpfs", "size", strconv.FormatInt(s.Size, 10),
			"nr_inodes", strconv.FormatInt(s.Inodes, 10), "mode", fmt.Sprintf("0%o", s.Mode))
	case guest.StepProc:
		b.filesystem(s, "proc", "hidepid", "2", "gid", "0") // of root inside alone
	case guest.StepDevpts:
		b.filesystem(s, "devpts", "newinstance", "", "ptmxmode", "0666", "mode", "0620",
			"max", strconv.FormatInt(s.Inodes, 10))
	case guest.StepOverlay:
		b.overlay(s)
	case guest.StepBind:
		return b.bind(s)
	case guest.StepBindInside:
		b.bindInside(s)
	case guest.StepMove:
		from := b.Open(s.Source, unix.O_PATH)
		b.attach(from, s.Target, true)
		b.Close(from)
	case guest.StepNetlink:
		return b.netlink(s)
	case guest.StepMask:
		b.mask(s)
	case guest.StepGuard:
		return b.guard(s)
	case guest.StepReadOnly:
		b.readOnly(s)
	default:
		return errors.New("unknown step")
	}
	return nil
}

// Scratch mounts the file system of everything writable on the staging directory, with a provisional size.
func (b *Builder) Scratch() {
	b.Doing("mount the scratch file system")
	b.filesystem(guest.Step{Target: "/", Flags: guest.NoSuid | guest.NoDev}, "tmpfs", "size", "1048576",
		"nr_inodes", "64", "mode", "0755")
}

// Resize gives that file system its size, in bytes and inodes.
func (b *Builder) Resize(size, inodes int64) {
	b.Doing("limit the scratch file system")
	fs := b.Call(unix.SYS_FSPICK, num(b.staging), b.Text(""), num(unix.FSPICK_CLOEXEC|unix.FSPICK_EMPTY_PATH))
	configure(b.Script, fs, "size", strconv.FormatInt(size, 10), "nr_inodes", strconv.FormatInt(inodes, 10))
	b.Do(unix.SYS_FSCONFIG, fs, num(unix.FSCONFIG_CMD_RECONFIGURE), num(0), num(0), num(0))
	b.Close(fs)
}

// how resolves targets: never out of the staging directory, nor by a symlink in places that the sandbox depends on.
func how(target string, flags uint64) unix.OpenHow {
	h := unix.OpenHow{Flags: flags | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS}
	for _, place := range []string{guest.Root + "/proc", guest.Root + "/dev", guest.Root + "/sys"} {
		if target == place || strings.HasPrefix(target, place+"/") {
			h.Resolve |= unix.RESOLVE_NO_SYMLINKS
		}
	}
	return h
}

// Open opens a target, contained in the staging directory.
func (b *Builder) Open(target string, flags uint64) executor.Value {
	fd := b.Var()
	b.openTo(fd, target, flags)
	return fd
}

func (b *Builder) openTo(fd executor.Value, target string, flags uint64) {
	b.OpenFrom(fd, num(b.staging), target, how(target, flags))
}

// OpenFrom opens a name from a directory.
func (b *Builder) OpenFrom(fd, dir executor.Value, name string, h unix.OpenHow) {
	b.CallTo(fd, unix.SYS_OPENAT2, dir, b.Text(name), b.Bytes(executor.Structure(h)), num(unix.SizeofOpenHow))
}

// inParent calls f with the directory in which a target is made, and with its name there.
func (b *Builder) inParent(target string, f func(dir executor.Value, name string)) {
	b.mkdirAll(path.Dir(target))
	dir := b.Open(path.Dir(target), unix.O_PATH)
	f(dir, path.Base(target))
	b.Close(dir)
}

func (b *Builder) mkdirAll(target string) {
	if b.there[target] || target == "/" || target == "." {
		return
	}
	missing, made := b.Label(), b.Label()
	fd := b.Open(target, unix.O_PATH)
	b.On(unix.ENOENT, missing)
	b.Close(fd)
	b.Jump(made)
	b.Here(missing)
	b.inParent(target, func(dir executor.Value, name string) {
		b.Do(unix.SYS_MKDIRAT, dir, b.Text(name), num(0o755))
		b.Unless(unix.EEXIST)
	})
	b.Here(made)
	b.there[target] = true
}

func (b *Builder) dir(s guest.Step) {
	b.mkdirAll(s.Target)
	fd := b.Open(s.Target, unix.O_RDONLY|unix.O_DIRECTORY)
	if s.UID != 0 || s.GID != 0 {
		b.Do(unix.SYS_FCHOWN, fd, num(s.UID), num(s.GID))
	}
	b.Do(unix.SYS_FCHMOD, fd, num(s.Mode))
	b.Close(fd)
}

// file makes a new file and replaces one of the image.
func (b *Builder) file(s guest.Step) {
	b.inParent(s.Target, func(dir executor.Value, name string) {
		b.Do(unix.SYS_UNLINKAT, dir, b.Text(name), num(0))
		b.Unless(unix.ENOENT)
		fd := b.Call(unix.SYS_OPENAT, dir, b.Text(name),
			num(unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC|unix.O_NOFOLLOW), num(s.Mode))
		Write(b.Script, fd, s.Data)
		b.Do(unix.SYS_FCHMOD, fd, num(s.Mode))
		if s.UID != 0 || s.GID != 0 {
			b.Do(unix.SYS_FCHOWN, fd, num(s.UID), num(s.GID))
		}
		b.Close(fd)
	})
}

// Write writes data that a file takes at once.
func Write(s *executor.Script, fd executor.Value, data []byte) {
	if len(data) == 0 {
		return
	}
	n := s.Call(unix.SYS_WRITE, fd, s.Bytes(data), num(len(data)))
	s.FailUnless(n, ^uint64(0), uint64(len(data)), num(unix.ENOSPC))
}

func (b *Builder) sysctl(s guest.Step) {
	end := b.Label()
	fd := b.Open(s.Target, unix.O_WRONLY)
	b.On(unix.ENOENT, end)
	Write(b.Script, fd, s.Data)
	b.Close(fd)
	b.Here(end)
}

// filesystem mounts a new file system at the step's target. Options alternate name and value; an empty value is a flag.
func (b *Builder) filesystem(s guest.Step, fstype string, options ...string) {
	tree := detached(b.Script, s.Flags, fstype, options...)
	b.attach(tree, s.Target, true)
	b.Close(tree)
}

// overlay names several lower directories from the directory that contains them, since the kernel takes 255 bytes of
// names.
func (b *Builder) overlay(s guest.Step) {
	in := func(name string) string { return "/proc/self/fd/" + strconv.Itoa(b.staging) + name }
	lower := in(s.Source)
	refused := b.Label()
	mount := func() {
		if len(s.Lower) > 0 {
			lower = strings.Join(s.Lower, ":")
			dir := b.Open(s.Source, unix.O_PATH)
			b.Do(unix.SYS_FCHDIR, dir)
			b.Close(dir)
		}
		tree := detached(b.Script, s.Flags, "overlay", "lowerdir", lower, "upperdir", in(s.Upper), "workdir", in(s.Work),
			"userxattr", "")
		if s.Optional {
			b.moveReal(tree, s.Target)
		} else {
			b.attach(tree, s.Target, true)
		}
		b.Close(tree)
	}
	if s.Optional {
		executor.Attempt(b.Script, refused, mount)
		b.Here(refused)
	} else {
		mount()
	}
	if len(s.Lower) > 0 {
		b.Do(unix.SYS_CHDIR, b.Text("/"))
	}
}

// moveReal moves a detached mount that can be written to onto a directory, which it makes unless it is there, and to
// which no symbolic link leads from the directory that it is in.
func (b *Builder) moveReal(tree executor.Value, target string) {
	// The kernel makes an overlay read-only where it cannot use the work directory.
	b.Do(unix.SYS_FACCESSAT2, tree, b.Text(""), num(unix.W_OK), num(unix.AT_EMPTY_PATH))
	dir := b.Open(path.Dir(target), unix.O_PATH|unix.O_DIRECTORY)
	b.Do(unix.SYS_MKDIRAT, dir, b.Text(path.Base(target)), num(0o755))
	b.Unless(unix.EEXIST)
	at := b.Var()
	b.OpenFrom(at, dir, path.Base(target), unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS})
	move(b.Script, tree, at)
	b.Close(at)
	b.Close(dir)
}

// detached makes a file system, and a mount of it that is nowhere yet.
func detached(s *executor.Script, flags guest.MountFlag, fstype string, options ...string) executor.Value {
	fs := s.Call(unix.SYS_FSOPEN, s.Text(fstype), num(unix.FSOPEN_CLOEXEC))
	configure(s, fs, options...)
	s.Do(unix.SYS_FSCONFIG, fs, num(unix.FSCONFIG_CMD_CREATE), num(0), num(0), num(0))
	tree := s.Call(unix.SYS_FSMOUNT, fs, num(unix.FSMOUNT_CLOEXEC), num(attributes(flags)))
	s.Close(fs)
	return tree
}

func configure(s *executor.Script, fs executor.Value, options ...string) {
	for i := 0; i < len(options); i += 2 {
		if options[i+1] == "" {
			s.Do(unix.SYS_FSCONFIG, fs, num(unix.FSCONFIG_SET_FLAG), s.Text(options[i]), num(0), num(0))
		} else {
			s.Do(unix.SYS_FSCONFIG, fs, num(unix.FSCONFIG_SET_STRING), s.Text(options[i]), s.Text(options[i+1]), num(0))
		}
	}
}

var attributesOf = map[guest.MountFlag]uint64{
	guest.ReadOnly: unix.MOUNT_ATTR_RDONLY, guest.NoSuid: unix.MOUNT_ATTR_NOSUID,
	guest.NoDev: unix.MOUNT_ATTR_NODEV, guest.NoExec: unix.MOUNT_ATTR_NOEXEC, guest.NoFollow: unix.MOUNT_ATTR_NOSYMFOLLOW,
}

func attributes(f guest.MountFlag) (attr uint64) {
	for flag, bit := range attributesOf {
		if f&flag != 0 {
			attr |= bit
		}
	}
	return attr
}

// attach moves a detached mount to a target, and makes one that is missing: a directory or a file.
func (b *Builder) attach(tree executor.Value, target string, directory bool) {
	b.place(target, func() {
		if directory {
			b.mkdirAll(target)
		} else {
			b.file(guest.Step{Target: target, Mode: 0o644})
		}
	}, func(at executor.Value) { move(b.Script, tree, at) })
}

// place opens a target, which missing makes unless it is there.
func (b *Builder) place(target string, missing func(), f func(at executor.Value)) {
	absent, open := b.Label(), b.Label()
	at := b.Open(target, unix.O_PATH)
	b.On(unix.ENOENT, absent)
	b.Jump(open)
	b.Here(absent)
	missing()
	b.openTo(at, target, unix.O_PATH)
	b.Here(open)
	f(at)
	b.Close(at)
	for dir := range b.there { // what lies below may be hidden now
		if strings.HasPrefix(dir, target+"/") {
			delete(b.there, dir)
		}
	}
}

func move(s *executor.Script, tree, at executor.Value) {
	s.Do(unix.SYS_MOVE_MOUNT, tree, s.Text(""), at, s.Text(""),
		num(unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH))
}

// existing opens a target that a step requires, and goes on at end without it.
func (b *Builder) existing(s guest.Step, end executor.Label) {
	if s.Existing {
		at := b.Open(s.Target, unix.O_PATH)
		b.On(unix.ENOENT, end)
		b.Close(at)
	}
}

func (b *Builder) bind(s guest.Step) error {
	end := b.Label()
	b.existing(s, end)
	switch {
	case s.FD == nil:
		tree := b.cloneHost(s, end)
		b.attachClone(tree, s)
		b.Close(tree)
	default:
		tree, err := b.Given(*s.FD)
		if err != nil {
			return err
		}
		b.attachClone(tree, s)
	}
	b.Here(end)
	return nil
}

// Given is a descriptor of the request.
func (b *Builder) Given(i int) (executor.Value, error) {
	if i < 0 || i >= b.files {
		return executor.Value{}, errors.New("no such descriptor")
	}
	return b.File(i), nil
}

// cloneHost clones a mount of the host. A recursive one is a directory of the toolchain, which may be a symlink. Any
// other is a place that the host has resolved and opened, so a symlink or another inode there now is an attack.
func (b *Builder) cloneHost(s guest.Step, end executor.Label) executor.Value {
	h := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC}
	if !s.Recursive {
		h.Resolve = unix.RESOLVE_NO_SYMLINKS
	}
	place := b.Var()
	b.OpenFrom(place, executor.CWD, s.Source, h)
	if s.Optional {
		b.On(unix.ENOENT, end)
	}
	if s.Is != nil {
		same(b.Script, place, *s.Is)
	}
	tree := clone(b.Script, place, s.Recursive)
	b.Close(place)
	return tree
}

func (b *Builder) bindInside(s guest.Step) {
	end := b.Label()
	b.existing(s, end)
	from := b.Open(s.Source, unix.O_PATH)
	tree := clone(b.Script, from, false)
	b.Close(from)
	b.attachClone(tree, s)
	b.Close(tree)
	b.Here(end)
}

func clone(s *executor.Script, place executor.Value, recursive bool) executor.Value {
	flags := unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC | unix.AT_EMPTY_PATH
	if recursive {
		flags |= unix.AT_RECURSIVE
	}
	return s.Call(unix.SYS_OPEN_TREE, place, s.Text(""), num(flags))
}

func (b *Builder) attachClone(tree executor.Value, s guest.Step) {
	setAttributes(b.Script, tree, s.Flags, s.Recursive)
	b.place(s.Target, func() {
		b.mkdirAll(path.Dir(s.Target)) // for both
		file, made := b.Label(), b.Label()
		b.JumpUnless(mode(b.Script, tree), unix.S_IFMT, unix.S_IFDIR, file)
		b.mkdirAll(s.Target)
		b.Jump(made)
		b.Here(file)
		b.file(guest.Step{Target: s.Target, Mode: 0o644})
		b.Here(made)
	}, func(at executor.Value) { move(b.Script, tree, at) })
}

// stat is the struct stat of a descriptor.
func stat(s *executor.Script, fd executor.Value) executor.Value {
	st := s.Space(int(unsafe.Sizeof(unix.Stat_t{})))
	s.Do(unix.SYS_FSTAT, fd, st)
	return st
}

func mode(s *executor.Script, fd executor.Value) executor.Value {
	return s.Load(stat(s, fd).At(int(unsafe.Offsetof(unix.Stat_t{}.Mode))), 4)
}

func setAttributes(s *executor.Script, tree executor.Value, f guest.MountFlag, recursive bool) {
	if f == 0 {
		return
	}
	flags := unix.AT_EMPTY_PATH
	if recursive {
		flags |= unix.AT_RECURSIVE
	}
	attr := unix.MountAttr{Attr_set: attributes(f)}
	s.Do(unix.SYS_MOUNT_SETATTR, tree, s.Text(""), num(flags), s.Bytes(executor.Structure(attr)),
		num(unsafe.Sizeof(attr)))
}

func (b *Builder) mask(s guest.Step) {
	end, file := b.Label(), b.Label()
	at := b.Open(s.Target, unix.O_PATH)
	b.On(unix.ENOENT, end)
	tree, made := b.Var(), b.Label()
	b.JumpUnless(mode(b.Script, at), unix.S_IFMT, unix.S_IFDIR, file)
	b.Set(tree, detached(b.Script, guest.ReadOnly|guest.NoSuid|guest.NoDev|guest.NoExec, "tmpfs", "size", "4096",
		"nr_inodes", "1", "mode", "0555"))
	b.Jump(made)
	b.Here(file)
	b.Set(tree, b.cloneHost(guest.Step{Source: "/dev/null"}, end))
	setAttributes(b.Script, tree, guest.ReadOnly|guest.NoSuid|guest.NoExec, false)
	b.Here(made)
	move(b.Script, tree, at)
	b.Close(tree)
	b.Close(at)
	b.Here(end)
}

// guard attaches a target on itself. What is there is opened once, so that nothing can be put in its place meanwhile.
func (b *Builder) guard(s guest.Step) error {
	if s.Is == nil {
		return errors.New("no inode is named")
	}
	at := b.Open(s.Target, unix.O_PATH)
	same(b.Script, at, *s.Is)
	b.overItself(at, s.Flags)
	return nil
}

// same refuses a place that is not what a step expects.
func same(s *executor.Script, place executor.Value, is guest.Inode) {
	st := stat(s, place)
	dev := s.Load(st.At(int(unsafe.Offsetof(unix.Stat_t{}.Dev))), 8)
	ino := s.Load(st.At(int(unsafe.Offsetof(unix.Stat_t{}.Ino))), 8)
	s.FailUnless(dev, ^uint64(0), is.Dev, num(ErrChanged))
	s.FailUnless(ino, ^uint64(0), is.Ino, num(ErrChanged))
}

// readOnly makes a target read-only; unless the target is a mount already, it becomes one.
func (b *Builder) readOnly(s guest.Step) {
	end, unmounted := b.Label(), b.Label()
	at := b.Open(s.Target, unix.O_PATH)
	b.On(unix.ENOENT, end)
	setAttributes(b.Script, at, s.Flags|guest.ReadOnly, false)
	b.On(unix.EINVAL, unmounted) // not the root of a mount
	b.Close(at)
	b.Jump(end)
	b.Here(unmounted)
	b.overItself(at, s.Flags|guest.ReadOnly)
	b.Here(end)
}

// overItself attaches a place on itself, and closes it.
func (b *Builder) overItself(at executor.Value, flags guest.MountFlag) {
	tree := clone(b.Script, at, false)
	setAttributes(b.Script, tree, flags, false)
	move(b.Script, tree, at)
	b.Close(tree)
	b.Close(at)
}
