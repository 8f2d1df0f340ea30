package httpapi

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/apispec"
	"github.com/cove-sandbox/cove/internal/egress/decision"
	"github.com/cove-sandbox/cove/internal/store"
)

// decisionRoutes serve the decisions on attempts to leave sandboxes.
type decisionRoutes struct{ *edge }

func (s decisionRoutes) add() {
	route(s, huma.Operation{OperationID: "list-decisions", Method: http.MethodGet, Path: "/network/decisions",
		Tags:    []string{"network"},
		Summary: "List what became of attempts to leave sandboxes, newest first",
		Description: "Requests, connections and questions for names, allowed and denied, of the caller's executions and " +
			"sandboxes, in every process of Cove that shares the database; of all of them for the machine's owner.",
	}, storeErrors, s.decisions)

	route(s, huma.Operation{OperationID: "follow-decisions", Method: http.MethodGet, Path: "/network/decisions/stream",
		Tags:    []string{"network"},
		Summary: "Follow what becomes of attempts to leave sandboxes",
		Description: "Those that GET /network/decisions lists. Server-sent events: decision carries a Decision; error an " +
			"Error, and is the last. Lines that begin with a colon are heartbeats. It goes on until the caller leaves.",
		Responses: s.decisionResponses(),
	}, storeErrors, s.decisionStream)
}

// DecisionFilter selects decisions, in both of their routes. It is exported for
// the reader of requests, which sees no other fields.
type DecisionFilter struct {
	Execution string `query:"execution" maxLength:"64" doc:"Only of this execution"`
	Sandbox   string `query:"sandbox" maxLength:"64" doc:"Only of this sandbox, by its id"`
	Host      string `query:"host" maxLength:"253" doc:"Only of this host: a name or an address, as it is recorded"`
	Verdict   string `query:"verdict" enum:"allow,deny,lost" doc:"Only with this verdict"`
}

type decisionsInput struct {
	DecisionFilter
	Since  time.Time `query:"since" doc:"Begun at or after this time"`
	Until  time.Time `query:"until" doc:"Begun before this time"`
	Cursor string    `query:"cursor" maxLength:"256" doc:"next_cursor of the page before"`
	Limit  int       `query:"limit" minimum:"1" maximum:"500" default:"50" doc:"Rows in a page"`
}

func (f DecisionFilter) query() store.DecisionQuery {
	return store.DecisionQuery{Execution: f.Execution, Sandbox: f.Sandbox, Host: f.Host,
		Verdict: decision.Verdict(f.Verdict)}
}

// decisions is GET /network/decisions.
func (s decisionRoutes) decisions(ctx context.Context, in *decisionsInput) (*answer[api.DecisionList], error) {
	q := in.query()
	q.Since, q.Until, q.Cursor, q.Limit = in.Since, in.Until, in.Cursor, in.Limit
	if s.Flush != nil && in.Cursor == "" {
		s.Flush()
	}
	page, err := s.Store.For(exchangeOf(ctx).who).ListDecisions(ctx, q)
	if err != nil {
		return nil, err
	}
	return &answer[api.DecisionList]{api.DecisionList{Decisions: apispec.Decisions(page.Decisions),
		NextCursor: page.Next}}, nil
}

type decisionStreamInput struct {
	DecisionFilter
	LastEventID string `header:"Last-Event-ID" maxLength:"64" doc:"The id of the last event that was seen; what was recorded after it comes. Without it, what is recorded from now on"`
}

// decisionStream is GET /network/decisions/stream.
func (s decisionRoutes) decisionStream(ctx context.Context, in *decisionStreamInput) (*huma.StreamResponse, error) {
	from, err := s.decisionsFrom(ctx, in.LastEventID)
	if err != nil {
		return nil, err
	}
	return &huma.StreamResponse{Body: func(huma.Context) { s.followDecisions(ctx, in.query(), from) }}, nil
}

// decisionsFrom is the number of the last decision that does not come.
func (s decisionRoutes) decisionsFrom(ctx context.Context, id string) (int64, error) {
	if id == "" {
		newest, err := s.Store.For(exchangeOf(ctx).who).ListDecisions(ctx, store.DecisionQuery{Limit: 1})
		if err != nil || len(newest.Decisions) == 0 {
			return 0, err
		}
		return newest.Decisions[0].Seq, nil
	}
	from, err := strconv.ParseUint(id, 10, 63)
	if err != nil || strconv.FormatUint(from, 10) != id {
		return 0, cove.Errorf(cove.InvalidArgument, "Last-Event-ID %.64q is not the id of an event", id).
			WithHint("send the id of the last event that was seen, such as 12, 0 for all that are kept, or leave it out for " +
				"new ones")
	}
	return int64(from), nil
}

// decisionInterval is how often the store is asked for new decisions: other
// processes write there too, and there is nothing else that they share.
const decisionInterval = 250 * time.Millisecond

// followDecisions writes decisions as they come, until the caller leaves or the server ends.
func (s decisionRoutes) followDecisions(ctx context.Context, q store.DecisionQuery, seen int64) {
	ex := exchangeOf(ctx)
	events := &eventStream{w: ex.w, clock: s.Clock}
	defer events.stop()
	events.open(s.Heartbeat)
	for {
		page, err := s.Store.For(ex.who).DecisionsAfter(ctx, seen, store.MaxPage)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			ex.failure = err
			events.put(strconv.FormatInt(seen, 10), api.EventError, body(ex, err))
			return
		}
		for _, d := range page {
			seen = d.Seq
			if q.Selects(d) && !events.put(strconv.FormatInt(seen, 10), api.EventDecision, apispec.Decision(d)) {
				return
			}
		}
		if len(page) == store.MaxPage {
			continue
		}
		select {
		case <-s.Clock.After(decisionInterval):
		case <-s.closing:
			return
		case <-ctx.Done():
			return
		}
	}
}

// decisionResponses documents the stream.
func (s decisionRoutes) decisionResponses() map[string]*huma.Response {
	schemas := s.api.OpenAPI().Components.Schemas
	data := &huma.Schema{Title: "Data of an event", OneOf: []*huma.Schema{schemas.Schema(typeOf[api.Decision](), true, ""),
		schemas.Schema(typeOf[api.Error](), true, "")}}
	return eventResponses(nil, "The number of the last decision that has come, for Last-Event-ID", data, api.EventDecision,
		api.EventError)
}
