package dns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/cove-sandbox/cove/test/await"

	"github.com/miekg/dns"
	"go.uber.org/goleak"

	"github.com/cove-sandbox/cove/internal/egress/decision"
	"github.com/cove-sandbox/cove/internal/egress/policy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// client allows names below allowed.test, some of which do not exist.
type client struct {
	mu       sync.Mutex
	resolved []string
	asked    []string
	wait     chan struct{} // Resolve waits for it, unless nil
}

func (c *client) Decide(_ context.Context, r policy.Request) policy.Verdict {
	if r.Layer == policy.LayerDNS && (r.Host.Name() == "allowed.test" ||
		strings.HasSuffix(r.Host.Name(), ".allowed.test")) {
		return policy.Verdict{Action: policy.Allow}
	}
	return policy.Verdict{Reason: "no rule allows it"}
}

func (c *client) Resolve(ctx context.Context, name policy.Host) error {
	c.mu.Lock()
	c.resolved = append(c.resolved, name.Name())
	c.mu.Unlock()
	switch name.Name() {
	case "missing.allowed.test":
		return ErrNoName
	case "private.allowed.test":
		return errors.New("10.0.0.1 is private")
	case "slow.allowed.test":
		select {
		case <-c.wait:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (c *client) Asked(name, kind string, v policy.Verdict, _ decision.Stage, refused string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked = append(c.asked, strings.TrimSpace(kind+" "+name+" "+v.Action.String()+" "+refused))
}

func question(name string, kind uint16) *dns.Msg {
	q := new(dns.Msg)
	q.SetQuestion(name, kind)
	return q
}

func TestAnswer(t *testing.T) {
	for _, c := range []struct {
		name     string
		question *dns.Msg
		rcode    int
		answer   string
		resolved string
	}{
		{"an allowed name", question("allowed.test.", dns.TypeA), dns.RcodeSuccess, "198.18.0.1", "allowed.test"},
		{"its IPv6 address", question("allowed.test.", dns.TypeAAAA), dns.RcodeSuccess, "fd63:6f76:6500::1", "allowed.test"},
		{"in capitals", question("A.aLLowed.TEST.", dns.TypeA), dns.RcodeSuccess, "198.18.0.1", "a.allowed.test"},
		{"a denied name, whose connections are told why", question("denied.test.", dns.TypeA), dns.RcodeSuccess,
			"198.18.0.1", ""},
		{"a neighbour of an allowed name", question("notallowed.test.", dns.TypeA), dns.RcodeSuccess, "198.18.0.1", ""},
		{"data in a denied name", question(strings.Repeat("a", 63)+".evil.test.", dns.TypeTXT), dns.RcodeSuccess, "", ""},
		{"a denied name of this machine's network", question("metadata.google.internal.", dns.TypeA), dns.RcodeNameError, "",
			""},
		{"a denied name without a domain", question("database.", dns.TypeA), dns.RcodeNameError, "", ""},
		{"an allowed name that does not exist", question("missing.allowed.test.", dns.TypeA), dns.RcodeNameError, "",
			"missing.allowed.test"},
		{"an allowed name with a private address", question("private.allowed.test.", dns.TypeA), dns.RcodeNameError, "",
			"private.allowed.test"},
		{"another type", question("allowed.test.", dns.TypeTXT), dns.RcodeSuccess, "", "allowed.test"},
		{"a service record, which would move clients to QUIC", question("allowed.test.", dns.TypeHTTPS), dns.RcodeSuccess, "",
			"allowed.test"},
		{"ANY", question("allowed.test.", dns.TypeANY), dns.RcodeSuccess, "", "allowed.test"},
		{"an underscore name", question("_https._tcp.allowed.test.", dns.TypeSRV), dns.RcodeNameError, "", ""},
		{"the root", question(".", dns.TypeNS), dns.RcodeNameError, "", ""},
		{"an address as a name", question("127.0.0.1.", dns.TypeA), dns.RcodeNameError, "", ""},
		{"a reverse look-up", question("1.0.18.198.in-addr.arpa.", dns.TypePTR), dns.RcodeNameError, "", ""},
		{"an escaped NUL", question(`evil\000.allowed.test.`, dns.TypeA), dns.RcodeNameError, "", ""},
		{"an escaped dot", question(`evil\.test.allowed.test.`, dns.TypeA), dns.RcodeNameError, "", ""},
		{"no question", new(dns.Msg), dns.RcodeFormatError, "", ""},
		{"two questions", &dns.Msg{Question: []dns.Question{
			{Name: "allowed.test.", Qtype: dns.TypeA, Qclass: dns.ClassINET},
			{Name: "denied.test.", Qtype: dns.TypeA, Qclass: dns.ClassINET}}}, dns.RcodeFormatError, "", ""},
		{"another class",
			&dns.Msg{Question: []dns.Question{{Name: "version.bind.", Qtype: dns.TypeTXT, Qclass: dns.ClassCHAOS}}},
			dns.RcodeFormatError, "", ""},
		{"an update", &dns.Msg{MsgHdr: dns.MsgHdr{Opcode: dns.OpcodeUpdate}}, dns.RcodeNotImplemented, "", ""},
		{"an answer", &dns.Msg{MsgHdr: dns.MsgHdr{Response: true}}, dns.RcodeNotImplemented, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			who := &client{}
			a := New(who, new(Names)).Answer(t.Context(), c.question)
			if a.Rcode != c.rcode {
				t.Errorf("%s, want %s", dns.RcodeToString[a.Rcode], dns.RcodeToString[c.rcode])
			}
			var got []string
			for _, rr := range a.Answer {
				_, address, _ := strings.Cut(rr.String(), "IN\t")
				got = append(got, address[strings.IndexByte(address, '\t')+1:])
			}
			if strings.Join(got, " ") != c.answer {
				t.Errorf("answered %q, want %q", got, c.answer)
			}
			if strings.Join(who.resolved, " ") != c.resolved {
				t.Errorf("looked up %q, want %q", who.resolved, c.resolved)
			}
			if _, err := a.Pack(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestWhy: a client that supports extended errors gets the reason.
func TestWhy(t *testing.T) {
	q := question("denied.test.", dns.TypeA)
	q.SetEdns0(1232, false)
	a := New(&client{}, new(Names)).Answer(t.Context(), q)
	if a.IsEdns0() == nil || !strings.Contains(a.String(), "no rule allows it") {
		t.Errorf("%s", a)
	}
}

// TestDeniedNamesAreBounded: denied names leave addresses for allowed ones.
func TestDeniedNamesAreBounded(t *testing.T) {
	names := new(Names)
	f := New(&client{}, names)
	f.rate.SetLimit(rate.Inf)
	ask := func(name string) int { return f.Answer(t.Context(), question(name, dns.TypeA)).Rcode }
	for i := range maxNames {
		if ask(fmt.Sprintf("denied%d.test.", i)) != dns.RcodeSuccess {
			break
		}
	}
	if n := names.count(); n != maxNames/2 {
		t.Errorf("%d denied names have an address", n)
	}
	if ask("allowed.test.") != dns.RcodeSuccess {
		t.Error("an allowed name has none")
	}
	f = New(&client{}, new(Names))
	got := 0
	for i := range namesPerDomain + 50 {
		if f.Answer(t.Context(), question(fmt.Sprintf("d%d.denied.test.", i), dns.TypeA)).Rcode == dns.RcodeSuccess {
			got++
		}
	}
	if got != namesPerDomain {
		t.Errorf("%d names below one domain", got)
	}
}

// TestNamesBelowOneDomain: names cannot carry data out, not even below an allowed domain.
func TestNamesBelowOneDomain(t *testing.T) {
	who := &client{}
	f := New(who, new(Names))
	f.rate.SetLimit(1e9)
	f.rate.SetBurst(1e9)
	refused := 0
	for i := range 1000 {
		a := f.Answer(t.Context(), question(fmt.Sprintf("x%d.allowed.test.", i), dns.TypeA))
		if a.Rcode == dns.RcodeRefused {
			refused++
		}
	}
	if refused != 1000-namesPerDomain || len(who.resolved) != namesPerDomain {
		t.Errorf("%d refused, %d looked up", refused, len(who.resolved))
	}
	if a := f.Answer(t.Context(), question("x1.allowed.test.", dns.TypeA)); a.Rcode != dns.RcodeSuccess {
		t.Errorf("a name that was there before: %s", dns.RcodeToString[a.Rcode])
	}
	if now := time.Now().Add(labelsPeriod + time.Second); !f.labels.allow("y.allowed.test", now) {
		t.Error("the count never ends")
	}
}

// TestRegisteredDomains: below a public suffix each registered domain is counted separately.
func TestRegisteredDomains(t *testing.T) {
	var l labels
	now := time.Now()
	for _, c := range []struct {
		format string
		n      int
	}{
		{"x%d.co.uk", 2 * namesPerDomain}, {"x%d.github.io", 2 * namesPerDomain}, {"x%d.one.co.uk", namesPerDomain},
		{"x%d.two.test", namesPerDomain},
	} {
		allowed := 0
		for i := range 2 * namesPerDomain {
			if l.allow(fmt.Sprintf(c.format, i), now) {
				allowed++
			}
		}
		if allowed != c.n {
			t.Errorf("%s: %d allowed, want %d", c.format, allowed, c.n)
		}
	}
}

func TestTooManyQuestions(t *testing.T) {
	f := New(&client{}, new(Names))
	refused := false
	for range 2 * questionsBurst {
		refused = refused || f.Answer(t.Context(), question("allowed.test.", dns.TypeA)).Rcode == dns.RcodeRefused
	}
	if !refused {
		t.Error("nothing was refused")
	}
}

// TestSlowResolver: concurrent look-ups are bounded, and end with the context.
func TestSlowResolver(t *testing.T) {
	who := &client{wait: make(chan struct{})}
	f := New(who, new(Names))
	ctx, cancel := context.WithCancel(t.Context())
	rcodes := make(chan int, questionsAtOnce)
	for range questionsAtOnce {
		go func() { rcodes <- f.Answer(ctx, question("slow.allowed.test.", dns.TypeA)).Rcode }()
	}
	await.That(t, "every question is being asked", func() bool { return len(f.busy) == questionsAtOnce })
	if a := f.Answer(ctx, question("slow.allowed.test.", dns.TypeA)); a.Rcode != dns.RcodeServerFailure {
		t.Errorf("one more: %s", dns.RcodeToString[a.Rcode])
	}
	cancel()
	for range questionsAtOnce {
		if rcode := <-rcodes; rcode != dns.RcodeServerFailure {
			t.Errorf("%s", dns.RcodeToString[rcode])
		}
	}
}

func TestNames(t *testing.T) {
	var n Names
	seen := map[netip.Addr]policy.Host{}
	for i := range 3000 {
		name, err := policy.ParseHost(fmt.Sprintf("n%d.test", i))
		if err != nil {
			t.Fatal(err)
		}
		four, six, ok := n.Addresses(name)
		if !ok {
			t.Fatal("full")
		}
		for _, a := range []netip.Addr{four, six} {
			if other, taken := seen[a]; taken {
				t.Fatalf("%s stands for %s and %s", a, name, other)
			}
			seen[a] = name
		}
		if !netip.MustParsePrefix("198.18.0.0/15").Contains(four) ||
			!netip.MustParsePrefix("fd63:6f76:6500::/96").Contains(six) {
			t.Fatalf("%s, %s", four, six)
		}
		if again, _, _ := n.Addresses(name); again != four {
			t.Fatalf("%s has %s, then %s", name, four, again)
		}
	}
	for a, name := range seen {
		if got, ok := n.Name(a); !ok || got != name {
			t.Errorf("%s: %v, %v, want %v", a, got, ok, name)
		}
	}
	for _, s := range []string{"198.18.0.0", "198.18.128.1", "198.17.255.255", "1.1.1.1", "fd63:6f76:6500::",
		"fd63:6f76:6501::1", "::1", "::ffff:1.1.1.1"} {
		if name, ok := n.Name(netip.MustParseAddr(s)); ok {
			t.Errorf("%s stands for %v", s, name)
		}
	}
	if name, ok := n.Name(netip.MustParseAddr("::ffff:198.18.0.1")); !ok ||
		name != seen[netip.MustParseAddr("198.18.0.1")] {
		t.Errorf("the mapped form: %v, %v", name, ok)
	}
}

func TestNamesAreBounded(t *testing.T) {
	n := Names{names: make([]policy.Host, maxNames)}
	if _, _, ok := n.Addresses(policy.Host{}); ok {
		t.Error("there is no end")
	}
}

// TestServe queries over real sockets.
func TestServe(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	who := &client{}
	go func() { done <- New(who, new(Names)).Serve(ctx, []net.Listener{ln}, []net.PacketConn{pc}) }()
	for network, address := range map[string]string{"udp": pc.LocalAddr().String(), "tcp": ln.Addr().String()} {
		c := dns.Client{Net: network, Timeout: 20 * time.Second}
		for name, rcode := range map[string]int{"allowed.test.": dns.RcodeSuccess, "denied.internal.": dns.RcodeNameError} {
			a, _, err := c.Exchange(question(name, dns.TypeA), address)
			if err != nil || a.Rcode != rcode {
				t.Errorf("%s over %s: %v, %v", name, network, a, err)
			}
		}
		conn, err := net.Dial(network, address)
		if err != nil {
			t.Fatal(err)
		}
		conn.Write([]byte("\x00\x05hello, this is no question"))
		conn.Close()
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	who.mu.Lock()
	defer who.mu.Unlock()
	if len(who.asked) != 4 {
		t.Errorf("asked: %q", who.asked)
	}
}

// FuzzAnswer: a name that is not allowed is never looked up and never has an address, for any query.
func FuzzAnswer(f *testing.F) {
	for _, q := range []*dns.Msg{question("allowed.test.", dns.TypeA), question("evil.test.", dns.TypeTXT),
		question(`a\000.allowed.test.`, dns.TypeAAAA)} {
		wire, _ := q.Pack()
		f.Add(wire)
	}
	f.Fuzz(func(t *testing.T, wire []byte) {
		q := new(dns.Msg)
		if q.Unpack(wire) != nil {
			return
		}
		who := &client{wait: make(chan struct{})}
		close(who.wait)
		a := New(who, new(Names)).Answer(context.Background(), q)
		for _, name := range who.resolved {
			if name != "allowed.test" && !strings.HasSuffix(name, ".allowed.test") {
				t.Errorf("%q was looked up", name)
			}
		}
		if len(a.Answer) > 0 && len(who.resolved) != 1 {
			t.Errorf("%s without a look-up", a)
		}
		if _, err := a.Pack(); err != nil {
			t.Errorf("%v: %s", err, a)
		}
	})
}
