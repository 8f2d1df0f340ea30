package adversary

import (
	"context"
	"fmt"
	"net"
	"strings"
	"time"
)

// networkRows are attempts to reach anything over the network, of which there
// is none (E1, N1 as far as the mode "none" goes).
func networkRows() []row {
	away := append([]string{"ENETUNREACH", "EHOSTUNREACH", "ECONNREFUSED", "TIMEOUT", "EADDRNOTAVAIL"}, denied...)
	return []row{
		{id: "N1.interfaces", invariant: "E1", what: "find an interface or a route", test: loopbackOnly},
		{id: "N1.addresses", invariant: "E1",
			what: "connect to the internet, private networks and the metadata service", deny: away,
			inside: []string{"listen tcp 127.0.0.1:0", "listen tcp [::1]:0"}, test: unreachable},
		{id: "N1.host_listener", invariant: "E1", what: "connect to a port of the host's, on every address it has",
			test: hostListener},
		{id: "N1.names", invariant: "E1", what: "resolve a name, or wait long for the failure", test: namesFail},
		{id: "N1.udp", invariant: "E1", what: "send a datagram out", deny: away, test: func(c *trial) {
			for _, a := range []string{"1.1.1.1:53", "8.8.8.8:443", "255.255.255.255:67", "224.0.0.251:5353",
				"[2606:4700:4700::1111]:53", "[ff02::1%lo]:9"} {
				c.denied(c.box(), "connect udp "+a)
			}
			c.works(c.box(), "connect udp 127.0.0.1:9")
		}},
		{id: "N1.low_port", invariant: "E1",
			what: "take a privileged port inside, which is allowed or not but never the host's", test: lowPort},
	}
}

func loopbackOnly(c *trial) {
	r := c.works(c.box(), "interfaces")
	seen := false
	for _, line := range r.Lines {
		switch {
		case strings.HasPrefix(line, "link lo "):
			seen = true
		case strings.HasPrefix(line, "link "):
			c.Errorf("HOLE: there is an interface: %s", line)
		default:
			c.Errorf("HOLE: there is a route: %s", line)
		}
	}
	if !seen {
		c.Errorf("not tested: not even loopback is there: %v", r.Lines)
	}
	if out, err := net.Interfaces(); err != nil || len(out) < 2 {
		c.remark("the host has no other interface either")
	}
}

func unreachable(c *trial) {
	for _, a := range []string{"1.1.1.1:443", "8.8.8.8:53", "169.254.169.254:80", "10.0.0.1:22", "172.17.0.1:2375",
		"192.168.0.1:80", "100.64.0.1:80",
		"168.63.129.16:80", "198.18.0.1:80", "[2606:4700:4700::1111]:443", "[fd00:ec2::254]:80", "[fe80::1%lo]:80",
		"[::ffff:1.1.1.1]:443"} {
		c.denied(c.box(), "connect tcp "+a)
	}
}

// hostListener listens on the host and tries every address it could be reached by. The control connects from the host.
func hostListener(c *trial) {
	l, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		c.lacking("this host has no IPv4: %v", err)
	}
	defer serve(l)()
	port := l.Addr().(*net.TCPAddr).Port
	conn, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", port), patience)
	if err != nil {
		c.Fatal("not tested: ", err)
	}
	conn.Close()
	addresses := []string{"127.0.0.1", "127.0.0.53", "0.0.0.0", "10.0.2.2", "172.17.0.1", "192.168.65.2", "169.254.1.1"}
	own, _ := net.InterfaceAddrs()
	for _, a := range own {
		if ip, _, err := net.ParseCIDR(a.String()); err == nil && ip.To4() != nil {
			addresses = append(addresses, ip.String())
		}
	}
	c.row.deny = append([]string{"ECONNREFUSED", "ENETUNREACH", "EHOSTUNREACH", "TIMEOUT"}, denied...)
	for _, a := range addresses {
		c.denied(c.box(), fmt.Sprintf("connect tcp %s:%d", a, port))
	}
}

func namesFail(c *trial) {
	for _, name := range []string{"example.com", "host.docker.internal", "metadata.google.internal", "gateway",
		"data.attacker.example"} {
		r := c.box().try(c, "resolve "+name)
		if r.Outcome != "refused" {
			c.Errorf("HOLE: %s resolves: %s %v", name, say(r), r.Lines)
		}
		if strings.Contains(r.Detail, context.DeadlineExceeded.Error()) || strings.Contains(r.Detail, "i/o timeout") {
			c.Errorf("%s is asked for until the time is over: %s", name, say(r))
		}
	}
	if r := c.works(c.box(), "resolve localhost"); len(r.Lines) == 0 {
		c.Error("not tested: localhost does not resolve")
	}
}

func lowPort(c *trial) {
	p := c.fresh(boxOptions{}).start(c, spec("tcp_listen 127.0.0.1:80"))
	if p == nil {
		return
	}
	opened := p.said("listening")
	conn, err := net.DialTimeout("tcp", "127.0.0.1:80", time.Second)
	if err == nil {
		defer conn.Close()
		conn.SetReadDeadline(time.Now().Add(time.Second))
		b := make([]byte, 16)
		if n, _ := conn.Read(b); strings.HasPrefix(string(b[:n]), "hello") {
			c.Error("HOLE: a port of the sandbox is the host's")
		}
	}
	c.remark("opened inside: %v", opened)
	c.works(c.box(), "listen tcp 127.0.0.1:0")
}
