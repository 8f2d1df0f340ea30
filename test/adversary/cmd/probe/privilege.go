package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// privileges are attempts to become somebody else or to keep a right (K5, K8).
func privileges() map[string]attempt {
	return map[string]attempt{
		"ids":       func([]string) (report, error) { return identity("/proc/self/status") },
		"exec_ids":  execIDs,
		"as":        as,
		"threads":   threads,
		"setuid":    setID(unix.SYS_SETUID),
		"setgid":    setID(unix.SYS_SETGID),
		"setfsuid":  setFSUID,
		"setresuid": simple(func() error { return call(unix.SYS_SETRESUID, 0, 0, 0) }),
		"setresgid": simple(func() error { return call(unix.SYS_SETRESGID, 0, 0, 0) }),
		"setgroups": simple(func() error { var g uint32; return call(unix.SYS_SETGROUPS, 1, at(&g)) }),
		"capset":    simple(capsetAll),
		"ambient": simple(func() error {
			return unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, unix.CAP_NET_RAW, 0, 0)
		}),
		"securebits":      simple(func() error { return unix.Prctl(unix.PR_SET_SECUREBITS, 0x20, 0, 0, 0) }),
		"prctl":           prctl,
		"no_new_privs_0":  simple(func() error { return call(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0) }),
		"chown_root":      simple(chownRoot),
		"chmod_suid":      chmodSuid,
		"create_suid":     createSuid,
		"open_suid":       openSuid,
		"file_capability": fileCapability,
		"xattr_trusted":   simple(xattrTrusted),
		"xattr":           setAttribute,
		"setuid_files":    setuidFiles,
		"nice":            nice,
		"sched_fifo":      simple(schedFIFO),
		"sched_deadline":  simple(schedDeadline),
		"ioprio_rt":       simple(func() error { return call(unix.SYS_IOPRIO_SET, 1, 0, 1<<13) }),
		"rlimit_raise":    rlimitRaise,
		"oom_score":       simple(oomScore),
	}
}

// identity reports the lines of a /proc/PID/status that say who a task is.
func identity(path string) (report, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return report{}, err
	}
	var r report
	for line := range strings.Lines(string(b)) {
		key, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch key {
		case "Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp",
			"Seccomp_filters":
			r.lines = append(r.lines, key+": "+strings.Join(strings.Fields(rest), " "))
		}
	}
	return r, nil
}

// execIDs executes FILE, a copy of this program with a setuid bit or file capabilities, and reports who it became.
func execIDs(args []string) (report, error) {
	out, err := exec.Command(args[0], "ids").Output()
	if err != nil {
		return report{detail: string(out)}, err
	}
	return report{detail: strings.TrimSpace(string(out))}, nil
}

// as makes an attempt as USER, a number, in a process of its own: as USER ATTEMPT ARG….
func as(args []string) (report, error) {
	id, err := strconv.ParseUint(args[0], 10, 32)
	if err != nil {
		return report{}, err
	}
	cmd := exec.Command("/proc/self/exe", args[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(id), Gid: uint32(id)}}
	out, err := cmd.Output()
	return report{detail: strings.TrimSpace(string(out))}, err
}

// threads reports whether every thread of the process is confined alike.
func threads([]string) (report, error) {
	tasks, err := filepath.Glob("/proc/self/task/*/status")
	if err != nil {
		return report{}, err
	}
	var r report
	var first string
	for _, path := range tasks {
		id, err := identity(path)
		if err != nil {
			return r, err
		}
		all := strings.Join(id.lines, "; ")
		if first == "" {
			first, r.detail = all, all
		}
		if all != first {
			r.lines = append(r.lines, path+": "+all)
		}
		r.count++
	}
	return r, nil
}

func setID(nr uintptr) attempt {
	return simple(func() error { return call(nr, 0) })
}

// setFSUID has no error: the old value comes back whatever happens, so it is asked twice.
func setFSUID([]string) (report, error) {
	if _, err := value(unix.SYS_SETFSUID, 0); err != nil {
		return report{}, err
	}
	if now, err := value(unix.SYS_SETFSUID, all); err != nil || now == 0 {
		return report{detail: fmt.Sprintf("fsuid is %d", now)}, err
	}
	return report{}, unix.EPERM
}

func capsetAll() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	data := [2]unix.CapUserData{{Effective: 1 << unix.CAP_NET_RAW, Permitted: 1 << unix.CAP_NET_RAW,
		Inheritable: 1 << unix.CAP_NET_RAW}}
	return call(unix.SYS_CAPSET, at(&header), at(&data))
}

// prctl makes the call OPTION ARG…, all 64 bits as given.
func prctl(args []string) (report, error) {
	v, err := numbers(args)
	if err != nil {
		return report{}, err
	}
	return report{}, call(unix.SYS_PRCTL, v...)
}

// onFile runs f on a fresh file of the attacker's own.
func onFile(f func(path string) error) error {
	file, err := os.CreateTemp("", "probe")
	if err != nil {
		return err
	}
	file.Close()
	defer os.Remove(file.Name())
	return f(file.Name())
}

func chownRoot() error {
	return onFile(func(path string) error { return unix.Chown(path, 0, 0) })
}

// chmodSuid sets MODE on a fresh file by every call that can; the file is in directory DIR, or the temporary one.
func chmodSuid(args []string) (report, error) {
	mode, err := numbers(args[:1])
	if err != nil {
		return report{}, err
	}
	dir := ""
	if len(args) > 1 {
		dir = args[1]
	}
	file, err := os.CreateTemp(dir, "probe")
	if err != nil {
		return report{}, err
	}
	defer file.Close()
	defer os.Remove(file.Name())
	m := uint32(mode[0])
	var r report
	for name, try := range map[string]func() error{
		"chmod":      func() error { return unix.Chmod(file.Name(), m) },
		"fchmod":     func() error { return unix.Fchmod(int(file.Fd()), m) },
		"fchmodat":   func() error { return call(unix.SYS_FCHMODAT, minus(100), text(file.Name()), uintptr(m)) },
		"fchmodat2":  func() error { return call(unix.SYS_FCHMODAT2, minus(100), text(file.Name()), uintptr(m), 0) },
		"chmod high": func() error { return call(unix.SYS_FCHMODAT, minus(100), text(file.Name()), uintptr(m)|1<<32) },
	} {
		unix.Chmod(file.Name(), 0o600)
		tried := try()
		var st unix.Stat_t
		if err := unix.Stat(file.Name(), &st); err != nil {
			return r, err
		}
		if st.Mode&(unix.S_ISUID|unix.S_ISGID) != 0 {
			r.lines = append(r.lines, fmt.Sprintf("%s: mode is %o", name, st.Mode&0o7777))
		} else if err == nil {
			err = tried
		}
	}
	if len(r.lines) > 0 {
		return r, nil
	}
	if err == nil {
		err = refusal("UNCHANGED")
	}
	return r, err
}

// openSuid makes files in DIR that have MODE from the beginning, by every call that can.
func openSuid(args []string) (report, error) {
	mode, err := numbers(args[:1])
	if err != nil {
		return report{}, err
	}
	m := uint32(mode[0])
	unix.Umask(0)
	var r report
	for name, try := range map[string]func(path string) error{
		"openat": func(p string) error { return made(unix.Openat(unix.AT_FDCWD, p, unix.O_CREAT|unix.O_WRONLY, m)) },
		"openat2": func(p string) error {
			return made(unix.Openat2(unix.AT_FDCWD, p, &unix.OpenHow{Flags: unix.O_CREAT | unix.O_WRONLY, Mode: uint64(m)}))
		},
		"creat":   func(p string) error { return creat(p, m) },
		"mknodat": func(p string) error { return unix.Mknodat(unix.AT_FDCWD, p, unix.S_IFREG|m, 0) },
		"tmpfile": func(p string) error {
			fd, err := unix.Open(filepath.Dir(p), unix.O_TMPFILE|unix.O_RDWR, m)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			return unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), unix.AT_FDCWD, p, unix.AT_SYMLINK_FOLLOW)
		},
	} {
		path := filepath.Join(args[1], fmt.Sprintf(".open-suid-%d-%s", os.Getpid(), name))
		try(path) // the file tells
		var st unix.Stat_t
		if unix.Lstat(path, &st) == nil && st.Mode&(unix.S_ISUID|unix.S_ISGID) != 0 {
			r.lines = append(r.lines, fmt.Sprintf("%s: mode is %o", name, st.Mode&0o7777))
		}
		unix.Unlink(path)
	}
	if len(r.lines) > 0 {
		return r, nil
	}
	return r, refusal("UNCHANGED")
}

func made(fd int, err error) error { return closing(uintptr(fd), err) }

// createSuid makes a setuid file in DIR and leaves it there for an oracle.
func createSuid(args []string) (report, error) {
	path := filepath.Join(args[0], "setuid-"+args[1])
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"), 0o755); err != nil {
		return report{}, err
	}
	return report{detail: path}, unix.Chmod(path, 0o6755)
}

// fileCapability gives a file of the attacker's own CAP_NET_RAW: one that is made for it, or FILE.
func fileCapability(args []string) (report, error) {
	data := []byte{1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0} // VFS_CAP_REVISION_2, effective; bit 13
	give := func(path string) error { return unix.Setxattr(path, "security.capability", data, 0) }
	if len(args) > 0 {
		return report{}, give(args[0])
	}
	return report{}, onFile(give)
}

// setAttribute gives FILE the attribute NAME with VALUE.
func setAttribute(args []string) (report, error) {
	return report{}, unix.Setxattr(args[0], args[1], []byte(args[2]), 0)
}

func xattrTrusted() error {
	return onFile(func(path string) error { return unix.Setxattr(path, "trusted.cove", []byte("x"), 0) })
}

// setuidFiles lists every setuid or setgid file, or one with capabilities,
// that can be executed and is on a mount that would honour it.
func setuidFiles([]string) (report, error) {
	var r report
	err := walkFiles("/", func(path string, st *unix.Stat_t) {
		if st.Mode&unix.S_IFMT != unix.S_IFREG {
			return
		}
		special := st.Mode&(unix.S_ISUID|unix.S_ISGID) != 0
		if n, err := unix.Getxattr(path, "security.capability", nil); err == nil && n > 0 {
			special = true
		}
		if !special {
			return
		}
		r.count++
		var fs unix.Statfs_t
		if unix.Statfs(path, &fs) == nil && fs.Flags&unix.ST_NOSUID == 0 {
			r.lines = append(r.lines, path)
		}
	})
	return r, err
}

// nice sets the priority to N.
func nice(args []string) (report, error) {
	var n int
	if _, err := fmt.Sscan(args[0], &n); err != nil {
		return report{}, err
	}
	return report{}, unix.Setpriority(unix.PRIO_PROCESS, 0, n)
}

func schedFIFO() error {
	priority := int32(1)
	return call(unix.SYS_SCHED_SETSCHEDULER, 0, unix.SCHED_FIFO, at(&priority))
}

func schedDeadline() error {
	return unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_DEADLINE, Runtime: 1e6,
		Deadline: 1e7, Period: 1e7}, 0)
}

// rlimitRaise raises the hard limit of RESOURCE by one.
func rlimitRaise(args []string) (report, error) {
	v, err := numbers(args)
	if err != nil {
		return report{}, err
	}
	var limit unix.Rlimit
	if err := unix.Prlimit(0, int(v[0]), nil, &limit); err != nil {
		return report{}, err
	}
	if limit.Max == unix.RLIM_INFINITY {
		return report{detail: "unlimited"}, nil
	}
	was := limit.Max
	limit.Max++
	r := report{detail: fmt.Sprintf("limit %d", was)}
	if err := call(unix.SYS_PRLIMIT64, 0, v[0], at(&limit), 0); err != nil {
		return r, err
	}
	var now unix.Rlimit
	if err := unix.Prlimit(0, int(v[0]), nil, &now); err == nil && now.Max == was {
		return r, refusal("UNCHANGED") // told that it worked
	}
	return r, nil
}

// oomScore makes the attacker the last to be killed for memory.
func oomScore() error {
	return os.WriteFile("/proc/self/oom_score_adj", []byte("-1000"), 0)
}
