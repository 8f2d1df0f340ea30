package adversary

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/cove-sandbox/cove/test/adversary/lab"
	"github.com/cove-sandbox/cove/test/adversary/outcome"
)

// placeRows are attempts at where nobody may get: a cloud's metadata, the machine, and Cove itself (N7, N25).
func placeRows() []row {
	return []row{
		{id: "N7.metadata", invariant: "E4",
			what: "ask a cloud about its machine, in every spelling, under policies that would allow it", test: metadata},
		{id: "N7.machine", invariant: "E4", what: "reach a service of the machine: an API, Docker, ssh, a database",
			test: machine},
		{id: "N25.ports", engine: true, invariant: "E3",
			what: "find an open port that is none of the gateway's, or something to control behind those", test: ownPorts},
	}
}

func metadata(c *trial) {
	hosts := []string{"169.254.169.254", "169.254.170.2", "100.100.100.200", "168.63.129.16", "[fd00:ec2::254]",
		"[::ffff:169.254.169.254]", "[64:ff9b::a9fe:a9fe]", "[2002:a9fe:a9fe::1]",
		"2852039166", "0xa9fea9fe", "0251.0376.0251.0376", "169.254.43518", "metadata.google.internal", "metadata",
		"instance-data", "metadata.lab"}
	c.internet().Lead("metadata.google.internal", lab.Others[3], lab.Others[6])
	c.internet().Forget()
	tried := 0
	for _, text := range []string{
		"mode: open\n",
		allow("metadata.lab"),
		"rules:\n  - cidrs: [169.254.169.254, 100.100.100.200, 168.63.129.16, \"fd00:ec2::254\"]\n    ports: 1-65535\n",
		"rules:\n  - cidrs: [0.0.0.0/0, \"::/0\"]\n    ports: 1-65535\n",
		"mode: open\nrules:\n  - cidrs: [169.254.0.0/16, \"fd00::/8\"]\n    pass_through: true\n",
		allow("metadata.google.internal"),
	} {
		b, err := c.tryOutward(text)
		if err != nil {
			c.remark("refused as a policy: %s", strings.ReplaceAll(strings.TrimSpace(text), "\n", " "))
			continue
		}
		for _, host := range hosts {
			for _, e := range entries("http", host, 80) {
				tried++
				b.stays(e.name+", "+host, b.get(e, host, "/latest/meta-data/", "X-aws-ec2-metadata-token: x",
					"Metadata-Flavor: Google"))
			}
		}
		b.quiet("metadata.lab")
	}
	for _, at := range []string{"169.254.169.254:80", "[fd00:ec2::254]:80"} {
		if a := c.talkOutside(outcome.Talk{By: outcome.Direct, At: at, Send: insideTLS}); !a.ok() {
			c.Errorf("not tested: %s from the machine itself: %s", at, a)
		}
	}
	c.remark("%d attempts", tried)
}

// service is one of the machine's, on every address that it has.
type service struct {
	port    int
	reached atomic.Int64
}

func (c *trial) service(port int) *service {
	c.Helper()
	l, err := net.Listen("tcp", ":"+strconv.Itoa(port)) // IPv4 and IPv6
	if err != nil {
		c.Fatal("not tested: ", err)
	}
	s := &service{port: l.Addr().(*net.TCPAddr).Port}
	server := &http.Server{
		ConnState: func(_ net.Conn, state http.ConnState) {
			if state == http.StateNew {
				s.reached.Add(1)
			}
		},
		Handler: http.HandlerFunc(func(w http.ResponseWriter,
			r *http.Request) {
			io.WriteString(w, "the machine over http\n")
		}),
	}
	go server.Serve(l)
	c.Cleanup(func() { server.Close() })
	return s
}

func machine(c *trial) {
	var services []*service
	for _, port := range []int{22, 80, 443, 2375, 2376, 5432, 8080, 9090} {
		services = append(services, c.service(port))
	}
	reached := func() (n int64) {
		for _, s := range services {
			n += s.reached.Load()
		}
		return n
	}
	places := []string{lab.Host4.String(), "[" + lab.Host6.String() + "]", "127.0.0.1", "127.0.0.2", "localhost", "[::1]",
		"0.0.0.0", "[::]", "host.lab", "[::ffff:" + lab.Host4.String() + "]",
		"host.docker.internal", "host.cove.internal", "2887581698", "ip6-localhost", "gateway.cove.internal"}
	c.internet().Lead("host.docker.internal", lab.Host4, lab.Host6)
	for _, text := range []string{
		"mode: open\n",
		"mode: host-only\n",
		allow("host.lab", "host.docker.internal"),
		allow("localhost"),
		"rules:\n  - cidrs: [172.30.0.0/30, \"fd1a:b::/64\"]\n    ports: 1-65535\n",
		"rules:\n  - cidrs: [172.30.0.0/30, \"fd1a:b::/64\"]\n    ports: 1-65535\n    pass_through: true\n",
		"rules:\n  - cidrs: [172.30.0.0/30, 127.0.0.0/8, \"fd1a:b::/64\", \"::1\", 0.0.0.0/0, \"::/0\"]\n    ports: 1-65535\n",
		"rules:\n  - cidrs: [172.30.0.0/30, 127.0.0.0/8, \"fd1a:b::/64\", \"::1\"]\n    ports: 1-65535\n    pass_through: " +
			"true\n",
	} {
		b, err := c.tryOutward(text)
		if err != nil {
			c.remark("refused as a policy: %s", strings.ReplaceAll(strings.TrimSpace(text), "\n", " "))
			continue
		}
		for _, place := range places {
			for _, s := range services {
				for _, e := range entries("http", place, s.port) {
					if e.By == outcome.Direct && (strings.HasPrefix(place, "127") || strings.Contains(place, "localhost") ||
						place == "[::1]" || place == "0.0.0.0" || place == "[::]") && e.At == "" {
						continue // its own loopback
					}
					b.stays(e.name+", "+place, b.get(e, fmt.Sprintf("%s:%d", place, s.port), "/metrics"))
				}
			}
			if n := reached(); n > 0 {
				c.Fatalf("HOLE: a service of the machine was reached as %s under %q", place, text)
			}
		}
	}
	// By the one name that a rule may open, on the port that it names.
	b := c.outward("rules:\n  - {hosts: host.cove.internal, ports: 8080}\n  - {cidrs: 172.30.0.2, ports: 9090}\n")
	for _, one := range []struct {
		host string
		port int
	}{{"host.cove.internal", 8080}, {lab.Host4.String(), 9090}} {
		before := reached()
		for _, e := range entries("http", one.host, one.port) {
			a := b.get(e, fmt.Sprintf("%s:%d", one.host, one.port), "/")
			if !a.ok() && e.At == "" {
				c.Errorf("not tested: %s, %s: %s", e.name, one.host, a)
			}
		}
		if reached() == before {
			c.Errorf("not tested: no connection was counted")
		}
	}
	before := reached()
	for _, port := range []int{22, 80, 2375, 9090} {
		for _, e := range entries("http", "host.cove.internal", port) {
			b.stays(fmt.Sprintf("%s, port %d", e.name, port), b.get(e, fmt.Sprintf("host.cove.internal:%d", port), "/"))
		}
	}
	if reached() != before {
		c.Error("HOLE: another port of the machine was reached")
	}
}

// ownPorts: what listens inside are the gateway's three, which have nothing to
// control; whose they are, the socket tells, so there is no token to replay.
func ownPorts(c *trial) {
	b := c.outward(allow("allowed.lab"))
	c.internet().Forget()
	for address, want := range map[string][]string{"127.0.0.1": {"1", "53", "3128"}, "[::1]": {"1", "53"}} {
		r := c.works(b.box, "scan "+address)
		if !slices.Equal(r.Lines, want) {
			c.Errorf("HOLE or not tested: open at %s are %v, want %v", address, r.Lines, want)
		}
	}
	for _, at := range []string{"127.0.0.1:1", "[::1]:1", "127.0.0.1:3128"} { // and 53, which N12 and N13 talk to
		for _, path := range []string{"/", "/metrics", "/debug/pprof/", "/executions", "/healthz", "/policy", "/network",
			"/openapi.json", "/v1/policy", "/ca.key"} {
			for _, host := range []string{"localhost", at, "gateway", "api.cove.internal", "127.0.0.1:8080"} {
				a := b.talk(outcome.Talk{By: outcome.Direct, At: at, Send: "GET " + path + " HTTP/1.1\r\nHost: " +
					host + "\r\nAuthorization: Bearer x\r\nProxy-Authorization: Basic eDp4\r\nConnection: close\r\n\r\n"})
				if a.Count != 0 && a.Count < 400 || strings.Contains(a.text, "go_goroutines") {
					c.Errorf("HOLE: %s%s with Host %s: %s", at, path, host, a)
				}
			}
		}
	}
	b.quiet("allowed.lab")
	c.control(b, "allowed.lab")
}
