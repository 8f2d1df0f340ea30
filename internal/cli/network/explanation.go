package network

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/cli/flags"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
	"github.com/cove-sandbox/cove/internal/daemon"
	"github.com/cove-sandbox/cove/internal/egress/policy"
)

// explanation holds the decision on a request, and the decision of each layer.
type explanation struct {
	Request  string         `json:"request"`
	Decision policy.Verdict `json:"decision"`
	Layers   []explained    `json:"layers"`
	Note     string         `json:"note,omitempty"`
}

type explained struct {
	Layer    string         `json:"layer"`
	Decision policy.Verdict `json:"decision"`
}

// toExplain reads what is to be explained.
func toExplain(target, method, address string) (policy.Request, error) {
	var r policy.Request
	if strings.Contains(target, "://") {
		u, err := policy.ParseURL(target)
		if err != nil {
			return r, err
		}
		r = policy.Request{Host: u.Host, Port: u.Port, Method: strings.ToUpper(method), Path: u.Path}
	} else {
		var err error
		if r.Host, r.Port, err = policy.ParseAuthority(target, 443); err != nil {
			return r, err
		}
	}
	if address != "" {
		h, err := policy.ParseHost(address)
		if err != nil {
			return r, err
		}
		var ok bool
		if r.Address, ok = h.Addr(); !ok {
			return r, cove.Errorf(cove.InvalidArgument, "--address %s is not an address", address)
		}
	} else {
		r.Address, _ = r.Host.Addr()
	}
	return r, nil
}

// requestText is a request for people.
func requestText(r policy.Request, target string) string {
	if r.Method == "" {
		return r.Host.Authority(r.Port)
	}
	return r.Method + " " + target
}

// compile makes a policy of the flags; there must be some.
func compile(sess *session.Session, cmd *cobra.Command, f flags.Policy) (*policy.Policy, error) {
	layers, err := f.Documents()
	if err != nil {
		return nil, err
	}
	if len(layers) == 0 {
		return nil, ui.UsageError(cmd, "there is no policy: name one with --policy FILE, or say --network, --allow or --deny")
	}
	m, err := machine(cmd.Context(), sess)
	if err != nil {
		return nil, err
	}
	return policy.Compile(m, layers...)
}

// machine returns the facts about this machine that policies need, as configured.
func machine(ctx context.Context, sess *session.Session) (policy.Machine, error) {
	cfg, err := sess.Config()
	if err != nil {
		return policy.Machine{}, err
	}
	return daemon.Machine(ctx, cfg.Gateway)
}
