package daemon

import (
	"context"
	"crypto/x509"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/config"
	"github.com/cove-sandbox/cove/internal/egress"
	"github.com/cove-sandbox/cove/internal/egress/ca"
	"github.com/cove-sandbox/cove/internal/egress/github"
	"github.com/cove-sandbox/cove/internal/egress/model"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/egress/registry"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/gateway"
	"github.com/cove-sandbox/cove/internal/gateway/outlet"
	"github.com/cove-sandbox/cove/internal/git/inspect"
)

// nextWay names a sandbox that openWay is called for next.
func (d *Daemon) nextWay() cove.SandboxID {
	if g := d.opened.Load(); g != nil {
		return g.Next()
	}
	return cove.NewSandboxID() // and the gateway is opened for it
}

// openWay opens the route of an execution, which closes it before Executions.Close returns.
func (d *Daemon) openWay(who cove.Principal, id cove.SandboxID, of cove.ExecutionID, n egress.Network) (egress.Route, error) {
	g, err := d.openGateway()
	if err != nil {
		return nil, err
	}
	s := spec(who, id, string(of), n)
	s.Object = string(of)
	return g.Open(s)
}

// newOutlet makes the routes of programs of this machine.
func (d *Daemon) newOutlet() (outlet.Outlet, error) {
	servers, err := GitHub(d.cfg.Gateway)
	return outlet.Outlet{Gateway: d.openGateway, GitHub: servers}, err
}

func (d *Daemon) newGateway() (*gateway.Gateway, error) {
	o, err := d.gatewayOptions()
	if err != nil {
		return nil, err
	}
	o.Dir = d.instance.Files()
	if !d.warm { // else there will be one sandbox
		o.Ahead = d.cfg.Sandbox.Ready
	}
	made := gateway.New(o)
	d.opened.Store(made)
	d.approvals.Add(made)
	return made, nil
}

// packs returns the directory below another in which pushes are kept, and the
// inspector that has git look into them, in sandboxes of any engine that can.
func packs(below string, all *engine.Set) (spool string, i *inspect.Inspector, err error) {
	spool = filepath.Join(below, "pushes")
	if err := os.MkdirAll(spool, 0o711); err != nil {
		return "", nil, cove.Errorf(cove.StorageFull, "the directory %s cannot be made: %w", spool, err)
	}
	inspect.Tidy(spool)
	return spool, inspect.New(inspect.Options{Engines: all, Dir: spool}), nil
}

// gatewayOptions returns the options of both gateways of a daemon.
func (d *Daemon) gatewayOptions() (gateway.Options, error) {
	o, err := gatewayOptions(d.cfg.Gateway)
	if err != nil {
		return o, err
	}
	o.Recorder, o.Approvals, o.Log = d.recorder, &d.vault, d.log
	o.OwnPort = func(port uint16) bool { return uint32(port) == d.port.Load() }
	o.Spool, o.Packs, err = packs(d.cfg.Home, d.engines)
	return o, err
}

// gatewayOptions returns the options of every gateway by the configuration.
func gatewayOptions(g config.Gateway) (gateway.Options, error) {
	o := gateway.Options{Patience: g.ApprovalTimeout.Std(), Clock: clock.Real()}
	var err error
	if o.Roots, o.Bundle, err = trust(g.ExtraCAs); err != nil {
		return o, err
	}
	if o.Credentials, err = credentials(g); err != nil {
		return o, err
	}
	if o.Providers, err = providers(g); err != nil {
		return o, err
	}
	if g.Budget != "" {
		if o.Budget, err = model.ParseBudget(g.Budget); err != nil {
			return o, err // Validate has accepted it
		}
	}
	if g.Resolver != "" {
		o.Dialer.Resolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			var dialer net.Dialer
			return dialer.DialContext(ctx, network, g.Resolver)
		}}
	}
	if g.UpstreamProxy != "" {
		if o.Dialer.Upstream, err = url.Parse(g.UpstreamProxy); err != nil {
			return o, err // Validate has accepted it
		}
	}
	if o.GitHub, err = GitHub(g); err != nil {
		return o, err
	}
	o.Rate = gateway.Rate{PerSecond: g.RateLimit.PerSecond, Burst: g.RateLimit.Burst}
	if o.Machine, err = Machine(context.Background(), g); err != nil {
		return o, err
	}
	return o, nil
}

// network returns the present state of the gateways that are open.
func (d *Daemon) network() (all gateway.State) {
	for _, g := range []*gateway.Gateway{d.opened.Load(), d.detached.Load()} {
		if g != nil {
			s := g.State()
			all.Connections, all.Holds = all.Connections+s.Connections, all.Holds+s.Holds
			all.Open, all.HalfOpen = all.Open+s.Open, all.HalfOpen+s.HalfOpen
		}
	}
	return all
}

// GitHub is whose API is judged.
func GitHub(g config.Gateway) (github.Servers, error) {
	var enterprise []policy.Host
	for _, s := range g.GitHubHosts {
		h, err := policy.ParseHost(s)
		if err != nil {
			return github.Servers{}, err // Validate has accepted it
		}
		enterprise = append(enterprise, h)
	}
	return github.NewServers(enterprise...), nil
}

// Machine returns the part of this machine and its gateway that policies depend on.
func Machine(ctx context.Context, g config.Gateway) (policy.Machine, error) {
	packages := registry.New()
	m := policy.Machine{Own: ownAddresses(), Registry: func(tool string) ([]policy.Endpoint, error) { return packages.Endpoints(ctx, tool) }}
	for _, s := range g.PrivateCIDRs {
		p, err := netip.ParsePrefix(s)
		if err != nil {
			return policy.Machine{}, err // Validate has accepted it
		}
		m.Private = append(m.Private, p)
	}
	return m, nil
}

// trust returns the certificate authorities for origins: the machine's roots and the files, as a pool and, for
// sandboxes, as PEM.
func trust(files []string) (*x509.CertPool, []byte, error) {
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	bundle, err := ca.SystemRoots(os.Getenv)
	if err != nil {
		bundle = nil // a machine without roots: only extra ones vouch
	}
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			return nil, nil, cove.Errorf(cove.InvalidArgument, "gateway.extra_cas: %w", err)
		}
		if !pool.AppendCertsFromPEM(data) {
			return nil, nil, cove.Errorf(cove.InvalidArgument, "gateway.extra_cas: %s has no certificate", f).WithHint("it must be PEM")
		}
		bundle = append(bundle, data...)
	}
	return pool, bundle, nil
}

// ownAddresses are this machine's, loopback aside.
func ownAddresses() []netip.Addr {
	var own []netip.Addr
	addresses, _ := net.InterfaceAddrs() // a machine without addresses needs no protection
	for _, a := range addresses {
		if p, err := netip.ParsePrefix(a.String()); err == nil && !p.Addr().IsLoopback() {
			own = append(own, p.Addr())
		}
	}
	return own
}
