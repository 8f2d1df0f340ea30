//go:build linux

package main

import (
	"bufio"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/coder/websocket"
	"golang.org/x/net/http2"
)

// job is something to ask of the origin, and the way to it.
type job struct {
	Do       action
	Protocol string // http/1.1 or h2

	Port  uint16 // of the origin
	Proxy string // that is asked to CONNECT, if not empty
	To    string // host:port to connect to; the origin's name where empty
	Roots string // PEM file; the system's where empty
	Names string // host:port of a DNS server; the system's where empty

	Seconds float64 // of rate
	Count   int     // of what is not rate
}

type action string

const (
	doRate      action = "rate"      // as many requests as can be
	doReused    action = "reused"    // one after the other on one connection
	doNew       action = "new"       // each to a host that was not asked before
	doEvents    action = "events"    // the first event of a stream, on one connection
	doWebSocket action = "websocket" // echoes
	doIdle      action = "idle"      // connections to one host, kept until the input ends
	doSpread    action = "spread"    // the same, each to a host of its own
)

// took is what came of a job.
type took struct {
	Requests int       // in all, those that do not count included
	Rate     float64   // a second
	MS       []float64 // of each
	Failure  string    // empty if none
}

const (
	workers  = 8
	warmUp   = 200 * time.Millisecond
	patience = time.Minute
)

// loadRole does jobs one after the other and answers once.
func loadRole(setup []byte, out *json.Encoder) error {
	var jobs []job
	if err := json.Unmarshal(setup, &jobs); err != nil {
		return err
	}
	return runAll(jobs, out)
}

// aloneRole does the same with an origin of its own, which it starts beside it and where no others come.
func aloneRole(setup []byte, out *json.Encoder) (err error) {
	var jobs []job
	if err := json.Unmarshal(setup, &jobs); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		return err
	}
	var files pair
	if files, err = newPair(dir); err != nil {
		return err
	}
	var own origin
	p, err := startRole(measuredCore, "origin", files, &own)
	if err != nil {
		return err
	}
	defer p.stop()
	for i := range jobs {
		jobs[i].Port, jobs[i].Roots, jobs[i].Names = own.port(), files.Authority, own.Names
	}
	return runAll(jobs, out)
}

func runAll(jobs []job, out *json.Encoder) error {
	var all []took
	for _, j := range jobs {
		t, err := j.run()
		if err != nil {
			t.Failure = fmt.Sprintf("%s over %s: %v", j.Do, j.Protocol, err)
		}
		all = append(all, t)
	}
	if err := out.Encode(all); err != nil {
		return err
	}
	untilInputEnds()
	return nil
}

func (j job) run() (took, error) {
	switch j.Do {
	case doRate:
		return j.rate()
	case doNew:
		return j.eachNew()
	case doIdle:
		return j.idle(func() string { return anyHost })
	case doSpread:
		return j.idle(newHost)
	case doWebSocket:
		return j.webSocket()
	}
	return j.sequence()
}

const anyHost = "origin." + domain

// newHost is a name that nobody has asked for.
func newHost() string { return rand.Text()[:16] + "." + domain }

// dial connects to a host, in TLS.
func (j job) dial(host string) (*tls.Conn, error) {
	authority := net.JoinHostPort(host, strconv.Itoa(int(j.Port)))
	to := authority
	switch {
	case j.Proxy != "":
		to = j.Proxy
	case j.To != "":
		to = j.To
	}
	c, err := j.dialer().Dial("tcp", to)
	if err != nil {
		return nil, err
	}
	c.SetDeadline(time.Now().Add(2 * patience))
	if j.Proxy != "" {
		if j.To != "" {
			authority = j.To
		}
		if err := connect(c, authority); err != nil {
			return nil, err
		}
	}
	roots, err := j.roots()
	if err != nil {
		return nil, err
	}
	inside := tls.Client(c, &tls.Config{ServerName: host, RootCAs: roots, NextProtos: []string{j.Protocol}})
	if err := inside.Handshake(); err != nil {
		return nil, err
	}
	if got := inside.ConnectionState().NegotiatedProtocol; got != j.Protocol && !(got == "" && j.Protocol == "http/1.1") {
		return nil, fmt.Errorf("the other side speaks %q", got)
	}
	return inside, nil
}

func (j job) dialer() *net.Dialer {
	d := &net.Dialer{Timeout: patience}
	if j.Names != "" {
		d.Resolver = resolver(j.Names)
	}
	return d
}

func connect(c net.Conn, authority string) error {
	if _, err := fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", authority, authority); err != nil {
		return err
	}
	res, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: http.MethodConnect})
	if err == nil && res.StatusCode != http.StatusOK {
		err = errors.New("CONNECT: " + res.Status)
	}
	return err
}

// pools are the roots that have been read, by file.
var pools = map[string]*x509.CertPool{}

func (j job) roots() (*x509.CertPool, error) {
	if pool, ok := pools[j.Roots]; ok {
		return pool, nil
	}
	if j.Roots == "" {
		pool, err := x509.SystemCertPool()
		pools[j.Roots] = pool
		return pool, err
	}
	data, err := os.ReadFile(j.Roots)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(data)
	pools[j.Roots] = pool
	return pool, nil
}

// connection can be asked for a body, by many at a time if it is HTTP/2.
type connection interface {
	get(path string) (io.ReadCloser, error)
	Close() error
}

func (j job) open(host string) (connection, error) {
	c, err := j.dial(host)
	if err != nil {
		return nil, err
	}
	if j.Protocol == "h2" {
		// net/http has no client of HTTP/2 over a connection that is already made.
		transport := http2.Transport{DisableCompression: true} //nolint:staticcheck
		cc, err := transport.NewClientConn(c)                  //nolint:staticcheck
		return multiplexed{cc, host, j.Port}, err
	}
	return &serial{c, bufio.NewReader(c), host, j.Port}, nil
}

// serial speaks HTTP/1.1 with as little ado as can be: whoever loads shares a processor with the origin.
type serial struct {
	net.Conn
	answers *bufio.Reader
	host    string
	port    uint16
}

func (s *serial) get(path string) (io.ReadCloser, error) {
	if _, err := fmt.Fprintf(s.Conn, "GET %s HTTP/1.1\r\nHost: %s:%d\r\nUser-Agent: bench\r\nAccept: */*\r\n\r\n", path,
		s.host, s.port); err != nil {
		return nil, err
	}
	res, err := http.ReadResponse(s.answers, nil)
	if err != nil {
		return nil, err
	}
	return good(res)
}

func good(res *http.Response) (io.ReadCloser, error) {
	if res.StatusCode == http.StatusOK {
		return res.Body, nil
	}
	defer res.Body.Close()
	said, _ := io.ReadAll(io.LimitReader(res.Body, 1<<10))
	return nil, fmt.Errorf("%s: %s", res.Status, said)
}

type multiplexed struct {
	*http2.ClientConn
	host string
	port uint16
}

func (m multiplexed) get(path string) (io.ReadCloser, error) {
	r, err := http.NewRequest(http.MethodGet, fmt.Sprintf("https://%s:%d%s", m.host, m.port, path), nil)
	if err != nil {
		return nil, err
	}
	res, err := m.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	return good(res)
}

// whole asks for an answer and reads it to its end.
func whole(c connection) error {
	body, err := c.get("/some/path?x=y")
	if err != nil {
		return err
	}
	defer body.Close()
	n, err := io.Copy(io.Discard, body)
	if err == nil && n != bodySize {
		err = fmt.Errorf("%d bytes", n)
	}
	return err
}

// first asks for a stream of events and reads one.
func first(c connection) error {
	body, err := c.get("/events")
	if err != nil {
		return err
	}
	defer body.Close()
	_, err = io.ReadFull(body, make([]byte, len("data: 1\n\n")))
	return err
}

// rate is how many requests come back in a second, with a few underway at a time.
func (j job) rate() (t took, err error) {
	connections := workers
	if j.Protocol == "h2" {
		connections = 1
	}
	open := make([]connection, connections)
	for i := range open {
		if open[i], err = j.open(anyHost); err != nil {
			return t, err
		}
		defer open[i].Close()
	}
	begin := time.Now().Add(warmUp)
	end := begin.Add(time.Duration(j.Seconds * float64(time.Second)))
	var mu sync.Mutex
	counted := 0
	var all sync.WaitGroup
	for i := range workers {
		all.Go(func() {
			requests, inTime := 0, 0
			var failure error
			for failure == nil && time.Now().Before(end) {
				failure = whole(open[i%connections])
				requests++
				if now := time.Now(); now.After(begin) && now.Before(end) {
					inTime++
				}
			}
			mu.Lock()
			defer mu.Unlock()
			t.Requests += requests
			counted += inTime
			err = cmp.Or(err, failure)
		})
	}
	all.Wait()
	t.Rate = float64(counted) / j.Seconds
	return t, err
}

// timed does something Count times, after a few that do not count.
func (j job) timed(once func() error) (t took, err error) {
	skip := min(50, j.Count/4)
	for i := range j.Count + skip {
		begin := time.Now()
		if err := once(); err != nil {
			return t, err
		}
		t.Requests++
		if i >= skip {
			t.MS = append(t.MS, milliseconds(time.Since(begin)))
		}
	}
	return t, nil
}

func (j job) sequence() (took, error) {
	c, err := j.open(anyHost)
	if err != nil {
		return took{}, err
	}
	defer c.Close()
	ask := whole
	if j.Do == doEvents {
		ask = first
	}
	return j.timed(func() error { return ask(c) })
}

// eachNew asks new hosts for one answer each, from the first look for the name to the last byte.
func (j job) eachNew() (took, error) {
	return j.timed(func() error {
		c, err := j.open(newHost())
		if err != nil {
			return err
		}
		defer c.Close()
		return whole(c)
	})
}

// kept are connections that nobody uses until the program ends.
var kept []connection

func (j job) idle(host func() string) (t took, err error) {
	for range j.Count {
		c, err := j.open(host())
		if err != nil {
			return t, err
		}
		if err := whole(c); err != nil {
			return t, err
		}
		kept = append(kept, c)
		t.Requests++
	}
	return t, nil
}

func (j job) webSocket() (t took, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	transport := &http.Transport{DialTLSContext: func(context.Context, string, string) (
		net.Conn, error) {
		return j.dial(anyHost)
	}}
	defer transport.CloseIdleConnections()
	c, _, err := websocket.Dial(ctx, fmt.Sprintf("wss://%s:%d/websocket", anyHost, j.Port),
		&websocket.DialOptions{HTTPClient: &http.Client{Transport: transport}})
	if err != nil {
		return t, err
	}
	defer c.CloseNow()
	message := make([]byte, bodySize)
	return j.timed(func() error {
		if err := c.Write(ctx, websocket.MessageBinary, message); err != nil {
			return err
		}
		_, _, err := c.Read(ctx)
		return err
	})
}
