package adversary

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/cove-sandbox/cove/internal/egress/decision"
	"github.com/cove-sandbox/cove/internal/egress/policy/policytest"
	"github.com/cove-sandbox/cove/test/adversary/lab"
	"github.com/cove-sandbox/cove/test/adversary/outcome"
)

// requestRows are attempts to have one request judged and another one made (N3, N5, N6, N10, N17, N18, N21, N24).
func requestRows() []row {
	rows := []row{
		{id: "N3.host", invariant: "E5", what: "name an allowed host to the gateway and another to the origin",
			test: fronting},
		{id: "N3.authority", invariant: "E5", what: "name another host in HTTP/2", test: frontingStreams},
		{id: "N3.keepalive", invariant: "E5", what: "ask for another host on a connection that carried an allowed request",
			test: frontingLater},
		{id: "N3.absolute", invariant: "E5", what: "name another host in absolute form, to the proxy and in a tunnel",
			test: frontingAbsolute},
	}
	for _, name := range []string{"connect_authority", "connect_host", "connect_port", "absolute_host", "absolute_url",
		"socks_host", "host_header",
		"server_name", "question", "path", "path_in_tunnel", "path_of_stream"} {
		rows = append(rows, row{id: "N10." + name, invariant: "E5",
			what: "have a spelling judged as one thing and taken for another (N5, N6, N10): " +
				strings.ReplaceAll(name, "_", " "),
			test: func(c *trial) { corpus(c, name) }})
	}
	return append(rows,
		row{id: "N10.rules", invariant: "E2", what: "load a rule with a wildcard that could mean more than it says",
			test: wildcards},
		row{id: "N17.redirects", invariant: "E5",
			what: "have the gateway follow a redirect, or follow one to where policy does not go", test: redirects},
		row{id: "N18.smuggling", invariant: "E5", what: "have the origin read another request than the gateway has judged",
			test: smuggling},
		row{id: "N18.pipelining", invariant: "E5", what: "have one decision count for several requests", test: pipelining},
		row{id: "N21.heads", invariant: "E6", what: "send heads without end, and have a neighbour wait", test: hugeHeads},
		row{id: "N24.read_only", invariant: "E5", what: "write where a preset allows reading", test: readOnly},
	)
}

// others are hosts that are not allowed: one elsewhere, one at the very address of the allowed one.
var others = []string{"evil.lab", "cdn.lab", "x.allowed.lab"}

func fronting(c *trial) {
	b := c.outward(allow("allowed.lab"))
	c.internet().Forget()
	for _, other := range others {
		for _, e := range everyEntry("allowed.lab") {
			a := b.say(e, e.keep("GET", e.target("allowed.lab", "/fronted"), other, "Connection: close"))
			b.stays(e.name+", Host "+other, a)
			if a.Count != 403 && a.Count != 400 {
				c.Errorf("%s, Host %s: %s, want 403 or 400", e.name, other, a)
			}
		}
		for _, e := range everyEntry(other) { // and the other way about: to the denied, naming the allowed
			if e.By == outcome.Direct && !e.TLS {
				continue // only the request says a host then, and it leads to that one
			}
			b.stays(e.name+" to "+other+", Host allowed.lab",
				b.say(e, e.keep("GET", e.target(other, "/fronted"), "allowed.lab", "Connection: close")))
		}
	}
	b.quiet("allowed.lab")
	c.control(b, "allowed.lab")
}

// target is what a request names.
func (e entry) target(host, path string) string {
	if e.absolute {
		return "http://" + host + path
	}
	return path
}

func frontingStreams(c *trial) {
	b := c.outward(allow("allowed.lab"))
	c.internet().Forget()
	fields := func(authority string, more ...[2]string) [][2]string {
		return append([][2]string{{":method", "GET"}, {":scheme", "https"}, {":path", "/stream"},
			{":authority", authority}}, more...)
	}
	for _, e := range entries("https", "allowed.lab", 443) {
		ask := func(f [][2]string) answer {
			t := e.Talk
			t.Fields = f
			return b.talk(t)
		}
		for _, other := range others {
			b.stays(e.name+", :authority "+other, ask(fields(other)))
			b.stays(e.name+", host "+other+" beside :authority", ask(fields("allowed.lab", [2]string{"host", other})))
			b.stays(e.name+", :authority with another port", ask(fields("allowed.lab:8443")))
			b.stays(e.name+", two :authority", ask(fields("allowed.lab", [2]string{":authority", other})))
			b.stays(e.name+", extended CONNECT", ask([][2]string{{":method", "CONNECT"}, {":protocol", "websocket"},
				{":scheme", "https"}, {":path", "/"}, {":authority", other}}))
			b.stays(e.name+", CONNECT", ask([][2]string{{":method", "CONNECT"}, {":authority", other + ":443"}}))
		}
		b.quiet("allowed.lab")
		if a := ask(fields("allowed.lab")); !a.ok() || !strings.Contains(a.text, "over https") {
			c.Errorf("not tested: %s, the host itself: %s", e.name, a)
		}
		c.internet().Forget()
	}
}

func frontingLater(c *trial) {
	b := c.outward(allow("allowed.lab"))
	for _, e := range everyEntry("allowed.lab") {
		c.internet().Forget()
		a := b.say(e, e.keep("GET", e.target("allowed.lab", "/first"), "allowed.lab")+
			e.keep("GET", e.target("evil.lab", "/second"), "evil.lab")+
			e.keep("GET", e.target("cdn.lab", "/third"), "cdn.lab")+
			e.keep("GET", e.target("allowed.lab", "/last"), "allowed.lab", "Connection: close"))
		if got := statuses(a.text); got != "200 403 403 200" {
			c.Errorf("%s: the answers are %s: %s", e.name, got, a)
		}
		if got := fmt.Sprint(c.internet().Requests()); got != "[GET allowed.lab/first GET allowed.lab/last]" {
			c.Errorf("HOLE: %s: origins were asked for %s", e.name, got)
		}
		if e.By == outcome.Connect && !e.TLS {
			continue
		}
		for _, p := range c.internet().Packets() {
			if p.To.Addr() != lab.Resolver && p.To.Addr() != lab.Web4 && p.To.Addr() != lab.Web6 {
				c.Errorf("HOLE: %s: a packet to %s", e.name, p.To)
			}
		}
	}
}

// statuses are those of all answers in a text.
func statuses(text string) string {
	var all []string
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, "HTTP/1.1 "); ok && len(rest) > 3 {
			all = append(all, rest[:3])
		}
	}
	return strings.Join(all, " ")
}

func frontingAbsolute(c *trial) {
	b := c.outward(allow("allowed.lab"))
	c.internet().Forget()
	for _, e := range everyEntry("allowed.lab") {
		for _, one := range [][2]string{{"http://evil.lab/x", "allowed.lab"}, {"http://allowed.lab/x", "evil.lab"},
			{"https://evil.lab/x", "evil.lab"}, {"https://evil.lab/x", "allowed.lab"},
			{"http://allowed.lab@evil.lab/x", "allowed.lab"}, {"http://evil.lab@allowed.lab/x", "allowed.lab"},
			{"//evil.lab/x", "allowed.lab"}, {"evil.lab:443", "allowed.lab"}, {"*", "evil.lab"}} {
			b.stays(e.name+", "+one[0]+" with Host "+one[1], b.say(e, e.keep("GET", one[0], one[1], "Connection: close")))
		}
	}
	b.quiet("allowed.lab")
	c.control(b, "allowed.lab")
}

func wildcards(c *trial) {
	for _, host := range []string{"*", "*.", "a.*.b", "ex*mple.lab", "*lab", "**.lab", ".lab", "*.*.lab", "lab*",
		"*.1.2.3.4", "[::1]", "1.2.3.4", "a..lab", "a b.lab", "a.lab:443", "a.lab/x", "http://a.lab"} {
		if b, err := c.tryOutward(allow(host)); err == nil {
			c.Errorf("HOLE: the rule %q is accepted", host)
			b.route.Close()
		}
	}
	for _, text := range []string{"rules:\n  - hosts: []\n", "rules:\n  - {}\n",
		"rules:\n  - hosts: a.lab\n    methods: []\n", "rules:\n  - hosts: a.lab\n    path: /x\n", "mode: all\n"} {
		if b, err := c.tryOutward(text); err == nil {
			c.Errorf("HOLE: the policy %q is accepted", text)
			b.route.Close()
		}
	}
	b := c.outward("rules:\n  - hosts: \"*.wild.lab\"\n")
	c.internet().Forget()
	for _, host := range []string{"wild.lab", "a.b.wild.lab", "evilwild.lab", "wild.lab.evil.lab", "a.wild.lab.evil.lab"} {
		for _, e := range everyEntry(host) {
			b.stays(e.name+", "+host, b.get(e, host, "/"))
		}
	}
	b.quiet()
	c.control(b, "a.wild.lab")
}

func redirects(c *trial) {
	b := c.outward(allow("allowed.lab"))
	goals := []string{"http://evil.lab/", "https://evil.lab/", "//evil.lab/", "http://169.254.169.254/latest/",
		"http://127.0.0.1/", "http://localhost/", "https://allowed.lab:8443/", "http://allowed.lab:8080/",
		"file:///etc/passwd", "gopher://evil.lab/_x", "ftp://evil.lab/", "data:text/plain,x"}
	codes := []int{301, 302, 303, 307, 308}
	c.internet().Page("/redirect", func(w http.ResponseWriter, r *http.Request) {
		var code, goal int
		fmt.Sscanf(r.URL.RawQuery, "%d-%d", &code, &goal)
		w.Header().Set("Location", goals[goal])
		w.WriteHeader(code)
		fmt.Fprintf(w, `<meta http-equiv="refresh" content="0; url=%s">`, goals[goal])
	})
	for i, e := range everyEntry("allowed.lab") {
		c.internet().Forget()
		for goal := range goals {
			code := codes[(goal+i)%len(codes)]
			a := b.say(e, e.request("POST", "allowed.lab", fmt.Sprintf("/redirect?%d-%d", code, goal),
				"Content-Length: 4")+"body")
			if a.Count != int64(code) || !strings.Contains(a.text, goals[goal]) {
				c.Errorf("not tested: %s, a redirect to %s: %s", e.name, goals[goal], a)
			}
		}
		if n := len(c.internet().Requests()); n != len(goals) {
			c.Errorf("HOLE: %s: %d requests for %d", e.name, n, len(goals))
		}
		for _, p := range c.internet().Packets() {
			if to := p.To.Addr(); to != lab.Resolver && to != lab.Web4 && to != lab.Web6 {
				c.Errorf("HOLE: %s: the gateway followed to %s", e.name, p.To)
			}
		}
	}
	c.internet().Forget()
	for _, next := range []struct {
		host string
		port int
	}{{"evil.lab", 80}, {"evil.lab", 443}, {"169.254.169.254", 80}, {"allowed.lab", 8443}, {"allowed.lab", 8080}} { // the next hop is a request as any other
		scheme := map[bool]string{true: "http", false: "https"}[next.port%100 == 80]
		for _, e := range entries(scheme, next.host, next.port) {
			host := fmt.Sprintf("%s:%d", next.host, next.port)
			b.stays(e.name+", "+host, b.get(e, host, "/"))
		}
	}
	b.quiet("allowed.lab") // whose name may be looked up
}

// smuggled stands behind what is refused, and must never be seen.
const smuggled = "GET /smuggled HTTP/1.1\r\nHost: allowed.lab\r\n\r\n"

func smuggling(c *trial) {
	b := c.outward(allow("allowed.lab"))
	for _, e := range everyEntry("allowed.lab") {
		if e.At != "" {
			continue // as by name
		}
		c.internet().Forget()
		before := len(b.decisions())
		for name, bytes := range policytest.Unclear {
			t := e.Talk
			t.Send, t.Ended = bytes+smuggled, true
			a := b.talk(t)
			if strings.Contains(a.text, "HTTP/1.1 200") {
				c.Errorf("HOLE: %s, %s: %s", e.name, name, a)
			}
		}
		for _, r := range c.internet().Requests() {
			if r.Method != "POST" || r.Target != "/" { // a body that broke off later may have begun
				c.Errorf("HOLE: %s: an origin read %s", e.name, r)
			}
		}
		if got, judged := len(c.internet().Requests()), b.allowedRequests(before); got > judged {
			c.Errorf("HOLE: %s: %d requests at the origin for %d decisions", e.name, got, judged)
		}
	}
	c.control(b, "allowed.lab")
}

// allowedRequests counts decisions that let a request go out.
func (b *outward) allowedRequests(from int) (n int) {
	for _, d := range b.decisions()[from:] {
		if d.Verdict == decision.Allow && d.Method != "" && d.Entry != decision.EntryDNS {
			n++
		}
	}
	return n
}

func pipelining(c *trial) {
	b := c.outward(allow("allowed.lab"))
	for _, e := range everyEntry("allowed.lab") {
		c.internet().Forget()
		before := len(b.decisions())
		to := func(path string) string { return e.target("allowed.lab", path) }
		a := b.say(e, e.keep("GET", to("/1"), "allowed.lab")+
			e.keep("POST", to("/2"), "allowed.lab", "Transfer-Encoding: chunked",
				"Trailer: X")+"5\r\nGET /\r\n0\r\nHost: evil.lab\r\nAuthorization: x\r\nX: y\r\n\r\n"+
			e.keep("POST", to("/3"), "allowed.lab", fmt.Sprintf("Content-Length: %d", len(smuggled)))+smuggled+
			e.keep("GET", to("/4"), "allowed.lab", "Connection: close")+smuggled)
		if got := statuses(a.text); got != "200 200 200 200" {
			c.Errorf("%s: the answers are %s: %s", e.name, got, a)
		}
		seen := c.internet().Requests()
		if judged := b.allowedRequests(before); len(seen) != 4 || judged != 4 {
			c.Errorf("HOLE: %s: %d decisions, %d requests: %v", e.name, judged, len(seen), seen)
			continue
		}
		if seen[2].Body != smuggled || seen[1].Body != "GET /" || seen[1].Trailer.Get("Host") != "" ||
			seen[1].Trailer.Get("Authorization") != "" {
			c.Errorf("HOLE: %s: bodies and trailers are %q, %v", e.name, seen[2].Body, seen[1].Trailer)
		}
	}
}

func hugeHeads(c *trial) {
	b, neighbour := c.outward(allow("allowed.lab")), c.outward(allow("allowed.lab"))
	c.internet().Forget()
	for _, e := range everyEntry("allowed.lab") {
		for what, header := range map[string]string{
			"a long field":  "X: " + strings.Repeat("a", 1<<20),
			"many fields":   strings.TrimSuffix(strings.Repeat("A: b\r\n", 20000), "\r\n"),
			"a long cookie": "Cookie: " + strings.Repeat("a=b; ", 30000)} {
			b.stays(e.name+", "+what, b.get(e, "allowed.lab", "/huge", header))
		}
		b.stays(e.name+", a long target", b.get(e, "allowed.lab", "/"+strings.Repeat("a", 200<<10)))
	}
	for _, r := range c.internet().Requests() {
		c.Errorf("an origin was asked for %.100s", r)
	}
	// And many connections that never say anything whole.
	p := b.start(c, spec("crowd 127.0.0.1:3128 150"))
	if p == nil || !p.said("holding") {
		c.Fatal("not tested: no crowd")
	}
	c.control(neighbour, "allowed.lab")
	p.Signal(c.Context(), 9)
	c.control(b, "allowed.lab")
}

func readOnly(c *trial) {
	c.internet().Lead("github.com")
	c.internet().Lead("api.github.com")
	b := c.outward("presets: [github-read]\n")
	c.internet().Forget()
	for _, method := range []string{"POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND", "GETX"} {
		for _, one := range [][2]string{{"api.github.com", "/gists"}, {"api.github.com", "/repos/a/b/issues/1/comments"},
			{"github.com", "/a/b/git-receive-pack"}, {"api.github.com", "/graphql"}} {
			for _, e := range entries("https", one[0], 443) {
				b.stays(method+" "+one[0]+one[1]+" by "+e.name,
					b.say(e, e.request(method, one[0], one[1], "X-HTTP-Method-Override: GET", "Content-Length: 5")+"stolen"[:5]))
			}
		}
	}
	b.quiet("api.github.com", "github.com")
	for _, e := range entries("https", "github.com", 443) {
		b.arrives(e, "github.com")
		if a := b.say(e, e.request("POST", "github.com", "/a/b/git-upload-pack", "Content-Length: 4")+"0000"); !a.ok() {
			c.Errorf("not tested: a fetch by %s: %s", e.name, a)
		}
	}
	b.stays("plain HTTP", b.get(entries("http", "github.com", 80)[5], "github.com", "/"))
	c.remark("what a GET carries out in its path, query and headers to an allowed host is not judged")
}
