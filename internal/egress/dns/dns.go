// Package dns answers a sandbox's DNS queries: an allowed name gets an address that stands for it, and so does a denied
// one below a public domain, where clients read the reason of the denial. Any other name does not exist. A denied name
// never reaches a resolver.
package dns

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/net/publicsuffix"
	"golang.org/x/time/rate"

	"github.com/cove-sandbox/cove/internal/egress/decision"
	"github.com/cove-sandbox/cove/internal/egress/policy"
)

// ErrNoName is a Resolver's error for a name that does not exist.
var ErrNoName = errors.New("no such name")

// Client is the filter's view of the sandbox whose queries it answers.
type Client interface {
	// Decide is the policy's decision; a query is asked with policy.LayerDNS.
	Decide(ctx context.Context, r policy.Request) policy.Verdict
	// Resolve looks an allowed name up outside. It refuses names whose addresses may not be dialled. Errors: ErrNoName.
	Resolve(ctx context.Context, name policy.Host) error
	// Asked receives every query, the stage it reached, and the reason of a refusal: "" when it was answered.
	Asked(name string, kind string, v policy.Verdict, stage decision.Stage, refused string)
}

// Filter answers the queries of one sandbox.
type Filter struct {
	client Client
	names  *Names
	rate   *rate.Limiter
	labels labels
	busy   chan struct{}
}

// Limits of one sandbox: queries a second, their burst, and concurrent look-ups.
const (
	questionsPerSecond = 100
	questionsBurst     = 500
	questionsAtOnce    = 64
)

const answerTTL = 30 // short, in seconds: an address is meaningless once the sandbox has gone, and policy may change

const resolveTimeout = 5 * time.Second // bounds one look-up

// New returns a filter that takes addresses from names.
func New(c Client, names *Names) *Filter {
	return &Filter{client: c, names: names, rate: rate.NewLimiter(questionsPerSecond, questionsBurst),
		busy: make(chan struct{}, questionsAtOnce)}
}

// Answer answers one message.
func (f *Filter) Answer(ctx context.Context, q *dns.Msg) *dns.Msg {
	a := new(dns.Msg)
	a.SetReply(q)
	a.RecursionAvailable = true
	if q.Response || q.Opcode != dns.OpcodeQuery {
		return fail(a, q, dns.RcodeNotImplemented, "")
	}
	if len(q.Question) != 1 || q.Question[0].Qclass != dns.ClassINET {
		return fail(a, q, dns.RcodeFormatError, "one question for an internet address, please")
	}
	question := q.Question[0]
	kind := dns.TypeToString[question.Qtype]
	name, verdict, stage, rcode, refused := f.judge(ctx, question.Name)
	f.client.Asked(question.Name, kind, verdict, stage, refused)
	if stage == decision.StagePolicy && f.explains(name) {
		rcode = dns.RcodeSuccess
		explain(a, q, refused)
	}
	if rcode != dns.RcodeSuccess {
		return fail(a, q, rcode, refused)
	}
	if question.Qtype != dns.TypeA && question.Qtype != dns.TypeAAAA {
		return a // the name exists without records of this type
	}
	four, six, ok := f.names.Addresses(name)
	if !ok {
		return fail(a, q, dns.RcodeRefused, "too many names")
	}
	header := dns.RR_Header{Name: question.Name, Rrtype: question.Qtype, Class: dns.ClassINET, Ttl: answerTTL}
	if question.Qtype == dns.TypeA {
		a.Answer = append(a.Answer, &dns.A{Hdr: header, A: four.AsSlice()})
	} else {
		a.Answer = append(a.Answer, &dns.AAAA{Hdr: header, AAAA: six.AsSlice()})
	}
	return a
}

// explains reports whether a denied name gets an address, at which clients read the reason of the denial; nothing is
// looked up. Half of the addresses are left to allowed names.
func (f *Filter) explains(name policy.Host) bool {
	return name.Public() && f.names.count() < maxNames/2 && f.Permit(name)
}

// judge decides whether a name exists for this sandbox.
func (f *Filter) judge(ctx context.Context, asked string) (name policy.Host, v policy.Verdict, stage decision.Stage,
	rcode int, refused string) {
	if !f.rate.Allow() {
		return name, v, decision.StageRate, dns.RcodeRefused, "too many questions"
	}
	name, err := policy.ParseHost(asked)
	if err != nil || name.Name() == "" {
		return name, v, decision.StageProtocol, dns.RcodeNameError, "not a host name"
	}
	v = f.client.Decide(ctx, policy.Request{Layer: policy.LayerDNS, Host: name})
	if v.Action != policy.Allow {
		return name, v, decision.StagePolicy, dns.RcodeNameError, v.Reason
	}
	if !f.Permit(name) {
		return name, v, decision.StageRate, dns.RcodeRefused, TooManyNames
	}
	select {
	case f.busy <- struct{}{}:
		defer func() { <-f.busy }()
	default:
		return name, v, decision.StageRate, dns.RcodeServerFailure, "too many questions at once"
	}
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	switch err := f.client.Resolve(ctx, name); {
	case err == nil:
		return name, v, decision.StageUpstream, dns.RcodeSuccess, ""
	case errors.Is(err, ErrNoName):
		return name, v, decision.StageUpstream, dns.RcodeNameError, "no such name"
	case ctx.Err() != nil:
		return name, v, decision.StageUpstream, dns.RcodeServerFailure, "the resolver does not answer"
	default:
		return name, v, decision.StageUpstream, dns.RcodeNameError, err.Error()
	}
}

// TooManyNames is the reason for a look-up that Permit refuses.
const TooManyNames = "too many names below one domain"

// Permit reports whether one more name may be looked up for the sandbox, and counts it. It must also be asked for
// look-ups that serve a connection instead of a query.
func (f *Filter) Permit(name policy.Host) bool { return f.labels.allow(name.Name(), time.Now()) }

// fail sets a's code and its reason.
func fail(a, q *dns.Msg, rcode int, why string) *dns.Msg {
	a.Rcode = rcode
	explain(a, q, why)
	return a
}

// explain adds a reason to a, as an extended error (RFC 8914), if the query supports it.
func explain(a, q *dns.Msg, why string) {
	if q.IsEdns0() != nil && why != "" {
		opt := &dns.OPT{Hdr: dns.RR_Header{Name: ".", Rrtype: dns.TypeOPT}}
		opt.SetUDPSize(dns.DefaultMsgSize)
		opt.Option = append(opt.Option, &dns.EDNS0_EDE{InfoCode: dns.ExtendedErrorCodeFiltered, ExtraText: why})
		a.Extra = append(a.Extra, opt)
	}
}

// labels counts the distinct names looked up below each domain, so that names carry little data out.
type labels struct {
	mu      sync.Mutex
	since   time.Time
	parents map[string]map[string]struct{}
}

// Limits of distinct names below a registered domain. Below public suffixes (the Public Suffix List: co.uk, github.io)
// each registered domain is counted separately.
const (
	namesPerDomain = 200
	labelsPeriod   = 10 * time.Minute
)

func (l *labels) allow(name string, now time.Time) bool {
	domain, err := publicsuffix.EffectiveTLDPlusOne(name)
	if err != nil { // a public suffix itself
		domain = name
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.since) > labelsPeriod || l.parents == nil {
		l.since, l.parents = now, map[string]map[string]struct{}{}
	}
	seen := l.parents[domain]
	if _, ok := seen[name]; ok {
		return true
	}
	if len(seen) >= namesPerDomain {
		return false
	}
	if seen == nil {
		seen = map[string]struct{}{}
		l.parents[domain] = seen
	}
	seen[name] = struct{}{}
	return true
}

// Serve answers queries on the sandbox's sockets until the context ends, and then closes them.
func (f *Filter) Serve(ctx context.Context, listeners []net.Listener, packets []net.PacketConn) error {
	handler := dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		a := f.Answer(ctx, q)
		size := dns.MinMsgSize
		if o := q.IsEdns0(); o != nil {
			size = int(o.UDPSize())
		}
		if _, udp := w.LocalAddr().(*net.UDPAddr); udp {
			a.Truncate(size)
		}
		w.WriteMsg(a) // an error means that the client has left
	})
	var servers []*dns.Server
	for _, l := range listeners {
		servers = append(servers, &dns.Server{Listener: l, Handler: handler, MaxTCPQueries: 128,
			ReadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second})
	}
	for _, p := range packets {
		servers = append(servers, &dns.Server{PacketConn: p, Handler: handler})
	}
	errs := make(chan error, len(servers))
	for _, s := range servers {
		go func() { errs <- s.ActivateAndServe() }()
	}
	var failed error
	running := len(servers)
	select {
	case <-ctx.Done():
	case failed = <-errs:
		running--
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	for _, s := range servers {
		s.ShutdownContext(ended) // so that no idle connection is waited for
	}
	for _, l := range listeners { // of a server that has not begun
		l.Close()
	}
	for _, p := range packets {
		p.Close()
	}
	for range running {
		<-errs
	}
	if ctx.Err() != nil {
		return nil
	}
	return failed
}

// Names assigns addresses to the names that one sandbox may look up, and maps them back when the sandbox connects.
// Inside, every address is local anyway; outside, the gateway resolves the name itself. So a name cannot be rebound,
// two names never share an address, and a sandbox neither learns nor chooses a real address.
//
// The addresses are of 198.18.0.0/15, which no network routes (RFC 2544), and of a unique local IPv6 prefix.
type Names struct {
	mu    sync.Mutex
	index map[policy.Host]uint32
	names []policy.Host // by index
}

const maxNames = 1 << 16 // bounds the names of one sandbox, by the IPv4 range without its ends, and by memory

var (
	base4 = binary.BigEndian.Uint32(netip.MustParseAddr("198.18.0.1").AsSlice())
	base6 = netip.MustParseAddr("fd63:6f76:6500::1").As16()
)

// Addresses returns the addresses of a name, the same each time; false when the table is full.
func (n *Names) Addresses(name policy.Host) (four, six netip.Addr, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	i, ok := n.index[name]
	if !ok {
		if len(n.names) == maxNames {
			return four, six, false
		}
		if n.index == nil {
			n.index = map[policy.Host]uint32{}
		}
		i = uint32(len(n.names))
		n.index[name], n.names = i, append(n.names, name)
	}
	b := base6
	binary.BigEndian.PutUint32(b[12:], binary.BigEndian.Uint32(b[12:])+i)
	return netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, base4+i))), netip.AddrFrom16(b), true
}

func (n *Names) count() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.names)
}

// Name returns the name that an address stands for.
func (n *Names) Name(a netip.Addr) (policy.Host, bool) {
	var i uint32
	if a = a.Unmap(); a.Is4() {
		i = binary.BigEndian.Uint32(a.AsSlice()) - base4
	} else {
		b := a.As16()
		if [12]byte(b[:12]) != [12]byte(base6[:12]) {
			return policy.Host{}, false
		}
		i = binary.BigEndian.Uint32(b[12:]) - binary.BigEndian.Uint32(base6[12:])
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if i >= uint32(len(n.names)) {
		return policy.Host{}, false
	}
	return n.names[i], true
}
