// Package generate asks models for single answers, without an agent, tools or files of a sandbox. Nothing untrusted
// runs, so there is no sandbox. The server asks itself, as a client of the gateway like every sandbox, and so never has
// a key.
package generate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/egress/credential"
	providers "github.com/cove-sandbox/cove/internal/egress/model"
	"github.com/cove-sandbox/cove/internal/engine/process"
	"github.com/cove-sandbox/cove/internal/execution"
	"github.com/cove-sandbox/cove/internal/gateway/outlet"
	"github.com/cove-sandbox/cove/internal/model"
	"github.com/cove-sandbox/cove/internal/version"
)

const (
	// Language is that of the executions that single answers are recorded as.
	Language = "generate"
	// DefaultTimeout and MaxTimeout bound the time of one answer.
	DefaultTimeout = 10 * time.Minute
	MaxTimeout     = time.Hour
	// LimitBudget says that a budget for models was used up.
	LimitBudget cove.LimitKind = "budget"

	// tries bounds those of one request: about a quarter of a minute, since a caller waits.
	tries = 6
)

// Options configure a Service. All are required.
type Options struct {
	Executions  *execution.Executions
	Outlet      outlet.Outlet
	Providers   func() ([]providers.Provider, error) // anew at each call
	Credentials credential.Host
	Clock       clock.Clock
}

// Service asks models.
type Service struct{ o Options }

// New returns a Service.
func New(o Options) *Service { return &Service{o} }

// Request is a question, and how it is to be asked.
type Request struct {
	model.Question
	Model    string        // empty: the first that the provider lists
	Provider string        // empty: the first that has a key, and perhaps the model
	Budget   cove.Budget   // over that of the configuration
	Timeout  time.Duration // 0: DefaultTimeout
}

// Result is an answer, as it was recorded.
type Result struct {
	Execution execution.Result
	Provider  string
	model.Generated
	// Err is why there is no answer; Execution says whether a limit or a caller is the reason.
	Err error
}

// Generate asks a question of the principal's. started receives the id of the execution before out receives the answer
// on its standard output: as it comes, or with a schema once it is valid; standard error has notes. out may be nil: an
// answer without a follower is requested again when it breaks off. Errors of requests
// that could not be asked: InvalidArgument, TooLarge, NotFound, Unsupported, Unavailable without a key, Overloaded.
func (s *Service) Generate(ctx context.Context, who cove.Principal, q Request, started func(cove.ExecutionID),
	out process.Output) (Result, error) {
	if err := q.check(); err != nil {
		return Result{}, err
	}
	p, dialect, err := s.provider(ctx, q)
	if err != nil {
		return Result{}, err
	}
	made, streams := Result{Provider: p.Name}, out != nil && q.Schema == nil
	job := execution.Job{Language: Language, Code: []byte(q.Prompt)}
	job.Spec.Limits.Timeout = cmp.Or(q.Timeout, DefaultTimeout)
	job.Do = func(ctx context.Context, id cove.ExecutionID, out process.Output) (execution.Result, error) {
		began := s.o.Clock.Monotonic()
		m, err := s.o.Outlet.Models(outlet.Questions{Who: who, Name: string(id), Provider: p.Name, Budget: q.Budget})
		if err != nil {
			return execution.Result{}, err
		}
		started(id)
		ctx, cancel := context.WithTimeoutCause(ctx, job.Spec.Limits.Timeout, errTimeUp)
		defer cancel()
		made.Generated, made.Err = ask(ctx, m, p.Name, dialect, q, out, streams)
		refused := m.Refused()
		r := execution.Result{Models: m.Close(), Limits: job.Spec.Limits, Duration: s.o.Clock.Since(began)}
		made.Usage.Duration = r.Duration.Round(time.Millisecond).Seconds()
		for _, u := range r.Models {
			made.Usage.Cost += u.Cost
		}
		made.Err = settle(ctx, made.Err, refused, &r)
		return r, nil
	}
	made.Execution, err = s.o.Executions.Do(ctx, who, job, out)
	made.Execution.Output.Release()
	if made.Execution.Killed && made.Err == nil {
		made.Err = cove.Errorf(cove.Canceled, "the answer was given up")
	}
	return made, err
}

func (q Request) check() error {
	if q.Timeout < 0 || q.Timeout > MaxTimeout {
		return cove.Errorf(cove.InvalidArgument, "an answer may not take %s", q.Timeout).
			WithHint("give at most %g seconds", MaxTimeout.Seconds())
	}
	return q.Check()
}

var errTimeUp = errors.New("its time is up")

// ask asks the question on a way to its provider.
func ask(ctx context.Context, m *outlet.Models, name string, dialect model.Dialect, q Request,
	out process.Output, streams bool) (model.Generated, error) {
	e, err := model.Resolve(model.Wanted{Kind: string(dialect), Model: q.Model}, m.Getenv)
	if err != nil {
		return model.Generated{}, err
	}
	e.Header.Set("User-Agent", "cove/"+version.Version)
	c := e.Client(m.Proxy, slog.New(notes{stream(out.Stderr)}))
	defer c.HTTP.CloseIdleConnections()
	c.Name, c.Tries = name, tries
	ctx, leave := context.WithCancelCause(ctx)
	defer leave(nil)
	if streams {
		c.Said = func(text string) {
			if err := out.Stdout([]byte(text)); err != nil {
				leave(err) // the caller has gone
			}
		}
	}
	if q.Model, err = e.Choose(ctx, c); err != nil {
		return model.Generated{}, err
	}
	g, err := c.Generate(ctx, q.Model, q.Question)
	switch {
	case err != nil || streams:
	case q.Schema != nil:
		err = out.Stdout(g.Data)
	default:
		err = out.Stdout([]byte(g.Text))
	}
	return g, err
}

// settle returns why there is no answer, and records it in the result.
func settle(ctx context.Context, err, refused error, r *execution.Result) error {
	switch cause := context.Cause(ctx); {
	case err == nil:
		return nil
	case errors.Is(cause, errTimeUp):
		r.Limit = cove.LimitTimeout
		return cove.Errorf(cove.LimitReached, "there was no answer after %s", r.Limits.Timeout).
			WithHint("allow more time, or ask for less")
	case cause != nil:
		r.Killed = true
		return cove.Errorf(cove.Canceled, "the answer was given up: %w", cause)
	case errors.Is(err, model.ErrUsedUp):
		r.Limit, r.ExitCode = LimitBudget, -1
		return err
	case refused != nil && cove.ErrorCode(err) == cove.ModelUnreachable:
		err = refused
	}
	r.Failure, r.ExitCode = err.Error(), 1
	return err
}

// notes writes what is logged as lines of text.
type notes struct{ to io.Writer }

// stream is a write of a process's output as an io.Writer.
type stream func([]byte) error

func (s stream) Write(p []byte) (int, error) { return len(p), s(p) }

func (n notes) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelInfo }
func (n notes) WithAttrs([]slog.Attr) slog.Handler           { return n }
func (n notes) WithGroup(string) slog.Handler                { return n }

func (n notes) Handle(_ context.Context, r slog.Record) error {
	line := r.Message
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "error" {
			line += ": " + a.Value.String()
		}
		return true
	})
	_, err := fmt.Fprintln(n.to, line)
	return err
}
