// Package policy owns the decision what may leave a sandbox: hosts, addresses,
// rules and verdicts, all of it pure.
package policy

// Policy is what one sandbox may reach. It never changes; a live change swaps
// the pointer. The nil Policy and the zero Policy deny everything.
type Policy struct {
	sandbox string
}

// Decide judges a request. It is pure.
func (p *Policy) Decide(r Request) Verdict {
	return Verdict{Rule: "default", Reason: "no rule allows it"}
}
