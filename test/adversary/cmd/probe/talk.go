package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
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
