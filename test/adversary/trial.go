package adversary

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/test/adversary/outcome"
)

// trial is one row while it runs.
type trial struct {
	*testing.T
	suite *suite
	row   row

	notes  []string
	absent []string // attempts whose feature this kernel does not have
}

// run makes the row's attempts with their controls, then its own test.
func (c *trial) run() {
	c.Logf("%s: %s", c.row.invariant, c.row.what)
	c.suite.needProbe(c)
	for _, control := range c.row.inside {
		c.works(c.box(), control)
	}
	for _, attempt := range c.row.attempts {
		if foreign(attempt) {
			c.absent = append(c.absent, attempt+" (an x86 door)")
			continue
		}
		c.refused(c.box(), attempt)
	}
	if c.row.test != nil {
		c.row.test(c)
	}
	if len(c.absent) > 0 && len(c.absent) == len(c.row.attempts) && c.row.test == nil && !c.Failed() {
		c.remark("refused, but %s: no control is possible", strings.Join(c.absent, ", "))
		c.Skip(c.note())
	}
	if len(c.absent) > 0 {
		c.remark("no control on this machine for %s", strings.Join(c.absent, ", "))
	}
}

// foreign reports an attempt that this architecture has not got.
func foreign(attempt string) bool {
	x86 := strings.HasPrefix(attempt, "int80") || strings.HasPrefix(attempt, "x32") ||
		strings.HasPrefix(attempt, "sweep int80") ||
		strings.HasPrefix(attempt, "sweep x32") || slices.Contains(injected, attempt)
	return x86 && runtime.GOARCH != "amd64"
}

// remark keeps a fact for the summary.
func (c *trial) remark(format string, args ...any) {
	c.notes = append(c.notes, fmt.Sprintf(format, args...))
}

func (c *trial) note() string { return strings.Join(c.notes, "; ") }

// lacking skips the row because the machine or the engine has not got what it attacks.
func (c *trial) lacking(format string, args ...any) {
	c.Helper()
	c.remark(format, args...)
	c.Skipf(format, args...)
}

// box is the sandbox that harmless attempts share. One that an attempt has broken is not used again.
func (c *trial) box() *box {
	c.Helper()
	if c.row.alone && c.suite.ahead.parks() {
		return c.fresh(boxOptions{})
	}
	return c.suite.sharedBox(c)
}

// roomy is a sandbox for a walk through all of its files: what the kernel remembers of them counts as its memory.
func (c *trial) roomy() *box {
	c.Helper()
	return c.fresh(boxOptions{limits: func(l *cove.Limits) { l.Memory = 512 << 20 }})
}

// works is a positive control inside: the allowed form of what is refused.
func (c *trial) works(b *box, attempt string) outcome.Result {
	c.Helper()
	r := b.try(c, attempt)
	if r.Outcome != outcome.Succeeded {
		c.Errorf("not tested: the control %q inside ended with %s", attempt, say(r))
	}
	return r
}

// refused makes an attempt that must fail inside, and shows that it is not refused without the sandbox.
func (c *trial) refused(b *box, attempt string) outcome.Result {
	c.Helper()
	in := c.denied(b, attempt)
	if c.Failed() {
		return in
	}
	var out outcome.Result
	if c.row.alone {
		out = c.suite.outside(c, attempt)
	} else {
		out = c.suite.outer.try(attempt)
	}
	switch {
	case out.Outcome == outcome.Broken:
		c.Errorf("not tested: the control %q outside ended with %s", attempt, say(out))
	case out.Outcome == outcome.Succeeded || out.Errno != in.Errno:
		c.Logf("%q: %s inside, %s without a sandbox", attempt, say(in), say(out))
	case slices.Contains([]string{"ENOSYS", "EAFNOSUPPORT", "ENOENT", "EMPTY", "ENODEV", "ENXIO", "EOPNOTSUPP",
		"EPROTONOSUPPORT"}, out.Errno):
		c.absent = append(c.absent, fmt.Sprintf("%s (%s without a sandbox too)", attempt, out.Errno))
	case !allCapable():
		c.absent = append(c.absent, fmt.Sprintf("%s (%s without a sandbox too, where root has not all capabilities)",
			attempt, out.Errno))
	default:
		c.Errorf("not tested: %q is refused without a sandbox too: %s", attempt, say(out))
	}
	return in
}

// denied makes an attempt that must fail inside; its control is the caller's.
func (c *trial) denied(b *box, attempt string) outcome.Result {
	c.Helper()
	deny := c.row.deny
	if deny == nil {
		deny = denied
	}
	in := b.try(c, attempt)
	switch {
	case in.Outcome == outcome.Succeeded:
		c.Errorf("HOLE: %q succeeded inside: %s %s", attempt, in.Detail, strings.Join(in.Lines, "; "))
	case in.Outcome == outcome.Broken:
		c.Errorf("not tested: %q inside: %s", attempt, say(in))
	case !slices.Contains(deny, in.Errno):
		c.Errorf("%q reached the kernel inside: %s, want one of %v", attempt, say(in), deny)
	}
	return in
}

// say is a result in a few words.
func say(r outcome.Result) string {
	s := string(r.Outcome)
	if r.Errno != "" {
		s += " " + r.Errno
	}
	if r.Detail != "" {
		s += " (" + r.Detail + ")"
	}
	return s
}

// patience is how long anything may take that has to happen, an attempt among
// it: on an emulated machine, beside other tests, seconds are nothing.
const patience = 2 * time.Minute

// eventually repeats check until it is true, at most for a while.
func eventually(d time.Duration, check func() bool) bool {
	for end := time.Now().Add(d); ; time.Sleep(20 * time.Millisecond) {
		if check() {
			return true
		}
		if time.Now().After(end) {
			return false
		}
	}
}

// token is a word that is nowhere else.
func token() string { return canaryWord() }
