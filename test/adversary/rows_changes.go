package adversary

import (
	"bytes"
	"fmt"
	"net/http"
	"net/netip"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/cove-sandbox/cove/test/adversary/lab"
	"github.com/cove-sandbox/cove/test/adversary/outcome"
)

// changeRows are attempts to use the moment in which something begins, changes or ends (N20, N26, N27).
func changeRows() []row {
	return []row{
		{id: "N20.revoked", invariant: "E6",
			what: "go on with a stream, a WebSocket or a tunnel that policy no longer allows", test: revoked},
		{id: "N20.upgrade", invariant: "E5", what: "switch an allowed connection to another protocol", test: upgrades},
		{id: "N26.closed", engine: true, invariant: "E1", what: "get out when the gateway has gone", test: gatewayGone},
		{id: "N26.killed", invariant: "E1", what: "get out when Cove has been killed", test: coveKilled},
		{id: "N27.start", engine: true, invariant: "E1", what: "get out before the gateway serves", test: startRace},
		{id: "N27.change", invariant: "E5", what: "get out while the policy is being changed", test: changeRace},
	}
}

// streaming is a conversation that goes on: what it hears it has heard until it is cut.
func (c *trial) streaming(b *outward, t outcome.Talk, seen func() bool) *process {
	c.Helper()
	t.Send = outcome.Quoted(t.Send)
	p := b.start(c, spec(t.Line()))
	if p == nil || !eventually(patience, seen) {
		c.Fatalf("not tested: it does not begin: %+v", t)
	}
	return p
}

func revoked(c *trial) {
	c.internet().Page("/stream", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "the first part\n")
		http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	c.internet().Page("/socket", func(w http.ResponseWriter, r *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		fmt.Fprintf(conn,
			"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: "+
				"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\nthe first part\n")
		conn.Read(make([]byte, 1)) // until the other side has gone
	})
	banner := netip.AddrPortFrom(lab.Web4, 7000)
	l, err := lab.Listen(banner)
	if err != nil {
		c.Fatal("not tested: ", err)
	}
	defer l.Close()
	held := make(chan struct{}, 16)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				fmt.Fprint(conn, "the first part\n")
				held <- struct{}{}
				conn.Read(make([]byte, 1))
			}()
		}
	}()
	text := allow("allowed.lab") + "  - {hosts: raw.lab, ports: 7000, pass_through: true}\n"
	socket := []string{"Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13",
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="}
	for _, e := range append(everyEntry("allowed.lab"), entries("http", "raw.lab", 7000)[:5]...) {
		raw := strings.HasPrefix(e.To, "raw.lab")
		if raw && e.At != "" {
			continue // an address says no name, and nor does what is spoken
		}
		for _, kind := range []string{"stream", "socket"} {
			b := c.outward(text)
			c.internet().Forget()
			t, seen := e.Talk, func() bool { return b.seen("/" + kind) }
			switch {
			case raw:
				seen = func() bool { return len(held) > 0 }
			case kind == "stream":
				t.Send = e.keep("GET", e.target("allowed.lab", "/stream"), "allowed.lab")
			default:
				t.Send = e.keep("GET", e.target("allowed.lab", "/socket"), "allowed.lab", socket...)
			}
			p := c.streaming(b, t, seen)
			for raw && len(held) > 0 {
				<-held
			}
			select {
			case <-p.Exited():
				c.Errorf("not tested: %s, %s has ended by itself: %+v", e.name, kind, p.wait(patience).result)
			case <-time.After(100 * time.Millisecond):
			}
			b.extend("rules:\n  - {hosts: [allowed.lab, raw.lab], action: deny}\n")
			r := p.wait(30 * time.Second).result // of a minute that it would listen
			if r.Outcome != outcome.Succeeded || !strings.Contains(strings.Join(r.Lines, ""), "the first part") {
				c.Errorf("HOLE or not tested: %s, %s: %s %v", e.name, kind, say(r), r.Lines)
			}
			c.internet().Forget()
			if !raw {
				b.stays(e.name+" again", b.get(e, "allowed.lab", "/again"))
				b.quiet()
			}
			if raw {
				break
			}
		}
	}
}

func upgrades(c *trial) {
	b := c.outward(allow("*.wild.lab"))
	c.internet().Page("/switch", func(w http.ResponseWriter, r *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\nbeyond\n",
			r.URL.RawQuery)
	})
	for _, protocol := range []string{"h2c", "TLS/1.0", "ssh", "websocket", "IRC/6.9", "connect-udp"} {
		for i := range everyEntry("") { // a host each: one that answers badly is not asked for long
			host := fmt.Sprintf("%s%d.wild.lab", strings.ToLower(strings.NewReplacer("/", "", ".", "").Replace(protocol)), i)
			e := everyEntry(host)[i]
			c.internet().Forget()
			a := b.say(e, e.request("GET", host, "/switch?"+protocol, "Upgrade: "+protocol,
				"HTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA"))
			if a.Count == 101 || a.Count == 0 || strings.Contains(a.text, "beyond") { // over HTTP/2 there is nothing to switch
				c.Errorf("HOLE: %s: a switch to %s: %s", e.name, protocol, a)
			}
			seen := c.internet().Requests()
			if len(seen) != 1 || seen[0].Header.Get("Upgrade") != "" || seen[0].Header.Get("Http2-Settings") != "" {
				c.Errorf("HOLE or not tested: %s: the origin was asked %v", e.name, seen)
			}
		}
	}
	c.control(b, "allowed.wild.lab")
}

// hammered are what a sandbox tries to get to again and again.
func hammered() string {
	var all []string
	for _, a := range []netip.Addr{lab.Evil4, lab.Evil6, lab.Web4} {
		all = append(all, netip.AddrPortFrom(a, 80).String())
	}
	return strings.Join(all, " ")
}

// noHammering: not one of a hammer's packets has left.
func (b *outward) noHammering() {
	b.c.Helper()
	b.noPackets()
	if b.seen("/hammer") {
		b.c.Error("HOLE: an origin was reached")
	}
}

// wouldHammer is the control of all that hammer: the machine itself gets there.
func (c *trial) wouldHammer() {
	c.Helper()
	c.internet().Forget()
	cmd := exec.Command(c.suite.path, append([]string{"hammer", "300"}, strings.Fields(hammered())...)...)
	if out, err := cmd.Output(); err != nil || interpret("hammer", string(out), "", 0, 0).Count == 0 {
		c.Errorf("not tested: the machine itself gets nowhere: %v %s", err, out)
	}
	c.wouldBeSeen(6, netip.AddrPortFrom(lab.Evil4, 80))
	c.wouldBeSeen(17, netip.AddrPortFrom(lab.Evil6, 80))
}

func gatewayGone(c *trial) {
	b := c.outward(allow("allowed.lab"))
	c.control(b, "allowed.lab")
	c.internet().Forget()
	p := b.start(c, spec("hammer 1500 "+hammered()))
	if p == nil || !p.said("hammering") {
		c.Fatal("not tested: nothing hammers")
	}
	b.route.Close()
	for _, e := range everyEntry("allowed.lab") {
		if a := b.get(e, "allowed.lab", "/"); a.Outcome == outcome.Succeeded && a.Count == 200 {
			c.Errorf("HOLE: %s: %s", e.name, a)
		}
	}
	for _, e := range everyEntry("evil.lab") {
		b.stays(e.name, b.get(e, "evil.lab", "/"))
	}
	b.refusedDatagram("8.8.8.8:53")
	if r := p.wait(patience).result; r.Errno != "NOTHING" {
		c.Errorf("HOLE: %s", say(r))
	}
	b.noHammering()
	c.wouldHammer()
}

// coveKilled kills a whole Cove while a sandbox of its own hammers.
func coveKilled(c *trial) {
	c.internet().Forget()
	var output bytes.Buffer
	word := token()
	cmd := c.suite.online.Command(c, "run", "bash", "--allow", "allowed.lab", "--timeout", "60s", "-c",
		"curl -s --max-time 20 http://allowed.lab/"+word+"; while :; do for a in "+lab.Evil4.String()+" "+
			lab.Evil6.String()+" "+lab.Web4.String()+
			"; do (echo GET / > /dev/tcp/$a/80; echo x > /dev/udp/$a/443) 2> /dev/null; done; done")
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Start(); err != nil {
		c.Fatal("not tested: ", err)
	}
	began := eventually(patience, func() bool { return (&outward{c: c}).seen(word) })
	if !began {
		cmd.Process.Kill()
		cmd.Wait()
		c.Fatalf("not tested: it has not begun: %s", output.String())
	}
	// What its gateway dials for it is over; whatever comes now is not.
	c.internet().Forget()
	cmd.Process.Signal(syscall.SIGKILL)
	cmd.Wait()
	time.Sleep(500 * time.Millisecond) // for a sandbox that would go on
	(&outward{box: nil, c: c}).noHammering()
	if left := marked(word); len(left) > 0 && !eventually(patience, func() bool { return len(marked(word)) == 0 }) {
		c.Errorf("processes of the sandbox live on: %v", marked(word))
	}
	c.wouldHammer()
}

func startRace(c *trial) {
	c.internet().Forget()
	for range 5 {
		b := c.notServing(allow("allowed.lab"))
		p := b.start(c, spec("hammer 500 "+hammered()))
		if p == nil || !p.said("hammering") {
			c.Fatal("not tested: nothing hammers")
		}
		if err := b.route.Serve(b.sandbox.Listeners()); err != nil {
			c.Fatal("not tested: ", err)
		}
		if r := p.wait(patience).result; r.Errno != "NOTHING" {
			c.Errorf("HOLE: %s", say(r))
		}
		b.noHammering()
		b.box.prober = &prober{start: b.serveInside}
		c.control(b, "allowed.lab")
		c.internet().Forget()
	}
	c.wouldHammer()
}

func changeRace(c *trial) {
	b := c.outward(allow("allowed.lab"))
	c.internet().Forget()
	p := b.start(c, spec("hammer 1500 "+strings.ReplaceAll(hammered(), lab.Web4.String(), "203.0.113.5")))
	if p == nil || !p.said("hammering") {
		c.Fatal("not tested: nothing hammers")
	}
	for i := range 40 {
		b.extend(fmt.Sprintf("rules:\n  - hosts: n%d.lab\n", i))
		b.extend(fmt.Sprintf("merge: replace\nmode: limited\nrules:\n  - hosts: [allowed.lab, n%d.lab]\n", i))
	}
	if r := p.wait(patience).result; r.Errno != "NOTHING" {
		c.Errorf("HOLE: %s", say(r))
	}
	b.noHammering()
	c.control(b, "allowed.lab")
	c.wouldHammer()
}
