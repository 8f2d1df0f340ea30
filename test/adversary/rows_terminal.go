package adversary

import (
	"strings"

	"github.com/cove-sandbox/cove/test/adversary/outcome"
)

// terminalRows are attempts through a terminal (H3).
func terminalRows() []row {
	tty := func(id, what string, attempts ...string) row {
		return row{id: "K3." + id, invariant: "H3", what: what, test: func(c *trial) {
			b := c.box()
			if r := onTerminal(c, b, "tty_size"); r.Outcome != outcome.Succeeded {
				c.Errorf("not tested: the size of the terminal: %s", say(r))
			}
			for _, a := range attempts {
				r := onTerminal(c, b, a)
				if r.Outcome != outcome.Refused || !strings.Contains("EPERM EACCES ENOSYS SIGSYS", r.Errno) {
					c.Errorf("HOLE: %q on a terminal: %s", a, say(r))
				}
			}
		}}
	}
	inject := tty("tiocsti", "type into the terminal of whoever started the sandbox", "tty_inject", "tty_inject_hi")
	discipline := tty("tiocsetd", "load a line discipline", "tty_setd")
	paste := tty("tioclinux", "paste into the console, take it over", "tty_linux", "tty_linux_hi", "tty_console")
	return []row{inject, discipline, paste,
		{id: "K3.tiocsti_own", alone: true, invariant: "H3",
			what:     "type into a terminal of one's own, which old kernels let everybody do",
			attempts: []string{"tty_own_inject", "tty_own_inject_hi"}, inside: []string{"getpid"}},
	}
}

// onTerminal runs an attempt whose standard input is a terminal.
func onTerminal(c *trial, b *box, attempt string) outcome.Result {
	c.Helper()
	s := spec(attempt)
	s.TTY, s.Rows, s.Cols = true, 24, 80
	return b.run(c, s).result
}
