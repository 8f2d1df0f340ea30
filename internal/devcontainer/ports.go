package devcontainer

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/cove-sandbox/cove/internal/compose"
	"github.com/cove-sandbox/cove/internal/pattern"
)

// takePorts takes the ports of forwardPorts (PORT, "HOST:PORT") and appPort (PORT, "[ADDRESS:]LOCAL:PORT"). What is no
// TCP port is left out.
func takePorts(v *evaluation, p property) {
	for _, raw := range p.each() {
		text := strings.Trim(string(raw), `" `)
		port, why := forwardPort(text)
		if p.name == "appPort" {
			port, why = appPort(text)
		}
		if port.Service == v.service {
			port.Service = ""
		}
		beside := func(s Service) bool { return s.Name == port.Service }
		if why == "" && port.Service != "" && !slices.ContainsFunc(v.out.Services, beside) {
			why = "no service beside the sandbox has this name"
		}
		if why != "" {
			v.leave(p, p.name+" "+text, why)
			continue
		}
		takePort(v, p, port)
	}
}

// takePort takes a port, unless it is there.
func takePort(v *evaluation, p property, port Port) {
	if slices.ContainsFunc(v.out.Ports, func(t Port) bool { return t.Service == port.Service && t.Port == port.Port }) {
		return
	}
	v.out.Ports = append(v.out.Ports, port)
	v.take(p, "port", port.String())
}

const noPort = "it is no TCP port from 1 to 65535"

// hostPort is [HOST:]PORT.
var hostPort = pattern.New(`^(?:([a-zA-Z0-9][a-zA-Z0-9._-]*):)?([0-9]+)$`)

func forwardPort(text string) (port Port, why string) {
	m := hostPort.FindStringSubmatch(text)
	if m == nil {
		return port, noPort
	}
	if m[1] != "localhost" && m[1] != "127.0.0.1" {
		port.Service = m[1]
	}
	port.Port = number(m[2])
	if port.Port == 0 {
		why = noPort
	}
	return port, why
}

// appPort reads PORT or [ADDRESS:]LOCAL:PORT, as "docker run -p" does.
func appPort(text string) (port Port, why string) {
	text, protocol, _ := strings.Cut(text, "/")
	if protocol != "" && protocol != "tcp" {
		return port, onlyTCP
	}
	parts := strings.Split(text, ":")
	port.Port = number(parts[len(parts)-1])
	if len(parts) > 1 {
		port.Local = local(parts[len(parts)-2])
	}
	if port.Port == 0 {
		why = noPort
	}
	return port, why
}

const onlyTCP = "only TCP is carried"

// local is a port of the user's machine; nil for a range, or for none.
func local(text string) *uint16 {
	if n := number(text); n > 0 {
		return &n
	}
	return nil
}

// number is a port; 0 is none.
func number(text string) uint16 {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return 0
	}
	return uint16(n)
}

// published takes the ports that a file of Compose has published of a service; of is empty for the sandbox itself.
func (c *composed) published(s compose.Service, of string) {
	for _, port := range s.Ports {
		p := c.at(s.Name, "ports")
		switch {
		case port.Protocol != "" && port.Protocol != "tcp":
			c.leave(p, fmt.Sprintf("%s %d/%s", p.name, port.Target, port.Protocol), onlyTCP)
		case port.Target == 0 || port.Target > 65535:
			c.leave(p, fmt.Sprintf("%s %d", p.name, port.Target), noPort)
		case port.Published != "" || of == "":
			takePort(c.evaluation, p, Port{of, uint16(port.Target), local(port.Published)})
		}
	}
}
