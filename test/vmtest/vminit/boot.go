package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	rootDisk    = "/dev/vda" // scripts/vm-image.sh makes it
	payloadDisk = "/dev/vdb" // package vmtest makes it
	portName    = "cove"
)

// boot takes the machine from the initramfs to the state a step expects.
func boot() error {
	steps := []struct {
		name string
		do   func() error
	}{
		{"kernel file systems", mountKernel},
		{"modules", loadBootModules},
		{"root file system", enterRoot},
		{"file systems", mountRest},
		{"loopback", loopbackUp},
		{"settings", applySettings},
		{"control groups", layOutCgroups},
	}
	for _, s := range steps {
		if err := s.do(); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

type mount struct {
	source, target, kind string
	flags                uintptr
	data                 string
}

func mountAll(mounts []mount) error {
	for _, m := range mounts {
		if err := os.MkdirAll(m.target, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.source, m.target, m.kind, m.flags, m.data); err != nil {
			return fmt.Errorf("mount %s on %s: %w", m.kind, m.target, err)
		}
	}
	return nil
}

const noSuidDevExec = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC

func mountKernel() error {
	return mountAll([]mount{
		{"devtmpfs", "/dev", "devtmpfs", unix.MS_NOSUID, "mode=755"},
		{"proc", "/proc", "proc", noSuidDevExec, ""},
		{"sysfs", "/sys", "sysfs", noSuidDevExec, ""},
	})
}

// loadBootModules loads /modules/NN-*.ko of the initramfs, in that order.
func loadBootModules() error {
	paths, err := filepath.Glob("/modules/*.ko") // sorted
	if err != nil {
		return err
	}
	for _, path := range paths {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		err = unix.FinitModule(int(f.Fd()), "", 0)
		f.Close()
		if err != nil {
			return fmt.Errorf("%s: %w", filepath.Base(path), err)
		}
	}
	return nil
}

// enterRoot makes the root disk the root, as switch_root does.
func enterRoot() error {
	for _, disk := range []string{rootDisk, payloadDisk} {
		if err := waitFor(disk); err != nil {
			return err
		}
	}
	err := mountAll([]mount{
		{rootDisk, "/new", "ext4", 0, ""},
		{payloadDisk, "/new/cove", "ext4", unix.MS_RDONLY | unix.MS_NODEV, ""},
		{"/dev", "/new/dev", "", unix.MS_MOVE, ""},
		{"/proc", "/new/proc", "", unix.MS_MOVE, ""},
		{"/sys", "/new/sys", "", unix.MS_MOVE, ""},
	})
	if err != nil {
		return err
	}
	if err := os.Chdir("/new"); err != nil {
		return err
	}
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("move the root: %w", err)
	}
	if err := unix.Chroot("."); err != nil {
		return err
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	// systemd shares every mount; code that forgets to make them private in its own namespace must be found out here.
	return unix.Mount("", "/", "", unix.MS_SHARED|unix.MS_REC, "")
}

func mountRest() error {
	if err := mountAll([]mount{
		{"devpts", "/dev/pts", "devpts", unix.MS_NOSUID | unix.MS_NOEXEC, "gid=5,mode=620,ptmxmode=666"},
		{"tmpfs", "/dev/shm", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=1777"},
		{"mqueue", "/dev/mqueue", "mqueue", noSuidDevExec, ""},
		{"tmpfs", "/run", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=755,size=20%"},
		{"cgroup2", cgroupRoot, "cgroup2", noSuidDevExec, "nsdelegate,memory_recursiveprot"},
		{"securityfs", "/sys/kernel/security", "securityfs", noSuidDevExec, ""},
		{"debugfs", "/sys/kernel/debug", "debugfs", noSuidDevExec, ""},
		{"tracefs", "/sys/kernel/tracing", "tracefs", noSuidDevExec, ""},
		{"bpf", "/sys/fs/bpf", "bpf", noSuidDevExec, "mode=700"},
		{"binfmt_misc", "/proc/sys/fs/binfmt_misc", "binfmt_misc", noSuidDevExec, ""},
	}); err != nil {
		return err
	}
	for link, target := range map[string]string{"/dev/fd": "/proc/self/fd", "/dev/stdin": "fd/0", "/dev/stdout": "fd/1",
		"/dev/stderr": "fd/2"} {
		if err := os.Symlink(target, link); err != nil {
			return err
		}
	}
	if err := os.Mkdir("/run/user", 0o755); err != nil {
		return err
	}
	for _, a := range accounts() {
		if a.uid == 0 {
			continue
		}
		if err := os.MkdirAll(a.runtimeDir(), 0o700); err != nil {
			return err
		}
		if err := os.Chown(a.runtimeDir(), a.uid, a.gid()); err != nil {
			return err
		}
	}
	return nil
}

func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	req, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	req.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, req)
}

func applySettings() error {
	// What systemd sets on every Debian machine.
	settings := map[string]string{
		"kernel/hostname":        "cove-vm",
		"fs/protected_hardlinks": "1", "fs/protected_symlinks": "1",
		"fs/protected_regular": "2", "fs/protected_fifos": "1",
		"kernel/core_pattern": "core", // the default is a plain file as well
	}
	for name, value := range settings {
		if err := os.WriteFile("/proc/sys/"+name, []byte(value), 0); err != nil {
			return err
		}
	}
	// What a machine in use has loaded: more to attack, not only more to use.
	if out, err := exec.Command("/usr/sbin/modprobe", "-a", "overlay", "loop", "fuse", "tun", "vsock").
		CombinedOutput(); err != nil {
		return fmt.Errorf("modprobe: %w: %s", err, out)
	}
	return nil
}

// openPort opens the serial port that leads to the host.
func openPort() (*os.File, error) {
	const class = "/sys/class/virtio-ports"
	for range 100 {
		names, _ := filepath.Glob(class + "/*/name")
		for _, path := range names {
			name, err := os.ReadFile(path)
			if err == nil && strings.TrimSpace(string(name)) == portName {
				return os.OpenFile("/dev/"+filepath.Base(filepath.Dir(path)), os.O_RDWR, 0)
			}
		}
		time.Sleep(20 * time.Millisecond)
	}
	return nil, fmt.Errorf("no serial port %q", portName)
}

func waitFor(path string) error {
	for range 250 {
		if _, err := os.Stat(path); err == nil {
			return nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	return fmt.Errorf("%s does not appear", path)
}
