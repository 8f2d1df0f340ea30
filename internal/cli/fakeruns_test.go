package cli_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
)

// fakeRuns answer like runs of agents whose prompts are what they do, parted by
// semicolons (\n and the like in TEXT as in Go):
//
//	say TEXT, think TEXT     the agent speaks
//	call ID TOOL JSON        a tool is called
//	result ID TEXT           and answers
//	error ID TEXT            or fails
//	usage IN OUT COST        what a message says was used
//	deny HOST [RULE]         something was not let out
//	ask HOST                 wait for an answer, and say it
//	log TEXT                 on standard error
//	change PATH              a file of the work
//	request                  say what was sent
//	wait                     until it is interrupted, and then say so
//	stubborn                 until it is killed
//	answer TEXT, data JSON   the result
//	failed [WHY], limit KIND how it ends
//	wrong CODE TEXT          it does not come to its end
//	refuse CODE TEXT         it does not begin
//	unrecorded, cut          what the history lacks of it
//	broken                   the connection ends
//	unknown                  nobody knows what has changed
type fakeRuns struct {
	mu   *sync.Mutex
	runs []*fakeRun // guarded by mu
}

type fakeRun struct {
	api.Run
	stop, kill chan struct{}
	once       [2]sync.Once
}

func newFakeRuns() fakeRuns { return fakeRuns{mu: new(sync.Mutex)} }

func (f *fakeServer) runRoutes(mux *http.ServeMux) {
	mux.HandleFunc("GET /agents", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, 200, api.AgentList{Agents: []api.Agent{
			{Name: "claude", Title: "Claude Code", Package: "p", Provider: "anthropic"},
			{Name: "codex", Title: "Codex", Package: "p", Provider: "openai", Ready: true},
			{Name: "worker", Title: "Cove's worker", Provider: "anthropic", Ready: true}}})
	})
	mux.HandleFunc("GET /credentials", func(w http.ResponseWriter, _ *http.Request) {
		l := api.CredentialList{Credentials: []api.Credential{{Name: "anthropic", State: "ready"},
			{Name: "openai", State: "missing"}}}
		reply(w, 200, l)
	})
	profiles := api.ProfileList{Profiles: []api.Profile{{Name: "mine", Agent: "codex", AgentConfig: "instructions"},
		{Name: "quiet", Agent: "codex", AgentConfig: "none"}, {Name: "bare-bones"}}}
	mux.HandleFunc("GET /profiles", func(w http.ResponseWriter, _ *http.Request) { reply(w, 200, profiles) })
	mux.HandleFunc("POST /runs", f.startRun)
	mux.HandleFunc("GET /runs", func(w http.ResponseWriter, r *http.Request) {
		f.fakeRuns.mu.Lock()
		defer f.fakeRuns.mu.Unlock()
		l := api.RunList{Runs: []api.Run{}}
		for _, run := range slices.Backward(f.runs) {
			q := r.URL.Query()
			if (!q.Has("agent") || q.Get("agent") == run.Agent) && (!q.Has("sandbox") || q.Get("sandbox") == run.Sandbox) {
				l.Runs = append(l.Runs, run.Run)
			}
		}
		reply(w, 200, l)
	})
	mux.HandleFunc("GET /runs/{run}", func(w http.ResponseWriter, r *http.Request) {
		reply(w, 200, api.Run{ID: r.PathValue("run"), Directory: "/earlier"})
	})
	mux.HandleFunc("GET /runs/{run}/export", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, "archive of", r.PathValue("run"))
	})
	mux.HandleFunc("GET /runs/{run}/events", func(w http.ResponseWriter, r *http.Request) {
		f.fakeRuns.mu.Lock()
		defer f.fakeRuns.mu.Unlock()
		w.Header().Set("Content-Type", "text/event-stream")
		for _, run := range f.runs {
			if b, _ := json.Marshal(run.Run); run.ID == r.PathValue("run") {
				fmt.Fprintf(w, "id: 1\nevent: %s\ndata: %s\n\n", api.EventDone, b)
			}
		}
	})
	mux.HandleFunc("POST /runs/{run}/interrupt", func(w http.ResponseWriter, r *http.Request) {
		var how api.RunInterrupt
		json.NewDecoder(r.Body).Decode(&how)
		f.fakeRuns.mu.Lock()
		defer f.fakeRuns.mu.Unlock()
		for _, run := range f.runs {
			if run.ID == r.PathValue("run") {
				run.once[0].Do(func() { close(run.stop) })
				if how.Kill {
					run.once[1].Do(func() { close(run.kill) })
				}
			}
		}
		w.WriteHeader(204)
	})
}

func (f *fakeServer) startRun(w http.ResponseWriter, r *http.Request) {
	var req api.RunRequest
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		reply(w, 400, api.Error{Error: err.Error(), Code: string(cove.InvalidArgument)})
		return
	}
	if rest, ok := strings.CutPrefix(req.Prompt, "refuse "); ok {
		code, text, _ := strings.Cut(rest, " ")
		reply(w, 400, api.Error{Error: text + " (do something)", Hint: "do something", Code: code})
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	send := func(name string, v any) {
		b, _ := json.Marshal(v)
		fmt.Fprintf(w, "id: 1\nevent: %s\ndata: %s\n\n", name, b)
		w.(http.Flusher).Flush()
	}
	now := time.Now()
	run := &fakeRun{stop: make(chan struct{}), kill: make(chan struct{}),
		Run: api.Run{ID: string(cove.NewRunID()), Agent: req.Agent, Version: "1.2.3", Status: api.RunRunning,
			Sandbox: string(cove.NewSandboxID()), SandboxName: "run-otter", Directory: req.Directory, Bind: req.Bind,
			Prompt: req.Prompt, StartedAt: now, Session: "conversation"}}
	if req.Sandbox != "" {
		run.SandboxName = req.Sandbox
	}
	run.Limits, run.Timeout = &api.Limits{MemoryMB: 2048}, float64(req.Timeout)
	if req.New != nil && req.New.Limits != nil {
		run.Limits = req.New.Limits
	}
	f.fakeRuns.mu.Lock()
	for _, earlier := range f.runs {
		if req.Resume != "" && earlier.ID == req.Resume {
			run.Sandbox, run.Directory, run.Agent = earlier.Sandbox, earlier.Directory, earlier.Agent
		}
	}
	f.fakeRuns.mu.Unlock()
	send(api.EventProgress, api.Progress{Step: "copying " + req.Directory, Elapsed: 0.001})
	send(api.EventProgress, api.Progress{Step: "starting " + req.Agent, Elapsed: 0.035})
	f.fakeRuns.mu.Lock()
	f.runs = append(f.runs, run)
	f.fakeRuns.mu.Unlock()
	send(api.EventRun, run.Run)
	done := run.Run
	done.Status = api.RunSucceeded
	lost := strings.Contains(req.Prompt, "unknown")
	aside := strings.Contains(req.Prompt, "aside")
	for step := range strings.SplitSeq(req.Prompt, ";") {
		if !f.runStep(r, run, req, strings.TrimSpace(step), &done, send) {
			return
		}
	}
	ended := now.Add(72 * time.Second)
	done.EndedAt = &ended
	s := api.Sandbox{ID: done.Sandbox, Name: done.SandboxName, State: "running", Engine: "native", Network: "limited",
		Mounts: []api.Mount{}, CreatedAt: now, LastUsedAt: now, Labels: map[string]string{}}
	if req.New != nil && req.New.Repository != nil {
		s.Repository = &api.SandboxRepository{Source: req.New.Repository.Source, Branch: req.New.Repository.Branch,
			Remote: "https://git.example/owner/repo.git"}
	}
	for _, c := range done.Changes {
		s.Labels["changes"] += c.Path + " "
	}
	if lost {
		s.Labels["lost"] = "yes"
	}
	if aside {
		s.Labels["aside"] = "yes"
	}
	if len(done.Changes) > 0 || req.Keep || lost || aside {
		f.fakeSandboxes.mu.Lock()
		f.all = append(f.all, s)
		f.fakeSandboxes.mu.Unlock()
	}
	send(api.EventMessage, api.Message{Version: 1, Type: api.MessageUsage, Usage: &done.Usage})
	f.fakeRuns.mu.Lock()
	run.Run = done
	f.fakeRuns.mu.Unlock()
	send(api.EventDone, done)
}

func (f *fakeServer) runStep(r *http.Request, run *fakeRun, req api.RunRequest, line string, done *api.Run,
	send func(string, any)) bool {
	word, rest, _ := strings.Cut(line, " ")
	text := func(s string) string {
		if u, err := strconv.Unquote(`"` + s + `"`); err == nil {
			return u
		}
		return s
	}
	id, more, _ := strings.Cut(rest, " ")
	message := func(m api.Message) { m.Version = 1; send(api.EventMessage, m) }
	switch word {
	case "say":
		message(api.Message{Type: api.MessageThinking, Content: text(rest)})
	case "think":
		message(api.Message{Type: api.MessageThinking, Content: text(rest), Reasoning: true})
	case "call":
		tool, input, _ := strings.Cut(more, " ")
		message(api.Message{Type: api.MessageToolCall, Call: id, Tool: tool, Input: json.RawMessage(orElse(input, "{}"))})
	case "result", "error":
		message(api.Message{Type: api.MessageToolResult, Call: id, Output: text(more), IsError: word == "error"})
	case "usage":
		var u api.AgentUsage
		fmt.Sscan(rest, &u.InputTokens, &u.OutputTokens, &u.Cost)
		u.Turns = 1
		done.Usage = done.Usage.Plus(u)
		used := done.Usage
		message(api.Message{Type: api.MessageUsage, Usage: &used})
	case "deny":
		host, rule, _ := strings.Cut(rest, " ")
		send(api.EventDecision, api.Decision{Verdict: api.VerdictDeny, Host: host, Port: 443, Protocol: api.ProtocolHTTPS,
			Method: "GET", Path: "/x\x1b[2J",
			Rule: orElse(rule, "default"), Reason: "no rule allows it",
			Remedy: "cove policy allow " + run.SandboxName + " " + host})
	case "ask":
		h := api.Hold{ID: string(cove.NewHoldID()), Host: rest, Port: 443, Method: "POST", Path: "/x", About: rest + ":443",
			Count: 1, Rule: "policy.yaml:3", Reason: "needs a person",
			Since: time.Now(), Until: time.Now().Add(2 * time.Minute)}
		answer := make(chan api.HoldAnswer, 1)
		f.mu.Lock()
		f.holds, f.answers[h.ID] = append(f.holds, h), answer
		f.mu.Unlock()
		send(api.EventHolds, api.HoldList{Holds: []api.Hold{h}})
		select {
		case a := <-answer:
			send(api.EventHolds, api.HoldList{Holds: []api.Hold{}})
			message(api.Message{Type: api.MessageThinking, Content: fmt.Sprint("answered ", a.Allow, a.Scope)})
		case <-run.stop:
			done.Status = api.RunInterrupted
		}
	case "log":
		send(api.EventLog, api.OutputEvent{Data: text(rest)})
	case "change":
		done.Changes = append(done.Changes, api.WorkChange{Path: rest, Change: "changed", Added: 1})
	case "request":
		b, _ := json.Marshal(req)
		message(api.Message{Type: api.MessageThinking, Content: string(b)})
	case "wait", "stubborn":
		stop := run.stop
		if word == "stubborn" {
			stop = run.kill
		}
		select {
		case <-stop:
			done.Status = api.RunInterrupted
		case <-r.Context().Done():
			return false
		}
	case "answer":
		done.Result = text(rest)
		message(api.Message{Type: api.MessageResult, Content: done.Result})
	case "data":
		message(api.Message{Type: api.MessageResult, Data: json.RawMessage(rest)})
	case "failed":
		done.Status = api.RunFailed
		if rest != "" {
			done.Error = &api.Error{Error: rest, Code: string(cove.AgentFailed)}
		}
	case "limit":
		done.Status, done.LimitHit = api.RunLimit, rest
	case "wrong":
		done.Status, done.Error = api.RunError, &api.Error{Error: more + " (do something)", Hint: "do something", Code: id}
	case "unrecorded":
		done.Unrecorded = true
	case "cut":
		done.Cut = true
	case "broken":
		return false
	default:
		message(api.Message{Type: api.MessageThinking, Content: line})
	}
	return true
}

func orElse(text, other string) string {
	if text == "" {
		return other
	}
	return text
}
