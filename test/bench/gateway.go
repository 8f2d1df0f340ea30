//go:build linux

package main

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/egress/ca"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/gateway"
	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/store"
	"github.com/cove-sandbox/cove/internal/store/sqlite"
)

// gatewaySetup is a gateway for the bench's origin.
type gatewaySetup struct {
	Dir    string
	Roots  string // PEM file
	Origin origin
}

// opened is a way out on listeners of this machine's loopback.
type opened struct {
	Proxy, Roots string
	MS           float64 // that opening it took, without making the listeners
}

// gatewayRole is Cove's gateway as a process of its own. After its first answer
// it opens as many ways out as each line of its input says.
func gatewayRole(setup []byte, out *json.Encoder) error {
	var s gatewaySetup
	if err := json.Unmarshal(setup, &s); err != nil {
		return err
	}
	g, err := s.open()
	if err != nil {
		return err
	}
	defer g.Close()
	if err := out.Encode("ready"); err != nil {
		return err
	}
	for n := 0; ; {
		if _, err := fmt.Scanln(&n); err != nil {
			return nil
		}
		var all []opened
		for range n {
			o, err := s.route(g)
			if err != nil {
				return err
			}
			all = append(all, o)
		}
		if err := out.Encode(all); err != nil {
			return err
		}
	}
}

// endless is a rate that nobody reaches: what bounds requests counts them.
const endless = 1_000_000

// open makes a gateway as the daemon would with these settings.
func (s gatewaySetup) open() (*gateway.Gateway, error) {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	decisions, err := sqlite.Open(context.Background(), filepath.Join(s.Dir, "bench.db"))
	if err != nil {
		return nil, err
	}
	o := gateway.Options{Dir: s.Dir, Clock: clock.Real(), Log: log, Rate: gateway.Rate{PerSecond: endless, Burst: endless}}
	o.Recorder = gateway.NewRecorder(gateway.RecorderOptions{Store: store.NewVault(decisions), Keep: 10_000,
		Clock: o.Clock, Log: log})
	certificate, err := os.ReadFile(s.Roots)
	if err != nil {
		return nil, err
	}
	roots, err := ca.SystemRoots(os.Getenv)
	if err != nil {
		return nil, err
	}
	o.Bundle = func() []byte { return roots }
	o.Roots = x509.NewCertPool()
	o.Roots.AppendCertsFromPEM(certificate)
	o.Machine.Private = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
	o.Dialer.Resolver = resolver(s.Origin.Names)
	return gateway.New(o), nil
}

// resolver asks one DNS server.
func resolver(names string) *net.Resolver {
	var dialer net.Dialer
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return dialer.DialContext(ctx, network, names)
	}}
}

// allowed is what a sandbox may reach here.
func (o origin) allowed() string { return fmt.Sprintf("*.%s:%d", domain, o.port()) }

// way opens a way out and serves it on sockets that no sandbox has.
func (s gatewaySetup) route(g *gateway.Gateway) (o opened, err error) {
	begin := time.Now()
	document, err := policy.Args("bench", policy.Allow, s.Origin.allowed())
	if err != nil {
		return o, err
	}
	document.Mode = cove.NetworkLimited
	w, err := g.Open(gateway.Spec{Sandbox: cove.NewSandboxID(), Name: "bench", Policy: []*policy.Document{document}})
	if err != nil {
		return o, err
	}
	var b engine.Binding
	defer func() { b.Close() }()
	if err := w.Bind(&b, engine.Rootfs{}); err != nil {
		return o, err
	}
	spent := time.Since(begin)
	var sockets []*os.File
	for _, l := range b.Listeners {
		f, address, err := socket(l)
		if err != nil {
			return o, err
		}
		if strings.HasSuffix(l.Address, ":"+strconv.Itoa(engine.ProxyPort)) {
			o.Proxy = address
		}
		sockets = append(sockets, f)
	}
	begin = time.Now()
	err = w.Serve(sockets)
	spent += time.Since(begin)
	o.Roots, o.MS = b.Files[0].Place.Name(), milliseconds(spent)
	return o, err
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// socket is one that a guest would have made inside, at a port of its own here.
func socket(l guest.Listen) (*os.File, string, error) {
	host, _, err := net.SplitHostPort(l.Address)
	if err != nil {
		return nil, "", err
	}
	at := net.JoinHostPort(host, "0")
	if strings.HasPrefix(l.Network, "udp") {
		c, err := net.ListenPacket(l.Network, at)
		if err != nil {
			return nil, "", err
		}
		defer c.Close()
		f, err := c.(*net.UDPConn).File()
		return f, c.LocalAddr().String(), err
	}
	ln, err := net.Listen(l.Network, at)
	if err != nil {
		return nil, "", err
	}
	defer ln.Close()
	f, err := ln.(*net.TCPListener).File()
	return f, ln.Addr().String(), err
}
