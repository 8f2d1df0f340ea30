package adversary

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/guest"
)

// guestRows are attempts to make PID 1 do what the user may not: it has more
// rights than the user, and reads and writes files for the host (F6, X2).
func guestRows() []row {
	return []row{
		{id: "F6.deputy_read", invariant: "H7", what: "have the guest read its own secrets through a symlink",
			test: deputyRead},
		{id: "F6.deputy_write", invariant: "H7",
			what: "have the guest write to the image, to itself or to its connection through a symlink", test: deputyWrite},
		{id: "F6.deputy_remove", invariant: "H7", what: "have the guest remove or make what the user may not",
			test: deputyRemove},
		{id: "F6.special_files", invariant: "H7", what: "stall the guest with a pipe, a device, a socket or a symlink loop",
			test: specialFiles},
		{id: "F6.bad_paths", invariant: "H7", what: "confuse the guest with a hostile path", test: badPaths},
		{id: "F6.race", invariant: "H7", what: "swap a directory for a symlink while the guest works in it",
			test: deputyRace},
		{id: "F6.huge_listing", invariant: "H7", what: "answer the host with a directory that no frame holds",
			test: hugeListing},
		{id: "F6.sparse_file", invariant: "H7", what: "have the host read a terabyte that is not there", test: sparseRead},
		{id: "H3.signal_init", invariant: "H1", what: "kill or stop PID 1", test: signalInit},
		{id: "H3.kill_all", invariant: "H1", what: "kill everything that can be named", test: killAll},
		{id: "H3.guest_exe", invariant: "H1", what: "replace the guest's program through /proc (the runc hole of 2019)",
			test: guestProgram},
		{id: "H3.inodes", invariant: "H1",
			what: "change a file of the host's that a process of the sandbox runs or has open", test: hostInodes},
		{id: "H3.inodes_lasting", invariant: "H1",
			what: "change a file of the host's that a keeper runs, or a program that it starts, killing each", test: keptInodes},
		{id: "F4.exec_self", invariant: "H1",
			what: "be started as the guest's own program, or in a directory that a descriptor of the guest's names",
			test: startInDescriptor},
	}
}

// fileAPI bounds one request to the guest: a request that hangs is a hole.
func (c *trial) fileAPI() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), patience)
}

// answers checks that the guest answered, whatever it said, and lives.
func (c *trial) answers(b *box, what string, err error) {
	c.Helper()
	if errors.Is(err, context.DeadlineExceeded) {
		c.Errorf("HOLE: %s: the guest hangs", what)
	}
	if !b.alive() {
		c.Errorf("HOLE: %s: the guest has died", what)
	}
}

// link makes a symlink inside, as the user.
func (c *trial) link(b *box, name, target string) {
	c.Helper()
	if r := b.try(c, "symlink "+target+" "+name); r.Outcome != "succeeded" {
		c.Fatalf("not tested: symlink %s: %s", name, say(r))
	}
}

// secretsOfTheGuest are files that only the guest can read.
var secretsOfTheGuest = []string{"/proc/1/environ", "/proc/1/mem", "/proc/1/maps", "/proc/self/environ",
	"/proc/self/mem", "/proc/self/maps",
	"/proc/thread-self/environ", "/proc/self/fd/0", "/proc/self/fd/1", "/proc/self/fd/3", "/proc/self/fd/4",
	"/proc/self/fd/5", "/proc/self/auxv", "/proc/self/stack"}

func deputyRead(c *trial) {
	b := c.fresh(boxOptions{many: true})
	ctx, cancel := c.fileAPI()
	defer cancel()
	must(c, b.sandbox.Guest().WriteFile(ctx, "/work/plain", 0o644, []byte("control")))
	c.link(b, "/work/good", "/work/plain")
	if data, err := b.sandbox.Guest().ReadFile(ctx, "/work/good", 1<<20); err != nil || string(data) != "control" {
		c.remark("symlinks are not followed at all: %v", err)
		if data, err = b.sandbox.Guest().ReadFile(ctx, "/work/plain", 1<<20); err != nil || string(data) != "control" {
			c.Fatalf("not tested: the guest does not even read %q: %v", data, err)
		}
	}
	for i, secret := range secretsOfTheGuest {
		link := fmt.Sprintf("/work/link%d", i)
		c.link(b, link, secret)
		for _, path := range []string{link, secret} {
			ctx, cancel := c.fileAPI()
			data, err := b.sandbox.Guest().ReadFile(ctx, path, 1<<20)
			cancel()
			if err == nil && len(data) > 0 {
				c.Errorf("HOLE: the guest reads %s through %s: %.60q", secret, path, data)
			}
			c.answers(b, "reading "+path, err)
		}
	}
}

func deputyWrite(c *trial) {
	b := c.fresh(boxOptions{many: true})
	ctx, cancel := c.fileAPI()
	defer cancel()
	must(c, b.sandbox.Guest().WriteFile(ctx, "/work/plain", 0o644, []byte("control")))
	for i, target := range []string{"/etc/passwd", "/etc/new", "/usr/bin/new", "/new", "/proc/self/mem", "/proc/1/mem",
		"/proc/self/oom_score_adj",
		"/proc/self/fd/0", "/proc/self/fd/1", "/proc/self/fd/2", "/proc/self/fd/3", "/proc/self/fd/4", "/proc/self/fd/5",
		"/proc/self/fd/6",
		"/proc/self/fd/7", "/proc/self/fd/8", "/proc/1/fd/3", "/proc/sys/kernel/core_pattern", "/proc/self/uid_map",
		"/proc/self/exe",
		"/proc/self/attr/current", "/proc/self/coredump_filter", "/proc/self/clear_refs", "/proc/self/comm",
		"/proc/self/task/1/comm"} {
		link := fmt.Sprintf("/work/link%d", i)
		c.link(b, link, target)
		for _, path := range []string{link, target} {
			ctx, cancel := c.fileAPI()
			err := b.sandbox.Guest().WriteFile(ctx, path, 0o644, []byte("-1000"))
			cancel()
			if err == nil {
				c.Errorf("HOLE: the guest writes %s through %s", target, path)
			}
			c.answers(b, "writing "+path, err)
		}
	}
	valuesUnchanged(c)
}

func deputyRemove(c *trial) {
	b := c.fresh(boxOptions{})
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	g := b.sandbox.Guest()
	must(c, g.Mkdir(ctx, "/work/tree/deep", 0o755))
	must(c, g.WriteFile(ctx, "/work/keep/file", 0o644, []byte("kept")))
	c.link(b, "/work/tree/deep/out", "/work/keep")
	c.link(b, "/work/etc", "/etc")
	for _, path := range []string{"/etc/passwd", "/usr/bin", "/bin/sh", "/etc", "/", "/proc", "/dev/null",
		"/work/etc/passwd"} {
		if err := g.Remove(ctx, path); err == nil {
			c.Errorf("HOLE: the guest removes %s", path)
		}
	}
	for _, path := range []string{"/etc/new", "/new", "/usr/new", "/work/etc/new", "/proc/new"} {
		if err := g.Mkdir(ctx, path, 0o755); err == nil {
			c.Errorf("HOLE: the guest makes %s", path)
		}
	}
	if err := g.Remove(ctx, "/work/tree"); err != nil {
		c.Errorf("not tested: the user's own tree is not removed: %v", err)
	}
	if data, err := g.ReadFile(ctx, "/work/keep/file", 100); err != nil || string(data) != "kept" {
		c.Errorf("HOLE: removing a tree followed a symlink out of it: %v", err)
	}
	c.works(b, "read /etc/passwd")
}

func specialFiles(c *trial) {
	b := c.fresh(boxOptions{many: true})
	g := b.sandbox.Guest()
	for _, attempt := range []string{"mkfifo /work/fifo", "symlink /work/loop2 /work/loop1",
		"symlink /work/loop1 /work/loop2", "symlink /work/nowhere/x /work/dangling"} {
		c.works(b, attempt)
	}
	for i := range 60 {
		c.link(b, fmt.Sprintf("/work/chain%d", i), fmt.Sprintf("/work/chain%d", i+1))
	}
	listener := b.start(c, spec("unix_listen /work/socket"))
	if listener == nil || !listener.said("listening") {
		c.Fatal("not tested: no unix socket inside")
	}
	for _, path := range []string{"/work/fifo", "/work/socket", "/work/loop1", "/work/dangling", "/work/chain0",
		"/dev/zero", "/dev/random", "/dev/tty", "/dev/ptmx",
		"/dev/full", "/work", "/proc/self/mem", "/proc/kmsg", "/sys"} {
		ctx, cancel := c.fileAPI()
		_, err := g.ReadFile(ctx, path, 1<<20)
		cancel()
		if err == nil && path != "/sys" {
			c.Errorf("HOLE: %s was read as a file", path)
		}
		c.answers(b, "reading "+path, err)
	}
	for _, path := range []string{"/work/fifo", "/work/socket", "/work/loop1", "/work/chain0", "/dev/full", "/dev/tty",
		"/dev/ptmx", "/work"} {
		ctx, cancel := c.fileAPI()
		err := g.WriteFile(ctx, path, 0o644, []byte("x"))
		cancel()
		if err == nil {
			c.Errorf("HOLE: %s was written as a file", path)
		}
		c.answers(b, "writing "+path, err)
	}
	ctx, cancel := c.fileAPI()
	defer cancel()
	if infos, err := g.List(ctx, "/work"); err != nil || len(infos) < 60 {
		c.Errorf("not tested: listing special files: %d, %v", len(infos), err)
	}
	must(c, g.WriteFile(ctx, "/work/after", 0o644, []byte("x")))
}

func badPaths(c *trial) {
	b := c.fresh(boxOptions{})
	g := b.sandbox.Guest()
	long := "/work/" + strings.Repeat("n", 300)
	deep := "/work" + strings.Repeat("/d", 3000)
	for _, path := range []string{"", ".", "..", "relative", "../etc/new", "/work/../etc/new", "/work/../../../../etc/new",
		"/work/a\x00b", "\x00", long, deep,
		"/work/\xff\xfe", "/work/new\nline", `/work\..\etc\new`, "/work/%2e%2e/%2e%2e/etc/new", "//etc/new", "/./etc/new",
		"/proc/self/root/etc/new",
		"/proc/1/root/etc/new", "/proc/self/cwd/../etc/new", "/dev/fd/3/new", strings.Repeat("/", 70000)} {
		ctx, cancel := c.fileAPI()
		err := g.WriteFile(ctx, path, 0o644, []byte("x"))
		c.answers(b, fmt.Sprintf("writing %.40q", path), err)
		_, err = g.ReadFile(ctx, path, 100)
		c.answers(b, fmt.Sprintf("reading %.40q", path), err)
		_, err = g.Stat(ctx, path)
		c.answers(b, fmt.Sprintf("describing %.40q", path), err)
		cancel()
	}
	c.row.deny = hidden
	if !c.suite.options.Root {
		c.denied(b, "read /etc/new")
	}
	ctx, cancel := c.fileAPI()
	defer cancel()
	if err := g.WriteFile(ctx, "/work/%2e%2e%2f", 0o644, []byte("x")); err != nil {
		c.Errorf("not tested: an odd but harmless name is refused: %v", err)
	}
}

// deputyRace swaps a directory for a symlink to /etc while the host writes into it a few hundred times.
func deputyRace(c *trial) {
	b := c.fresh(boxOptions{})
	g := b.sandbox.Guest()
	racer := b.start(c, spec("symlink_spin /work/swap /etc"))
	if racer == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	written := 0
	for i := range 300 {
		if err := g.WriteFile(ctx, "/work/swap/cove-raced", 0o644, []byte("x")); err == nil {
			written++
		}
		if i%10 == 0 {
			g.Remove(ctx, "/work/swap/passwd")
		}
	}
	racer.Signal(ctx, 9)
	racer.wait(patience)
	if _, err := os.Lstat("/etc/cove-raced"); err == nil {
		c.Error("HOLE: the host's /etc has the file")
		os.Remove("/etc/cove-raced")
	}
	if !c.suite.options.Root { // whose /etc is its own
		c.row.deny = hidden
		c.denied(b, "read /etc/cove-raced")
	}
	c.works(b, "read /etc/passwd")
	if !b.alive() {
		c.Error("HOLE: the guest has died")
	}
	if written == 0 {
		c.remark("no write ever met the directory")
	}
}

func hugeListing(c *trial) {
	b := c.fresh(boxOptions{limits: func(l *cove.Limits) { l.Inodes = 32000 }})
	g := b.sandbox.Guest()
	must(c, g.Mkdir(c.Context(), "/work/many", 0o777))
	if r := b.try(c, "dir_fan 12000 /work/many"); r.Count < 8000 {
		c.Fatalf("not tested: %s", say(r))
	}
	ctx, cancel := c.fileAPI()
	defer cancel()
	infos, err := g.List(ctx, "/work/many")
	c.answers(b, "listing", err)
	var protocol *guest.ProtocolError
	if errors.As(err, &protocol) {
		c.Errorf("HOLE: a directory ends the connection: %v", err)
	}
	c.remark("%d entries, %v", len(infos), err)
}

func sparseRead(c *trial) {
	b := c.fresh(boxOptions{})
	r := b.try(c, "sparse 1099511627776 /work")
	ctx, cancel := c.fileAPI()
	defer cancel()
	data, err := b.sandbox.Guest().ReadFile(ctx, "/work/sparse", 4<<20)
	if r.Outcome == "succeeded" && err == nil {
		c.Errorf("HOLE: %d bytes of a terabyte were read as a file of at most 4 MiB", len(data))
	}
	if len(data) > 4<<20 {
		c.Errorf("HOLE: %d bytes came", len(data))
	}
	c.answers(b, "reading a sparse file", err)
	c.remark("making it: %s", say(r))
}

// signalInit sends PID 1 everything it could be killed by. The oracle: the
// guest answers afterwards, and its process is the same.
func signalInit(c *trial) {
	t := c.occupied(boxOptions{many: true})
	for signal := 1; signal <= 64; signal++ {
		if signal == 32 || signal == 33 {
			continue
		}
		t.try(c, fmt.Sprintf("kill 1 %d", signal))
	}
	t.try(c, "sigqueue_init")
	t.try(c, "pidfd_signal")
	if !t.alive() {
		c.Error("HOLE: a signal from inside ended the guest")
	}
	now, ok := readProcess(t.guest.pid)
	if !ok || strings.HasPrefix(now.status["State"], "T") || strings.HasPrefix(now.status["State"], "Z") {
		c.Errorf("HOLE: PID 1 is %q", now.status["State"])
	}
	if c.suite.caps.UserIDs && !c.suite.options.Root {
		if r := t.try(c, "kill 1 9"); r.Errno != "EPERM" {
			c.Errorf("HOLE: PID 1 may be signalled: %s", say(r))
		}
	}
	// The control: a process of the user's own can be signalled.
	c.works(t.box, fmt.Sprintf("kill %s 0", t.user.pidInside()))
}

// killAll kills every process that the user can name. The control is a process of the same sandbox, which dies; the
// oracles are the guest, another sandbox, and the host's processes.
func killAll(c *trial) {
	victim, other := c.occupied(boxOptions{}), c.occupied(boxOptions{})
	victim.try(c, "kill_all")
	if r := victim.held.wait(patience); r.err != nil || r.exit.Signal != 9 {
		c.Errorf("not tested: the process beside the attacker lives: %+v", r.exit)
	}
	if !victim.alive() {
		c.Error("HOLE: the guest has died")
	}
	if _, ok := readProcess(other.user.pid); !ok || !other.alive() {
		c.Error("HOLE: a process of another sandbox has died")
	}
}

// guestProgram hashes the guest's program through the host's /proc before and after attempts to write to it.
func guestProgram(c *trial) {
	t := c.occupied(boxOptions{many: true})
	before := hashFile(fmt.Sprintf("/proc/%d/exe", t.guest.pid))
	if before == "" {
		c.lacking("the guest's program cannot be read on this host")
	}
	c.row.deny = append([]string{"ETXTBSY"}, hidden...)
	for _, path := range []string{"/proc/1/exe", "/proc/1/root/.cove/guest", "/proc/1/map_files/400000-401000",
		"/cove-guest", "/.cove/guest", "/sbin/cove-guest", "/proc/1/fd/3", "/proc/1/task/1/exe"} {
		c.denied(t.box, "open_write "+path)
		c.denied(t.box, "open_rdwr "+path)
	}
	// A script whose interpreter is "the program that runs me".
	ctx, cancel := c.fileAPI()
	defer cancel()
	must(c, t.sandbox.Guest().WriteFile(ctx, "/work/script", 0o755, []byte("#!/proc/self/exe\n")))
	s := spec("true")
	s.Args = []string{"/work/script"}
	if p, err := t.sandbox.Guest().Start(ctx, s); err == nil {
		p.Signal(ctx, 9)
		p.Wait(ctx)
	}
	if after := hashFile(fmt.Sprintf("/proc/%d/exe", t.guest.pid)); after != before {
		c.Errorf("HOLE: the guest's program was %s and is %s", before, after)
	}
	if !t.alive() {
		c.Error("HOLE: the guest has died")
	}
}

// hostInodes has programs start, files written and processes signalled beside an attacker who tries to change
// everything that a process in the sandbox runs or has open. Some programs are scripts whose interpreter is "the
// program that starts me", Cove's own.
func hostInodes(c *trial) { c.hunted(boxOptions{}, "look") }

// keptInodes is hostInodes in a long-lived sandbox, where the attacker kills the keeper each time, to meet the next one
// at its start.
func keptInodes(c *trial) {
	if !c.suite.caps.Lasting || c.suite.ahead != nil {
		c.lacking("no sandbox here is long-lived")
	}
	c.hunted(boxOptions{lasts: true}, "look")
	c.hunted(boxOptions{lasts: true}, "kill")
}

// hunted makes sandboxes until an attacker in one has met a program of Cove's and said what came of it: keepers that
// start while others end take the tasks that the attacker's own threads need.
func (c *trial) hunted(o boxOptions, how string) {
	c.Helper()
	control := filepath.Join(c.TempDir(), "file")
	must(c, os.WriteFile(control, nil, 0o600))
	if r := c.suite.outside(c, "change_inode "+control); r.Count < 6 {
		c.Fatalf("not tested: changes outside: %s", say(r))
	}
	for range 5 {
		b := c.fresh(o)
		result, met := c.hunt(b, how)
		for line := range strings.Lines(result) {
			if path, made, _ := strings.Cut(strings.TrimSpace(line), ": "); made != "" {
				c.Errorf("HOLE: %s: %s", path, made)
			}
		}
		if !b.alive() {
			c.Error("HOLE: the guest has died")
		}
		if met && result != "" || c.Failed() {
			return
		}
	}
	c.Error("not tested: no attacker has met a program of Cove's and lived")
}

// huntPatience is how long an attacker may take to see what happens beside it.
const huntPatience = 20 * time.Second

func (c *trial) hunt(b *box, how string) (result string, met bool) {
	c.Helper()
	g := b.sandbox.Guest()
	write := func(name string, mode uint32, text string) error {
		ctx, cancel := c.fileAPI()
		defer cancel()
		return g.WriteFile(ctx, "/work/"+name, mode, []byte(text))
	}
	must(c, write("self", 0o755, "#!/proc/self/exe --wait\n"))
	must(c, write("plain", 0o755, "#!/proc/self/exe\n"))
	there := func(name string) bool {
		ctx, cancel := c.fileAPI()
		defer cancel()
		_, err := g.Stat(ctx, "/work/"+name)
		return err == nil
	}
	begin := func(program string, args ...string) { // what is killed meanwhile may fail
		ctx, cancel := c.fileAPI()
		defer cancel()
		s := b.here(spec("true"))
		s.Args, s.Stdin = append([]string{program}, args...), true
		if p, err := g.Start(ctx, s); err == nil {
			c.Cleanup(func() { p.Signal(context.Background(), 9) })
		}
	}
	begin(b.probe, "hunt", "/work", how)
	met = eventually(huntPatience, func() bool {
		begin("/work/self")
		begin("/work/plain")
		begin(b.probe, "true")
		return there("met")
	})
	for i := range 20 {
		begin("/work/plain")
		begin(b.probe, "true")
		_ = write(fmt.Sprintf("file%d", i), 0o644, "text")
	}
	eventually(huntPatience, func() bool { return write("stop", 0o644, "") == nil })
	eventually(huntPatience, func() bool {
		ctx, cancel := c.fileAPI()
		defer cancel()
		text, err := g.ReadFile(ctx, "/work/result", 1<<20)
		result = string(text)
		return err == nil && strings.HasSuffix(result, "\n")
	})
	return result, met
}

// startInDescriptor asks for a working directory and for a program that a
// descriptor of the guest's names (the runc hole of 2024).
func startInDescriptor(c *trial) {
	climb := "climb"
	for _, k := range c.plantCanaries() {
		if !k.shared() {
			climb += " ." + k.path
		}
	}
	b := c.fresh(boxOptions{})
	started := 0
	for fd := range 16 {
		for _, dir := range []string{fmt.Sprintf("/proc/self/fd/%d", fd), fmt.Sprintf("/proc/1/fd/%d", fd),
			fmt.Sprintf("/proc/self/fd/%d/../../..", fd)} {
			s := spec(climb)
			s.Dir = dir
			started += c.startsInside(b, s)
		}
		s := spec("true")
		s.Args = []string{fmt.Sprintf("/proc/self/fd/%d", fd)}
		c.startsInside(b, s)
	}
	if !b.alive() {
		c.Error("HOLE: the guest has died")
	}
	s := spec(climb + " work")
	if r := b.run(c, s).result; r.Outcome != "succeeded" {
		c.Errorf("not tested: climbing does not find what is there: %s", say(r))
	}
	c.remark("%d of 48 directories were taken", started)
}

// startsInside starts a process that reports what it finds above its working
// directory; a start that is refused is as good.
func (c *trial) startsInside(b *box, s guest.ProcessSpec) int {
	c.Helper()
	ctx, cancel := c.fileAPI()
	defer cancel()
	p, err := b.sandbox.Guest().Start(ctx, s)
	if err != nil {
		return 0
	}
	out := make(chan string, 1)
	go func() {
		b, _ := io.ReadAll(io.LimitReader(p.Stdout(), 64<<10))
		out <- string(b)
	}()
	if _, err := p.Wait(ctx); err != nil {
		p.Signal(context.Background(), 9)
		return 1
	}
	if text := <-out; strings.Contains(text, `"succeeded"`) {
		c.Errorf("HOLE: started in %s, a canary is reached: %s", s.Dir, text)
	}
	return 1
}
