package httpapi

import (
	"cmp"
	"context"
	"net/http"
	"slices"

	"github.com/danielgtaylor/huma/v2"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/apispec"
	"github.com/cove-sandbox/cove/internal/egress/approval"
)

// approvalRoutes serve requests that wait for an answer, and the answers that are remembered.
type approvalRoutes struct{ *edge }

func (s approvalRoutes) add() {
	route(s, huma.Operation{OperationID: "list-holds", Method: http.MethodGet, Path: "/network/holds",
		Tags:    []string{"network"},
		Summary: "List what waits for an answer",
		Description: "Requests that a policy asks about, of the caller's executions and sandboxes, the oldest first; of " +
			"all of this server, or of all clients of this gateway, for the machine's owner.",
	}, nil, s.holds)

	route(s, huma.Operation{OperationID: "answer-hold", Method: http.MethodPost, Path: "/network/holds/{id}",
		Tags: []string{"network"}, DefaultStatus: http.StatusNoContent,
		Summary:     "Answer what waits",
		Description: "At once. Private addresses and services of the machine are approved by its owner.",
	}, append([]cove.Code{cove.NotFound, cove.TooLarge}, storeErrors...), s.answerHold)

	route(s, huma.Operation{OperationID: "list-approvals", Method: http.MethodGet, Path: "/network/approvals",
		Tags:        []string{"network"},
		Summary:     "List the approvals that are remembered for policies, newest first",
		Description: "Those that the caller has given; all of them for the machine's owner.",
	}, storeErrors, s.approvals)

	route(s, huma.Operation{OperationID: "revoke-approval", Method: http.MethodDelete, Path: "/network/approvals/{id}",
		Tags: []string{"network"}, DefaultStatus: http.StatusNoContent,
		Summary:     "Forget an approval",
		Description: "What it is about is asked about again, in running executions too; requests that are under way go on.",
	}, append([]cove.Code{cove.NotFound}, storeErrors...), s.revoke)
}

type holdsInput struct {
	Execution string `query:"execution" maxLength:"64" doc:"Only of this execution"`
}

// holds is GET /network/holds.
func (s approvalRoutes) holds(ctx context.Context, in *holdsInput) (*answer[api.HoldList], error) {
	all := s.Approvals.Holds(exchangeOf(ctx).who)
	if in.Execution != "" {
		all = slices.DeleteFunc(all, func(h approval.Hold) bool { return string(h.Execution) != in.Execution })
	}
	return &answer[api.HoldList]{holdList(all)}, nil
}

type holdAnswerInput struct {
	ID   string `path:"id" doc:"The hold's id" example:"ho_0123456789abcdefghjkmnpqrs"`
	Body api.HoldAnswer
}

// answerHold is POST /network/holds/{id}. What a caller may not allow, it may not approve.
func (s approvalRoutes) answerHold(ctx context.Context, in *holdAnswerInput) (*struct{}, error) {
	id, err := cove.ParseHoldID(in.ID)
	if err != nil {
		return nil, cove.Errorf(cove.NotFound, "nothing waits as %.64q", in.ID)
	}
	who := exchangeOf(ctx).who
	a := approval.Answer{Allow: in.Body.Allow, Scope: approval.Scope(in.Body.Scope), For: apispec.Duration(in.Body.For)}
	return nil, s.Approvals.Answer(ctx, who, id, a, func(h approval.Hold) error {
		if who.IsOwner() || !a.Allow {
			return nil
		}
		rules, err := h.Subject.Rules()
		if err == nil {
			err = rules.Foreign(nil)
		}
		if err != nil {
			s.deny(ctx, who, "approve", cmp.Or(string(h.Execution), h.Client), err)
		}
		return err
	})
}

// approvals is GET /network/approvals.
func (s approvalRoutes) approvals(ctx context.Context, _ *struct{}) (*answer[api.ApprovalList], error) {
	all, err := s.Store.For(exchangeOf(ctx).who).Approvals(ctx, s.Clock.Now())
	if err != nil {
		return nil, err
	}
	list := api.ApprovalList{Approvals: make([]api.Approval, 0, len(all))}
	for _, a := range all {
		list.Approvals = append(list.Approvals, api.Approval{ID: string(a.ID), Policy: a.Policy, About: a.Subject.String(),
			Rule: a.Rule, Who: a.Who.String(), Time: a.Time, Until: a.Until})
	}
	return &answer[api.ApprovalList]{list}, nil
}

type approvalInput struct {
	ID string `path:"id" doc:"The approval's id" example:"ap_0123456789abcdefghjkmnpqrs"`
}

// revoke is DELETE /network/approvals/{id}.
func (s approvalRoutes) revoke(ctx context.Context, in *approvalInput) (*struct{}, error) {
	id, err := cove.ParseApprovalID(in.ID)
	if err != nil {
		return nil, cove.Errorf(cove.NotFound, "no approval %.64q is remembered", in.ID)
	}
	return nil, s.Approvals.Revoke(ctx, exchangeOf(ctx).who, id)
}
