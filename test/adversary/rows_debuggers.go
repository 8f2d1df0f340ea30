package adversary

import (
	"path/filepath"

	"github.com/cove-sandbox/cove/internal/engine"
)

// injected are the calls that a tracer has its child make, in registers of x86-64.
var injected = []string{"ptrace_unshare", "ptrace_mount", "ptrace_bpf"}

// debuggerRows are attempts of programs that may trace others of their sandbox.
func debuggerRows() []row {
	return []row{
		{id: "D1.init", invariant: "H10", alone: true, what: "trace PID 1, read its memory or write it",
			attempts: []string{"ptrace_init", "process_vm_readv", "process_vm_writev"},
			inside:   []string{"ptrace_child"}},
		{id: "D1.init_memory", invariant: "H10", what: "look into PID 1 by its files, as a tracer may", deny: hidden,
			attempts: []string{"list /proc/1/root/", "list /proc/1/fd", "read /proc/1/environ", "read /proc/1/maps",
				"read /proc/1/mem", "read /proc/1/auxv"}},
		{id: "D1.any_user", invariant: "H10", what: "trace PID 1 as another user of the sandbox, PID 1's own among them",
			test: initAsAny},
		{id: "D2.injected", invariant: "H3", alone: true,
			what:     "make refused calls in place of those that the filter has seen",
			attempts: injected, inside: []string{"ptrace_getppid"}},
		{id: "D2.suspended", invariant: "H3", alone: true, what: "have the kernel ignore the filter of a traced process",
			attempts: []string{"suspend_seccomp"}},
		{id: "D2.others", invariant: "H3", alone: true, what: "reach into processes by other calls, or run code in data",
			attempts: []string{"kcmp", "pidfd_getfd", "process_madvise", "personality_exec", "perf_event_open"},
			inside:   []string{"personality_noaslr"}},
		{id: "D3.starting", invariant: "H10", what: "trace a process while it is started, before it is the user's",
			test: seizeStarting},
		{id: "D3.parent", invariant: "H7", what: "have PID 1 trace a process, and take its stop for its end",
			test: tracedByInit},
		{id: "D4.stopped", invariant: "H6", what: "outlive a pause or the end of the sandbox, stopped by a tracer",
			test: stoppedByTracer},
	}
}

func initAsAny(c *trial) {
	if c.suite.options.user().UID != 0 {
		c.lacking("only root inside becomes other users")
	}
	c.refused(c.fresh(boxOptions{}), "ptrace_init_as_any")
}

// seizeStarting starts programs beside one that seizes each process that is there. A process that has not executed its
// program yet has the memory and the descriptors of PID 1.
func seizeStarting(c *trial) {
	b := c.fresh(boxOptions{})
	end := filepath.Join("/tmp", token())
	seizes := b.start(c, spec("seize_new "+end))
	if seizes == nil || !seizes.said("seizing") {
		c.Fatal("not tested: it does not begin")
	}
	const programs = 200
	for range programs {
		b.run(c, spec("true"))
	}
	must(c, b.sandbox.Guest().WriteFile(c.Context(), end, 0o644, nil))
	r := seizes.wait(patience)
	if r.result.Count == 0 {
		c.Errorf("not tested: it seized none: %s", say(r.result))
	}
	for _, early := range r.result.Lines {
		c.Errorf("HOLE: it seized, before that executed its program, %s", early)
	}
	c.remark("%d of %d seized", r.result.Count, programs)
}

// tracedByInit: a process that has made the guest its tracer goes on, and its end is its own.
func tracedByInit(c *trial) {
	b := c.fresh(boxOptions{})
	for range 3 {
		r := b.run(c, spec("traced_by_parent"))
		if r.err != nil || r.exit.Code != 7 || r.stdout != "went on\n" {
			c.Errorf("HOLE: %q %q, %+v, %v, want its own end with 7", r.stdout, r.stderr, r.exit, r.err)
		}
	}
	c.works(b, "true")
}

// stoppedByTracer: a sandbox with a process that a tracer has stopped is paused and resumed, and ends with all of it.
func stoppedByTracer(c *trial) {
	t := c.occupied(boxOptions{})
	word := token()
	if holds := t.start(c, spec("hold_stopped "+word)); holds == nil || !holds.said("traced") || len(marked(word)) != 2 {
		c.Fatal("not tested: no process is stopped")
	}
	if p, ok := t.sandbox.(engine.Pauser); ok {
		must(c, p.Pause(c.Context()))
		must(c, p.Resume(c.Context()))
	}
	c.works(t.box, "true")
	tr := t.traces()
	t.destroy(c)
	c.gone(tr)
	tr.word = word
	c.gone(tr)
}
