package adversary

import (
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/test/adversary/outcome"
)

// neighbourRows are attempts from one sandbox at another, and at the host's names and processes (C1, C2).
func neighbourRows() []row {
	ipc := func(kind, make, find string) row {
		return row{id: "C2." + kind, invariant: "H1", what: "meet a neighbour by " + kind,
			test: func(c *trial) { c.meet(make, find) }}
	}
	return []row{
		{id: "C1.namespaces", invariant: "H1", what: "share a namespace with the host or a neighbour", test: ownNamespaces},
		{id: "C1.host_pids", invariant: "H1", what: "see a process of the host or of a neighbour", test: hostPIDs},
		{id: "C1.signal_host", invariant: "H1", what: "signal a process of the host by its id", test: signalHost},
		ipc("sysv_shm", "shm_make 0x%x", "shm_find 0x%x"),
		ipc("sysv_sem", "sem_make 0x%x", "sem_find 0x%x"),
		ipc("sysv_msg", "msg_make 0x%x", "msg_find 0x%x"),
		ipc("posix_mq", "mq_make cove%x", "mq_find cove%x"),
		ipc("abstract_socket", "unix_listen @cove%x", "unix_connect @cove%x"),
		ipc("file_socket", "unix_listen /tmp/cove%x", "unix_connect /tmp/cove%x"),
		ipc("loopback_port", "tcp_listen 127.0.0.1:4%.4d", "connect tcp 127.0.0.1:4%.4d"),
		{id: "C2.reached_port", invariant: "H1", what: "be taken for a neighbour or the host where Cove connects to a port",
			test: reachedPort},
		{id: "C2.files", invariant: "H1", what: "find a neighbour's files in /tmp, /dev/shm, /run and home",
			test: neighbourFiles},
		{id: "C2.inotify", invariant: "H1", what: "watch a neighbour use the image they share", test: neighbourWatch},
		{id: "C2.locks", invariant: "H1", what: "lock a file of the image against a neighbour or the host",
			test: neighbourLock},
		{id: "C2.host_abstract", invariant: "H1", what: "connect to an abstract socket of the host's", test: hostAbstract},
		{id: "C2.lists", invariant: "H1", what: "see a neighbour's or the host's sockets and message queues",
			test: foreignObjects},
		{id: "C2.proc_locks", invariant: "H1", what: "hear from a neighbour by the locks that the kernel lists",
			test: foreignLocks},
		{id: "H1.engine_sockets", invariant: "H1", what: "find a container engine's socket: path, abstract name, port",
			test: engineSockets},
	}
}

func ownNamespaces(c *trial) {
	a, b := c.occupied(boxOptions{}), c.occupied(boxOptions{})
	for _, kind := range namespaceKinds {
		if kind == "user" && !c.suite.caps.UserNamespace {
			c.remark("no user namespace: %s", c.suite.caps.Missing["user_namespace"])
			continue
		}
		own, one, two := ownNamespace(kind), a.user.namespace(kind), b.user.namespace(kind)
		if one == "" || two == "" {
			c.Errorf("not tested: the %s namespaces cannot be read", kind)
		}
		if one == own || two == own {
			c.Errorf("HOLE: a sandbox has the host's %s namespace", kind)
		}
		if one == two {
			c.Errorf("HOLE: two sandboxes share the %s namespace %s", kind, one)
		}
		g := a.guest.namespace(kind)
		if g == "" && os.Geteuid() != 0 {
			c.remark("PID 1 shows its %s namespace to root alone", kind)
			continue
		}
		if g != one && kind != "cgroup" {
			c.Errorf("HOLE: PID 1's %s namespace %s is not its child's %s", kind, g, one)
		}
	}
	if c.suite.caps.HostIDRange && a.user.status["Uid"] == b.user.status["Uid"] {
		c.Errorf("HOLE: two sandboxes have the same host ids %s", a.user.status["Uid"])
	}
}

// hostPIDs looks for the suite's own marked process and for a neighbour's.
func hostPIDs(c *trial) {
	word := token()
	bystander := exec.Command(c.suite.path, "hold", word)
	must(c, bystander.Start())
	defer func() { bystander.Process.Kill(); bystander.Wait() }()
	a, b := c.occupied(boxOptions{}), c.occupied(boxOptions{})
	r := c.works(a.box, "pids")
	text := strings.Join(r.Lines, "\n")
	if strings.Contains(text, word) {
		c.Errorf("HOLE: a process of the host is seen: %s", text)
	}
	if strings.Contains(text, b.word) {
		c.Errorf("HOLE: a process of another sandbox is seen: %s", text)
	}
	if !strings.Contains(text, a.word) {
		c.Errorf("not tested: a process of the same sandbox is not seen: %s", text)
	}
	if r.Count > 10 {
		c.Errorf("HOLE: %d processes are seen", r.Count)
	}
	if len(marked(word)) == 0 {
		c.Error("not tested: the host does not see its own marked process")
	}
}

func signalHost(c *trial) {
	word := token()
	bystander := exec.Command(c.suite.path, "hold", word)
	must(c, bystander.Start())
	defer func() { bystander.Process.Kill(); bystander.Wait() }()
	b := c.box()
	c.row.deny = []string{"ESRCH", "EPERM"}
	c.denied(b, fmt.Sprintf("kill %d 9", bystander.Process.Pid))
	c.denied(b, fmt.Sprintf("kill -%d 9", bystander.Process.Pid))
	c.denied(b, fmt.Sprintf("kill %d 9", os.Getpid()))
	c.works(b, "fork")
	if len(marked(word)) == 0 {
		c.Error("HOLE: the host's process has died")
	}
}

// meet makes an object in one sandbox and looks for it there, which works, and in another, which does not.
func (c *trial) meet(makes, finds string) {
	c.Helper()
	key := 0x10000 + time.Now().UnixNano()%10000
	one, other := c.fresh(boxOptions{}), c.fresh(boxOptions{})
	p := one.start(c, spec(fmt.Sprintf(makes, key%10000)))
	if p == nil || !p.said("detail") {
		c.Fatalf("not tested: nothing was made: %s", p.stdout.String())
	}
	c.works(one, fmt.Sprintf(finds, key%10000))
	c.row.deny = append([]string{"ECONNREFUSED"}, hidden...)
	c.denied(other, fmt.Sprintf(finds, key%10000))
	p.Signal(c.Context(), 9)
}

// reachedPort connects to a port at which a program of one sandbox listens: Cove finds it there, and neither in another
// sandbox nor on the host.
func reachedPort(c *trial) {
	if !c.suite.caps.Reach {
		c.lacking("the engine connects into no sandbox: %s", c.suite.caps.Missing["reach"])
	}
	port := uint16(0x4000 + time.Now().UnixNano()%0x4000)
	one, other := c.fresh(boxOptions{}), c.fresh(boxOptions{})
	p := one.start(c, spec(fmt.Sprintf("tcp_listen 127.0.0.1:%d", port)))
	if p == nil || !p.said("listening") {
		c.Fatal("not tested: nothing listens")
	}
	for _, b := range []*box{other, one} { // the last is the control
		to, ok := b.sandbox.(engine.Reacher)
		if !ok {
			c.Fatal("not tested: the sandbox is no Reacher")
		}
		conn, err := to.Reach(c.Context(), port)
		if err == nil {
			conn.Close()
		}
		switch {
		case b == other && err == nil:
			c.Error("HOLE: a port of one sandbox is reached as another's")
		case b == one && err != nil:
			c.Errorf("not tested: it is not reached either: %v", err)
		}
	}
	for _, at := range []string{"127.0.0.1", "::1"} {
		if conn, err := net.DialTimeout("tcp", net.JoinHostPort(at, fmt.Sprint(port)), patience); err == nil {
			conn.Close()
			c.Errorf("HOLE: a port of a sandbox is the host's, at %s", at)
		}
	}
	p.Signal(c.Context(), 9)
}

func neighbourFiles(c *trial) {
	one, other := c.fresh(boxOptions{}), c.fresh(boxOptions{})
	word := canaryWord()
	for _, dir := range []string{"/tmp", "/var/tmp", "/dev/shm", "/run", "/work", cove.Home} {
		one.try(c, "write "+dir+"/CANARY_"+word+" "+word)
	}
	c.works(one, "search "+hex.EncodeToString([]byte(word)))
	if r := other.try(c, "search "+hex.EncodeToString([]byte(word))); r.Outcome != "refused" {
		c.Errorf("HOLE: a neighbour's file was found: %s %v", say(r), r.Lines)
	}
}

// watch runs a held attempt (inotify, flock) and returns what ends it.
func (b *box) held(c *trial, attempt, said string) (finish func() run) {
	c.Helper()
	s := spec(attempt)
	s.Stdin = true
	p := b.start(c, s)
	if p == nil {
		c.FailNow()
	}
	if !p.said(said) {
		p.Stdin().Close()
		r := p.wait(patience)
		return func() run { return r }
	}
	return func() run {
		p.Stdin().Close()
		return p.wait(patience)
	}
}

// sharing are the root filesystems and users for which an isolation must hold, and those for which it cannot: the
// host's own toolchain is the same inodes for everybody, so who may watch or lock a file there is felt by others.
// SECURITY.md says so; snippets may not watch at all.
func (c *trial) sharing(check func(o boxOptions, dir, file string, must bool)) {
	image := c.plantedImage(func(root string) {
		must(c, os.MkdirAll(filepath.Join(root, "shared"), 0o755))
		must(c, os.WriteFile(filepath.Join(root, "shared/file"), []byte("x"), 0o644))
	})
	check(boxOptions{rootfs: &image, user: cove.AgentUser}, "/shared", "/shared/file", true)
	host := c.suite.options.Rootfs.Kind == engine.RootfsHost
	check(boxOptions{user: cove.AgentUser}, "/usr/bin", "/usr/bin/env", !host)
}

// neighbourWatch watches a directory of the shared root from one sandbox while
// another, and the host, use it. The control watches the sandbox's own use.
func neighbourWatch(c *trial) {
	watch := func(o boxOptions, dir, file string, must bool) {
		one, other := c.fresh(o), c.fresh(o)
		finish := one.held(c, "inotify "+dir, "watching")
		other.try(c, "list "+dir)
		other.try(c, "read "+file)
		if o.rootfs != nil {
			os.ReadFile(filepath.Join(o.rootfs.Dir, file))
		} else {
			os.ReadFile(file)
		}
		r := finish().result
		switch {
		case r.Outcome != "succeeded" || r.Count == 0:
		case must:
			c.Errorf("HOLE: %d bytes of events in %s tell what a neighbour or the host does", r.Count, dir)
		default:
			c.remark("agents see what others do in the host's %s", dir)
		}
		finish = one.held(c, "inotify /work", "watching")
		one.try(c, "write /work/seen x")
		if r := finish().result; r.Outcome != "succeeded" {
			c.Errorf("not tested: the sandbox's own use is not seen: %s", say(r))
		}
	}
	c.sharing(watch)
	c.row.deny = denied
	if !c.suite.options.Root { // who may, as agents may
		c.denied(c.box(), "inotify /usr/bin")
	}
}

// neighbourLock holds the lock of a file that everybody sees.
func neighbourLock(c *trial) {
	c.sharing(func(o boxOptions, _, file string, must bool) {
		one, other := c.fresh(o), c.fresh(o)
		finish := one.held(c, "flock "+file, "locked")
		if r := one.try(c, "flock_once "+file); r.Errno != "EAGAIN" {
			c.remark("locks on the image are not held at all: %s", say(r))
		}
		if r := other.try(c, "flock_once "+file); r.Outcome != "succeeded" {
			if must {
				c.Errorf("HOLE: a neighbour's lock is felt: %s", say(r))
			} else {
				c.remark("a lock on the host's %s is felt by others", file)
			}
		}
		finish()
	})
}

// listenUnix listens on the host and answers "canary".
func listenUnix(c *trial, address string) (stop func()) {
	c.Helper()
	l, err := net.Listen("unix", address)
	if err != nil {
		c.Fatal("not tested: ", err)
	}
	return serve(l)
}

// serve answers every connection with "canary".
func serve(l net.Listener) (stop func()) {
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			io.WriteString(conn, "canary")
			conn.Close()
		}
	}()
	return func() { l.Close() }
}

func hostAbstract(c *trial) {
	name := "@cove-canary-" + canaryWord()
	defer listenUnix(c, name)()
	c.row.deny = append([]string{"ECONNREFUSED"}, hidden...)
	c.denied(c.box(), "unix_connect "+name)
	conn, err := net.Dial("unix", name)
	if err != nil {
		c.Fatal("not tested: ", err)
	}
	conn.Close()
	p := c.fresh(boxOptions{}).start(c, spec("unix_listen "+name))
	if p == nil || !p.said("listening") {
		c.Error("not tested: the same name cannot be used inside")
	}
}

// foreignObjects reads the lists that the kernel keeps per namespace.
func foreignObjects(c *trial) {
	dir, err := os.MkdirTemp("", "c") // the path of a socket is short
	must(c, err)
	c.Cleanup(func() { os.RemoveAll(dir) })
	name := "cove-canary-" + canaryWord()
	defer listenUnix(c, filepath.Join(dir, name))()
	b := c.box()
	for _, path := range []string{"/proc/net/unix", "/proc/net/tcp", "/proc/sysvipc/shm", "/proc/net/netlink"} {
		for _, line := range b.try(c, "lines "+path).Lines {
			if strings.Contains(line, name) {
				c.Errorf("HOLE: %s shows %s", path, line)
			}
		}
	}
	own, _ := os.ReadFile("/proc/net/unix")
	if !strings.Contains(string(own), name) {
		c.Error("not tested: the host's own list does not show it")
	}
	if r := c.works(b, "lines /proc/net/unix"); r.Count > 20 {
		c.Errorf("HOLE: %d unix sockets are seen", r.Count)
	}
}

// foreignLocks reads what a neighbour tells by the range of a lock on a file of its own. Such a lock belongs to an open
// file, not to a process, so that the kernel lists it in every pid namespace.
func foreignLocks(c *trial) {
	one, other := c.fresh(boxOptions{}), c.fresh(boxOptions{})
	told := fmt.Sprint(1<<40 + time.Now().UnixNano()%(1<<40))
	shows := func(lines []string) bool {
		return slices.ContainsFunc(lines, func(line string) bool { return strings.Contains(line, told) })
	}
	finish := one.held(c, "range_lock /tmp/told "+told, "locked")
	for _, b := range []*box{one, other} {
		if r := b.try(c, "lines /proc/locks"); shows(r.Lines) {
			c.Errorf("HOLE: /proc/locks tells what a sandbox has locked: %v", r.Lines)
		}
	}
	seen, err := os.ReadFile("/proc/locks")
	must(c, err)
	if !shows(strings.Split(string(seen), "\n")) {
		c.Error("not tested: the host does not see the lock either")
	}
	if r := finish().result; r.Outcome != outcome.Succeeded {
		c.Errorf("not tested: %s", say(r))
	}
}

// engineSockets looks for every way to a container engine.
func engineSockets(c *trial) {
	c.row.deny = append([]string{"ECONNREFUSED", "ENETUNREACH", "TIMEOUT", "EADDRNOTAVAIL"}, hidden...)
	b := c.box()
	for _, path := range []string{"/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock",
		"/run/podman/podman.sock", "/run/crio/crio.sock",
		"/run/buildkit/buildkitd.sock", "/run/cove/cove.sock", "/run/cove/cove-debug.sock",
		"/run/dbus/system_bus_socket", "/run/systemd/private",
		"/run/systemd/notify", "/dev/log", "/run/snapd.socket"} {
		c.denied(b, "unix_connect "+path)
	}
	for _, name := range []string{"@/containerd-shim/x.sock", "@/org/kernel/linux/storage/multipathd",
		"@docker", "@cove"} {
		c.denied(b, "unix_connect "+name)
	}
	for _, port := range []string{"2375", "2376", "2377", "4243", "6443", "10250", "5000"} {
		c.denied(b, "connect tcp 127.0.0.1:"+port)
	}
	p := c.fresh(boxOptions{}).start(c, spec("unix_listen /tmp/control.sock"))
	if p == nil || !p.said("listening") {
		c.Error("not tested: a unix socket of one's own does not work either")
	}
}
