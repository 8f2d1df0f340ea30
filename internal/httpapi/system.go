package httpapi

import (
	"context"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"

	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/apispec"
	"github.com/cove-sandbox/cove/internal/engine"
)

type runtimesInput struct {
	Image  string `query:"image" maxLength:"1024" doc:"Look into this root filesystem instead of the host's"`
	Engine string `query:"engine" maxLength:"64" doc:"native, docker or auto"`
}

// runtimes is GET /runtimes.
func (s *Server) runtimes(ctx context.Context, in *runtimesInput) (*answer[api.RuntimeList], error) {
	image, err := s.image(ctx, exchangeOf(ctx).who, in.Image)
	if err != nil {
		return nil, err
	}
	all, err := s.Executor.Runtimes(ctx, image, in.Engine)
	if err != nil {
		return nil, err
	}
	list := make([]api.Runtime, len(all))
	for i, r := range all {
		list[i] = api.Runtime{Name: r.Name, Available: r.Missing == "", Version: r.Version, Missing: r.Missing,
			Limits: apispec.LimitsOf(r.Limits), Timeout: r.Limits.Timeout.Seconds()}
	}
	return &answer[api.RuntimeList]{api.RuntimeList{Runtimes: list}}, nil
}

type healthOutput struct {
	Status int
	Body   api.Health
}

// health is GET /health.
func (s *Server) health(ctx context.Context, _ *struct{}) (*healthOutput, error) {
	engines := s.Executor.Health(ctx)
	out := &healthOutput{Status: http.StatusServiceUnavailable, Body: api.Health{Status: "degraded"}}
	for _, state := range engines {
		if state == "ok" || state == engine.Unused {
			out.Status, out.Body.Status = http.StatusOK, "ok"
		}
	}
	// How busy the server is and what it is made of is not for strangers.
	if exchangeOf(ctx).known {
		out.Body.Version, out.Body.Engines = s.Version, engines
		out.Body.Active, out.Body.Queued = s.Executor.Active(), s.Executor.Queued()
		out.Body.PID, out.Body.Since, out.Body.Listens = os.Getpid(), &s.since, s.listens.all()
	}
	return out, nil
}

// addresses holds the addresses of the network listeners that are served now.
type addresses struct {
	mu   sync.Mutex
	open []string // guarded by mu
}

func (a *addresses) add(l net.Addr, secure bool) (remove func()) {
	address := "http://" + l.String()
	if secure {
		address = "https://" + l.String()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.open = append(a.open, address)
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if i := slices.Index(a.open, address); i >= 0 {
			a.open = slices.Delete(a.open, i, i+1)
		}
	}
}

func (a *addresses) all() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.open)
}
