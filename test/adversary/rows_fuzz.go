package adversary

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove/test/adversary/outcome"
)

func fuzzRows() []row {
	return []row{{id: "K9.sequences", invariant: "H1",
		what: "change anything outside by generated sequences of system calls", test: fuzzSequences}}
}

const (
	fuzzShort = 12 // sequences, of a second at most each
	fuzzRound = 40 // sequences in one sandbox
)

// fuzzSequences makes generated calls inside and compares the host before and after, mounts and sockets included. That
// the sandbox dies of it is no hole. COVE_FUZZ_SEQUENCES makes more of them, from COVE_FUZZ_SEED on.
func fuzzSequences(c *trial) {
	if !asRoot() {
		c.lacking("only root sees all of the machine's state")
	}
	seed := number("COVE_FUZZ_SEED", uint64(time.Now().UnixNano()>>8&0xffffff))
	sequences := number("COVE_FUZZ_SEQUENCES", fuzzShort)
	was := c.estate()
	was.noticesChanges(c)
	neighbour := c.occupied(boxOptions{})
	var calls int64
	for end := seed + sequences; seed < end; seed += fuzzRound {
		n := min(fuzzRound, end-seed)
		c.Logf("sequences %d to %d", seed, seed+n-1)
		b := c.fresh(boxOptions{})
		attempt := fmt.Sprintf("fuzz %d %d", seed, n)
		r := b.try(c, attempt)
		if calls += r.Count; r.Outcome != outcome.Succeeded && b.alive() {
			c.Logf("it ended with %s", say(r))
		}
		if r.Outcome == outcome.Broken && strings.Contains(r.Detail, "not confined") {
			c.Fatalf("not tested: %s", r.Detail)
		}
	}
	if calls == 0 {
		c.Error("not tested: no calls were made")
	}
	c.remark("%d calls", calls)
	var changes []string // what other programs do for a moment is none
	eventually(5*time.Second, func() bool { changes = was.changed(c.estateOf(was)); return len(changes) == 0 })
	for _, what := range changes {
		c.Errorf("HOLE: %s", what)
	}
	if !neighbour.alive() {
		c.Error("HOLE: the neighbour has died")
	}
}

func number(variable string, otherwise uint64) uint64 {
	if n, err := strconv.ParseUint(os.Getenv(variable), 10, 64); err == nil {
		return n
	}
	return otherwise
}

// estate is what a sandbox must not change on the host, as far as other programs of the machine leave it alone.
type estate struct {
	values  hostValues
	process *exec.Cmd // a bystander
	file    string
}

// estate makes a bystanding process and file, and reads the state of everything.
func (c *trial) estate() *estate {
	c.Helper()
	e := &estate{process: exec.Command("sleep", "3600"), file: filepath.Join(c.TempDir(), "bystander")}
	if err := os.WriteFile(e.file, []byte(token()), 0o640); err != nil {
		c.Fatalf("not tested: %v", err)
	}
	if err := e.process.Start(); err != nil {
		c.Fatalf("not tested: %v", err)
	}
	c.Cleanup(func() { e.process.Process.Kill(); e.process.Wait() })
	return c.estateOf(e)
}

// estateOf reads the state again, with the same bystanders.
func (c *trial) estateOf(e *estate) *estate {
	c.Helper()
	now := &estate{values: readHostValues(), process: e.process, file: e.file}
	v, pid := now.values, e.process.Process.Pid
	var name unix.Utsname
	unix.Uname(&name)
	v["names"] = fmt.Sprintf("%q %q", name.Nodename, name.Domainname)
	for _, kind := range []string{"shm", "sem", "msg"} {
		b, _ := os.ReadFile("/proc/sysvipc/" + kind)
		var ids []string
		for line := range strings.Lines(string(b)) {
			if f := strings.Fields(line); len(f) > 3 {
				ids = append(ids, strings.Join(f[:3], " "))
			}
		}
		v["objects of System V: "+kind] = strings.Join(ids, ", ")
	}
	for _, file := range []string{"oom_score_adj", "limits", "cgroup", "mountinfo", "uid_map"} {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
		if file == "mountinfo" { // other tests mount meanwhile
			b = firstLine(b)
		}
		v["the bystander's "+file] = string(b)
	}
	v[mountsOutside] = watchedMounts(filepath.Dir(e.file))
	v[socketsOutside] = watchedSockets()
	p, _ := readProcess(pid)
	state := p.status["State"]
	if strings.ContainsAny(state[:min(len(state), 1)], "RSD") {
		state = "alive" // whether it runs or sleeps is chance
	}
	v["the bystander's state"] = state
	for _, key := range []string{"Uid", "NoNewPrivs", "Seccomp", "Cpus_allowed", "ShdPnd", "TracerPid"} {
		v["the bystander's "+key] = p.status[key]
	}
	priority, err := unix.Getpriority(unix.PRIO_PROCESS, pid)
	v["the bystander's priority"] = fmt.Sprint(priority, err)
	content, err := os.ReadFile(e.file)
	v["a file's content"] = fmt.Sprint(string(content), err)
	if info, err := os.Stat(e.file); err == nil {
		v["a file's mode and time"] = fmt.Sprint(info.Mode(), info.ModTime())
	}
	entries, _ := os.ReadDir(filepath.Dir(e.file))
	v["a file's directory"] = fmt.Sprint(entries)
	return now
}

func firstLine(b []byte) []byte {
	line, _, _ := bytes.Cut(b, []byte("\n"))
	return line
}

func (e *estate) changed(now *estate) []string { return e.values.changed(now.values) }

// noticesChanges is the control: changes made here are seen.
func (e *estate) noticesChanges(c *trial) {
	c.Helper()
	pid := e.process.Process.Pid
	for what, change := range map[string]func() (undo func(), err error){
		"objects of System V: shm": func() (func(), error) {
			id, err := unix.SysvShmGet(unix.IPC_PRIVATE, 4096, unix.IPC_CREAT|0o600)
			return func() { unix.SysvShmCtl(id, unix.IPC_RMID, nil) }, err
		},
		"the bystander's state": func() (func(), error) {
			err := unix.Kill(pid, unix.SIGSTOP)
			return func() { unix.Kill(pid, unix.SIGCONT) }, err
		},
		mountsOutside: func() (func(), error) {
			place := filepath.Join(filepath.Dir(e.file), "mount")
			if err := os.Mkdir(place, 0o755); err != nil {
				return nil, err
			}
			err := unix.Mount("none", place, "tmpfs", 0, "size=4k")
			return func() { unix.Unmount(place, unix.MNT_DETACH); os.Remove(place) }, err
		},
		socketsOutside + " (TCP)": func() (func(), error) {
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			if err == nil {
				err = unix.Listen(fd, 1) // at a port of the kernel's choice
			}
			if err == nil {
				err = unix.Fchown(fd, firstSandboxID, -1)
			}
			return func() { unix.Close(fd) }, err
		},
		socketsOutside + " (abstract)": func() (func(), error) {
			fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
			if err == nil {
				err = unix.Bind(fd, &unix.SockaddrUnix{Name: "@bystander-" + token()})
			}
			return func() { unix.Close(fd) }, err
		},
		"a file's mode and time": func() (func(), error) {
			return func() { os.Chmod(e.file, 0o640) }, os.Chmod(e.file, 0o666)
		},
	} {
		undo, err := change()
		if err != nil {
			c.Fatalf("not tested: %s: %v", what, err)
		}
		what, _, _ = strings.Cut(what, " (")
		seen := eventually(5*time.Second, func() bool {
			return slices.ContainsFunc(e.changed(c.estateOf(e)), func(s string) bool { return strings.HasPrefix(s, what) })
		})
		undo()
		if !seen {
			c.Errorf("not tested: a change of %s is not seen", what)
		}
	}
	if !eventually(5*time.Second, func() bool { return len(e.changed(c.estateOf(e))) == 0 }) {
		c.Fatalf("not tested: the host changes by itself: %v", e.changed(c.estateOf(e)))
	}
}

const (
	mountsOutside  = "the machine's mounts"
	socketsOutside = "the machine's sockets"

	// firstSandboxID is above the ids of people and services: those from here on are sandboxes'.
	firstSandboxID = 1 << 16
)

// watchedMounts lists the mounts of this process's namespace. Below the directory for temporary files, where other
// tests mount, it lists those in dir alone.
func watchedMounts(dir string) string {
	b, _ := os.ReadFile("/proc/self/mountinfo")
	return mountsAmong(string(b), os.TempDir(), dir)
}

// mountsAmong is watchedMounts of a text.
func mountsAmong(mountinfo, others, dir string) string {
	var all []string
	for line := range strings.Lines(mountinfo) {
		f := strings.Fields(line)
		if len(f) < 6 || below(f[4], others) && !below(f[4], dir) {
			continue
		}
		all = append(all, strings.Join(f[3:], " ")) // without the numbers
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}

func below(path, dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") }

// watchedSockets lists the sockets of the machine's network that belong to ids of sandboxes, and the abstract names of
// unix sockets. Names that are paths or numbers are those of other programs.
func watchedSockets() string {
	var all []string
	for table, uid := range map[string]int{"tcp": 7, "tcp6": 7, "udp": 7, "udp6": 7, "raw": 7, "raw6": 7, "icmp": 7,
		"udplite": 7, "packet": 7} {
		b, _ := os.ReadFile("/proc/net/" + table)
		for line := range strings.Lines(string(b)) {
			if f := strings.Fields(line); len(f) > uid {
				if id, err := strconv.Atoi(f[uid]); err == nil && id >= firstSandboxID {
					all = append(all, table+" "+strings.Join(f[1:4], " "))
				}
			}
		}
	}
	b, _ := os.ReadFile("/proc/net/unix")
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) == 8 && len(f[7]) > 6 && f[7][0] == '@' && !strings.Contains(f[7], "/") {
			all = append(all, f[7])
		}
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}
