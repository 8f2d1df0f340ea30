package daemon

import (
	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress"
	"github.com/cove-sandbox/cove/internal/egress/github"
	"github.com/cove-sandbox/cove/internal/gateway"
	"github.com/cove-sandbox/cove/internal/gateway/outlet"
)

// nextRoute names the sandbox for which openRoute is called next.
func (d *Daemon) nextRoute() cove.SandboxID {
	if g := d.opened.Load(); g != nil {
		return g.Next()
	}
	return cove.NewSandboxID() // and the gateway is opened for it
}

// openRoute opens the route of an execution, which closes it before Executions.Close returns.
func (d *Daemon) openRoute(who cove.Principal, id cove.SandboxID, of cove.ExecutionID,
	n egress.Network) (egress.Route, error) {
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
	servers, err := github.ServersNamed(d.cfg.Gateway.GitHubHosts)
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

// gatewayOptions returns the options of both gateways of a daemon.
func (d *Daemon) gatewayOptions() (gateway.Options, error) {
	o, err := gatewayOptions(d.files)
	if err != nil {
		return o, err
	}
	o.Recorder, o.Approvals, o.Values, o.Log = d.recorder, &d.vault, d.credentials.Values, d.log
	o.Accounts, o.Packages = d.accounts, d.packages
	o.OwnPort = func(port uint16) bool { return uint32(port) == d.port.Load() }
	o.Pushed = func(object string, commits []string) {
		if s, err := d.openRepos(); err == nil {
			s.Deliver(cove.SandboxID(object), commits...)
		}
	}
	o.Spool, o.Packs, err = packs(d.cfg.Home, d.engines, d.executions, d.log)
	return o, err
}

// network returns the present state of the gateways that are open.
func (d *Daemon) network() (all gateway.State) {
	for _, g := range []*gateway.Gateway{d.opened.Load(), d.detached.Load()} {
		if g != nil {
			s := g.State()
			all.Connections, all.Holds = all.Connections+s.Connections, all.Holds+s.Holds
			all.Open, all.HalfOpen = all.Open+s.Open, all.HalfOpen+s.HalfOpen
			all.Packages = s.Packages // of both
		}
	}
	return all
}
