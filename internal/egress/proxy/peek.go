package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/cove-sandbox/cove/internal/egress/decision"
	"github.com/cove-sandbox/cove/internal/egress/policy"
)

// protocol is the protocol that a connection's first bytes suggest. It selects their reader, not what is allowed.
type protocol int

const (
	protocolOther protocol = iota
	protocolTLS
	protocolHTTP
	protocolSilent // no byte came in time
	protocolBroken // began like a protocol and did not continue like it
)

func (p protocol) name() decision.Protocol {
	switch p {
	case protocolTLS:
		return decision.ProtocolTLS
	case protocolHTTP:
		return decision.ProtocolHTTP
	}
	return decision.ProtocolTCP
}

func (p protocol) problem() string {
	switch p {
	case protocolSilent:
		return "the client sent nothing"
	case protocolBroken:
		return errHello.Error()
	}
	return "neither TLS nor HTTP, and no rule passes it through"
}

// maxHello bounds a ClientHello with its records: crypto/tls accepts 64 KiB, in records of a few bytes each.
const maxHello = 192 << 10

var (
	errHello          = errors.New("malformed TLS handshake")
	errNoName         = errors.New("the TLS handshake names no host (SNI)")
	errBadName        = errors.New("the TLS handshake names no valid host (SNI)")
	errOtherName      = errors.New("the TLS handshake names another host (SNI) than the connection is for")
	errEncryptedHello = errors.New("the name in the TLS handshake is encrypted (ECH), and the connection would not be " +
		"intercepted")
)

// more reads further bytes, to be read again later.
func (c *conn) more() error {
	if c.ahead == nil {
		c.ahead = make([]byte, 0, 2048)
	}
	if len(c.ahead) == cap(c.ahead) {
		if len(c.ahead) >= maxHello {
			return errHello
		}
		c.ahead = slices.Grow(c.ahead, cap(c.ahead))
	}
	n, err := c.Conn.Read(c.ahead[len(c.ahead):cap(c.ahead)])
	c.ahead = c.ahead[:len(c.ahead)+n]
	if n > 0 {
		return nil
	}
	return err
}

// peek waits for the first bytes of a connection and returns their protocol, without consuming them.
func peek(c *conn, wait time.Duration) (protocol, *hello) {
	c.SetReadDeadline(time.Now().Add(wait))
	defer c.SetReadDeadline(time.Time{})
	if len(c.ahead) == 0 {
		if err := c.more(); errors.Is(err, os.ErrDeadlineExceeded) {
			return protocolSilent, nil
		} else if err != nil {
			return protocolBroken, nil
		}
	}
	const handshakeRecord = 22
	if c.ahead[0] == handshakeRecord {
		h, err := readHello(c)
		if err != nil {
			return protocolBroken, nil
		}
		return protocolTLS, h
	}
	for {
		method, _, complete := strings.Cut(string(c.ahead[:min(len(c.ahead), maxMethod+1)]), " ")
		switch {
		case strings.Trim(method, methodLetters) != "" || len(method) > maxMethod || complete && method == "":
			return protocolOther, nil
		case complete:
			return protocolHTTP, nil
		}
		if c.more() != nil {
			return protocolOther, nil
		}
	}
}

type hello struct {
	name      string // SNI; empty if there is none
	encrypted bool   // there may be another name inside
}

const (
	extensionECH  = 0xfe0d // RFC 9849
	extensionESNI = 0xffce // its drafts
)

var errSeen = errors.New("seen")

// readHello parses the ClientHello with crypto/tls, the parser that also answers it.
func readHello(c *conn) (*hello, error) {
	var found *hello
	err := tls.Server(&replay{conn: c}, &tls.Config{
		GetConfigForClient: func(info *tls.ClientHelloInfo) (*tls.Config, error) {
			found = &hello{
				name:      info.ServerName,
				encrypted: slices.Contains(info.Extensions, extensionECH) || slices.Contains(info.Extensions, extensionESNI),
			}
			return nil, errSeen
		},
	}).HandshakeContext(context.Background())
	if found == nil {
		return nil, err
	}
	return found, nil
}

// host returns the target of a connection by its TLS handshake.
func (h *hello) host(rt *route) (policy.Host, error) {
	if h.name == "" {
		if rt.addr.IsValid() {
			return policy.HostOf(rt.addr), nil
		}
		return policy.Host{}, errNoName
	}
	host, err := policy.ParseHost(h.name)
	if name := strings.ToLower(h.name); err != nil || name != host.Name() && name != policy.HostServiceAlias {
		return policy.Host{}, errBadName
	}
	if !rt.host.IsZero() && host != rt.host {
		return policy.Host{}, errOtherName
	}
	return host, nil
}

// replay reads a connection without consuming it, and discards writes.
type replay struct {
	*conn
	at int
}

func (r *replay) Read(p []byte) (int, error) {
	if r.at == len(r.conn.ahead) {
		if err := r.conn.more(); err != nil {
			return 0, err
		}
	}
	n := copy(p, r.conn.ahead[r.at:])
	r.at += n
	return n, nil
}

func (r *replay) Write(p []byte) (int, error)      { return len(p), nil }
func (r *replay) Close() error                     { return nil }
func (r *replay) SetDeadline(time.Time) error      { return nil } // the connection's own deadline holds
func (r *replay) SetReadDeadline(time.Time) error  { return nil }
func (r *replay) SetWriteDeadline(time.Time) error { return nil }
