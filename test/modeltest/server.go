// Package modeltest is a model endpoint that follows a script: it speaks Anthropic's Messages, also as Bedrock and
// Vertex AI have it, OpenAI's chat completions, OpenAI's Responses and Gemini's generateContent, with streams, tools,
// and faults on demand. Agents work with it as with a provider's own, so that they can be tested, and tried, without an
// account.
//
// It remembers no conversation: each request says how far its own is, so that many go on at once. A script says what
// the model does in words that are no agent's own (Action), which become calls of the tools that a request offers.
package modeltest

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	maxBody = 64 << 20 // bytes of a request
	maxKept = 1000     // requests that are remembered
)

// Options of a Server. The zero value follows the built-in script and takes any key.
type Options struct {
	Script *Script
	Keys   []string      // that are accepted; none: whatever key, or none
	Seen   func(Request) // is told of each request when it has been answered
}

// Request is one that came in, and what was answered.
type Request struct {
	Time     time.Time   `json:"time"`
	Method   string      `json:"method"`
	Host     string      `json:"host"`
	Path     string      `json:"path"` // with the query
	Header   http.Header `json:"header"`
	Body     string      `json:"body,omitempty"`
	Model    string      `json:"model,omitempty"`
	Prompt   string      `json:"prompt,omitempty"`   // that the answer is for
	Turn     int         `json:"turn,omitempty"`     // of the script, from 1; 0: none of it
	Status   int         `json:"status"`             // 0: the connection was ended
	Fault    bool        `json:"fault,omitempty"`    // the script wanted it to go wrong
	Problem  string      `json:"problem,omitempty"`  // what the script could not do
	Finished bool        `json:"finished,omitempty"` // whoever asked has read the answer to its end
}

// Server is the endpoint.
type Server struct {
	script *Script
	keys   []string
	seen   func(Request)

	mu       sync.Mutex
	requests []Request
	tries    map[string]int // by the fingerprint of a request
}

// New makes a Server.
func New(o Options) *Server {
	if o.Script == nil {
		o.Script = BuiltIn()
	}
	return &Server{script: o.Script, keys: o.Keys, seen: o.Seen, tries: map[string]int{}}
}

// Requests are those that came in so far, the oldest first.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// Forget forgets what came in so far, and which tries there were.
func (s *Server) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests, s.tries = nil, map[string]int{}
}

func (s *Server) keep(r Request) {
	s.mu.Lock()
	s.requests = append(s.requests, r)
	if over := len(s.requests) - maxKept; over > 0 {
		s.requests = slices.Delete(s.requests, 0, over)
	}
	s.mu.Unlock()
	if s.seen != nil {
		s.seen(r)
	}
}

// protocol is one API, as far as an answer of a model goes.
type protocol interface {
	read(r *http.Request, body []byte) (*asked, error)
	// events are an answer as a stream; whole is it as one document.
	events(*asked, *answer) []event
	whole(*asked, *answer) any
	// failure is an error as a document, and broken as an event.
	failure(status int, message string) any
	broken(status int, message string) event
}

// answer is what the model says.
type answer struct {
	place    place
	thinking string
	text     string
	calls    []call
	usage    Usage
}

// event is one of a stream.
type event struct {
	name string // of an SSE event; empty: none is sent
	data any
	text bool // it carries words of the answer
}

// protocols by the end of their paths, which is all that providers have in common.
var protocols = map[string]protocol{
	"/messages":         messages{},
	"/chat/completions": chat{},
	"/responses":        responses{},
	":generateContent":  gemini{},
	geminiStream:        gemini{},
	"/invoke":           bedrock{},
	bedrockStream:       bedrock{},
	":rawPredict":       vertex{},
	vertexStream:        vertex{},
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	seen := Request{Time: time.Now(), Method: r.Method, Host: r.Host, Path: r.URL.RequestURI(), Header: r.Header.Clone()}
	out := &writer{ResponseWriter: w}
	defer func() {
		seen.Status, seen.Finished = out.status, r.Context().Err() == nil && out.err == nil
		failed := recover()
		if failed != nil {
			seen.Finished = false
		}
		s.keep(seen)
		if failed != nil {
			panic(failed)
		}
	}()
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	seen.Body = string(body)
	of, p := speaks(r)
	switch {
	case err != nil:
		reply(out, http.StatusRequestEntityTooLarge, of.failure(http.StatusRequestEntityTooLarge, err.Error()))
	case !s.admits(r.Header):
		reply(out, http.StatusUnauthorized, of.failure(http.StatusUnauthorized, "this key is none of the server's"))
	case r.Header.Get("Upgrade") != "":
		reply(out, http.StatusUpgradeRequired, of.failure(http.StatusUpgradeRequired,
			"there are no WebSockets here: send a POST request"))
	case r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/count-tokens:rawPredict"):
		reply(out, http.StatusOK, map[string]any{"input_tokens": tokens(len(body))})
	case r.Method == http.MethodPost && p != nil:
		s.answer(out, r, p, body, &seen)
	case r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/messages/count_tokens"):
		reply(out, http.StatusOK, map[string]any{"input_tokens": tokens(len(body))})
	case r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, ":countTokens"):
		reply(out, http.StatusOK, map[string]any{"totalTokens": tokens(len(body))})
	case r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/models"):
		reply(out, http.StatusOK, list())
	default:
		reply(out, http.StatusNotFound, of.failure(http.StatusNotFound,
			r.Method+" "+r.URL.Path+" is nothing that a model server has"))
	}
}

// speaks finds whose API a request is of, for its errors, and the one that answers it, if there is one.
func speaks(r *http.Request) (protocol, protocol) {
	for end, p := range protocols {
		if strings.HasSuffix(r.URL.Path, end) {
			return p, p
		}
	}
	if r.Header.Get("X-Api-Key") != "" || r.Header.Get("Anthropic-Version") != "" {
		return messages{}, nil
	}
	if r.Header.Get("X-Goog-Api-Key") != "" {
		return gemini{}, nil
	}
	return chat{}, nil
}

// admits: a key is there, and one of those that are accepted.
func (s *Server) admits(h http.Header) bool {
	key := cmp.Or(h.Get("X-Api-Key"), h.Get("X-Goog-Api-Key"))
	if bearer, ok := strings.CutPrefix(h.Get("Authorization"), "Bearer "); key == "" && ok {
		key = bearer
	}
	return len(s.keys) == 0 || slices.Contains(s.keys, key)
}

func (s *Server) answer(w *writer, r *http.Request, p protocol, body []byte, seen *Request) {
	a, err := p.read(r, body)
	if err != nil {
		reply(w, http.StatusBadRequest, p.failure(http.StatusBadRequest, err.Error()))
		return
	}
	a.path, a.size = r.URL.Path, len(body)
	at := locate(a.items)
	prompt, ok := s.script.choose(at.prompt)
	if !ok {
		message := fmt.Sprintf("the script has nothing for the prompt %.200q", at.prompt)
		seen.Problem = message
		reply(w, http.StatusBadRequest, p.failure(http.StatusBadRequest, message))
		return
	}
	n := prompt.turn(at.answered)
	turn := prompt.Turns[n]
	seen.Model, seen.Prompt = a.model, at.prompt
	said := &answer{place: at, thinking: turn.Think, text: turn.Say}
	if len(turn.Do) > 0 && len(a.tools) == 0 {
		said, turn = &answer{place: at, text: a.aside(s.script)}, Turn{}
	} else {
		seen.Turn = n + 1
	}
	for _, do := range turn.Do {
		c, err := do.choose(a.tools)
		if err != nil {
			seen.Problem = err.Error()
			said = &answer{place: at, text: err.Error()}
			break
		}
		said.calls = append(said.calls, c)
	}
	if turn.Answer != nil {
		said.structured(turn.Answer, a.tools, at.answered > n)
	}
	said.usage = turn.Usage.or(a.size, said)
	f, bad := s.fault(turn, a)
	seen.Fault = bad
	if a.stream {
		s.stream(w, r, p, a, said, turn.Pace, f)
		return
	}
	s.document(w, r, p, a, said, f)
}

// aside is the answer to what has nothing to do with a script: such as a title, or a choice among models.
func (a *asked) aside(s *Script) string {
	if a.form != nil {
		return string(encode(a.form.empty()))
	}
	return s.Aside
}

// structured gives the answer to the tool that is for it, once, or says it.
func (said *answer) structured(data map[string]any, tools []tool, given bool) {
	t, ok := find(tools, []string{"structuredoutput"})
	switch {
	case !ok:
		said.text += string(encode(data))
	case !given:
		said.calls = append(said.calls, call{tool: t, input: encode(data)})
	default:
		said.text += "I have answered."
	}
}

// fault is what becomes of this try.
func (s *Server) fault(t Turn, a *asked) (Fault, bool) {
	if len(t.Fail) == 0 {
		return Fault{}, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	print := a.fingerprint()
	n := s.tries[print]
	s.tries[print]++
	if n >= len(t.Fail) {
		return Fault{}, false
	}
	return t.Fail[n], true
}

// or counts what is not said.
func (u *Usage) or(asked int, said *answer) Usage {
	if u != nil {
		return *u
	}
	n := len(said.thinking) + len(said.text)
	for _, c := range said.calls {
		n += len(c.arguments())
	}
	return Usage{Input: tokens(asked), Output: tokens(n)}
}

func tokens(bytes int) int64 { return int64(max(1, bytes/4)) }

// list is all models, in the forms of all providers at once.
func list() any {
	const id = "scripted"
	data := []any{map[string]any{"id": id, "type": "model", "object": "model", "display_name": id,
		"created_at": "2026-01-01T00:00:00Z", "created": 1767225600, "owned_by": "cove"}}
	models := []any{map[string]any{"name": "models/" + id, "displayName": id,
		"supportedGenerationMethods": []string{"generateContent", "countTokens"}}}
	return map[string]any{"object": "list", "data": data, "has_more": false, "first_id": id, "last_id": id,
		"models": models}
}

// writer remembers what was answered.
type writer struct {
	http.ResponseWriter
	status int
	err    error
}

func (w *writer) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

func (w *writer) Write(p []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	n, err := w.ResponseWriter.Write(p)
	if err != nil {
		w.err = err
	}
	return n, err
}

func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func reply(w http.ResponseWriter, status int, document any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(encode(document))
}

// decode reads a request's body.
func decode(body []byte, into any) error {
	if err := json.Unmarshal(body, into); err != nil {
		return errors.New("the body is not what this API takes: " + err.Error())
	}
	return nil
}
