package main

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// files are attempts at files of the host, of PID 1 and of the kernel (F1, F3, F9, P1, P2, P4).
func files() map[string]attempt {
	return map[string]attempt{
		"read":       readSome,
		"list":       listSome,
		"open_write": func(args []string) (report, error) { return report{}, openFor(args[0], unix.O_WRONLY) },
		"open_rdwr":  func(args []string) (report, error) { return report{}, openFor(args[0], unix.O_RDWR) },
		"create":     create,
		"mkdir":      func(args []string) (report, error) { return report{}, makeDir(args[0]) },
		"readlink":   readLink,
		"stat":       func(args []string) (report, error) { var st unix.Stat_t; return report{}, unix.Stat(args[0], &st) },
		"lines":      func(args []string) (report, error) { return readLines(args[0]) },
		"fds":        openDescriptors,
		"cwd":        func([]string) (report, error) { d, err := os.Getwd(); return report{detail: d}, err },
		"search":     search,
		"climb":      climb,
		"hardlink":   func(args []string) (report, error) { return report{}, os.Link(args[0], args[1]) },
		"symlink":    func(args []string) (report, error) { return report{}, os.Symlink(args[0], args[1]) },
		"mkfifo":     func(args []string) (report, error) { return report{}, unix.Mkfifo(args[0], 0o666) },
		"write": func(args []string) (report, error) {
			return report{},
				os.WriteFile(args[0], []byte(args[1]), 0o644)
		},
		"rename":       func(args []string) (report, error) { return report{}, os.Rename(args[0], args[1]) },
		"symlink_spin": symlinkSpin,
		"cat":          cat,
		"inotify":      inotify,
		"flock":        func(args []string) (report, error) { return flock(args[0], true) },
		"range_lock":   rangeLock,
		"flock_once":   func(args []string) (report, error) { return flock(args[0], false) },
		"climb_slowly": climbSlowly,
		"writable":     writable,
	}
}

// readSome reads the first bytes of PATH; nothing there is a refusal too.
func readSome(args []string) (report, error) {
	fd, err := unix.Open(args[0], unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return report{}, err
	}
	defer unix.Close(fd)
	b := make([]byte, 4096)
	n, err := unix.Read(fd, b)
	if err != nil {
		return report{}, err
	}
	if n <= 0 {
		return report{}, empty
	}
	return report{detail: string(b[:min(n, 120)]), count: int64(n)}, nil
}

// cat reports all of PATH, at most 64 KiB, as hex.
func cat(args []string) (report, error) {
	f, err := os.Open(args[0])
	if err != nil {
		return report{}, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, 64<<10))
	return report{detail: hex.EncodeToString(b), count: int64(len(b))}, err
}

// listSome lists PATH; an empty directory is a refusal too.
func listSome(args []string) (report, error) {
	entries, err := os.ReadDir(args[0])
	if err != nil {
		return report{}, err
	}
	if len(entries) == 0 {
		return report{}, empty
	}
	var r report
	for _, e := range entries {
		r.lines = append(r.lines, e.Name())
	}
	return r, nil
}

// openFor opens and closes; nothing is written.
func openFor(path string, flags int) error {
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	return closing(uintptr(fd), err)
}

// create makes a file in directory DIR and takes it away.
func create(args []string) (report, error) {
	path := filepath.Join(args[0], fmt.Sprintf(".cove-probe-%d", os.Getpid()))
	fd, err := unix.Open(path, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
	if err == nil {
		unix.Unlink(path)
	}
	return report{}, closing(uintptr(fd), err)
}

func makeDir(parent string) error {
	path := filepath.Join(parent, fmt.Sprintf(".cove-probe-%d", os.Getpid()))
	if err := unix.Mkdir(path, 0o700); err != nil {
		return err
	}
	return unix.Rmdir(path)
}

func readLink(args []string) (report, error) {
	target, err := os.Readlink(args[0])
	return report{detail: target}, err
}

// openDescriptors reports what the process was born with. Descriptors that the Go runtime or this listing opened are
// close-on-exec; an inherited one is not.
func openDescriptors([]string) (report, error) {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return report{}, err
	}
	var r report
	for _, e := range entries {
		var fd int
		if _, err := fmt.Sscan(e.Name(), &fd); err != nil {
			return r, err
		}
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if err != nil {
			continue // the listing's own, closed by now
		}
		target, _ := os.Readlink("/proc/self/fd/" + e.Name())
		if flags&unix.FD_CLOEXEC == 0 {
			r.lines = append(r.lines, fmt.Sprintf("%d %s", fd, target))
		}
	}
	return r, nil
}

// search walks everything that can be reached and reports where a NEEDLE… (given in hex, so that it is not in the
// searcher's own arguments) is part of a name or of the content.
func search(args []string) (report, error) {
	var needles [][]byte
	for _, a := range args {
		n, err := hex.DecodeString(a)
		if err != nil {
			return report{}, err
		}
		needles = append(needles, n)
	}
	var r report
	deadline, late := time.Now().Add(100*time.Second), false
	look := func(path string, st *unix.Stat_t) {
		r.count++
		for _, n := range needles {
			if strings.Contains(filepath.Base(path), string(n)) {
				r.lines = append(r.lines, "name "+path)
			}
		}
		late = late || time.Now().After(deadline)
		if st.Mode&unix.S_IFMT != unix.S_IFREG || skipContent(path) || late {
			return
		}
		if fileContains(path, needles) {
			r.lines = append(r.lines, "content "+path)
		}
	}
	roots := []string{"/"}
	procs, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range procs {
		fds, _ := filepath.Glob(p + "/fd/*")
		for _, way := range append(fds, p+"/root", p+"/cwd") {
			if target, err := os.Stat(way); err == nil && target.IsDir() && way != "/proc/self/root" {
				if here, err := os.Stat("/"); err == nil && os.SameFile(here, target) {
					continue
				}
				roots = append(roots, way+"/")
			}
		}
	}
	for _, root := range roots {
		if err := walkFiles(root, look); err != nil {
			return r, err
		}
	}
	if len(r.lines) == 0 && late {
		return r, errors.New("not everything was searched in time")
	}
	if len(r.lines) == 0 {
		return r, refusal("NOTFOUND")
	}
	return r, nil
}

// skipContent leaves out what is huge and the same on every machine.
func skipContent(path string) bool {
	for _, p := range []string{"/usr/", "/lib", "/bin/", "/sbin/", "/sys/"} {
		if strings.HasPrefix(path, p) {
			return true
		}
	}
	return false
}

func fileContains(path string, needles [][]byte) bool {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return false
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	f.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	b, _ := io.ReadAll(io.LimitReader(f, 1<<20))
	return slices.ContainsFunc(needles, func(n []byte) bool { return bytes.Contains(b, n) })
}

// walkFiles visits every file under root. Kernel event files that block, and
// the other tasks of a process, are left out.
func walkFiles(root string, visit func(path string, st *unix.Stat_t)) error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		if d.IsDir() && (strings.HasSuffix(path, "/task") && strings.HasPrefix(path, "/proc/") ||
			path == "/sys/kernel/tracing") {
			return filepath.SkipDir
		}
		switch filepath.Base(path) {
		case "kmsg", "kpagecount", "kpageflags", "kpagecgroup", "pagemap", "clear_refs", "trace_pipe", "kcore":
			return nil
		}
		var st unix.Stat_t
		if unix.Lstat(path, &st) == nil {
			visit(path, &st)
		}
		return nil
	})
}

// climb leaves the working directory upwards and looks for NAME… there, as a
// process does whose working directory lies outside its root.
func climb(args []string) (report, error) {
	start, err := os.Readlink("/proc/self/cwd")
	if err != nil {
		return report{}, err
	}
	r := report{detail: start}
	for range 40 {
		for _, name := range args {
			if _, err := os.Lstat(name); err == nil {
				r.lines = append(r.lines, name)
				return r, nil
			}
		}
		if err := unix.Chdir(".."); err != nil {
			return r, err
		}
	}
	return r, refusal("NOTFOUND")
}

// symlinkSpin swaps PATH between a directory and a symlink to TARGET until killed: the racer of a time-of-check attack.
func symlinkSpin(args []string) (report, error) {
	path, target := args[0], args[1]
	dir, link := path+".dir", path+".link"
	os.Mkdir(dir, 0o777)
	os.Symlink(target, link)
	for {
		os.Rename(dir, path)
		os.Rename(path, dir)
		os.Rename(link, path)
		os.Rename(path, link)
	}
}

// writable reports directories in which a file can be made.
func writable([]string) (report, error) {
	var r report
	err := walkFiles("/", func(path string, st *unix.Stat_t) {
		if st.Mode&unix.S_IFMT != unix.S_IFDIR || strings.HasPrefix(path, "/proc/") {
			return
		}
		if unix.Access(path, unix.W_OK) == nil {
			if _, err := create([]string{path}); err == nil {
				r.lines = append(r.lines, path)
			} else if !errors.Is(err, unix.EROFS) && !errors.Is(err, unix.EACCES) {
				r.lines = append(r.lines, path+" ("+err.Error()+")")
			}
		}
	})
	return r, err
}

// inotify watches PATH, says so, and reports how many events came until standard input ends.
func inotify(args []string) (report, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return report{}, err
	}
	defer unix.Close(fd)
	if _, err := unix.InotifyAddWatch(fd, args[0], unix.IN_OPEN|unix.IN_ACCESS|unix.IN_CLOSE|unix.IN_CREATE); err != nil {
		return report{}, err
	}
	emit(result("inotify", report{detail: "watching"}, nil))
	io.Copy(io.Discard, os.Stdin)
	b := make([]byte, 64<<10)
	n, err := unix.Read(fd, b)
	if errors.Is(err, unix.EAGAIN) || n == 0 {
		return report{}, empty
	}
	return report{count: int64(n)}, err
}

// climbSlowly says that it is there, waits for SIGUSR1, and climbs.
func climbSlowly(args []string) (report, error) {
	wait := make(chan os.Signal, 1)
	signal.Notify(wait, unix.SIGUSR1)
	emit(result("climb_slowly", report{detail: "climbing"}, nil))
	<-wait
	return climb(args)
}

// flock takes PATH's lock; with hold it says so and keeps it until standard input ends.
func flock(path string, hold bool) (report, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return report{}, err
	}
	defer unix.Close(fd)
	if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return report{}, err
	}
	if !hold {
		return report{}, nil
	}
	emit(result("flock", report{detail: "locked"}, nil))
	io.Copy(io.Discard, os.Stdin)
	return report{}, nil
}

// rangeLock locks one byte of the new file PATH, at OFFSET, as a lock of the open file, and keeps it until standard
// input ends.
func rangeLock(args []string) (report, error) {
	at, err := strconv.ParseInt(args[1], 10, 64)
	if err != nil {
		return report{}, err
	}
	fd, err := unix.Open(args[0], unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return report{}, err
	}
	defer unix.Close(fd)
	lock := unix.Flock_t{Type: unix.F_WRLCK, Start: at, Len: 1}
	if err := unix.FcntlFlock(uintptr(fd), unix.F_SETLK, &lock); err != nil {
		return report{}, err
	}
	emit(result("range_lock", report{detail: "locked"}, nil))
	io.Copy(io.Discard, os.Stdin)
	return report{}, nil
}
