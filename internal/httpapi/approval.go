package httpapi

import (
	"cmp"
	"context"
	"slices"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/apispec"
	"github.com/cove-sandbox/cove/internal/egress/approval"
)

// Approvals lists and answers the requests that wait; gateway.Approvals is one.
type Approvals interface {
	// Holds lists what waits for an answer of the principal's in this process, the oldest first.
	Holds(who cove.Principal) []approval.Hold
	// Answer answers, as the principal, what waits as id in something of the principal's, if may has no
	// objection. Errors: NotFound, InvalidArgument.
	Answer(ctx context.Context, who cove.Principal, id cove.HoldID, a approval.Answer, may func(approval.Hold) error) error
	// Revoke forgets an approval of the principal's. Errors: NotFound.
	Revoke(ctx context.Context, who cove.Principal, id cove.ApprovalID) error
}

type holdsInput struct {
	Execution string `query:"execution" maxLength:"64" doc:"Only of this execution"`
}

// holds is GET /network/holds.
func (s *Server) holds(ctx context.Context, in *holdsInput) (*answer[api.HoldList], error) {
	all := s.Approvals.Holds(exchangeOf(ctx).who)
	if in.Execution != "" {
		all = slices.DeleteFunc(all, func(h approval.Hold) bool { return string(h.Execution) != in.Execution })
	}
	return &answer[api.HoldList]{holdList(all)}, nil
}

func holdList(all []approval.Hold) api.HoldList {
	list := api.HoldList{Holds: make([]api.Hold, 0, len(all))}
	for _, h := range all {
		list.Holds = append(list.Holds, api.Hold{
			ID: string(h.ID), Execution: string(h.Execution), Client: h.Client, Host: h.Subject.Host, Port: h.Subject.Port,
			Method: h.Method, Path: h.Path, Address: h.Subject.Address,
			About: h.Subject.String(), Count: h.Count, Rule: h.Rule, Reason: h.Reason, Since: h.Since.UTC(),
			Until: h.Until.UTC(),
		})
	}
	return list
}

type holdAnswerInput struct {
	ID   string `path:"id" doc:"The hold's id" example:"ho_0123456789abcdefghjkmnpqrs"`
	Body api.HoldAnswer
}

// answerHold is POST /network/holds/{id}. What a caller may not allow, it may not approve.
func (s *Server) answerHold(ctx context.Context, in *holdAnswerInput) (*struct{}, error) {
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
func (s *Server) approvals(ctx context.Context, _ *struct{}) (*answer[api.ApprovalList], error) {
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
func (s *Server) revoke(ctx context.Context, in *approvalInput) (*struct{}, error) {
	id, err := cove.ParseApprovalID(in.ID)
	if err != nil {
		return nil, cove.Errorf(cove.NotFound, "no approval %.64q is remembered", in.ID)
	}
	return nil, s.Approvals.Revoke(ctx, exchangeOf(ctx).who, id)
}
