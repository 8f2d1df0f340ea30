package driver

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
)

// server answers POST /runs with events, and records the request.
type server struct {
	events string

	mu    sync.Mutex
	asked api.RunRequest // guarded by mu
	calls []string       // guarded by mu
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.calls = append(s.calls, r.Method+" "+r.URL.Path)
	s.mu.Unlock()
	switch r.URL.Path {
	case "/runs":
		s.mu.Lock()
		s.asked = api.RunRequest{}
		json.NewDecoder(r.Body).Decode(&s.asked)
		s.mu.Unlock()
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, s.events)
	case "/profiles/bare":
		json.NewEncoder(w).Encode(api.Profile{Name: "bare", Mode: "none", Agent: "worker",
			Spec: api.Spec{Env: map[string]string{"MARK": "bare"}}})
	case "/profiles/careful":
		json.NewEncoder(w).Encode(api.Profile{Name: "careful"})
	default:
		w.WriteHeader(http.StatusNoContent)
	}
}

func (s *server) client(t *testing.T) *client.Client {
	t.Helper()
	h := httptest.NewServer(s)
	t.Cleanup(h.Close)
	c, err := client.New(client.Options{Address: h.URL})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

const run = `"id":"ru_0123456789abcdefghjkmnpqrs","agent":"worker","prompt":"x","usage":{"input_tokens":5,` +
	`"output_tokens":2},"created_by":"local","started_at":"2030-01-02T03:04:05Z"`

func event(name, data string) string { return "event: " + name + "\ndata: " + data + "\n\n" }

func TestSandboxedRun(t *testing.T) {
	s := &server{events: event("progress", `{"step":"making"}`) + event("run", "{"+run+`,"status":"running"}`) +
		event("message", thinking) + event("message", answer) + event("message", usage) +
		event("done", "{"+run+`,"status":"succeeded"}`)}
	d := Sandboxed(s.client(t), Config{Profile: "careful", Agent: "worker", Model: "m",
		New: api.SandboxRequest{Spec: api.Spec{Image: "host"}}})
	types, err := collect(t.Context(), d, "do it", Options{Directory: "/srv/p", MaxTurns: 3})
	if err != nil || !slices.Equal(types, []string{"thinking", "result", "usage"}) || d.Usage().InputTokens != 5 {
		t.Errorf("%v, %v, %+v", types, err, d.Usage())
	}
	if q := s.asked; q.Agent != "worker" || q.Model != "m" || q.Prompt != "do it" || q.Directory != "/srv/p" ||
		q.MaxTurns != 3 || q.New.Profile != "careful" || q.New.Image != "host" {
		t.Errorf("%+v", q)
	}
	if _, err := collect(t.Context(), d, "go on", Options{
		Directory: "/srv/p", Resume: "ru_0123456789abcdefghjkmnpqrs",
	}); err != nil {
		t.Error(err)
	}
	// a server refuses this combination
	if q := s.asked; q.Resume != "ru_0123456789abcdefghjkmnpqrs" || q.Directory != "" || q.New != nil {
		t.Errorf("%+v", q)
	}
}

// TestSandboxedErrors: a server's errors equal those of a local driver.
func TestSandboxedErrors(t *testing.T) {
	for _, c := range []struct {
		name, last string
		code       cove.Code
		want       string
	}{
		{"protocol", event("done", "{"+run+`,"status":"error","error":{"error":"it wrote \"x\"","code":"agent_protocol"}}`),
			cove.AgentProtocol, `it wrote "x"`},
		{"exit code",
			event("done", "{"+run+`,"status":"failed","exit_code":3,"error":{"error":"ended with 3","code":"agent_failed"}}`),
			cove.AgentFailed, "ended with 3"},
		{"model", event("done", "{"+run+`,"status":"error","error":{"error":"no answer","code":"model_unreachable"}}`),
			cove.ModelUnreachable, "no answer"},
		{"limit", event("done", "{"+run+`,"status":"limit","limit_hit":"oom"}`), cove.LimitReached, "oom"},
		{"interrupted", event("done", "{"+run+`,"status":"interrupted"}`), cove.Canceled, "ended"},
		{"engine", event("error", `{"error":"no room","code":"storage_full"}`), cove.StorageFull, "no room"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &server{events: event("run", "{"+run+`,"status":"running"}`) + event("message", thinking) + c.last}
			d := Sandboxed(s.client(t), Config{Agent: "worker"})
			types, err := collect(t.Context(), d, "x", Options{})
			if cove.ErrorCode(err) != c.code || !strings.Contains(err.Error(), c.want) ||
				!slices.Equal(types, []string{"thinking"}) {
				t.Errorf("%v, %s: %v", types, cove.ErrorCode(err), err)
			}
		})
	}
	t.Run("a task that could not be done is a result", func(t *testing.T) {
		s := &server{events: event("run", "{"+run+`,"status":"running"}`) +
			event("message", `{"version":1,"type":"result","content":"no","is_error":true}`) + event("message", usage) +
			event("done", "{"+run+`,"status":"failed"}`)}
		r, err := Sandboxed(s.client(t), Config{Agent: "worker"}).Generate(t.Context(), "x",
			Options{Schema: []byte(`{"type":"object"}`)})
		if err != nil || !r.IsError || r.Text != "no" || r.Run != "ru_0123456789abcdefghjkmnpqrs" || r.Resume != r.Run {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

func TestSandboxedBreaksOff(t *testing.T) {
	s := &server{events: event("run", "{"+run+`,"status":"running"}`) + event("message", thinking) +
		event("message", thinking)}
	for range Sandboxed(s.client(t), Config{Agent: "worker"}).Run(t.Context(), "x", Options{}) {
		break
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Contains(s.calls, "POST /runs/ru_0123456789abcdefghjkmnpqrs/interrupt") {
		t.Errorf("%v", s.calls)
	}
}

// TestSandboxedInterrupt: an interrupted agent reports what it has, and its log is passed on.
func TestSandboxedInterrupt(t *testing.T) {
	asked := make(chan string, 1)
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/runs" {
			var how api.RunInterrupt
			json.NewDecoder(r.Body).Decode(&how)
			w.WriteHeader(http.StatusNoContent)
			asked <- fmt.Sprint(r.URL.Path, how.Kill)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, event("run", "{"+run+`,"status":"running"}`)+event("log", `{"data":"noise"}`)+
			event("message", thinking))
		w.(http.Flusher).Flush()
		if got := <-asked; got != "/runs/ru_0123456789abcdefghjkmnpqrs/interruptfalse" {
			t.Errorf("asked is %s", got)
		}
		fmt.Fprint(w, event("message", answer)+event("message", usage)+event("done", "{"+run+`,"status":"interrupted"}`))
	}))
	t.Cleanup(h.Close)
	c, err := client.New(client.Options{Address: h.URL})
	if err != nil {
		t.Fatal(err)
	}
	interrupt, log := make(chan struct{}), ""
	var types []string
	var last error
	for m, err := range Sandboxed(c, Config{Agent: "worker"}).Run(t.Context(), "x",
		Options{Interrupt: interrupt, Log: func(b []byte) {
			log += string(b)
		}}) {
		if last = err; err != nil {
			break
		}
		if types = append(types, m.Type); len(types) == 1 {
			close(interrupt)
		}
	}
	if !slices.Equal(types, []string{"thinking", "result", "usage"}) || cove.ErrorCode(last) != cove.Canceled ||
		log != "noise" {
		t.Errorf("%v, %v, %q", types, last, log)
	}
}

// TestOpen: the profile decides whether there is a wall.
func TestOpen(t *testing.T) {
	worker(t, say(thinking, answer, usage)) // it is on PATH from here on
	c := (&server{}).client(t)
	for profile, want := range map[string]string{"": "*driver.sandboxed", "careful": "*driver.sandboxed",
		"bare": "*driver.local"} {
		d, err := Open(t.Context(), c, Config{Profile: profile})
		if err != nil || fmt.Sprintf("%T", d) != want {
			t.Errorf("%q: %T, %v", profile, d, err)
		}
	}
}
