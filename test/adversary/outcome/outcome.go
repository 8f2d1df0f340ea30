// Package outcome is what the probe program reports to the adversarial suite: one JSON line per attempt.
package outcome

// Kind is how an attempt ended, as the attacker saw it.
type Kind string

const (
	Refused   Kind = "refused"   // the kernel, the filter or an empty file said no
	Succeeded Kind = "succeeded" // the attempt did what it set out to do
	Broken    Kind = "error"     // the probe program itself failed: nothing is proved
)

// Result is one attempt.
type Result struct {
	Name    string `json:"name"`
	Outcome Kind   `json:"outcome"`
	// Errno is the symbolic errno of a refusal ("EPERM"), "SIGSYS" when a filter killed the attempt, or an upper-case
	// word for a refusal that is no errno ("EMPTY": the file opened and held nothing).
	Errno string `json:"errno,omitempty"`
	// Detail is for the reader; Lines are for oracles.
	Detail string   `json:"detail,omitempty"`
	Lines  []string `json:"lines,omitempty"`
	// Count is the attempt's number, where it has one.
	Count int64 `json:"count,omitempty"`
}
