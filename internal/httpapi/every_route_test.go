package httpapi

import (
	"context"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cove-sandbox/cove/test/await"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/access"
	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/egress/approval"
	"github.com/cove-sandbox/cove/internal/egress/ca"
	"github.com/cove-sandbox/cove/internal/egress/decision"
	"github.com/cove-sandbox/cove/internal/gateway"
	"github.com/cove-sandbox/cove/internal/gateway/clients"
	"github.com/cove-sandbox/cove/internal/sandbox"
	"github.com/cove-sandbox/cove/internal/store"
	"github.com/cove-sandbox/cove/internal/store/sqlite"
)

// shown is what a key gets of the objects of another one.
type shown int

const (
	concealed shown = iota // what it gets for an object that does not exist
	listed                 // a list without them
	made                   // it makes its own
	refused                // 403, which the keeper of the objects gets too: by the table of package access
	same                   // the same as every caller: by the table of package access
)

// routeScope is a request for the keeper's objects by a route of the table of package access, and what a stranger gets,
// as far as that table does not say it.
type routeScope struct {
	route string
	shown shown
	body  string // of the request; {NAME} as in paths
	query string
	has   string // of a list: part of the keeper's answer, and not of the stranger's
}

// showing returns what a stranger gets by a row.
func (r routeScope) showing(table access.Table) shown {
	need := table[shape(r.route)]
	switch {
	case need.OwnerOnly(), access.Caller{Who: cove.KeyHolder("x"), Scopes: access.Usual}.Need(need.Scopes()...) != nil:
		return refused
	case need.Same() != "":
		return same
	}
	return r.shown
}

// routeScopes are the routes of a server. A key asks for them in this order; what ends an object comes last.
var routeScopes = []routeScope{
	{route: "POST /execute", shown: made, body: `{"language":"python","code":"1"}`},
	{route: "POST /execute/stream", shown: made, body: `{"language":"python","code":"1"}`},
	{route: "GET /executions", shown: listed, has: "{execution}"},
	{route: "GET /executions", shown: listed, query: "?status=running", has: "{execution}"},
	{route: "GET /executions/{execution}"},
	{route: "GET /executions/{execution}/stream"},
	{route: "POST /executions/{execution}/network", body: `{"allow":["evil.example"]}`},
	{route: "GET /executions/{execution}/ca"},
	{route: "POST /executions/{execution}/stdin", body: "typed"},
	{route: "GET /keys", shown: made},
	{route: "GET /runtimes"},
	{route: "GET /health"},
	{route: "GET /profiles"},
	{route: "GET /profiles/{profile}"},

	{route: "GET /sandboxes", shown: listed, has: "{sandbox}"},
	{route: "GET /sandboxes/{sandbox}"},
	{route: "GET /sandboxes/{name}"},
	{route: "POST /sandboxes", shown: made, body: `{"name":"plot"}`}, // the name of the keeper's
	{route: "POST /sandboxes/check", shown: made, body: `{"name":"plot"}`},
	{route: "PATCH /sandboxes/{sandbox}", body: `{"name":"taken"}`},
	{route: "POST /sandboxes/{sandbox}/start"},
	{route: "GET /sandboxes/{sandbox}/network"},
	{route: "POST /sandboxes/{sandbox}/network", body: `{"allow":["evil.example"]}`},
	{route: "POST /sandboxes/{sandbox}/network", body: `{"reset":true,"mode":"open"}`},
	{route: "GET /sandboxes/{sandbox}/ca"},
	{route: "POST /sandboxes/{sandbox}/exec", body: `{"args":["true"]}`},
	{route: "POST /sandboxes/{sandbox}/exec/{command}/signal", body: `{"signal":"KILL"}`},
	{route: "GET /sandboxes/{sandbox}/terminal"},
	{route: "GET /sandboxes/{sandbox}/terminals"},
	{route: "GET /sandboxes/{sandbox}/terminals/{terminal}/text"},
	{route: "DELETE /sandboxes/{sandbox}/terminals/{terminal}"},
	{route: "GET /sandboxes/{sandbox}/ports/{port}"},
	{route: "POST /sandboxes/{sandbox}/import"},
	{route: "GET /sandboxes/{sandbox}/diff"},
	{route: "GET /sandboxes/{sandbox}/log"},
	{route: "GET /sandboxes/{sandbox}/changes"},
	{route: "GET /sandboxes/{sandbox}/held"},
	{route: "GET /sandboxes/{sandbox}/commits"},
	{route: "GET /sandboxes/{sandbox}/work"},
	{route: "POST /sandboxes/{sandbox}/apply", body: `{"directory":"/nowhere"}`},
	{route: "POST /sandboxes/{sandbox}/push", body: `{}`},
	{route: "POST /sandboxes/{sandbox}/pull", body: `{"branch":"b","base":"main","title":"t"}`},

	{route: "GET /repositories"},
	{route: "POST /repositories", body: `{"source":"/nowhere"}`},
	{route: "DELETE /repositories", query: "?source=/nowhere"},
	{route: "POST /repositories/collect", body: `{"source":"/nowhere"}`},

	{route: "POST /uploads", shown: made, body: "PACK"},

	{route: "POST /runs/check", shown: made, body: `{"agent":"robot","prompt":"x"}`},
	{route: "POST /runs/check", body: `{"agent":"robot","prompt":"x","sandbox":"{sandbox}"}`},
	{route: "POST /runs/check", body: `{"prompt":"x","resume":"{run}"}`},
	{route: "POST /runs", shown: made, body: `{"agent":"robot","prompt":"x"}`},
	{route: "POST /runs", body: `{"agent":"robot","prompt":"x","sandbox":"{sandbox}"}`},
	{route: "POST /runs", body: `{"prompt":"x","resume":"{run}"}`},
	{route: "GET /runs", shown: listed, has: "{run}"},
	{route: "GET /runs/{run}"},
	{route: "GET /runs/{run}/events"},
	{route: "GET /runs/{run}/export"},
	{route: "GET /runs/{run}/recordings/{terminal}"},
	{route: "POST /runs/{run}/interrupt", body: `{}`},

	{route: "GET /agents"},
	{route: "POST /agents/{agent}/install", body: `{}`},
	{route: "POST /generate", body: `{"prompt":"x"}`},
	{route: "DELETE /agents/{agent}/versions"},
	{route: "GET /agents/{agent}/doctor"},

	{route: "GET /pool"},
	{route: "PUT /pool", body: `{"language":"python","count":1}`},
	{route: "DELETE /pool"},
	{route: "POST /backup", body: `{"file":"/nowhere"}`},

	{route: "GET /credentials"},
	{route: "PUT /credentials/environment", body: `{"variables":{"GH_TOKEN":"a-real-token"}}`},
	{route: "GET /settings"},

	{route: "GET /audit", shown: listed, has: "{keeper}"},
	{route: "GET /audit", shown: listed, query: "?object={execution}", has: "network"},
	{route: "GET /audit/verify"},
	{route: "GET /network/holds", shown: listed, has: "{hold}"},
	{route: "GET /network/holds", shown: listed, query: "?execution={execution}", has: "{hold}"},
	{route: "GET /network/approvals", shown: listed, has: "{approval}"},
	{route: "GET /network/decisions", shown: listed, has: "{execution}"},
	{route: "GET /network/decisions", shown: listed, query: "?execution={execution}", has: "kept.example"},
	{route: "GET /network/decisions/stream", shown: listed, has: "{execution}"},
	{route: "GET /metrics"},
	{route: "GET /docs"},
	{route: "GET /docs/page.js"},
	{route: "GET /openapi.json"},

	{route: "POST /network/holds/{hold}", body: `{"allow":true}`},
	{route: "DELETE /network/approvals/{approval}"},
	{route: "DELETE /executions/{execution}"},
	{route: "POST /sandboxes/{sandbox}/commit", body: `{"image":"taken"}`},
	{route: "POST /sandboxes/{sandbox}/pause"},
	{route: "POST /sandboxes/{sandbox}/resume"},
	{route: "POST /sandboxes/{sandbox}/stop"},
	{route: "DELETE /runs/{run}"},
	{route: "DELETE /sandboxes/{sandbox}"},
}

// object is a placeholder in a route, as the table writes it.
var object = regexp.MustCompile(`\{[a-z]+\}`)

// shape is a route of the table as the server writes it.
func shape(row string) string {
	return strings.NewReplacer("{execution}", "{id}", "{command}", "{id}", "{hold}", "{id}", "{approval}", "{id}",
		"/sandboxes/{name}", "/sandboxes/{sandbox}", "/clients/{client}", "/clients/{name}",
		"/docs/page.js", "/docs/{file}").Replace(row)
}

// fill puts ids into a text.
func fill(text string, ids map[string]string) string {
	return object.ReplaceAllStringFunc(text, func(name string) string {
		if id, ok := ids[name]; ok {
			return id
		}
		return name
	})
}

// request is a row's request about the objects of some ids.
func (r routeScope) request(ids map[string]string) (method, path, body string) {
	method, path, _ = strings.Cut(fill(r.route+r.query, ids), " ")
	return method, path, fill(r.body, ids)
}

// neutral is an answer without what differs between two requests for the same.
func neutral(text string, ids map[string]string) string {
	text = regexp.MustCompile(`"request_id":"[^"]*"`).ReplaceAllString(text, "")
	names := slices.Collect(maps.Keys(ids))
	// a short id may occur in a long one
	slices.SortFunc(names, func(a, b string) int { return len(ids[b]) - len(ids[a]) })
	for _, name := range names {
		text = strings.ReplaceAll(text, ids[name], name)
	}
	return text
}

// named is the first of some objects whose id is in an answer; names that callers choose are no ids.
func named(text string, ids map[string]string) string {
	for name, id := range ids {
		if len(id) > 20 && strings.Contains(text, id) {
			return name
		}
	}
	return ""
}

// everyRouteHasItsRow compares the routes of a server with the table of what callers need for them, and with the
// requests of this test.
func everyRouteHasItsRow(t *testing.T, routes []string, table access.Table, rows []routeScope) {
	t.Helper()
	asked := map[string]bool{}
	for _, row := range rows {
		asked[shape(row.route)] = true
	}
	for _, route := range routes {
		if _, there := table[route]; !there {
			t.Errorf("%s has no row in the table of internal/access: say there what a caller needs for it", route)
		}
		if !asked[route] {
			t.Errorf("%s has no request: add one for the objects of another key", route)
		}
	}
	for _, all := range []iter.Seq[string]{maps.Keys(table), maps.Keys(asked)} {
		for route := range all {
			if !slices.Contains(routes, route) {
				t.Errorf("there is a row for %s, which is no route", route)
			}
		}
	}
}

// objects makes the keeper's objects and returns their ids by placeholder, and those of objects that do not exist.
func (e *estate) objects(t *testing.T) (there, missing map[string]string) {
	t.Helper()
	who := e.principal(keeper)
	there = map[string]string{"{profile}": "crew", "{agent}": "claude", "{terminal}": "t1", "{port}": "3000",
		"{name}": "plot", "{keeper}": who.String(), "{execution}": e.begin(t, keeper)}
	there["{hold}"] = string(e.ways[0].hold.ID)
	code, text := e.ask(t, keeper, "POST", "/sandboxes",
		`{"name":"plot","network":{"enabled":true,"allow":["api.example.com"]},"labels":{"note":"`+secret+`"}}`)
	if code != http.StatusOK || !strings.Contains(text, "event: created") {
		t.Fatalf("%d %s", code, text)
	}
	there["{sandbox}"] = get[api.SandboxList](t, e, keeper, "/sandboxes").Sandboxes[0].ID
	code, text = e.ask(t, keeper, "POST", "/runs", `{"agent":"robot","prompt":"`+secret+`","sandbox":"plot"}`)
	if code != http.StatusOK || !strings.Contains(text, "event: done") {
		t.Fatalf("%d %s", code, text)
	}
	there["{run}"] = get[api.RunList](t, e, keeper, "/runs").Runs[0].ID
	there["{command}"] = e.command(t, who, there["{sandbox}"])
	remembered := approval.Approval{ID: cove.NewApprovalID(), Policy: "p", Subject: e.ways[0].hold.Subject,
		Time: time.Now(), Until: time.Now().Add(time.Hour)}
	there["{approval}"] = string(remembered.ID)
	decided := decision.Decision{Time: time.Now(), Execution: there["{execution}"], Client: who.String(),
		Host: "kept.example", Verdict: decision.Allow}
	for _, err := range []error{store.NewVault(e.store).For(who).Approve(t.Context(), remembered),
		e.store.AppendDecisions(t.Context(), 100, decided)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	missing = map[string]string{
		"{profile}": "crew", "{agent}": "claude", "{terminal}": "t1", "{port}": "3000", "{name}": "none",
		"{execution}": string(cove.NewExecutionID()),
		"{hold}":      string(cove.NewHoldID()), "{sandbox}": string(cove.NewSandboxID()), "{run}": string(cove.NewRunID()),
		"{command}": string(cove.NewExecutionID()), "{approval}": string(cove.NewApprovalID()),
	}
	return there, missing
}

// command runs a command in a sandbox until the test ends.
func (e *estate) command(t *testing.T, who cove.Principal, ref string) string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	begun := make(chan cove.ExecutionID, 1)
	var running sync.WaitGroup
	running.Go(func() {
		q := sandbox.CommandRequest{Args: []string{"sleep", "600"}}
		e.processes.Command(ctx, who, ref, q, func(id cove.ExecutionID) { begun <- id },
			newEventWriter(&exchange{r: httptest.NewRequest("GET", "/", nil), w: &response{}}, clock.Real()))
		close(begun)
	})
	t.Cleanup(func() { cancel(); running.Wait() })
	id, ok := <-begun
	if !ok {
		t.Fatal("the command does not begin")
	}
	return string(id)
}

// TestEveryRouteIsScoped: with two keys, or two local users where no key is needed, the one that made the objects and a
// stranger, every route of the server gives the stranger what its row of the table says, and the other one what is its
// own. A route without a row fails.
func TestEveryRouteIsScoped(t *testing.T) {
	for name, keys := range map[string][]Key{"keys": keysOfTests(), "local users": nil} {
		t.Run(name, func(t *testing.T) { everyRouteIsScoped(t, newEstateFor(t, keys)) })
	}
}

func everyRouteIsScoped(t *testing.T, e *estate) {
	everyRouteHasItsRow(t, e.Routes(), access.Routes, routeScopes)
	there, missing := e.objects(t)
	strange := e.strangerGets(t, access.Routes, routeScopes, there, missing)

	// It has changed nothing, and the one that made the objects has them.
	for i, row := range routeScopes {
		method, path, body := row.request(there)
		code, text := e.ask(t, keeper, method, path, body)
		bad := false
		switch row.showing(access.Routes) {
		case concealed:
			bad = code == http.StatusForbidden || neutral(text, there) == strange[i]
		case listed:
			bad = code != http.StatusOK || !strings.Contains(text, fill(row.has, there)) ||
				strings.Contains(text, e.principal(stranger).String())
		case refused:
			owners, _ := e.ask(t, machine, method, path, body)
			bad = code != http.StatusForbidden || owners == code
		}
		if bad {
			t.Errorf("the keeper: %s %s: %d %s", method, path, code, text)
		}
	}
}

// strangerGets asks for every row's objects as a stranger, compares with what the row says, and returns the answers.
func (e *estate) strangerGets(t *testing.T, table access.Table, rows []routeScope,
	there, missing map[string]string) map[int]string {
	t.Helper()
	strange := map[int]string{}
	for i, row := range rows {
		method, path, body := row.request(there)
		code, text := e.ask(t, stranger, method, path, body)
		strange[i] = neutral(text, there)
		shows := row.showing(table)
		bad := strings.Contains(text, secret) && shows != made
		switch shows {
		case concealed:
			method, path, body := row.request(missing)
			other, same := e.ask(t, stranger, method, path, body)
			bad = bad || code != http.StatusNotFound || other != code || neutral(same, missing) != strange[i]
		case listed:
			bad = bad || code != http.StatusOK || strings.Contains(text, fill(row.has, there))
		case made:
			bad = code >= 300 || strings.Contains(text, "event: error") || named(text, there) != ""
		case refused:
			bad = bad || code != http.StatusForbidden
		case same:
			bad = bad || named(text, there) != ""
		}
		if bad {
			t.Errorf("a stranger: %s %s: %d %s", method, path, code, text)
		}
	}
	return strange
}

// gatewayScopes are the routes of a gateway of its own: its clients are the machine owner's.
var gatewayScopes = []routeScope{
	{route: "POST /clients", body: `{"name":"new","listen":"127.0.0.1:0"}`},
	{route: "GET /clients", shown: listed, has: "{client}"},
	{route: "POST /clients/{client}/network", body: `{"allow":["evil.example"]}`},
	{route: "GET /clients/{client}/ca"},
	{route: "POST /clients/{client}/sockets"},
	{route: "GET /health"},
	{route: "GET /network/holds", shown: listed, has: "kept.example"},
	{route: "POST /network/holds/{hold}", body: `{"allow":true}`},
	{route: "GET /network/approvals", shown: listed, has: "kept.example"},
	{route: "DELETE /network/approvals/{approval}"},
	{route: "GET /network/decisions", shown: listed, has: "kept.example"},
	{route: "GET /network/decisions/stream", shown: listed, has: "kept.example"},
	{route: "GET /audit", shown: listed, has: `"who":"local"`},
	{route: "GET /audit/verify"},
	{route: "GET /metrics"},
	{route: "GET /docs"},
	{route: "GET /docs/page.js"},
	{route: "GET /openapi.json"},
	{route: "DELETE /clients/{client}"},
}

const asking = `{"name":"builder","listen":"127.0.0.1:0","policies":[{"source":"p.yaml","text":"rules:\n  - {hosts: kept.example, action: ask}\n"}]}`

// newGatewayEstate is a gateway of its own with a client, one of whose requests waits for an answer.
func newGatewayEstate(t *testing.T) (e *estate, there, missing map[string]string) {
	t.Helper()
	dir := t.TempDir()
	e = &estate{}
	var err error
	if e.store, err = sqlite.Open(t.Context(), filepath.Join(dir, "cove.db")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.store.Close() })
	keep, err := ca.OpenStore(dir)
	if err != nil {
		t.Fatal(err)
	}
	log, vault := slog.New(slog.NewTextHandler(t.Output(), nil)), store.NewVault(e.store)
	g := gateway.New(gateway.Options{
		Dir: filepath.Join(dir, "gateway"), Keep: &keep, Approvals: &vault, Clock: clock.Real(), Log: log,
	})
	t.Cleanup(g.Close)
	approvals := gateway.NewApprovals(store.Auditor{Store: vault, Clock: clock.Real(), Log: log})
	approvals.Add(g)
	registry, err := clients.New(t.Context(), clients.Options{
		Gateway: g, Store: vault, Version: "test", Clock: clock.Real(), Log: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(registry.Close)
	e.Server, err = New(Options{Clients: registry, Approvals: approvals, Store: vault, Version: "test", Log: log, Keys: []Key{key("stranger", stranger)}})
	if err != nil {
		t.Fatal(err)
	}
	if code, text := e.ask(t, machine, "POST", "/clients", asking); code != http.StatusOK {
		t.Fatalf("%d %s", code, text)
	}
	proxy := get[api.GatewayClientList](t, e, machine, "/clients").Clients[0].Env["HTTPS_PROXY"]
	address, err := url.Parse(proxy)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	waiting.Go(func() {
		var d net.Dialer
		conn, err := d.DialContext(ctx, "tcp", address.Host)
		if err != nil {
			t.Errorf("the client's proxy: %v", err)
			return
		}
		defer context.AfterFunc(ctx, func() { conn.Close() })()
		fmt.Fprint(conn, "GET http://kept.example/ HTTP/1.1\r\nHost: kept.example\r\n\r\n")
		io.Copy(io.Discard, conn)
	})
	t.Cleanup(func() { cancel(); waiting.Wait() })
	var holds api.HoldList
	await.That(t, "something waits", func() bool {
		holds = get[api.HoldList](t, e, machine, "/network/holds")
		return len(holds.Holds) > 0
	})
	remembered := approval.Approval{ID: cove.NewApprovalID(), Policy: "p", Subject: approval.Subject{Host: "kept.example", Port: 443}, Time: time.Now(), Until: time.Now().Add(time.Hour)}
	decided := decision.Decision{Time: time.Now(), Client: "builder", Host: "kept.example", Verdict: decision.Allow}
	for _, err := range []error{vault.For(cove.MachineOwner()).Approve(t.Context(), remembered), e.store.AppendDecisions(t.Context(), 100, decided)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	there = map[string]string{"{client}": "builder", "{hold}": holds.Holds[0].ID, "{approval}": string(remembered.ID)}
	missing = map[string]string{"{client}": "absent", "{hold}": string(cove.NewHoldID()), "{approval}": string(cove.NewApprovalID())}
	return e, there, missing
}

// TestEveryGatewayRouteIsScoped: a gateway of its own gives a key nothing of what is the machine owner's, and the
// machine's owner everything. A route without a row fails.
func TestEveryGatewayRouteIsScoped(t *testing.T) {
	e, there, missing := newGatewayEstate(t)
	everyRouteHasItsRow(t, e.Routes(), access.GatewayRoutes, gatewayScopes)
	e.strangerGets(t, access.GatewayRoutes, gatewayScopes, there, missing)
	for _, row := range gatewayScopes {
		method, path, body := row.request(there)
		code, text := e.ask(t, machine, method, path, body)
		if code == http.StatusForbidden || code == http.StatusNotFound || !strings.Contains(text, fill(row.has, there)) {
			t.Errorf("the machine's owner: %s %s: %d %s", method, path, code, text)
		}
	}
}

// TestScopesOfKeys: each key with one scope alone gets past the guards on the routes whose row names its scope, and
// elsewhere an answer that names the scopes which it lacks. The machine's owner needs none.
func TestScopesOfKeys(t *testing.T) {
	e := newEstate(t)
	_, missing := e.objects(t)
	for _, row := range routeScopes {
		need := access.Routes[shape(row.route)]
		if row.query != "" || len(need.Scopes()) == 0 {
			continue
		}
		method, path, body := row.request(missing)
		for _, s := range access.Scopes {
			code, text := e.ask(t, "cove_"+string(s), method, path, body)
			lacks := code == http.StatusForbidden && strings.Contains(text, "it needs the scope "+string(need.Scopes()[0])) &&
				strings.Contains(text, "api_keys, name: "+string(s)+", scopes: ["+string(s)+", ")
			if has := slices.Contains(need.Scopes(), s); lacks == has || !has && code != http.StatusForbidden {
				t.Errorf("with the scope %s: %s: %d %s", s, row.route, code, text)
			}
		}
		if code, text := e.ask(t, machine, method, path, body); code == http.StatusForbidden {
			t.Errorf("the owner: %s: %s", row.route, text)
		}
	}
	// What a request asks for beside its route.
	for _, row := range []struct{ key, path, body string }{
		{"cove_run", "/execute", `{"language":"claude","code":"say hi"}`},
		{"cove_run", "/execute/stream", `{"language":"claude","code":"say hi"}`},
		{"cove_sandboxes", "/sandboxes", `{"agent":"claude"}`},
		{"cove_sandboxes", "/sandboxes/check", `{"agent":"claude"}`},
	} {
		if code, text := e.ask(t, row.key, "POST", row.path, row.body); code != http.StatusForbidden ||
			!strings.Contains(text, "it needs the scope agents") {
			t.Errorf("%s: POST %s with an agent: %d %s", row.key, row.path, code, text)
		}
	}
}
