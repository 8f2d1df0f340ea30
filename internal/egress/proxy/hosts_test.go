package proxy

import (
	"bufio"
	"cmp"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/cove-sandbox/cove/internal/egress/decision"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/egress/policy/policytest"
)

// TestHostileCorpus runs the corpus of hosts, ports, authorities, paths and URLs through every place where a client can
// write one. A refused form is not dialled; an allowed one is dialled as judged, and the origin reads the judged form.
func TestHostileCorpus(t *testing.T) {
	l := newLab(t)
	p := policytest.Policy(t)
	l.decide = p.Decide
	o := l.everywhere()
	at80, at443 := l.transparent("203.0.113.1:80"), l.transparent("203.0.113.1:443")
	const end = "\r\nConnection: close\r\n\r\n"
	insideTLS := func(w *wire) *wire { return mustSecure(t, w, l.trust("allowed.lab")) }
	get := func(target, host string) string { return "GET " + target + " HTTP/1.1\r\nHost: " + host + end }

	places := []struct {
		name string
		kind policytest.Kind
		try  func(input string) string
		// differs returns a different outcome for a case in this place.
		differs func(c policytest.Case) policytest.Outcome
	}{
		{"CONNECT", policytest.Authority, func(in string) string {
			return l.tunnelled(dialWire(t, l.explicit).send("CONNECT " + in + " HTTP/1.1\r\nHost: " + in + "\r\n\r\n"))
		}, nil},
		{"CONNECT in HTTP/1.0", policytest.Authority, func(in string) string {
			return l.tunnelled(dialWire(t, l.explicit).send("CONNECT " + in + " HTTP/1.0\r\n\r\n"))
		}, nil},
		{"host of CONNECT", policytest.Host, func(in string) string {
			return l.tunnelled(dialWire(t, l.explicit).send("CONNECT " + in + ":443 HTTP/1.1\r\nHost: " + in + ":443\r\n\r\n"))
		}, bracketed},
		{"port of CONNECT", policytest.Port, func(in string) string {
			return l.tunnelled(dialWire(t, l.explicit).send("CONNECT allowed.lab:" + in + " HTTP/1.1\r\nHost: allowed.lab:" +
				in + "\r\n\r\n"))
		}, nil},
		{"host of absolute form", policytest.Host, func(in string) string {
			return dialWire(t, l.explicit).send(get("http://"+in+":443/", in+":443")).firstLine()
		}, bracketed},
		{"absolute form", policytest.URL, func(in string) string {
			return dialWire(t, l.explicit).send(get(in, head{target: in + " "}.authority())).firstLine()
		}, func(c policytest.Case) policytest.Outcome {
			if !strings.HasPrefix(strings.ToLower(c.Input), "http://") {
				return policytest.Malformed // https goes by CONNECT
			}
			return c.Outcome
		}},
		{"SOCKS5", policytest.Host, func(in string) string {
			return l.socksTo(t, in, 443)
		}, func(c policytest.Case) policytest.Outcome {
			if len(c.Input) > 255 {
				return policytest.Denied // a different name, which is refused
			}
			return c.Outcome
		}},
		{"Host", policytest.Host, func(in string) string {
			return dialWire(t, at80).send(get("/", in)).firstLine()
		}, l.hostHeader(80, p)},
		{"Host inside TLS", policytest.Host, func(in string) string {
			return insideTLS(dialWire(t, at443)).send(get("/", in)).firstLine()
		}, l.onlyAllowedLab},
		{":authority", policytest.Host, func(in string) string {
			return http2Status(t, mustSecure(t, dialWire(t, at443), l.trust("allowed.lab", "h2")), in, "", "/")
		}, func(c policytest.Case) policytest.Outcome {
			if strings.ContainsAny(c.Input, " \t") {
				return policytest.Malformed
			}
			return l.onlyAllowedLab(c)
		}},
		{"SNI", policytest.Host, func(in string) string { return rawSNI(dialWire(t, at443), in) }, sni},
		{"SNI in CONNECT", policytest.Host, func(in string) string {
			return rawSNI(l.connect(t, "allowed.lab:443"), in)
		}, func(c policytest.Case) policytest.Outcome {
			if sni(c) == policytest.Allowed && c.Canonical != "allowed.lab" {
				return policytest.Malformed
			}
			return sni(c)
		}},
		{"path", policytest.Path, func(in string) string {
			return mustSecure(t, dialWire(t, at443), l.trust("paths.lab")).send(get(in, "paths.lab")).firstLine()
		}, emptyPath},
		{":path", policytest.Path, func(in string) string {
			return http2Status(t, mustSecure(t, dialWire(t, at443), l.trust("paths.lab", "h2")), "paths.lab", "", in)
		}, emptyPath},
	}
	for _, place := range places {
		t.Run(place.name, func(t *testing.T) {
			for _, c := range policytest.Cases(t, place.kind) {
				want := c.Outcome
				if place.differs != nil {
					want = place.differs(c)
				}
				if !isASCII([]byte(c.Input)) {
					want = policytest.Malformed // on the wire it is ASCII
				}
				if place.kind == policytest.Path && strings.Contains(c.Input, "?") ||
					strings.HasPrefix(place.name, "Host") && strings.Contains(c.Input, "\r\n") {
					continue // it begins another part there: a query, another header
				}
				dials, seen := len(l.dials()), len(o.seen())
				got := place.try(c.Input)
				if accepted(got) != (want == policytest.Allowed) && !strings.HasPrefix(place.name, "SNI") {
					t.Errorf("%s: got %q, want %s", c.Name(), got, want)
				}
				if strings.HasPrefix(place.name, "SNI") && want == policytest.Malformed && got == "hello" {
					t.Errorf("%s: the handshake went on", c.Name())
				}
				newDials, newSeen := l.hosts()[dials:], o.seen()[seen:]
				if want != policytest.Allowed && len(newDials)+len(newSeen) > 0 {
					t.Errorf("%s: dialled %v, seen %d", c.Name(), newDials, len(newSeen))
				}
				if want == policytest.Allowed {
					judgedIsDialled(t, c, place.kind, newDials, newSeen)
				}
			}
		})
	}
}

// judgedIsDialled checks that the outgoing form is the canonical one.
func judgedIsDialled(t *testing.T, c policytest.Case, kind policytest.Kind, dials []string, seen []*http.Request) {
	t.Helper()
	for _, r := range seen {
		asked := "http://" + r.Host + r.RequestURI
		ok := map[policytest.Kind]bool{
			policytest.Host: r.URL.Path == "/" && (c.Outcome == policytest.Malformed && r.Host == strings.Trim(c.Input, " \t") ||
				r.Host == c.Canonical || r.Host == c.Canonical+":443" || r.Host == "["+c.Canonical+"]" ||
				r.Host == "["+c.Canonical+"]:443"),
			policytest.Path: r.RequestURI == c.Canonical,
			policytest.URL:  asked == c.Canonical,
		}[kind]
		if !ok {
			t.Errorf("%s: the origin was asked for %s", c.Name(), asked)
		}
	}
	for _, d := range dials {
		if kind == policytest.Host && d != c.Canonical {
			t.Errorf("%s: %s was dialled", c.Name(), d)
		}
	}
}

// accepted reports whether the gateway accepted the request.
func accepted(got string) bool {
	return strings.HasPrefix(got, "HTTP/1.1 200 ") || got == "200" || got == "granted" || got == "hello"
}

// hostHeader returns the outcomes for a header: surrounding spaces are not part of a value, a port may follow, IPv6
// addresses have brackets, and addresses must be the connection's own.
func (l *lab) hostHeader(port uint16, p *policy.Policy) func(policytest.Case) policytest.Outcome {
	return func(c policytest.Case) policytest.Outcome {
		h, at, err := policy.ParseAuthority(strings.Trim(c.Input, " \t"), port)
		if _, isAddr := h.Addr(); err != nil || isAddr || at != port {
			return policytest.Malformed
		}
		if p.Decide(policy.Request{Layer: policy.LayerConnect, Host: h, Port: port}).Action != policy.Allow {
			return policytest.Denied
		}
		return policytest.Allowed
	}
}

// onlyAllowedLab returns the outcomes where the connection is already for one host.
func (l *lab) onlyAllowedLab(c policytest.Case) policytest.Outcome {
	if h, port, err := policy.ParseAuthority(strings.Trim(c.Input, " \t"), 443); err == nil &&
		h.Name() == "allowed.lab" && port == 443 {
		return policytest.Allowed
	}
	return policytest.Malformed
}

// sni returns the outcomes for an SNI: RFC 6066 permits names only, without a trailing dot.
func sni(c policytest.Case) policytest.Outcome {
	if c.Outcome != policytest.Malformed && !strings.EqualFold(c.Input, c.Canonical) ||
		strings.ContainsAny(c.Canonical, ":") || c.Input == "" {
		return policytest.Malformed
	}
	if h, err := policy.ParseHost(c.Input); err == nil && h.Name() == "" {
		return policytest.Malformed
	}
	return c.Outcome
}

// bracketed returns the outcomes where a port follows, so IPv6 addresses need brackets.
func bracketed(c policytest.Case) policytest.Outcome {
	if strings.Contains(c.Input, ":") && !strings.HasPrefix(c.Input, "[") {
		return policytest.Malformed
	}
	return c.Outcome
}

// emptyPath returns the outcomes for a request target, which cannot be empty.
func emptyPath(c policytest.Case) policytest.Outcome {
	if c.Input == "" {
		return policytest.Malformed
	}
	return c.Outcome
}

// firstLine returns the first line of the answer.
func (w *wire) firstLine() string {
	defer w.Close()
	line, _ := w.r.ReadString('\n')
	return line
}

// tunnelled returns the answer to a CONNECT.
func (l *lab) tunnelled(w *wire) string {
	defer w.Close()
	line, _ := w.r.ReadString('\n')
	if !accepted(line) {
		return line
	}
	w.r.ReadString('\n')
	return cmp.Or(l.onlyExplains(w), line)
}

// onlyExplains returns the refusal of a tunnel that was opened to explain it, or "". Another protocol than TLS or HTTP
// is refused by policy there, and for its protocol where the host is allowed.
func (l *lab) onlyExplains(w *wire) string {
	w.send("\x00\x01")
	w.rest()
	l.mu.Lock()
	defer l.mu.Unlock()
	if last := l.events[len(l.events)-1]; last.Stage != decision.StageProtocol {
		return "opened, to refuse at the stage " + string(last.Stage)
	}
	return ""
}

// socksTo requests a host by name and returns the outcome.
func (l *lab) socksTo(t *testing.T, host string, port uint16) string {
	w := dialWire(t, l.explicit)
	defer w.Close()
	if len(host) > 255 {
		host = host[:255]
	}
	request := append([]byte{5, 1, 0, 3, byte(len(host))}, host...)
	w.send("\x05\x01\x00" + string(binary.BigEndian.AppendUint16(request, port)))
	answer := make([]byte, 12)
	n, _ := io.ReadFull(w.r, answer)
	if n == 12 && answer[3] == 0 {
		return cmp.Or(l.onlyExplains(w), "granted")
	}
	return fmt.Sprintf("%x", answer[:n])
}

// http2Status sends one hand-made request, and returns its status or its end.
func http2Status(t *testing.T, w *wire, authority, host, path string) string {
	t.Helper()
	defer w.Close()
	io.WriteString(w.Conn, http2.ClientPreface)
	f := http2.NewFramer(w.Conn, w.r)
	f.WriteSettings()
	var block strings.Builder
	e := hpack.NewEncoder(&block)
	for _, field := range [][2]string{{":method", "GET"}, {":scheme", "https"}, {":path", path}, {":authority", authority},
		{"host", host}} {
		if field[0] != "host" || host != "" {
			e.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]})
		}
	}
	f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte(block.String()), EndHeaders: true,
		EndStream: true})
	d := hpack.NewDecoder(4096, nil)
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return err.Error()
		}
		switch frame := frame.(type) {
		case *http2.HeadersFrame:
			fields, _ := d.DecodeFull(frame.HeaderBlockFragment())
			return fields[0].Value
		case *http2.RSTStreamFrame:
			return frame.ErrCode.String()
		case *http2.GoAwayFrame:
			return frame.ErrCode.String()
		}
	}
}

// rawSNI sends a ClientHello with arbitrary bytes as the name.
func rawSNI(w *wire, name string) string {
	defer w.Close()
	w.Conn.Write(clientHello(name))
	b := make([]byte, 3)
	if n, _ := io.ReadFull(w.r, b); n < 3 {
		return "closed"
	}
	if b[0] == 22 {
		return "hello"
	}
	return "alert"
}

// clientHello returns Go's own ClientHello with another name of any length.
func clientHello(name string) []byte {
	record := realHello("placeholder.lab")
	body := record[5:]
	at := strings.Index(string(body), "placeholder.lab")
	old := len("placeholder.lab")
	var out []byte
	out = append(out, body[:at]...)
	out = append(out, name...)
	out = append(out, body[at+old:]...)
	grow := len(name) - old
	for _, field := range []int{at - 2, at - 5, at - 7} { // name, list, extension
		binary.BigEndian.PutUint16(out[field:], uint16(int(binary.BigEndian.Uint16(out[field:]))+grow))
	}
	// The length of all extensions stands after the compression methods.
	p := 4 + 2 + 32
	p += 1 + int(out[p])
	p += 2 + int(binary.BigEndian.Uint16(out[p:]))
	p += 1 + int(out[p])
	binary.BigEndian.PutUint16(out[p:], uint16(int(binary.BigEndian.Uint16(out[p:]))+grow))
	binary.BigEndian.PutUint16(out[2:], uint16(int(binary.BigEndian.Uint16(out[2:]))+grow))
	head := []byte{22, 3, 1, 0, 0}
	binary.BigEndian.PutUint16(head[3:], uint16(len(out)))
	return append(head, out...)
}

// realHello returns the first record of Go's client.
func realHello(name string) []byte {
	client, server := net.Pipe()
	defer client.Close()
	defer server.Close()
	go tls.Client(client, &tls.Config{ServerName: name, InsecureSkipVerify: true}).Handshake()
	r := bufio.NewReaderSize(server, 1<<16)
	head, err := r.Peek(5)
	if err != nil {
		return nil
	}
	record := make([]byte, 5+int(binary.BigEndian.Uint16(head[3:])))
	io.ReadFull(r, record)
	return record
}

// TestFronting sends one host in TLS and another in the request.
func TestFronting(t *testing.T) {
	l := newLab(t)
	l.permit("allowed.lab", "also.lab")
	o := l.serve("allowed.lab", "203.0.113.1", nil)
	l.at("also.lab", "203.0.113.1")
	at443 := l.transparent("203.0.113.1:443")
	for _, other := range []string{"denied.lab", "also.lab", "203.0.113.1"} {
		w := mustSecure(t, dialWire(t, at443), l.trust("allowed.lab")).send("GET / HTTP/1.1\r\nHost: " + other + "\r\n\r\n")
		if res, body := w.response("GET"); res.StatusCode != 403 || !strings.Contains(body, "another host") {
			t.Errorf("Host %s: %s %s", other, res.Status, body)
		}
		secure := func() *wire { return mustSecure(t, dialWire(t, at443), l.trust("allowed.lab", "h2")) }
		if got := http2Status(t, secure(), other, "", "/"); got != "403" {
			t.Errorf(":authority %s: %s", other, got)
		}
		if got := http2Status(t, secure(), "allowed.lab", other, "/"); got != "400" && got != "PROTOCOL_ERROR" {
			t.Errorf("host %s beside :authority: %s", other, got)
		}
		if got := rawSNI(l.connect(t, "allowed.lab:443"), other); got != "alert" {
			t.Errorf("SNI %s in CONNECT allowed.lab: %s", other, got)
		}
	}
	if n := len(o.seen()); n > 0 {
		t.Errorf("the origin saw %d requests", n)
	}
	if got := http2Status(t, mustSecure(t, dialWire(t, at443), l.trust("allowed.lab", "h2")), "allowed.lab:443", "",
		"/"); got != "200" {
		t.Errorf("the host itself: %s", got)
	}
}

// TestHostsFile: a name that the sandbox maps to another address leads to its real origin; so does each of two names
// with one address.
func TestHostsFile(t *testing.T) {
	l := newLab(t)
	l.permit("allowed.lab", "twin.lab")
	l.serve("allowed.lab", "203.0.113.1", nil)
	l.serve("twin.lab", "203.0.113.2", nil)
	evil := l.serve("evil.lab", "203.0.113.66", nil)
	for _, scheme := range []string{"https", "http"} {
		port := map[string]string{"https": ":443", "http": ":80"}[scheme]
		if _, body := get(t, l.client(to(l.transparent("203.0.113.66"+port))),
			scheme+"://allowed.lab/"); !strings.Contains(body, "://allowed.lab/") {
			t.Errorf("%s: %s", scheme, body)
		}
		l.mu.Lock()
		l.pinned[netip.MustParseAddr("203.0.113.1")] = host("allowed.lab")
		l.mu.Unlock()
		if _, body := get(t, l.client(to(l.transparent("203.0.113.1"+port))), scheme+"://twin.lab/"); !strings.Contains(body,
			"://twin.lab/") {
			t.Errorf("%s: %s", scheme, body)
		}
	}
	if len(evil.seen()) > 0 {
		t.Error("the sandbox chose the address")
	}
}

// TestAddresses: an address needs a rule for the address, with or without TLS, and that rule opens no name.
func TestAddresses(t *testing.T) {
	l := newLab(t)
	l.serve("203.0.113.7", "203.0.113.7", nil)
	l.permit("203.0.113.7")
	at443, at80 := l.transparent("203.0.113.7:443"), l.transparent("203.0.113.7:80")
	for url, at := range map[string]string{"https://203.0.113.7/": at443, "http://203.0.113.7/": at80} {
		for _, c := range []*http.Client{l.client(), l.client(to(at))} {
			if res, body := get(t, c, url); res.StatusCode != 200 {
				t.Errorf("%s: %s %s", url, res.Status, body)
			}
		}
	}
	if res, body := get(t, l.client(to(at80)), "http://203.0.113.8/"); res.StatusCode != 403 {
		t.Errorf("another address in Host: %s %s", res.Status, body)
	}
	if res, body := get(t, l.client(to(at443)), "https://denied.lab/"); res.StatusCode != 403 {
		t.Errorf("a name at an allowed address: %s %s", res.Status, body)
	}
}
