package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// inodes are attempts to change files that processes have, and that no directory of the sandbox has (H3).
func inodes() map[string]attempt {
	return map[string]attempt{"change_inode": changeInode, "hunt": hunt}
}

// changeInode tries each change on PATH, and lists those that the kernel has made.
func changeInode(args []string) (r report, err error) {
	fd, err := unix.Open(args[0], unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return r, err
	}
	defer unix.Close(fd)
	r.lines = changes(fd, os.TempDir())
	r.count = int64(len(r.lines))
	return r, nil
}

// changes tries what changes the inode of an open file, or what is below a directory; dir is where a link may be.
func changes(fd int, dir string) (made []string) {
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil {
		return nil
	}
	at := fmt.Sprintf("/proc/self/fd/%d", fd)
	link := filepath.Join(dir, fmt.Sprintf("link-%d", os.Getpid()))
	all := map[string]func() error{
		"chmod":    func() error { return unix.Chmod(at, st.Mode&0o777|0o004) },
		"chown":    func() error { return unix.Chown(at, os.Getuid(), os.Getgid()) },
		"utimes":   func() error { return unix.UtimesNanoAt(unix.AT_FDCWD, at, nil, 0) },
		"setxattr": func() error { return unix.Setxattr(at, "user.cove", []byte("x"), 0) },
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		all["make"] = func() error { return unix.Mkdirat(fd, filepath.Base(link), 0o755) }
	} else {
		all["link"] = func() error { return unix.Linkat(unix.AT_FDCWD, at, unix.AT_FDCWD, link, unix.AT_SYMLINK_FOLLOW) }
		for name, flags := range map[string]int{"write": unix.O_WRONLY, "write and read": unix.O_RDWR} {
			all[name] = func() error {
				opened, err := unix.Open(at, flags|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
				unix.Close(opened)
				return err
			}
		}
	}
	for name, change := range all {
		if change() == nil {
			made = append(made, name)
		}
	}
	os.Remove(link)
	slices.Sort(made)
	return made
}

// hunt looks at what every process has, again and again, and tries to change what is not of the sandbox's own mounts,
// from the file DIR/hunting on until there is DIR/stop. Then DIR/result has a line for each file of others: its path,
// and the changes made. From the first script on whose interpreter is /proc/self/exe, which makes it a program of
// Cove's, there is the file DIR/met. HOW is "look", or "kill" to end every other process each time. It goes on when
// what has started it ends.
func hunt(args []string) (report, error) {
	dir, how := args[0], args[1]
	if os.Getenv("HUNTING") == "" {
		cmd := exec.Command("/proc/self/exe", append([]string{"hunt"}, args...)...)
		cmd.Env = append(os.Environ(), "HUNTING=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		return report{}, cmd.Start()
	}
	own, err := ownMounts()
	if err != nil {
		return report{}, err
	}
	// A start whose keeper is killed may be made again, and two of these would end each other.
	alone, err := os.OpenFile(filepath.Join(dir, "hunting"), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return report{}, err
	}
	alone.Close()
	found := map[string]string{}
	for !there(filepath.Join(dir, "stop")) {
		processes, err := filepath.Glob("/proc/[0-9]*")
		if err != nil {
			return report{}, err
		}
		for _, process := range processes {
			pid, _ := strconv.Atoi(filepath.Base(process))
			if pid == os.Getpid() {
				continue
			}
			for _, name := range links(process) {
				look(name, dir, own, found)
			}
			if name := guestMemory(process); name != "" {
				found[name] = " open"
			}
			if how == "kill" && pid > 1 {
				unix.Kill(pid, unix.SIGKILL)
			}
		}
	}
	var text strings.Builder
	for path, made := range found {
		fmt.Fprintf(&text, "%s:%s\n", path, made)
	}
	return report{}, os.WriteFile(filepath.Join(dir, "result"), []byte(text.String()), 0o644)
}

// links returns the names in /proc of what a process has.
func links(process string) []string {
	names := []string{process + "/exe", process + "/cwd", process + "/root"}
	for _, dir := range []string{"/fd/", "/map_files/"} {
		entries, _ := os.ReadDir(process + dir)
		for _, e := range entries {
			names = append(names, process+dir+e.Name())
		}
	}
	return names
}

// look tries to change what a name in /proc leads to, if that is on a mount of others.
func look(name, dir string, own []uint64, found map[string]string) {
	fd, err := unix.Open(name, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	var st unix.Statx_t
	err = unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_TYPE|unix.STATX_MNT_ID, &st)
	kind := st.Mode & unix.S_IFMT
	if err != nil || kind != unix.S_IFREG && kind != unix.S_IFDIR || slices.Contains(own, st.Mnt_id) {
		return
	}
	path, _ := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
	for _, change := range changes(fd, dir) {
		if !strings.Contains(found[path], change) {
			found[path] += " " + change
		}
	}
	found[path] += ""
	if process, is := strings.CutSuffix(name, "/exe"); is && has(process+"/cmdline", "/proc/self/exe\x00") {
		os.WriteFile(filepath.Join(dir, "met"), nil, 0o644)
	}
}

// guestMemory names a process of the guest's whose memory can be written to: a keeper, or a fork of PID 1.
func guestMemory(process string) string {
	fd, err := unix.Open(process+"/mem", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return ""
	}
	unix.Close(fd)
	for _, mode := range []string{"--keeper", "--fork"} {
		if has(process+"/cmdline", "cove-guest\x00"+mode) {
			return "the memory of cove-guest " + mode
		}
	}
	return ""
}

func has(file, text string) bool {
	content, _ := os.ReadFile(file)
	return bytes.Contains(content, []byte(text))
}

// ownMounts are the ids of mounts of this process's that can be written to: of what is there an attacker changes
// nothing but the sandbox's own.
func ownMounts() (ids []uint64, err error) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) > 5 && slices.Contains(strings.Split(fields[5], ","), "rw") {
			id, err := strconv.ParseUint(fields[0], 10, 64)
			if err != nil {
				return nil, err
			}
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 && err == nil {
		err = errors.New("no mount can be written to")
	}
	return ids, err
}

func there(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
