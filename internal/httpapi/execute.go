package httpapi

import (
	"context"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/apispec"
	"github.com/cove-sandbox/cove/internal/engine/process"
	"github.com/cove-sandbox/cove/internal/execution"
)

type executeInput struct{ Body api.ExecuteRequest }

// execute is POST /execute.
func (s *Server) execute(ctx context.Context, in *executeInput) (*answer[api.Execution], error) {
	ex := exchangeOf(ctx)
	if q, is, err := s.asRun(ctx, ex, in.Body); is {
		if err != nil {
			return nil, err
		}
		return s.executeAgentWhole(ctx, ex, q)
	}
	if in.Body.StdinStream {
		return nil, cove.Errorf(cove.InvalidArgument, "stdin_stream works with POST /execute/stream only").
			WithHint("put the input into stdin")
	}
	req, err := s.request(ctx, ex.who, in.Body)
	if err != nil {
		return nil, err
	}
	result, err := s.run(ctx, ex.who, req, func(id cove.ExecutionID) {
		ex.w.Header().Set(api.ExecutionIDHeader, string(id))
	}, nil)
	if err != nil {
		return nil, err
	}
	return &answer[api.Execution]{apispec.Execution(result.Record())}, nil
}

// run executes and counts.
func (s *Server) run(ctx context.Context, who cove.Principal, r execution.Request, started func(cove.ExecutionID),
	out process.Output) (execution.Result, error) {
	began := s.Clock.Monotonic()
	result, err := s.Executor.Execute(ctx, who, r, started, out)
	s.metrics.execution(r, result, err, s.Clock.Since(began))
	return result, err
}
