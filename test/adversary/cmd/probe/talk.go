package main

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http2/hpack"
	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove/test/adversary/outcome"
)

// conversations are attempts to leave by the ways that there are (N, S).
func conversations() map[string]attempt {
	return map[string]attempt{"talk": talk, "ask": ask, "datagram": datagram, "sockopt": socketOption, "crowd": crowd,
		"hammer": hammer, "trusts": trusts, "keys": keys, "scan": scan, "crew": crew}
}

const (
	proxyAddress = "127.0.0.1:3128"
	longest      = time.Minute // for one conversation
	maxAnswer    = 256 << 10
)

func talk(args []string) (report, error) {
	t, err := outcome.ParseTalk(strings.Join(args, " "))
	if err != nil {
		return report{}, err
	}
	c, r, err := reach(t)
	if err != nil {
		return r, err
	}
	defer c.Close()
	if t.Hello == outcome.HelloRaw || t.Hello == outcome.HelloECH {
		return rawHello(c, t)
	}
	var names []string
	if t.TLS {
		if c, names, err = secure(c, t); err != nil {
			return report{detail: err.Error()}, refusal("TLS")
		}
	}
	if t.Fields != nil {
		return stream(c, t.Fields)
	}
	said := make(chan struct{})
	go func() { // the answer may come before everything has been said
		defer close(said)
		say(c, t)
	}()
	r = listen(c)
	c.Close()
	<-said
	r.lines = append(r.lines, names...)
	return r, nil
}

// reach connects, and asks a proxy to.
func reach(t outcome.Talk) (net.Conn, report, error) {
	to := t.At
	if to == "" {
		to = t.To
	}
	if t.By != outcome.Direct {
		to = proxyAddress
	}
	dialer := net.Dialer{Timeout: longest}
	if t.From != "" {
		dialer.LocalAddr = &net.TCPAddr{IP: net.ParseIP(t.From)}
	}
	c, err := dialer.Dial("tcp", to)
	if err != nil {
		return nil, report{detail: err.Error()}, netErrno(err)
	}
	c.SetDeadline(time.Now().Add(longest))
	var r report
	switch t.By {
	case outcome.Connect:
		r, err = askConnect(c, t.To)
	case outcome.SOCKS:
		r, err = askSOCKS(c, t.To)
	}
	if err != nil {
		c.Close()
	}
	return c, r, err
}

// askConnect opens a tunnel. It reads no further than the answer's end.
func askConnect(c net.Conn, to string) (report, error) {
	fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", to, to)
	var head []byte
	b := make([]byte, 1)
	for !bytes.HasSuffix(head, []byte("\r\n\r\n")) && len(head) < maxAnswer {
		if _, err := c.Read(b); err != nil {
			break
		}
		head = append(head, b[0])
	}
	status := lastStatus(string(head))
	if status != 200 {
		rest, _ := io.ReadAll(io.LimitReader(c, maxAnswer))
		return report{count: status, lines: []string{outcome.Quoted(string(head) + string(rest))}}, refusal("PROXY")
	}
	return report{}, nil
}

func askSOCKS(c net.Conn, to string) (report, error) {
	at := strings.LastIndexByte(to, ':')
	host := to[:max(at, 0)]
	port, err := strconv.ParseUint(to[at+1:], 10, 16)
	if err != nil || len(host) > 255 {
		return report{}, fmt.Errorf("no SOCKS for %q", to)
	}
	request := append([]byte{5, 1, 0, 3, byte(len(host))}, host...)
	if a, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		request = []byte{5, 1, 0, 1}
		if a.Is6() {
			request[3] = 4
		}
		request = append(request, a.AsSlice()...)
	}
	c.Write(append([]byte{5, 1, 0}, binary.BigEndian.AppendUint16(request, uint16(port))...))
	answer := make([]byte, 12)
	n, _ := io.ReadFull(c, answer)
	if n < 12 || answer[3] != 0 {
		return report{detail: fmt.Sprintf("%x", answer[:n])}, refusal("PROXY")
	}
	return report{}, nil
}

// secure speaks TLS, and says what the certificate is for.
func secure(c net.Conn, t outcome.Talk) (net.Conn, []string, error) {
	config := &tls.Config{ServerName: t.Name, InsecureSkipVerify: true}
	if t.Fields != nil {
		config.NextProtos = []string{"h2"}
	}
	if t.Hello == outcome.HelloOld {
		config.MinVersion, config.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
	}
	if t.Hello == outcome.HelloLong {
		for i := range 100 {
			config.NextProtos = append(config.NextProtos, strconv.Itoa(i)+strings.Repeat("x", 200))
		}
		config.NextProtos = append(config.NextProtos, "http/1.1")
	}
	shape := &shaped{Conn: c, form: t.Hello}
	s := tls.Client(shape, config)
	if err := s.Handshake(); err != nil {
		return nil, nil, err
	}
	shape.form = ""
	var names []string
	for _, one := range s.ConnectionState().PeerCertificates[:1] {
		names = append(names, one.DNSNames...)
		for _, a := range one.IPAddresses {
			names = append(names, a.String())
		}
		names = append(names, "by "+one.Issuer.CommonName)
	}
	return s, names, nil
}

// shaped writes in another form.
type shaped struct {
	net.Conn
	form string
}

func (s *shaped) Write(b []byte) (int, error) {
	if s.form == outcome.HelloFragments && len(b) > 5 && b[0] == 22 {
		first := 5 + int(binary.BigEndian.Uint16(b[3:]))
		var out []byte
		for _, one := range b[5:first] {
			out = append(out, 22, 3, 1, 0, 1, one)
		}
		if _, err := s.Conn.Write(append(out, b[first:]...)); err != nil {
			return 0, err
		}
		return len(b), nil
	}
	if s.form == outcome.HelloBytes {
		for i := range b {
			if _, err := s.Conn.Write(b[i : i+1]); err != nil {
				return i, err
			}
		}
		return len(b), nil
	}
	return s.Conn.Write(b)
}

func say(c net.Conn, t outcome.Talk) {
	if t.Slow {
		for i := range len(t.Send) {
			if _, err := io.WriteString(c, t.Send[i:i+1]); err != nil {
				return
			}
		}
	} else {
		io.WriteString(c, t.Send)
	}
	if half, ok := c.(interface{ CloseWrite() error }); ok && t.Ended {
		half.CloseWrite()
	}
}

// listen reads until the end, and says how that came.
func listen(c net.Conn) report {
	b, err := io.ReadAll(io.LimitReader(c, maxAnswer))
	r := report{count: lastStatus(string(b)), lines: []string{outcome.Quoted(string(b))}}
	if err != nil {
		r.detail = err.Error()
	}
	return r
}

// lastStatus is that of the last answer in a text.
func lastStatus(text string) (status int64) {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, "HTTP/1."); ok && len(rest) > 5 {
			if n, err := strconv.ParseInt(rest[2:5], 10, 64); err == nil {
				status = n
			}
		}
	}
	return status
}

// rawHello sends a ClientHello with any bytes for a name, or with an encrypted
// one beside it, and says whether the other side goes along.
func rawHello(c net.Conn, t outcome.Talk) (report, error) {
	hello, err := clientHello(t.Name)
	if err != nil {
		return report{}, err
	}
	if t.Hello == outcome.HelloECH {
		hello = withExtension(hello, 0xfe0d, append([]byte{0, 0, 1, 0, 1, 7, 0, 32},
			append(make([]byte, 32), 0, 4, 1, 2, 3, 4)...))
	}
	c.Write(hello)
	b := make([]byte, 7)
	n, err := io.ReadFull(c, b)
	switch {
	case n > 0 && b[0] == 22:
		return report{detail: "the handshake goes on"}, nil
	case n == 7 && b[0] == 21:
		return report{detail: fmt.Sprintf("alert %d", b[6])}, refusal("TLS")
	case errors.Is(err, os.ErrDeadlineExceeded):
		return report{}, err
	}
	return report{detail: fmt.Sprintf("%x", b[:n])}, refusal("CLOSED")
}

// clientHello is Go's own, with another name of any length inside, or without.
func clientHello(name string) ([]byte, error) {
	const stand = "placeholder.lab"
	client, server := net.Pipe()
	go func() {
		tls.Client(client, &tls.Config{ServerName: stand, InsecureSkipVerify: true}).Handshake()
		client.Close()
	}()
	defer server.Close()
	r := bufio.NewReaderSize(server, 1<<16)
	head, err := r.Peek(5)
	if err != nil {
		return nil, err
	}
	record := make([]byte, 5+int(binary.BigEndian.Uint16(head[3:])))
	if _, err := io.ReadFull(r, record); err != nil {
		return nil, err
	}
	body := record[5:]
	at := bytes.Index(body, []byte(stand))
	out := append(append(bytes.Clone(body[:at]), name...), body[at+len(stand):]...)
	if name == "" { // the extension becomes one that nobody knows
		out = bytes.Clone(body)
		out[at-9], out[at-8] = 0xfa, 0xfa
		name = stand
	}
	by := len(name) - len(stand)
	for _, length := range []int{at - 2, at - 5, at - 7} { // of the name, the list, the extension
		grow(out[length:], by)
	}
	grow(out[extensionsAt(out):], by)
	grow(out[2:], by) // the message's third byte is never needed
	return withHead(out), nil
}

// withExtension adds one at the end.
func withExtension(record []byte, kind uint16, data []byte) []byte {
	out := bytes.Clone(record[5:])
	out = binary.BigEndian.AppendUint16(out, kind)
	out = binary.BigEndian.AppendUint16(out, uint16(len(data)))
	out = append(out, data...)
	grow(out[extensionsAt(out):], 4+len(data))
	grow(out[2:], 4+len(data))
	return withHead(out)
}

func withHead(body []byte) []byte {
	return append(binary.BigEndian.AppendUint16([]byte{22, 3, 1}, uint16(len(body))), body...)
}

func grow(length []byte, by int) {
	binary.BigEndian.PutUint16(length, uint16(int(binary.BigEndian.Uint16(length))+by))
}

// extensionsAt is where the length of all extensions stands in a ClientHello.
func extensionsAt(hello []byte) int {
	p := 4 + 2 + 32
	p += 1 + int(hello[p])
	p += 2 + int(binary.BigEndian.Uint16(hello[p:]))
	return p + 1 + int(hello[p])
}

// stream makes one HTTP/2 request by hand and says its status, or how it ended.
func stream(c net.Conn, fields [][2]string) (report, error) {
	frame := func(kind, flags byte, id uint32, payload []byte) {
		head := []byte{byte(len(payload) >> 16), byte(len(payload) >> 8), byte(len(payload)), kind, flags}
		c.Write(append(binary.BigEndian.AppendUint32(head, id), payload...))
	}
	const data, headers, reset, settings, away = 0, 1, 3, 4, 7
	io.WriteString(c, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
	frame(settings, 0, 0, nil)
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for _, f := range fields {
		encoder.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
	}
	const endHeaders, endStream = 4, 1
	frame(headers, endHeaders|endStream, 1, block.Bytes())
	decoder := hpack.NewDecoder(4096, nil)
	var r report
	var body []byte
	for {
		head := make([]byte, 9)
		if _, err := io.ReadFull(c, head); err != nil {
			return report{detail: err.Error()}, refusal("CLOSED")
		}
		payload := make([]byte, int(head[0])<<16|int(head[1])<<8|int(head[2]))
		if _, err := io.ReadFull(c, payload); err != nil {
			return report{detail: err.Error()}, refusal("CLOSED")
		}
		switch head[3] {
		case headers:
			answer, err := decoder.DecodeFull(payload)
			if err != nil {
				return r, err
			}
			for _, f := range answer {
				if f.Name == ":status" {
					r.count, _ = strconv.ParseInt(f.Value, 10, 64)
				}
				body = append(body, f.Name+": "+f.Value+"\r\n"...)
			}
		case data:
			body = append(body, payload...)
		case reset:
			return report{detail: "reset"}, refusal("CLOSED")
		case away:
			return report{detail: "goaway"}, refusal("CLOSED")
		}
		if head[3] <= headers && head[4]&endStream != 0 {
			r.lines = []string{outcome.Quoted(string(body))}
			return r, nil
		}
	}
}

// ask asks SERVER:PORT over udp or tcp for NAME and TYPE, in one message by hand, and says the answer's code and how
// many answers it has.
//
//	ask udp 127.0.0.1:53 NAME TYPE [TIMES]
//
// With TIMES, NAME has a number put before it, each its own; Count is then how many were answered.
func ask(args []string) (report, error) {
	if len(args) < 4 {
		return report{}, errors.New("ask NETWORK SERVER NAME TYPE [TIMES]")
	}
	kind, err := strconv.ParseUint(args[3], 10, 16)
	if err != nil {
		return report{}, err
	}
	times := 1
	if len(args) > 4 {
		if times, err = strconv.Atoi(args[4]); err != nil {
			return report{}, err
		}
	}
	c, err := net.DialTimeout(args[0], args[1], longest)
	if err != nil {
		return report{detail: err.Error()}, netErrno(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(longest))
	name, err := strconv.Unquote(`"` + args[2] + `"`)
	if err != nil {
		return report{}, err
	}
	codes := map[string]int{}
	var r report
	for i := range times {
		one := name
		if times > 1 {
			one = "n" + strconv.Itoa(i) + "." + name
		}
		answer, err := question(c, args[0], uint16(i+1), one, uint16(kind))
		if err != nil {
			return report{detail: err.Error(), count: int64(i)}, netErrno(err)
		}
		code := fmt.Sprintf("code %d, %d answers", answer[3]&15, binary.BigEndian.Uint16(answer[6:]))
		codes[code]++
		if answer[3]&15 == 0 {
			r.count++
		}
	}
	for code, n := range codes {
		r.lines = append(r.lines, fmt.Sprintf("%d times %s", n, code))
	}
	if r.count == 0 {
		return r, refusal("NODNS")
	}
	return r, nil
}

// question makes one and reads its answer. A name is split at its dots, so that labels may have any other byte.
func question(c net.Conn, network string, id uint16, name string, kind uint16) ([]byte, error) {
	m := binary.BigEndian.AppendUint16(nil, id)
	m = append(m, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0)
	for label := range strings.SplitSeq(strings.TrimSuffix(name, "."), ".") {
		m = append(append(m, byte(len(label))), label...)
	}
	m = append(m, 0)
	m = binary.BigEndian.AppendUint16(m, kind)
	m = append(m, 0, 1)
	b := make([]byte, 64<<10)
	if network == "tcp" {
		m = append(binary.BigEndian.AppendUint16(nil, uint16(len(m))), m...)
	}
	if _, err := c.Write(m); err != nil {
		return nil, err
	}
	if network == "tcp" {
		if _, err := io.ReadFull(c, b[:2]); err != nil {
			return nil, err
		}
		b = b[:binary.BigEndian.Uint16(b)]
		if _, err := io.ReadFull(c, b); err != nil {
			return nil, err
		}
	} else {
		n, err := c.Read(b)
		if err != nil {
			return nil, err
		}
		b = b[:n]
	}
	if len(b) < 12 {
		return nil, errors.New("a short answer")
	}
	return b, nil
}

// datagram sends one to ADDRESS and waits for what the kernel says of it: a
// datagram that is refused is, at the next call, or answered.
func datagram(args []string) (report, error) {
	c, err := net.Dial("udp", args[0])
	if err != nil {
		return report{detail: err.Error()}, netErrno(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte("probe")); err != nil {
		return report{}, netErrno(err)
	}
	c.SetReadDeadline(time.Now().Add(2 * time.Second))
	b := make([]byte, 512)
	n, err := c.Read(b)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return report{detail: "sent, and nothing said"}, nil
	}
	if err != nil {
		return report{}, netErrno(err)
	}
	return report{detail: "answered " + outcome.Quoted(string(b[:n]))}, nil
}

// socketOption sets what would change how or as whom a socket sends.
func socketOption(args []string) (report, error) {
	family := unix.AF_INET
	if args[0] == "rthdr" || args[0] == "hopopts" || args[0] == "v6transparent" {
		family = unix.AF_INET6
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return report{}, err
	}
	defer unix.Close(fd)
	const routed, strict = 131, 137
	route := func(kind byte) string { return string([]byte{kind, 7, 4, 93, 184, 216, 66, 0}) }
	switch args[0] {
	case "lsrr":
		err = unix.SetsockoptString(fd, unix.IPPROTO_IP, unix.IP_OPTIONS, route(routed))
	case "ssrr":
		err = unix.SetsockoptString(fd, unix.IPPROTO_IP, unix.IP_OPTIONS, route(strict))
	case "transparent":
		err = unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_TRANSPARENT, 1)
	case "freebind":
		err = unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_FREEBIND, 1)
	case "rthdr":
		err = unix.SetsockoptString(fd, unix.IPPROTO_IPV6, unix.IPV6_RTHDR,
			"\x00\x02\x00\x01\x00\x00\x00\x00"+strings.Repeat("\x20", 16))
	case "hopopts":
		err = unix.SetsockoptString(fd, unix.IPPROTO_IPV6, unix.IPV6_HOPOPTS, "\x00\x00\x01\x04\x00\x00\x00\x00")
	case "v6transparent":
		err = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_TRANSPARENT, 1)
	case "mark":
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MARK, 1)
	case "device":
		err = unix.SetsockoptString(fd, unix.SOL_SOCKET, unix.SO_BINDTODEVICE, "lo")
	default:
		err = errors.New("no such option")
	}
	return report{}, err
}

// crowd makes COUNT connections to ADDRESS, says half a word on each, and stays.
func crowd(args []string) (report, error) {
	count, err := strconv.Atoi(args[1])
	if err != nil {
		return report{}, err
	}
	for range count {
		c, err := net.DialTimeout("tcp", args[0], longest)
		if err != nil {
			return report{}, netErrno(err)
		}
		io.WriteString(c, "GE")
		defer c.Close()
	}
	return hold(nil)
}

// hammer tries to reach each ADDRESS by TCP and UDP again and again, for
// MILLISECONDS or, with 0, for ever, and counts what was said in answer.
func hammer(args []string) (report, error) {
	millis, err := strconv.Atoi(args[0])
	if err != nil {
		return report{}, err
	}
	var r report
	emit(result("hammer", report{detail: "hammering"}, nil))
	tries := 0
	for end := time.Now().Add(time.Duration(millis) * time.Millisecond); millis == 0 || time.Now().Before(end); {
		for _, to := range args[1:] {
			tries++
			if u, err := net.Dial("udp", to); err == nil {
				u.Write([]byte("hammer"))
				u.Close()
			}
			c, err := net.DialTimeout("tcp", to, 100*time.Millisecond)
			if err != nil {
				continue
			}
			io.WriteString(c, "GET /hammer HTTP/1.1\r\nHost: evil.lab\r\nConnection: close\r\n\r\n")
			c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
			b := make([]byte, 64)
			if n, _ := c.Read(b); bytes.Contains(b[:n], []byte(" 200 ")) {
				r.count++
			}
			c.Close()
		}
	}
	r.detail = fmt.Sprintf("%d tries", tries)
	if r.count == 0 {
		return r, refusal("NOTHING")
	}
	return r, nil
}

// trusts connects to HOST:PORT and says by which of the certificates that a
// program inside may be told of the one there is valid.
func trusts(args []string) (report, error) {
	host, _, _ := strings.Cut(args[0], ":")
	c, err := tls.Dial("tcp", args[0], &tls.Config{ServerName: host, InsecureSkipVerify: true})
	if err != nil {
		return report{}, err
	}
	defer c.Close()
	leaf := c.ConnectionState().PeerCertificates[0]
	var r report
	files, _ := filepath.Glob("/etc/cove/*.pem")
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			return r, err
		}
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(data)
		if _, err := leaf.Verify(x509.VerifyOptions{Roots: pool, DNSName: host}); err == nil {
			r.lines = append(r.lines, f)
		}
	}
	return r, nil
}

// keys looks below a directory for private keys.
func keys(args []string) (report, error) {
	var r report
	err := filepath.WalkDir(args[0], func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil
		}
		if data, err := os.ReadFile(path); err == nil && bytes.Contains(data, []byte("PRIVATE "+"KEY")) &&
			path != os.Args[0] {
			r.lines = append(r.lines, path)
		}
		return nil
	})
	if err == nil && len(r.lines) == 0 {
		err = refusal("NOTFOUND")
	}
	return r, err
}

// scan connects to every port of ADDRESS and says which are open.
func scan(args []string) (report, error) {
	var r report
	for port := 1; port < 1<<16; port++ {
		c, err := net.DialTimeout("tcp", args[0]+":"+strconv.Itoa(port), time.Second)
		if err != nil {
			continue
		}
		if c.LocalAddr().String() != c.RemoteAddr().String() { // a connection to itself
			r.lines = append(r.lines, strconv.Itoa(port))
		}
		c.Close()
	}
	r.count = int64(len(r.lines))
	return r, nil
}

// crew has the same conversation COUNT times at once, and counts those that were answered with 200.
func crew(args []string) (report, error) {
	count, err := strconv.Atoi(args[0])
	if err != nil {
		return report{}, err
	}
	var r report
	answers := make(chan report)
	for range count {
		go func() {
			one, err := talk(args[1:])
			if err != nil {
				one.detail += " " + err.Error()
			}
			answers <- one
		}()
	}
	for range count {
		one := <-answers
		if one.count == 200 {
			r.count++
		}
		r.lines = append(append(r.lines, one.detail), one.lines...)
	}
	return r, nil
}
