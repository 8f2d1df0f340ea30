package httpapi

import (
	"context"
	"net/http"
	"os"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/access"
	"github.com/cove-sandbox/cove/internal/apispec"
	"github.com/cove-sandbox/cove/internal/egress/model"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/store"
)

// systemRoutes serve the state of the server.
type systemRoutes struct{ *edge }

// add adds the routes of the state of a server that runs sandboxes.
func (s systemRoutes) add() {
	route(s, huma.Operation{OperationID: "list-runtimes", Method: http.MethodGet, Path: "/runtimes",
		Tags:        []string{"server"},
		Summary:     "List the languages and whether they can be run",
		Description: "Each with its version on this machine, or with the reason why it cannot be run.",
	}, []cove.Code{cove.Unsupported, cove.Canceled}, s.runtimes)

	route(s, huma.Operation{OperationID: "list-keys", Method: http.MethodGet, Path: "/keys", Tags: []string{"server"},
		Summary: "List the API keys, and what each has used of its model budget",
		Description: "The holder of a key gets that key alone. The keys themselves are nowhere. " +
			"What is used stays used: a budget is for all the time of its key.",
	}, storeErrors, s.keys)

	route(s, huma.Operation{OperationID: "health", Method: http.MethodGet, Path: "/health", Tags: []string{"server"},
		Security: []map[string][]string{{}},
		Summary:  "Whether the server can run anything",
		Description: "An engine in use is tried, at most once in 10 seconds: a sandbox is made and torn down; of docker " +
			"and podman the daemon is asked. The database is read, and written to at most once in 5 seconds. " +
			"Each has 2 seconds. Callers without a key learn the status only. " +
			"503 when no engine works, or the database does not.",
		Responses: map[string]*huma.Response{"503": {Description: "It is not ready", Content: map[string]*huma.MediaType{
			"application/json": {Schema: huma.SchemaFromType(s.api.OpenAPI().Components.Schemas, typeOf[api.Health]())}}}},
	}, nil, s.health)
}

type runtimesInput struct {
	Image  string `query:"image" maxLength:"1024" doc:"Look into this root filesystem instead of the host's"`
	Engine string `query:"engine" maxLength:"64" doc:"native, docker, podman or auto"`
}

// runtimes is GET /runtimes.
func (s systemRoutes) runtimes(ctx context.Context, in *runtimesInput) (*answer[api.RuntimeList], error) {
	who := exchangeOf(ctx).who
	image, err := s.image(ctx, who, in.Image)
	if err != nil {
		return nil, err
	}
	all, err := s.Executor.Runtimes(ctx, who, image, in.Engine)
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

// keys is GET /keys.
func (s systemRoutes) keys(ctx context.Context, _ *struct{}) (*answer[api.KeyList], error) {
	list := api.KeyList{Keys: []api.Key{}}
	for _, who := range s.Grants.KnownTo(exchangeOf(ctx).who) {
		used, err := s.Store.For(who).ModelsUsed(ctx)
		if err != nil {
			return nil, err
		}
		list.Keys = append(list.Keys, shownKey(who, s.Grants.Of(who), model.Sum(used)))
	}
	return &answer[api.KeyList]{list}, nil
}

type healthOutput struct {
	Status int
	Body   api.Health
}

// healthTimeout is how long GET /health waits for the database.
const healthTimeout = 2 * time.Second

// health is GET /health.
func (s systemRoutes) health(ctx context.Context, _ *struct{}) (*healthOutput, error) {
	engines := s.Executor.Health(ctx)
	out := &healthOutput{Status: http.StatusOK, Body: api.Health{Status: "ok"}}
	if !usable(engines) {
		out.Status, out.Body.Status = http.StatusServiceUnavailable, "degraded"
	}
	records := "ok"
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	own := s.Store.For(cove.System(""))
	_, err := own.List(ctx, store.Query{Limit: 1})
	if err == nil {
		err = own.Check(ctx)
	}
	if err != nil {
		records, out.Status, out.Body.Status = err.Error(), http.StatusServiceUnavailable, "degraded"
	}
	// How busy the server is and what it is made of is not for strangers.
	if exchangeOf(ctx).known {
		out.Body.Version, out.Body.Engines, out.Body.Store = s.Version, engines, records
		out.Body.PID, out.Body.Since, out.Body.Listens = os.Getpid(), &s.since, s.listens.all()
		out.Body.Background = s.Background
		if exchangeOf(ctx).caller().Need(access.Metrics, access.Admin) == nil { // others' work, too
			load := s.Executor.Load()
			out.Body.Active, out.Body.Queued = load.Running, load.Waiting
		}
		if exchangeOf(ctx).who.IsOwner() && s.Credentials != nil {
			reads, err := s.Credentials.Reads()
			if err != nil {
				s.Log.Warn("the credentials of this machine cannot be read", "error", err)
			}
			out.Body.Reads = reads
		}
	}
	return out, nil
}

// usable reports whether an engine works, or none has been tried yet. It is pure.
func usable(engines map[string]string) bool {
	tried := false
	for _, state := range engines {
		if state == "ok" {
			return true
		}
		tried = tried || state != engine.Unused
	}
	return !tried
}

// addMetrics adds GET /metrics.
func (s systemRoutes) addMetrics() {
	handler := promhttp.HandlerFor(s.metrics.registry,
		promhttp.HandlerOpts{DisableCompression: true, MaxRequestsInFlight: 4})
	op := s.document(huma.Operation{OperationID: "metrics", Method: http.MethodGet, Path: "/metrics",
		Tags: []string{"server"}, Summary: "Metrics in Prometheus's text format",
		Description: "They count the whole server; for all callers where server.metrics is open."}, "text/plain")
	s.api.Adapter().Handle(op, func(ctx huma.Context) {
		ex := exchangeOf(ctx.Context())
		handler.ServeHTTP(ex.w, ex.r)
	})
}
