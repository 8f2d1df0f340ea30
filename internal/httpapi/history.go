package httpapi

import (
	"context"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/apispec"
	"github.com/cove-sandbox/cove/internal/store"
)

type listInput struct {
	Label    []string  `query:"label,explode" maxItems:"64" doc:"Only with this label, KEY=VALUE; of several, with all"`
	Language string    `query:"language" maxLength:"64" doc:"Only of this runtime"`
	Status   string    `query:"status" enum:"running,completed,timeout,limited,killed,refused,failed" doc:"Only with this status"`
	Since    time.Time `query:"since" doc:"Created at or after this time"`
	Until    time.Time `query:"until" doc:"Created before this time"`
	Cursor   string    `query:"cursor" maxLength:"256" doc:"next_cursor of the page before"`
	Limit    int       `query:"limit" minimum:"1" maximum:"500" default:"50" doc:"Rows in a page"`
}

// list is GET /executions.
func (s *Server) list(ctx context.Context, in *listInput) (*answer[api.ExecutionList], error) {
	labels, err := cove.ParseLabels(in.Label)
	if err != nil {
		return nil, err
	}
	page, err := s.Store.For(exchangeOf(ctx).who).List(ctx, store.Query{Labels: labels, Language: in.Language,
		Status: cove.Status(in.Status), Since: in.Since, Until: in.Until, Cursor: in.Cursor, Limit: in.Limit})
	if err != nil {
		return nil, err
	}
	out := api.ExecutionList{Executions: make([]api.Execution, 0, len(page.Executions)), NextCursor: page.Next}
	for _, e := range page.Executions {
		out.Executions = append(out.Executions, apispec.Execution(e))
	}
	return &answer[api.ExecutionList]{out}, nil
}

// get is GET /executions/{id}.
func (s *Server) get(ctx context.Context, in *idInput) (*answer[api.Execution], error) {
	id, err := cove.ParseExecutionID(in.ID)
	if err != nil {
		return nil, noExecution(in.ID)
	}
	who := exchangeOf(ctx).who
	e, err := s.Store.For(who).Get(ctx, id)
	if err != nil {
		return nil, err
	}
	if e.Status == cove.StatusRunning {
		e.Models = s.Executor.Models(who, id)
	}
	return &answer[api.Execution]{apispec.Execution(e)}, nil
}

// kill is DELETE /executions/{id}.
func (s *Server) kill(ctx context.Context, in *idInput) (*answer[api.Execution], error) {
	id, err := cove.ParseExecutionID(in.ID)
	if err != nil {
		return nil, noExecution(in.ID)
	}
	who := exchangeOf(ctx).who
	if err := s.Executor.Kill(ctx, who, id); err != nil {
		return nil, err
	}
	e, err := s.settled(ctx, who, id)
	if err != nil {
		return nil, err
	}
	return &answer[api.Execution]{apispec.Execution(e)}, nil
}

// settled is the record of an execution that has been killed. Its end is
// recorded when its last output is in, which is waited for a little.
func (s *Server) settled(ctx context.Context, who cove.Principal, id cove.ExecutionID) (store.Execution, error) {
	const step, patience = 10 * time.Millisecond, 3 * time.Second
	begun := s.Clock.Monotonic()
	for {
		e, err := s.Store.For(who).Get(ctx, id)
		if err != nil || e.Status != cove.StatusRunning || s.Clock.Since(begun) > patience {
			return e, err
		}
		select {
		case <-s.Clock.After(step):
		case <-ctx.Done():
			return e, cove.Errorf(cove.Canceled, "the caller went away: %w", ctx.Err())
		}
	}
}

// noExecution answers ids that are none like ids that name nothing.
func noExecution(id string) error { return cove.Errorf(cove.NotFound, "no execution %.64q", id) }
