package adversary

import (
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress/decision"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/test/adversary/lab"
	"github.com/cove-sandbox/cove/test/adversary/outcome"
)

// Online is what rows about sandboxes with a network need beside an engine: a
// gateway, and an internet that sees whatever leaves the machine.
type Online struct {
	Internet *lab.Internet
	// Open makes the way out of a sandbox, with credentials by name.
	Open func(id cove.SandboxID, policies []*policy.Document, credentials []string) (Route, error)
	// Decisions are all that ways out have recorded.
	Decisions func() []decision.Decision
	// Log is what the gateway has logged, at its most talkative.
	Log func() string
	// Command is one of Cove's on this machine, with its configuration. It
	// knows a credential "lab" for https://key.lab.test, whose value is LAB_KEY.
	Command func(t testing.TB, args ...string) *exec.Cmd
	// Dirs are where Cove keeps anything.
	Dirs []string
	// Brief leaves out the rows that are about the gateway alone, which is the same whatever the engine.
	Brief bool
}

// Route is the egress route of one sandbox, as the gateway makes it.
type Route interface {
	Bind(*engine.Binding, engine.Rootfs) error
	Env() map[string]string
	Serve(sockets []*os.File) error
	Extend(...*policy.Document) (cut int, err error)
	Close()
}

// RunOnline runs the rows about the way out over an engine whose sandboxes can have one.
func RunOnline(t *testing.T, open Open, o Options, online Online) {
	if o.Rootfs.Kind == "" {
		o.Rootfs.Kind = engine.RootfsHost
	}
	s := newSuite(t, open, o)
	s.online = &online
	if !slices.Contains(s.caps.Networks, cove.NetworkLimited) {
		t.Skip("this engine gives sandboxes no network")
	}
	rows := onlineTable()
	if online.Brief {
		rows = slices.DeleteFunc(rows, func(r row) bool { return !r.engine })
	}
	s.runAll(t, rows)
}

// onlineTable is every row about the way out.
func onlineTable() []row {
	return slices.Concat(wayRows(), requestRows(), handshakeRows(), lookupRows(), placeRows(), changeRows(), secretRows())
}

// outward is a sandbox with a way out.
type outward struct {
	*box
	c     *trial
	id    cove.SandboxID
	route Route
}

// outward makes a sandbox with a way out under a policy, and with credentials.
func (c *trial) outward(text string, credentials ...string) *outward {
	c.Helper()
	b, err := c.tryOutward(text, credentials...)
	if err != nil {
		c.Fatal("not tested: ", err)
	}
	return b
}

func (c *trial) tryOutward(text string, credentials ...string) (*outward, error) {
	c.Helper()
	d, err := policy.Parse("row.yaml", []byte(text))
	if err != nil {
		return nil, err
	}
	b := &outward{c: c, id: cove.NewSandboxID()}
	if b.route, err = c.suite.online.Open(b.id, []*policy.Document{d}, credentials); err != nil {
		return nil, err
	}
	c.Cleanup(b.route.Close) // after the sandbox
	b.box = c.fresh(boxOptions{many: true, route: b.route, id: b.id})
	return b, nil
}

// extend adds to the sandbox's policy.
func (b *outward) extend(text string) (cut int) {
	b.c.Helper()
	d, err := policy.Parse("change.yaml", []byte(text))
	if err != nil {
		b.c.Fatal("not tested: ", err)
	}
	cut, err = b.route.Extend(d)
	if err != nil {
		b.c.Fatal("not tested: ", err)
	}
	return cut
}

func (c *trial) internet() *lab.Internet { return c.suite.online.Internet }

// allow is a policy with rules for hosts alone.
func allow(hosts ...string) string {
	var b strings.Builder
	b.WriteString("rules:\n")
	for _, h := range hosts {
		fmt.Fprintf(&b, "  - hosts: %q\n", h)
	}
	return b.String()
}

// answer is what came of a talk.
type answer struct {
	outcome.Result
	text string // the bytes that came back
}

func (a answer) String() string {
	return fmt.Sprintf("%s, status %d, %.300q", say(a.Result), a.Count, a.text)
}

// ok reports an answer of an origin's.
func (a answer) ok() bool { return a.Outcome == outcome.Succeeded && a.Count == 200 }

// talk has a program inside make one conversation.
func (b *outward) talk(t outcome.Talk) answer {
	b.c.Helper()
	if t.Send != "" {
		t.Send = outcome.Quoted(t.Send)
	}
	t.To, t.Name = plainOrQuoted(t.To), plainOrQuoted(t.Name)
	a := answer{Result: b.try(b.c, t.Line())}
	if a.Outcome == outcome.Broken {
		b.c.Errorf("not tested: %s: %s", t.Line(), say(a.Result))
	}
	if len(a.Lines) > 0 {
		a.text, _ = strconv.Unquote(a.Lines[0])
	}
	return a
}

func plainOrQuoted(s string) string {
	if q := outcome.Quoted(s); q != `"`+s+`"` || strings.Contains(s, " ") {
		return q
	}
	return s
}

// entry is one of the ways by which a program can ask for something of a host.
type entry struct {
	name string
	outcome.Talk
	absolute bool // the request's target says the host
}

// Addresses that a sandbox makes up: nothing outside has them.
var (
	madeUp4 = netip.MustParseAddr("203.0.113.5")
	madeUp6 = netip.MustParseAddr("2001:db8:5::5")
)

// entries are all ways to a host, each as a program would take it that wants the host: scheme is http or https.
func entries(scheme, host string, port int) []entry {
	secure := scheme == "https"
	to := host + ":" + strconv.Itoa(port)
	talk := func(by, at string) outcome.Talk {
		t := outcome.Talk{By: by, To: to, At: at, TLS: secure}
		if secure {
			t.Name = host
		}
		return t
	}
	all := []entry{
		{name: "by name", Talk: talk(outcome.Direct, "")},
		{name: "by an IPv4 address of its own", Talk: talk(outcome.Direct,
			netip.AddrPortFrom(madeUp4, uint16(port)).String())},
		{name: "by an IPv6 address of its own", Talk: talk(outcome.Direct,
			netip.AddrPortFrom(madeUp6, uint16(port)).String())},
		{name: "CONNECT", Talk: talk(outcome.Connect, "")},
		{name: "SOCKS5", Talk: talk(outcome.SOCKS, "")},
	}
	if !secure {
		all = append(all, entry{name: "absolute form", Talk: talk(outcome.Proxy, ""), absolute: true})
	}
	return all
}

// everyEntry is entries by both schemes.
func everyEntry(host string) []entry {
	all := entries("http", host, 80)
	for _, e := range entries("https", host, 443) {
		e.name += " over TLS"
		all = append(all, e)
	}
	return all
}

// request is one whose answer ends the connection.
func (e entry) request(method, host, path string, header ...string) string {
	target := path
	if e.absolute {
		target = "http://" + host + path
	}
	return e.keep(method, target, host, append(header, "Connection: close")...)
}

func (e entry) keep(method, target, host string, header ...string) string {
	return method + " " + target + " HTTP/1.1\r\nHost: " + host + "\r\n" +
		strings.Join(append(header, ""), "\r\n") + "\r\n"
}

// say takes the entry and says something.
func (b *outward) say(e entry, send string) answer {
	b.c.Helper()
	e.Talk.Send = send
	return b.talk(e.Talk)
}

// get asks for a path of a host.
func (b *outward) get(e entry, host, path string, header ...string) answer {
	b.c.Helper()
	return b.say(e, e.request("GET", host, path, header...))
}

// arrives is a control: what is allowed gets there, and is seen there.
func (b *outward) arrives(e entry, host string) {
	b.c.Helper()
	path := "/control/" + token()
	a := b.get(e, host, path)
	if !a.ok() || !b.seen(path) {
		b.c.Errorf("not tested: %s, %s does not arrive: %s", e.name, host, a)
	}
}

// seen reports whether an origin was asked for something with a word in it.
func (b *outward) seen(word string) bool {
	return slices.ContainsFunc(b.c.internet().Requests(), func(r lab.Request) bool {
		return strings.Contains(r.Target, word) || strings.Contains(r.Body, word)
	})
}

// stays is an attempt that must not get anywhere: no origin's answer comes back.
func (b *outward) stays(what string, a answer) {
	b.c.Helper()
	if a.Outcome == outcome.Succeeded && (a.Count < 400 && a.Count != 0 || strings.Contains(a.text, " over http")) {
		b.c.Errorf("HOLE: %s: %s", what, a)
	}
}

// quiet is the oracle outside: since Forget no origin has been asked for anything, no resolver for another name than
// those, and no packet has gone anywhere but to the resolver and the places of allowed names.
func (b *outward) quiet(names ...string) {
	b.c.Helper()
	for _, r := range b.c.internet().Requests() {
		b.c.Errorf("HOLE: an origin was asked for %s", r)
	}
	for _, name := range b.c.internet().Asked() {
		if !slices.Contains(names, name) {
			b.c.Errorf("HOLE: the resolver was asked for %s", name)
		}
	}
	b.noPackets()
}

// noPackets: nothing has begun that is not for the resolver or the web's addresses.
func (b *outward) noPackets() {
	b.c.Helper()
	for _, p := range b.c.internet().Packets() {
		if p.To != lab.ResolverAt() && p.To.Addr() != lab.Web4 && p.To.Addr() != lab.Web6 {
			b.c.Errorf("HOLE: a packet of protocol %d was sent to %s %s", p.Protocol, p.To, p.Question)
		}
	}
}

// decisions are those about this sandbox.
func (b *outward) decisions() (mine []decision.Decision) {
	for _, d := range b.c.suite.online.Decisions() {
		if d.Sandbox == string(b.id) {
			mine = append(mine, d)
		}
	}
	return mine
}

// talkOutside makes a conversation on the machine itself, as a control: the lab would have seen it.
func (c *trial) talkOutside(t outcome.Talk) answer {
	c.Helper()
	if t.Send != "" {
		t.Send = outcome.Quoted(t.Send)
	}
	a := answer{Result: c.suite.machine.try(t.Line())}
	if len(a.Lines) > 0 {
		a.text, _ = strconv.Unquote(a.Lines[0])
	}
	return a
}

// eachFile reads every file below a directory.
func eachFile(dir string, look func(path, content string)) {
	filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if data, err := os.ReadFile(path); err == nil {
				look(path, string(data))
			}
		}
		return nil
	})
}

// notServing is a sandbox whose gateway does not serve yet; the row lets it.
func (c *trial) notServing(text string) *outward {
	c.Helper()
	d, err := policy.Parse("row.yaml", []byte(text))
	if err != nil {
		c.Fatal("not tested: ", err)
	}
	b := &outward{c: c, id: cove.NewSandboxID()}
	if b.route, err = c.suite.online.Open(b.id, []*policy.Document{d}, nil); err != nil {
		c.Fatal("not tested: ", err)
	}
	c.Cleanup(b.route.Close)
	b.box = c.fresh(boxOptions{route: later{b.route}, id: b.id})
	return b
}

// later is a way that somebody else opens.
type later struct{ Route }

// Serve leaves the sockets to the sandbox.
func (later) Serve([]*os.File) error { return nil }
