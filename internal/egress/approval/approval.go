// Package approval owns the questions about requests that wait for an approval, and their answers, as plain values.
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

// Subject is the scope of an answer in requests: those to a host and port and, where the asking rules look at more, of
// one method, to one path, at one address. Subjects are comparable with ==.
type Subject struct {
	Host    string // as policy.Host prints it
	Port    uint16
	Method  string // "": every one
	Path    string // canonical; "": every one
	Address string // the address of Host that a rule asks about; "": addresses are not asked about
}

// Of returns the subject of an answer about a request for which v asks.
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

// String returns s for people: "POST api.example.com:443/v1/items".
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

// Rules returns the rules that an approval amounts to. policy.Document.Foreign judges whether a caller may give it.
func (s Subject) Rules() (*policy.Document, error) {
	port := strconv.Itoa(int(s.Port))
	targets := []string{net.JoinHostPort(s.Host, port)}
	if s.Address != "" {
		targets = append(targets, net.JoinHostPort(s.Address, port))
	}
	return policy.Args("approve", policy.Allow, targets...)
}

// Hold is a question that waits for an answer: one request, or several with the same subject.
type Hold struct {
	ID        cove.HoldID
	Execution cove.ExecutionID
	Client    string  // of a gateway without executions
	Subject   Subject // the subject of an answer beyond once
	Method    string  // common to all requests; "": connections
	Path      string  // of the request that waits longest
	Rule      string  // the asking rule
	Reason    string  // the rule's note, or a generated reason
	Since     time.Time
	Until     time.Time // when the request that waits longest is denied
	Count     int       // number of requests
}

// ByAge orders holds, the oldest first.
func ByAge(a, b Hold) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.ID, b.ID)) }

// Scope is the reach of an answer.
type Scope string

const (
	Once    Scope = "once"    // the waiting requests
	Sandbox Scope = "sandbox" // further requests of this sandbox with the same subject, too
	Policy  Scope = "policy"  // further requests of every sandbox started with the same policy
)

// Scopes lists every scope.
var Scopes = []Scope{Once, Sandbox, Policy}

// Answer is a person's decision on a Hold.
type Answer struct {
	Allow bool
	Scope Scope         // "": Once for an approval, Sandbox for a denial
	For   time.Duration // validity; 0: the sandbox's life, or DefaultLife
}

// Validity of approvals that outlive their sandbox.
const (
	DefaultLife = 30 * 24 * time.Hour
	MaxLife     = 366 * 24 * time.Hour
)

// Normal returns a with defaults filled in. Errors: InvalidArgument.
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
		return a, bad("an answer with the scope once counts for what waits now").WithHint(
			"leave the time out, or choose the scope sandbox or policy")
	case a.Scope == Policy && !a.Allow:
		return a, bad("denials are not remembered for a policy").WithHint(
			"choose the scope sandbox, or write a rule with \"action: deny\"")
	case a.Scope == Policy && a.For == 0:
		a.For = DefaultLife
	case a.Scope != Once && a.Scope != Sandbox && a.Scope != Policy:
		return a, bad("%.40q is not a scope", a.Scope).WithHint("use once, sandbox or policy")
	}
	return a, nil
}

// Verdict returns the answer in the audit log's words.
func (a Answer) Verdict() string {
	if a.Allow {
		return "ok"
	}
	return "deny"
}

// Describe returns the answer and its subject, for the record.
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

// String returns the question for people: like Subject's, with method and path as seen.
func (h Hold) String() string {
	seen := h.Subject
	seen.Method, seen.Path = h.Method, h.Path
	return seen.String()
}

// Approval is an answer stored for a policy.
type Approval struct {
	ID      cove.ApprovalID
	Policy  string // digest of the policy
	Subject Subject
	Rule    string         // the asking rule
	Who     cove.Principal // who gave it
	Time    time.Time
	Until   time.Time // exclusive
}
