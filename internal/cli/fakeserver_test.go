package cli_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/apispec"
	"github.com/cove-sandbox/cove/internal/runtime"
)

// fakeServer answers like a server of Cove whose programs are a few words, parted by semicolons, so that the command
// line's own behaviour shows without a sandbox:
//
//	out TEXT, err TEXT   print (\n, \xNN and so on as in Go)
//	exit N               the exit code
//	limit KIND           ended by a limit
//	truncated            output was cut
//	event DETAIL         a security event of high severity
//	env, args, files, limits   print what was sent
//	cat                  copy standard input
//	wait                 until killed
//	ask HOST             wait for an answer, and print it; until then wait as above
//	meanwhile HOST       the same, and go on printing until then
//	fail CODE TEXT       an error before it runs
//	broken TEXT          an error while it runs
type fakeServer struct {
	mu      sync.Mutex
	records map[string]*record
	order   []string
	holds   []api.Hold
	answers map[string]chan api.HoldAnswer
	fakeSandboxes
	fakeRuns
}

type record struct {
	api.Execution
	killed chan struct{}
	once   sync.Once
	stdin  chan io.Reader
	ended  chan struct{}
}

func newFakeServer() *fakeServer {
	return &fakeServer{records: map[string]*record{}, answers: map[string]chan api.HoldAnswer{},
		fakeSandboxes: newFakeSandboxes(), fakeRuns: newFakeRuns()}
}

func (f *fakeServer) serve(l net.Listener) *http.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /execute/stream", f.execute)
	mux.HandleFunc("POST /executions/{id}/stdin", f.stdin)
	mux.HandleFunc("GET /executions", f.list)
	mux.HandleFunc("GET /executions/{id}", f.get)
	mux.HandleFunc("DELETE /executions/{id}", f.kill)
	mux.HandleFunc("GET /network/holds", f.listHolds)
	mux.HandleFunc("POST /network/holds/{id}", f.answerHold)
	mux.HandleFunc("GET /network/approvals", func(w http.ResponseWriter, _ *http.Request) {
		at := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
		reply(w, 200, api.ApprovalList{Approvals: []api.Approval{{ID: approvalID, Policy: "0123456789abcdef",
			About: "POST api.example.com:443", Rule: "policy.yaml:3", Who: "local", Time: at, Until: at.Add(time.Hour)}}})
	})
	mux.HandleFunc("DELETE /network/approvals/{id}", func(w http.ResponseWriter, r *http.Request) {
		if r.PathValue("id") != approvalID {
			reply(w, 404, api.Error{Error: "no approval " + r.PathValue("id"), Code: string(cove.NotFound)})
			return
		}
		w.WriteHeader(204)
	})
	mux.HandleFunc("GET /audit", audit)
	mux.HandleFunc("GET /audit/verify", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, 200, api.AuditVerification{Records: 2, Head: "b2", Broken: 3})
	})
	mux.HandleFunc("GET /network/decisions", decisions)
	mux.HandleFunc("GET /network/decisions/stream", followDecisions)
	mux.HandleFunc("GET /runtimes", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, 200, api.RuntimeList{Runtimes: []api.Runtime{
			{Name: "python", Available: true, Version: "Python 3.13.5\n",
				Limits: api.Limits{MemoryMB: 256, PIDs: 50, CPUs: 1, DiskMB: 100}, Timeout: 10},
			{Name: "ruby", Missing: "apt-get install ruby",
				Limits: api.Limits{MemoryMB: 256, PIDs: 50, CPUs: 1, DiskMB: 100}, Timeout: 10},
		}})
	})
	mux.HandleFunc("GET /keys", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, 200, api.KeyList{Keys: []api.Key{
			{Name: "agent", Scopes: []string{"run", "agents"}, ModelBudget: &api.ModelBudget{Requests: 100, Cost: 20},
				ModelsUsed: api.ModelsUsed{Requests: 12, Tokens: 34567, Cost: 0.13}},
			{Name: "ci", Scopes: []string{"run"}, Expires: new(time.Date(2030, 2, 1, 0, 0, 0, 0, time.UTC))},
		}})
	})
	f.sandboxRoutes(mux)
	f.runRoutes(mux)
	s := &http.Server{Handler: mux}
	go s.Serve(l)
	return s
}

func reply(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(v)
}

func (f *fakeServer) execute(w http.ResponseWriter, r *http.Request) {
	var req api.ExecuteRequest
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		reply(w, 400, api.Error{Error: err.Error(), Code: string(cove.InvalidArgument)})
		return
	}
	if rest, ok := strings.CutPrefix(req.Code, "fail "); ok {
		code, text, _ := strings.Cut(strings.TrimSpace(rest), " ")
		reply(w, 400, api.Error{Error: text + " (do something)", Hint: "do something", Code: code})
		return
	}
	rec := &record{killed: make(chan struct{}), stdin: make(chan io.Reader, 1), ended: make(chan struct{})}
	rec.Execution = api.Execution{
		ID: string(cove.NewExecutionID()), Language: req.Language, Engine: "fake", Status: api.StatusRunning, ExitCode: -1,
		Labels: req.Labels, CreatedAt: time.Now(),
	}
	f.mu.Lock()
	f.records[rec.ID] = rec
	f.order = append(f.order, rec.ID)
	f.mu.Unlock()
	defer close(rec.ended)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set(api.ExecutionIDHeader, rec.ID)
	w.WriteHeader(200)
	w.(http.Flusher).Flush()
	send := func(name string, v any) {
		b, _ := json.Marshal(v)
		fmt.Fprintf(w, "id: 1\nevent: %s\ndata: %s\n\n", name, b)
		w.(http.Flusher).Flush()
	}
	done := rec.Execution
	done.Limits, done.Timeout = inForce(req)
	done.Status, done.ExitCode, done.Duration = api.StatusCompleted, 0, 0.25
	for _, step := range strings.Split(req.Code, ";") {
		if err := f.step(r, rec, req, strings.TrimSpace(step), &done, send); err != nil {
			send(api.EventError, err)
			return
		}
	}
	f.mu.Lock()
	out, errs := rec.Output, rec.Stderr
	rec.Execution = done
	rec.Output, rec.Stderr = out, errs
	f.mu.Unlock()
	send(api.EventDone, done)
}

// inForce returns the limits of a request over those of its runtime.
func inForce(req api.ExecuteRequest) (*api.Limits, float64) {
	r, err := runtime.Lookup(req.Language)
	if err != nil {
		return nil, 0
	}
	asked := cove.Limits{Timeout: apispec.Duration(req.Timeout)}
	if req.Limits != nil {
		asked = apispec.Limits(*req.Limits)
		asked.Timeout = apispec.Duration(req.Timeout)
	}
	limits, err := r.Resolve(asked)
	if err != nil {
		return nil, 0
	}
	if req.Profile == "slow" { // whose timeout the command line does not know
		limits.Timeout = 3 * time.Second
	}
	return apispec.InForce(limits)
}

func (f *fakeServer) step(r *http.Request, rec *record, req api.ExecuteRequest, line string, done *api.Execution,
	send func(string, any)) *api.Error {
	word, rest, _ := strings.Cut(line, " ")
	print := func(event, text string) {
		f.mu.Lock()
		if event == api.EventStdout {
			rec.Output += text
		} else {
			rec.Stderr += text
		}
		f.mu.Unlock()
		o := api.OutputEvent{Data: text}
		if !utf8.ValidString(text) {
			o = api.OutputEvent{Data: base64.StdEncoding.EncodeToString([]byte(text)), Encoding: "base64"}
		}
		send(event, o)
	}
	show := func(v any) {
		b, _ := json.Marshal(v)
		print(api.EventStdout, string(b)+"\n")
	}
	switch word {
	case "out", "err":
		text, err := strconv.Unquote(`"` + rest + `"`)
		if err != nil {
			return &api.Error{Error: err.Error(), Code: string(cove.InvalidArgument)}
		}
		print(map[string]string{"out": api.EventStdout, "err": api.EventStderr}[word], text)
	case "exit":
		done.ExitCode, _ = strconv.Atoi(rest)
	case "limit":
		done.Status, done.LimitHit, done.ExitCode = api.StatusLimited, rest, -1
		if rest == string(cove.LimitTimeout) {
			done.Status = api.StatusTimeout
		}
	case "truncated":
		done.Truncated = true
	case "unrecorded":
		done.Unrecorded = true
	case "event":
		done.SecurityEvents = append(done.SecurityEvents,
			api.SecurityEvent{Rule: "fake", Severity: "high", Line: 1, Detail: rest})
	case "env":
		show(req.Env)
	case "args":
		show(req.Args)
	case "files":
		show(req.Files)
	case "limits":
		show(map[string]any{"limits": req.Limits, "timeout": req.Timeout, "image": req.Image, "engine": req.Engine,
			"isolation": req.Isolation, "mounts": req.Mounts, "work_dir": req.WorkDir})
	case "cat":
		if !req.StdinStream {
			print(api.EventStdout, "no input\n")
			break
		}
		in := <-rec.stdin
		b := make([]byte, 1000)
		for {
			n, err := in.Read(b)
			if n > 0 {
				print(api.EventStdout, string(b[:n]))
			}
			if err != nil {
				break
			}
		}
	case "wait":
		select {
		case <-rec.killed:
			done.Status, done.ExitCode = api.StatusKilled, -1
		case <-r.Context().Done():
		}
	case "ask", "meanwhile":
		h := api.Hold{ID: string(cove.NewHoldID()), Execution: rec.ID, Host: rest, Port: 443, Method: "POST", Path: "/x",
			About: rest + ":443", Count: 1, Rule: "policy.yaml:3", Reason: "needs a person",
			Since: time.Now(), Until: time.Now().Add(2 * time.Minute)}
		answer := make(chan api.HoldAnswer, 1)
		f.mu.Lock()
		f.holds, f.answers[h.ID] = append(f.holds, h), answer
		f.mu.Unlock()
		send(api.EventHolds, api.HoldList{Holds: []api.Hold{h}})
		for word == "meanwhile" && len(answer) == 0 && r.Context().Err() == nil {
			print(api.EventStdout, "faked question\n")
			time.Sleep(10 * time.Millisecond) // sleep: the program prints again and again
		}
		select {
		case a := <-answer:
			send(api.EventHolds, api.HoldList{Holds: []api.Hold{}})
			show(a)
		case <-rec.killed:
			done.Status, done.ExitCode = api.StatusKilled, -1
		case <-r.Context().Done():
		}
	case "broken":
		return &api.Error{Error: rest, Code: string(cove.Internal)}
	}
	return nil
}

func (f *fakeServer) find(w http.ResponseWriter, r *http.Request) *record {
	f.mu.Lock()
	defer f.mu.Unlock()
	rec := f.records[r.PathValue("id")]
	if rec == nil {
		reply(w, 404, api.Error{Error: "no execution " + r.PathValue("id"), Code: string(cove.NotFound)})
	}
	return rec
}

func (f *fakeServer) stdin(w http.ResponseWriter, r *http.Request) {
	rec := f.find(w, r)
	if rec == nil {
		return
	}
	rec.stdin <- r.Body
	<-rec.ended
	w.WriteHeader(204)
}

func (f *fakeServer) list(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := api.ExecutionList{}
	for _, id := range f.order {
		e := f.records[id].Execution
		if s := r.URL.Query().Get("status"); s != "" && s != string(e.Status) || !labeled(r, e.Labels) {
			continue
		}
		e.Output, e.Stderr = "", ""
		l.Executions = append(l.Executions, e)
	}
	reply(w, 200, l)
}

// labeled reports whether labels has those that a list is asked for.
func labeled(r *http.Request, labels map[string]string) bool {
	wanted, err := cove.ParseLabels(r.URL.Query()["label"])
	return err == nil && cove.HasLabels(labels, wanted)
}

func (f *fakeServer) get(w http.ResponseWriter, r *http.Request) {
	if rec := f.find(w, r); rec != nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		reply(w, 200, rec.Execution)
	}
}

// audit has three records, one a page, and one of them means harm to a
// terminal. What it was asked beyond that is in the detail of the second.
func audit(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	at := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	records := []api.AuditRecord{
		{Seq: 3, Time: at.Add(2 * time.Second), Who: "ip:192.0.2.1", Action: "request", Object: "GET /x\x1b]0;owned\a",
			Verdict: "deny", Detail: "no valid API key\nwas given", Hash: "c3"},
		{Seq: 2, Time: at.Add(time.Second), Action: "sweep", Object: "native", Verdict: "ok",
			Detail: "action=" + q.Get("action") + " object=" + q.Get("object") + " verdict=" + q.Get("verdict") + " since=" +
				q.Get("since"), Hash: "b2"},
		{Seq: 1, Time: at, Who: "local", Action: "execute", Object: "ex_1", Verdict: "ok",
			Detail: "python on fake: completed, exit code 0", Hash: "a1"},
	}
	n, _ := strconv.Atoi(q.Get("cursor"))
	l := api.AuditList{Records: records[n : n+1]}
	if n < 2 {
		l.NextCursor = strconv.Itoa(n + 1)
	}
	reply(w, 200, l)
}

const someExecution = "ex_0123456789abcdefghjkmnpqrs"

// decisions come one on a page, the newest first.
func decisions(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	at := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	all := []api.Decision{
		{Seq: 9, Time: at.Add(3 * time.Second), Execution: someExecution, Verdict: api.VerdictLost,
			Reason: "12 decisions were not recorded", Count: 12},
		{Seq: 8, Time: at.Add(2 * time.Second), Execution: someExecution, Entry: "connect", Protocol: "https",
			Host: "2001:db8::1", Port: 443, Method: "GET", Path: "/x\x1b]0;owned\a", Verdict: "deny", Stage: "policy",
			Rule: "default", Reason: "no rule allows it", Remedy: "cove policy allow " + someExecution + " 2001:db8::1",
			Status: 403, Received: 120, Duration: 0.002, Count: 3},
		{Seq: 7, Time: at.Add(time.Second), Execution: someExecution, Entry: "transparent", Protocol: "tcp",
			Host: "git.example.com", Port: 22, Verdict: "allow", Stage: "upstream", Sent: 2048, Received: 1 << 20,
			Duration: 2.5, Count: 1},
		{Seq: 5, Time: at, Execution: someExecution, Entry: "dns", Host: "git.example.com", Method: "AAAA", Verdict: "allow",
			Stage: "upstream", Rule: "--allow git.example.com",
			Reason: "execution=" + q.Get("execution") + " host=" + q.Get("host") + " verdict=" + q.Get("verdict") + " since=" +
				q.Get("since"), Count: 1},
	}
	n, _ := strconv.Atoi(q.Get("cursor"))
	l := api.DecisionList{Decisions: all[n : n+1]}
	if n < len(all)-1 {
		l.NextCursor = strconv.Itoa(n + 1)
	}
	reply(w, 200, l)
}

// followDecisions has one more, and then breaks off.
func followDecisions(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	after, _ := strconv.ParseInt(r.Header.Get("Last-Event-ID"), 10, 64)
	b, _ := json.Marshal(api.Decision{Seq: after + 1, Time: time.Date(2030, 1, 2, 3, 5, 0, 0, time.UTC),
		Execution: someExecution, Entry: "absolute-form", Protocol: "http", Host: "new.example.com", Port: 8080,
		Method: "GET", Path: "/", Verdict: "allow", Status: 200, Count: 1})
	fmt.Fprintf(w, ":\n\nid: %d\nevent: decision\ndata: %s\n\n", after+1, b)
}

// approvalID is of the one approval that is remembered.
const approvalID = "ap_0123456789abcdefghjkmnpqrs"

func (f *fakeServer) listHolds(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := api.HoldList{Holds: []api.Hold{}}
	for _, h := range f.holds {
		if of := r.URL.Query().Get("execution"); f.answers[h.ID] != nil && (of == "" || of == h.Execution) {
			l.Holds = append(l.Holds, h)
		}
	}
	reply(w, 200, l)
}

func (f *fakeServer) answerHold(w http.ResponseWriter, r *http.Request) {
	var a api.HoldAnswer
	if err := json.NewDecoder(r.Body).Decode(&a); err != nil {
		reply(w, 400, api.Error{Error: err.Error(), Code: string(cove.InvalidArgument)})
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	answer := f.answers[r.PathValue("id")]
	if answer == nil {
		reply(w, 404, api.Error{Error: "nothing waits as " + r.PathValue("id"), Code: string(cove.NotFound)})
		return
	}
	delete(f.answers, r.PathValue("id"))
	answer <- a
	w.WriteHeader(204)
}

func (f *fakeServer) kill(w http.ResponseWriter, r *http.Request) {
	rec := f.find(w, r)
	if rec == nil {
		return
	}
	f.mu.Lock()
	status := rec.Status
	f.mu.Unlock()
	if status != api.StatusRunning {
		reply(w, 409, api.Error{Error: "it has ended", Code: string(cove.Conflict)})
		return
	}
	rec.once.Do(func() { close(rec.killed) })
	<-rec.ended
	f.get(w, r)
}
