// Package approval owns what is asked before a request may leave a sandbox, and
// what may be answered: plain values, and how they relate.
package approval

import (
	"cmp"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress/policy"
)

// Subject is what an answer is about: requests to a host and port and, where
// the rules that ask look at more, of one method, to one path, at one address.
// Subjects are compared with ==.
type Subject struct {
	Host    string // as policy.Host prints it
	Port    uint16
	Method  string // "": every one
	Path    string // canonical; "": every one
	Address string // that Host leads to and that a rule asks about; "": that is not the question
}

// Of is what an answer about a request is about, when v asks.
func Of(r policy.Request, v policy.Verdict) Subject {
	s := Subject{Host: r.Host.String(), Port: r.Port}
	if v.Asks.Method {
		s.Method = r.Method
	}
	if v.Asks.Path {
		s.Path = r.Path
	}
	if v.Asks.Address {
		s.Address = r.Address.Unmap().String()
	}
	return s
}

// String is s for people: "POST api.example.com:443/v1/items".
func (s Subject) String() string {
	var b strings.Builder
	if s.Method != "" {
		b.WriteString(s.Method + " ")
	}
	b.WriteString(net.JoinHostPort(s.Host, strconv.Itoa(int(s.Port))) + s.Path)
	if s.Address != "" {
		b.WriteString(" at " + s.Address)
	}
	return b.String()
}

// Rules are what would have to be allowed, for those who judge whether somebody
// may say so (policy.Document.Foreign).
func (s Subject) Rules() (*policy.Document, error) {
	port := strconv.Itoa(int(s.Port))
	targets := []string{net.JoinHostPort(s.Host, port)}
	if s.Address != "" {
		targets = append(targets, net.JoinHostPort(s.Address, port))
	}
	return policy.Args("approve", policy.Allow, targets...)
}

// Hold is what waits for an answer: one request, or several that are asked
// about together.
type Hold struct {
	ID        cove.HoldID
	Execution cove.ExecutionID
	Client    string  // of a gateway of its own, which has no executions
	Subject   Subject // what an answer beyond once is about
	Method    string  // of all of them; "": connections
	Path      string  // of the one that waits longest
	Rule      string  // that asks
	Reason    string  // why, in its author's words if there are any
	Since     time.Time
	Until     time.Time // when the one that waits longest is denied
	Count     int       // of requests
}

// ByAge orders holds, the oldest first.
func ByAge(a, b Hold) int {
	return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.ID, b.ID))
}

// Scope is how far an answer goes.
type Scope string

const (
	Once    Scope = "once"    // what waits now
	Sandbox Scope = "sandbox" // what this sandbox asks about the same, too
	Policy  Scope = "policy"  // what every sandbox that was started with the same policy does
)

// Scopes lists every scope.
var Scopes = []Scope{Once, Sandbox, Policy}

// Answer is somebody's word about a Hold.
type Answer struct {
	Allow bool
	Scope Scope         // "": Once of what is allowed, Sandbox of what is denied
	For   time.Duration // how long it counts; 0: as long as the sandbox lives, or DefaultLife
	Who   string        // for the record, never a secret
}

// How long an approval is remembered beyond its sandbox.
const (
	DefaultLife = 30 * 24 * time.Hour
	MaxLife     = 366 * 24 * time.Hour
)

// Normal fills in what is left out of a. Errors: InvalidArgument.
func (a Answer) Normal() (Answer, error) {
	if a.Scope == "" {
		a.Scope = Once
		if !a.Allow {
			a.Scope = Sandbox
		}
	}
	bad := func(format string, args ...any) *cove.Error {
		return cove.Errorf(cove.InvalidArgument, format, args...)
	}
	switch {
	case a.For < 0 || a.For > MaxLife:
		return a, bad("an answer cannot count for %s", a.For).WithHint("say something up to %s", MaxLife)
	case a.Scope == Once && a.For > 0:
		return a, bad("an answer with the scope once counts for what waits now").WithHint("leave the time out, or choose the scope sandbox or policy")
	case a.Scope == Policy && !a.Allow:
		return a, bad("denials are not remembered for a policy").WithHint("choose the scope sandbox, or write a rule with \"action: deny\"")
	case a.Scope == Policy && a.For == 0:
		a.For = DefaultLife
	case a.Scope != Once && a.Scope != Sandbox && a.Scope != Policy:
		return a, bad("%.40q is not a scope", a.Scope).WithHint("use once, sandbox or policy")
	}
	return a, nil
}

// Verdict is the answer as the audit log has it.
func (a Answer) Verdict() string {
	if a.Allow {
		return "ok"
	}
	return "deny"
}

// Describe is a and what it is about, for the record.
func (a Answer) Describe(h Hold) string {
	about := h.Subject.String()
	if a.Scope == Once {
		about = h.String()
	}
	verb, life := "denied", ""
	if a.Allow {
		verb = "allowed"
	}
	if a.For > 0 {
		life = " for " + a.For.String()
	}
	return verb + " " + about + " (" + h.Rule + "), scope " + string(a.Scope) + life
}

// String is what waits, for people: as Subject's, with method and path as they
// were seen.
func (h Hold) String() string {
	seen := h.Subject
	seen.Method, seen.Path = h.Method, h.Path
	return seen.String()
}

// Approval is an answer that is remembered for a policy.
type Approval struct {
	ID      cove.ApprovalID
	Policy  string // digest of it
	Subject Subject
	Rule    string // that asked
	Who     string
	Time    time.Time
	Until   time.Time // exclusive
}
