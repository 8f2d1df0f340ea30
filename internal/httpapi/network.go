package httpapi

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/egress/model"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/gateway"
	"github.com/cove-sandbox/cove/internal/sandbox"
)

// Network is what was asked for as policy documents, whoever asks.
func Network(q api.NetworkPermission) (sandbox.Network, error) {
	asked := q.Mode != "" || len(q.Allow)+len(q.Deny)+len(q.Credentials)+len(q.Providers)+len(q.Policies) > 0 || q.AllowPR
	switch {
	case !q.Enabled && asked:
		return sandbox.Network{}, cove.Errorf(cove.InvalidArgument, "permissions.network says what to reach, but not enabled").WithHint("set enabled to true, or leave the rest out")
	case !q.Enabled:
		return sandbox.Network{}, nil
	case !asked:
		return sandbox.Network{}, cove.Errorf(cove.InvalidArgument, "a network was asked for, but not to reach what").
			WithHint("name hosts in permissions.network.allow, or set mode to open")
	}
	docs, err := gateway.Documents(q.GatewayPolicy)
	if err != nil {
		return sandbox.Network{}, err
	}
	mode := cove.NetworkLimited
	for _, d := range docs {
		mode = cmp.Or(d.Mode, mode)
	}
	docs = append(docs, &policy.Document{Source: "permissions.network", Mode: mode})
	return sandbox.Network{Mode: mode, Policy: docs, Credentials: q.Credentials, Providers: q.Providers, Budget: model.BudgetOf(q.ModelPermission)}, nil
}

// network is Network for a caller, who may not have all of it.
func (s *Server) network(ctx context.Context, who cove.Principal, q api.NetworkPermission) (sandbox.Network, error) {
	n, err := Network(q)
	if err != nil {
		return n, err
	}
	if len(n.Credentials)+len(n.Providers) > 0 && !who.IsOwner() {
		err := cove.Errorf(cove.Forbidden, "credentials and model providers are the machine's owner's to use").WithHint("leave permissions.network.credentials and providers out")
		s.deny(ctx, who, "network", strings.Join(append(slices.Clip(n.Credentials), n.Providers...), ","), err)
		return sandbox.Network{}, err
	}
	return n, s.mayOpen(ctx, who, n.Policy)
}

// mayOpen: services of the machine and private addresses are the owner's to
// open.
func (s *Server) mayOpen(ctx context.Context, who cove.Principal, docs []*policy.Document) error {
	if who.IsOwner() {
		return nil
	}
	for _, d := range docs {
		if err := d.Foreign(nil); err != nil {
			s.deny(ctx, who, "network", d.Source, err)
			return err
		}
	}
	return nil
}

type networkInput struct {
	ID   string `path:"id" doc:"The execution's id" example:"ex_0123456789abcdefghjkmnpqrs"`
	Body api.NetworkChange
}

// changeNetwork is POST /executions/{id}/network.
func (s *Server) changeNetwork(ctx context.Context, in *networkInput) (*answer[api.NetworkChanged], error) {
	id, err := cove.ParseExecutionID(in.ID)
	if err != nil {
		return nil, noExecution(in.ID)
	}
	docs, err := gateway.Documents(api.GatewayPolicy{Allow: in.Body.Allow, Deny: in.Body.Deny})
	if err != nil {
		return nil, err
	}
	who := exchangeOf(ctx).who
	if err := s.mayOpen(ctx, who, docs); err != nil {
		return nil, err
	}
	cut, err := s.Executor.ExtendNetwork(ctx, who, id, docs)
	if err != nil {
		return nil, err
	}
	return &answer[api.NetworkChanged]{api.NetworkChanged{Cut: cut}}, nil
}

type authorityInput struct {
	ID string `path:"id" doc:"The execution's id" example:"ex_0123456789abcdefghjkmnpqrs"`
}

// authority is GET /executions/{id}/ca.
func (s *Server) authority(ctx context.Context, in *authorityInput) (*answer[api.Authority], error) {
	id, err := cove.ParseExecutionID(in.ID)
	if err != nil {
		return nil, noExecution(in.ID)
	}
	certificate, err := s.Executor.Certificate(ctx, exchangeOf(ctx).who, id)
	if err != nil {
		return nil, err
	}
	return &answer[api.Authority]{api.Authority{Certificate: string(certificate)}}, nil
}
