// Package decision is the record of attempts to leave a sandbox, with their outcomes.
package decision

import "time"

// Decision records one attempt to leave a sandbox, or several that were alike. It holds no query, header, body or
// secret: where a path would have shown one, it has "…".
type Decision struct {
	Seq       int64     // its number, in the order of recording; some may be missing
	Time      time.Time // when the attempt began
	Execution string
	Sandbox   string
	Client    string // the principal of the execution: local, key:NAME or ip:ADDRESS
	Entry     Entry
	Protocol  Protocol // absent for a question for a name
	Host      string
	Port      uint16
	Method    string // of HTTP, or the type of the question for a name
	Path      string
	Verdict   Verdict
	Stage     Stage // that refused the attempt or took it
	Rule      string
	Reason    string
	Remedy    string  // the command that would allow it
	Status    int     // of the HTTP answer
	Sent      int64   // bytes from the sandbox; of HTTP the bodies
	Received  int64   // bytes to the sandbox; of HTTP the bodies
	Duration  float64 // seconds
	Count     int64   // attempts; bytes and seconds are of all together
}

// Verdict is the judgement of an attempt.
type Verdict string

// The verdicts.
const (
	Allow Verdict = "allow"
	Deny  Verdict = "deny"
	Lost  Verdict = "lost" // Count decisions could not be recorded
)

// Entry is the way of an attempt: a question for a name, or a connection (transparent, connect, absolute-form, socks5).
type Entry string

// EntryDNS is a question for a name.
const EntryDNS Entry = "dns"

// Protocol is the protocol of a connection, as far as the gateway sees.
type Protocol string

// The protocols.
const (
	ProtocolHTTP  Protocol = "http"
	ProtocolHTTPS Protocol = "https" // intercepted
	ProtocolTLS   Protocol = "tls"   // not looked into
	ProtocolTCP   Protocol = "tcp"   // anything else
)

// Stage is a part of the gateway's pipeline.
type Stage string

// The stages.
const (
	StageProtocol    Stage = "protocol"    // the request could be read in two ways
	StagePolicy      Stage = "policy"      // rules
	StageApproval    Stage = "approval"    // an answer of a person
	StageEndpoint    Stage = "endpoint"    // the gateway's own
	StageGitHub      Stage = "github"      // requests to GitHub's API
	StageGit         Stage = "git"         // requests to repositories over git
	StageBudget      Stage = "budget"      // of models
	StageRate        Stage = "rate"        // limits of rates and of concurrency
	StageBreaker     Stage = "breaker"     // a failing upstream
	StageCredentials Stage = "credentials" // a missing credential
	StagePackages    Stage = "packages"    // the cache of packages answered, and no origin
	StageDial        Stage = "dial"        // the address, and the connection to it
	StageUpstream    Stage = "upstream"    // the origin, or for a name the resolver
)
