package httpapi

import (
	"context"
	"slices"
	"strings"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/apispec"
	"github.com/cove-sandbox/cove/internal/egress"
	"github.com/cove-sandbox/cove/internal/egress/policy"
)

// mayReach refuses a network that a caller may not have. Errors: InvalidArgument, Forbidden.
func (s *Server) mayReach(ctx context.Context, who cove.Principal, asked *cove.Network) error {
	n, err := egress.NetworkOf(asked)
	if err != nil {
		return err
	}
	if len(n.Credentials)+len(n.Providers) > 0 && !who.IsOwner() {
		err := cove.Errorf(cove.Forbidden, "credentials and model providers are the machine's owner's to use").
			WithHint("leave permissions.network.credentials and providers out")
		s.deny(ctx, who, "network", strings.Join(append(slices.Clip(n.Credentials), n.Providers...), ","), err)
		return err
	}
	return s.mayOpen(ctx, who, n.Policy)
}

// mayOpen: services of the machine and private addresses are the owner's to open.
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
	docs, err := policy.Documents(apispec.Change(in.Body))
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
