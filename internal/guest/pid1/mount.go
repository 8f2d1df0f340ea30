//go:build linux

package pid1

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/linux/netsetup"
)

var netlinks = map[string]int{guest.NetlinkRoute: unix.NETLINK_ROUTE, guest.NetlinkNetfilter: unix.NETLINK_NETFILTER}

type builder struct {
	staging int // O_PATH descriptor
	fds     []*os.File
}

func (b *builder) run(steps []guest.Step) error {
	for _, s := range steps {
		if err := b.step(s); err != nil {
			return fmt.Errorf("%s %s: %w", s.Kind, s.Target, err)
		}
	}
	return nil
}

func (b *builder) step(s guest.Step) error {
	switch s.Kind {
	case guest.StepDir:
		return b.dir(s)
	case guest.StepFile:
		return b.file(s)
	case guest.StepSymlink:
		return b.symlink(s)
	case guest.StepSysctl:
		return b.sysctl(s)
	case guest.StepTmpfs:
		return b.filesystem(s, "tmpfs", "size", strconv.FormatInt(s.Size, 10),
			"nr_inodes", strconv.FormatInt(s.Inodes, 10), "mode", fmt.Sprintf("0%o", s.Mode))
	case guest.StepProc:
		return b.filesystem(s, "proc", "hidepid", "2")
	case guest.StepDevpts:
		return b.filesystem(s, "devpts", "newinstance", "", "ptmxmode", "0666", "mode", "0620",
			"max", strconv.FormatInt(s.Inodes, 10))
	case guest.StepOverlay:
		return b.overlay(s)
	case guest.StepBind:
		return b.bind(s)
	case guest.StepBindInside:
		return b.bindInside(s)
	case guest.StepMove:
		return b.move(s)
	case guest.StepNetlink:
		protocol, ok := netlinks[s.Target]
		if !ok {
			return errors.New("unknown netlink family")
		}
		return netsetup.Send(protocol, s.Data)
	case guest.StepMask:
		return b.mask(s)
	case guest.StepGuard:
		return b.guard(s)
	case guest.StepReadOnly:
		return b.readOnly(s)
	}
	return errors.New("unknown step")
}

// how resolves targets: never out of the staging directory, nor by a symlink in places that the sandbox depends on.
func how(target string, flags uint64) *unix.OpenHow {
	h := &unix.OpenHow{Flags: flags | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS}
	for _, place := range []string{guest.Root + "/proc", guest.Root + "/dev", guest.Root + "/sys"} {
		if target == place || strings.HasPrefix(target, place+"/") {
			h.Resolve |= unix.RESOLVE_NO_SYMLINKS
		}
	}
	return h
}

// open opens a target with O_PATH, contained in the staging directory.
func (b *builder) open(target string) (int, error) {
	fd, err := unix.Openat2(b.staging, target, how(target, unix.O_PATH))
	if err == unix.ELOOP {
		err = fmt.Errorf("a symbolic link stands where the sandbox needs a real directory or file: %w", err)
	}
	return fd, err
}

// inParent calls f with the directory in which a target is made, and with its name there.
func (b *builder) inParent(target string, f func(dir int, name string) error) error {
	if err := b.mkdirAll(path.Dir(target)); err != nil {
		return err
	}
	dir, err := b.open(path.Dir(target))
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	return f(dir, path.Base(target))
}

func (b *builder) mkdirAll(target string) error {
	if fd, err := b.open(target); err == nil {
		return unix.Close(fd)
	}
	if target == "/" || target == "." {
		return unix.ENOENT
	}
	return b.inParent(target, func(dir int, name string) error {
		return unlessExists(unix.Mkdirat(dir, name, 0o755))
	})
}

func unlessExists(err error) error {
	if err == unix.EEXIST {
		return nil
	}
	return err
}

// place makes sure that a mount's target exists, as a directory or a file, and opens it.
func (b *builder) place(target string, directory bool) (int, error) {
	fd, err := b.open(target)
	if err != unix.ENOENT {
		return fd, err
	}
	if directory {
		err = b.mkdirAll(target)
	} else {
		err = b.file(guest.Step{Target: target, Mode: 0o644})
	}
	if err != nil {
		return -1, err
	}
	return b.open(target)
}

func (b *builder) dir(s guest.Step) error {
	if err := b.mkdirAll(s.Target); err != nil {
		return err
	}
	fd, err := unix.Openat2(b.staging, s.Target, how(s.Target, unix.O_RDONLY|unix.O_DIRECTORY))
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if s.UID != 0 {
		if err := unix.Fchown(fd, s.UID, s.UID); err != nil {
			return err
		}
	}
	return unix.Fchmod(fd, s.Mode)
}

// file makes a new file and replaces one of the image.
func (b *builder) file(s guest.Step) error {
	return b.inParent(s.Target, func(dir int, name string) error {
		if err := unix.Unlinkat(dir, name, 0); err != nil && err != unix.ENOENT {
			return err
		}
		fd, err := unix.Openat(dir, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC|unix.O_NOFOLLOW, s.Mode)
		if err != nil {
			return err
		}
		f := os.NewFile(uintptr(fd), name)
		defer f.Close()
		if _, err := f.Write(s.Data); err != nil {
			return err
		}
		return unix.Fchmod(fd, s.Mode)
	})
}

func (b *builder) symlink(s guest.Step) error {
	return b.inParent(s.Target, func(dir int, name string) error {
		return unlessExists(unix.Symlinkat(s.Source, dir, name))
	})
}

func (b *builder) sysctl(s guest.Step) error {
	fd, err := unix.Openat2(b.staging, s.Target, how(s.Target, unix.O_WRONLY))
	if err == unix.ENOENT {
		return nil
	}
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), s.Target)
	defer f.Close()
	_, err = f.Write(s.Data)
	return err
}

// filesystem mounts a new file system at the step's target. Options alternate name and value; an empty value is a flag.
func (b *builder) filesystem(s guest.Step, fstype string, options ...string) error {
	fs, err := unix.Fsopen(fstype, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return fmt.Errorf("fsopen: %w", err)
	}
	defer unix.Close(fs)
	if err := configure(fs, options...); err != nil {
		return err
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return fmt.Errorf("create: %w", err)
	}
	tree, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, attributes(s.Flags))
	if err != nil {
		return fmt.Errorf("fsmount: %w", err)
	}
	defer unix.Close(tree)
	return b.attach(tree, s.Target, true)
}

func configure(fs int, options ...string) (err error) {
	for i := 0; i < len(options); i += 2 {
		if options[i+1] == "" {
			err = unix.FsconfigSetFlag(fs, options[i])
		} else {
			err = unix.FsconfigSetString(fs, options[i], options[i+1])
		}
		if err != nil {
			return fmt.Errorf("option %s: %w", options[i], err)
		}
	}
	return nil
}

func (b *builder) overlay(s guest.Step) error {
	p := func(name string) string { return "/proc/self/fd/" + strconv.Itoa(b.staging) + name }
	return b.filesystem(s, "overlay", "lowerdir", p(s.Source), "upperdir", p(s.Upper), "workdir", p(s.Work),
		"userxattr", "")
}

func attributes(f guest.MountFlag) int {
	attr := 0
	for flag, bit := range map[guest.MountFlag]int{
		guest.ReadOnly: unix.MOUNT_ATTR_RDONLY, guest.NoSuid: unix.MOUNT_ATTR_NOSUID,
		guest.NoDev: unix.MOUNT_ATTR_NODEV, guest.NoExec: unix.MOUNT_ATTR_NOEXEC, guest.NoFollow: unix.MOUNT_ATTR_NOSYMFOLLOW,
	} {
		if f&flag != 0 {
			attr |= bit
		}
	}
	return attr
}

func (b *builder) attach(tree int, target string, directory bool) error {
	at, err := b.place(target, directory)
	if err != nil {
		return err
	}
	defer unix.Close(at)
	return move(tree, at)
}

// leftOut reports whether a step requires an existing target that is missing.
func (b *builder) leftOut(s guest.Step) bool {
	if !s.Existing {
		return false
	}
	at, err := b.open(s.Target)
	unix.Close(at)
	return errors.Is(err, unix.ENOENT)
}

func (b *builder) bind(s guest.Step) error {
	if b.leftOut(s) {
		return nil
	}
	var tree int
	if s.FD != nil {
		if *s.FD < 0 || *s.FD >= len(b.fds) {
			return errors.New("no such descriptor")
		}
		tree = int(b.fds[*s.FD].Fd())
	} else {
		fd, err := b.cloneHost(s)
		if s.Optional && errors.Is(err, unix.ENOENT) {
			return nil
		}
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		tree = fd
	}
	return b.attachClone(tree, s)
}

// cloneHost clones a mount of the host. A recursive one is a directory of the toolchain, which may be a symlink. Any
// other is a place that the host has resolved and opened, so a symlink or another inode there now is an attack.
func (b *builder) cloneHost(s guest.Step) (int, error) {
	how := &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC}
	if !s.Recursive {
		how.Resolve = unix.RESOLVE_NO_SYMLINKS
	}
	place, err := unix.Openat2(unix.AT_FDCWD, s.Source, how)
	if err != nil {
		return -1, err
	}
	defer unix.Close(place)
	if s.Is != nil {
		if err := same(place, s); err != nil {
			return -1, err
		}
	}
	return clone(place, s.Recursive)
}

func (b *builder) bindInside(s guest.Step) error {
	if b.leftOut(s) {
		return nil
	}
	from, err := b.open(s.Source)
	if err != nil {
		return err
	}
	defer unix.Close(from)
	tree, err := clone(from, false)
	if err != nil {
		return err
	}
	defer unix.Close(tree)
	return b.attachClone(tree, s)
}

func (b *builder) move(s guest.Step) error {
	from, err := b.open(s.Source)
	if err != nil {
		return err
	}
	defer unix.Close(from)
	return b.attach(from, s.Target, true)
}

func clone(place int, recursive bool) (int, error) {
	flags := uint(unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC | unix.AT_EMPTY_PATH)
	if recursive {
		flags |= unix.AT_RECURSIVE
	}
	fd, err := unix.OpenTree(place, "", flags)
	if err != nil {
		return -1, fmt.Errorf("open_tree: %w", err)
	}
	return fd, nil
}

func (b *builder) attachClone(tree int, s guest.Step) error {
	if err := setAttributes(tree, s.Flags, s.Recursive); err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstat(tree, &st); err != nil {
		return err
	}
	return b.attach(tree, s.Target, st.Mode&unix.S_IFMT == unix.S_IFDIR)
}

func setAttributes(tree int, f guest.MountFlag, recursive bool) error {
	if f == 0 {
		return nil
	}
	flags := uint(unix.AT_EMPTY_PATH)
	if recursive {
		flags |= unix.AT_RECURSIVE
	}
	if err := unix.MountSetattr(tree, "", flags, &unix.MountAttr{Attr_set: uint64(attributes(f))}); err != nil {
		return fmt.Errorf("mount_setattr: %w", err)
	}
	return nil
}

func (b *builder) mask(s guest.Step) error {
	at, err := b.open(s.Target)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(at)
	var st unix.Stat_t
	if err := unix.Fstat(at, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return b.filesystem(guest.Step{Target: s.Target, Flags: guest.ReadOnly | guest.NoSuid | guest.NoDev | guest.NoExec},
			"tmpfs", "size", "4096", "nr_inodes", "1", "mode", "0555")
	}
	return b.bind(guest.Step{Source: "/dev/null", Target: s.Target, Flags: guest.ReadOnly | guest.NoSuid | guest.NoExec})
}

// guard attaches a target on itself. What is there is opened once, so that nothing can be put in its place meanwhile.
func (b *builder) guard(s guest.Step) error {
	at, err := b.open(s.Target)
	if err != nil {
		return err
	}
	defer unix.Close(at)
	if err := same(at, s); err != nil {
		return err
	}
	tree, err := clone(at, false)
	if err != nil {
		return err
	}
	defer unix.Close(tree)
	if err := setAttributes(tree, s.Flags, false); err != nil {
		return err
	}
	return move(tree, at)
}

// same refuses a place that is not what a step expects.
func same(place int, s guest.Step) error {
	var st unix.Stat_t
	if err := unix.Fstat(place, &st); err != nil {
		return err
	}
	if s.Is == nil || (guest.Inode{Dev: st.Dev, Ino: st.Ino}) != *s.Is {
		return fmt.Errorf("%s was changed meanwhile", cmp.Or(s.Source, s.Target))
	}
	return nil
}

func move(tree, at int) error {
	if err := unix.MoveMount(tree, "", at, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH); err != nil {
		return fmt.Errorf("move_mount: %w", err)
	}
	return nil
}

// readOnly makes a target read-only; unless the target is a mount already, it becomes one.
func (b *builder) readOnly(s guest.Step) error {
	at, err := b.open(s.Target)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(at)
	err = setAttributes(at, s.Flags|guest.ReadOnly, false)
	if !errors.Is(err, unix.EINVAL) { // EINVAL: not the root of a mount
		return err
	}
	return b.bindInside(guest.Step{Source: s.Target, Target: s.Target, Flags: s.Flags | guest.ReadOnly})
}
