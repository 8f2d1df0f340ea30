package worker

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/agent"
	"github.com/cove-sandbox/cove/internal/jsonschema"
	"github.com/cove-sandbox/cove/internal/model"
	"github.com/cove-sandbox/cove/message"
	"github.com/cove-sandbox/cove/test/modeltest"
)

// lab is a project, a home and a model with a script.
type lab struct {
	t      *testing.T
	dir    string
	home   string
	server *modeltest.Server
	url    string
	kind   model.Dialect
}

func newLab(t *testing.T, kind model.Dialect, script string) *lab {
	t.Helper()
	parsed, err := modeltest.Parse("test.yaml", []byte(script))
	if err != nil {
		t.Fatal(err)
	}
	l := &lab{t: t, dir: t.TempDir(), home: t.TempDir(), kind: kind,
		server: modeltest.New(modeltest.Options{Script: parsed, Keys: []string{"placeholder"}})}
	h := httptest.NewServer(l.server)
	t.Cleanup(h.Close)
	l.url = h.URL
	return l
}

func (l *lab) env() []string {
	return []string{"HOME=" + l.home, "PATH=" + os.Getenv("PATH"), "ANTHROPIC_API_KEY=placeholder",
		"OPENAI_API_KEY=placeholder"}
}

func (l *lab) file(name, content string) string {
	l.t.Helper()
	path := filepath.Join(l.dir, name)
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		l.t.Fatal(err)
	}
	return path
}

// ended is the outcome of a worker.
type ended struct {
	code     int
	messages []message.Message
	stdout   []byte
	stderr   string
}

func (l *lab) args(mode, prompt string, more ...string) []string {
	l.t.Helper()
	path := filepath.Join(l.t.TempDir(), "prompt")
	if err := os.WriteFile(path, []byte(prompt), 0o600); err != nil {
		l.t.Fatal(err)
	}
	args := []string{mode, "--prompt-file", path, "--model", "m-1", "--provider-kind", string(l.kind),
		"--base-url", l.url + "/v1"}
	if mode == "agentic" {
		args = append(args, "--cwd", l.dir)
	}
	return append(args, more...)
}

// run runs the worker in this process.
func (l *lab) run(mode, prompt string, more ...string) ended {
	l.t.Helper()
	return run(l.t, l.env(), l.args(mode, prompt, more...)...)
}

func run(t *testing.T, env []string, args ...string) ended {
	t.Helper()
	var stdout, stderr bytes.Buffer
	e := ended{code: Main(t.Context(), Process{Args: args, Stdin: strings.NewReader(""), Stdout: &stdout,
		Stderr: &stderr, Env: env})}
	e.messages, e.stdout, e.stderr = parse(t, stdout.Bytes()), stdout.Bytes(), stderr.String()
	return e
}

// parse parses standard output, strictly: only messages.
func parse(t *testing.T, out []byte) (all []message.Message) {
	t.Helper()
	s := bufio.NewScanner(bytes.NewReader(out))
	s.Buffer(nil, 1<<24)
	for s.Scan() {
		d := json.NewDecoder(bytes.NewReader(s.Bytes()))
		d.DisallowUnknownFields()
		var m message.Message
		if err := d.Decode(&m); err != nil || m.Version != message.Version {
			t.Fatalf("%v: %s", err, s.Text())
		}
		all = append(all, m)
	}
	return all
}

// story returns a sequence of messages in short form, without intermediate usage.
func (e ended) story() string {
	var b strings.Builder
	for i, m := range e.messages {
		switch m.Type {
		case message.TypeThinking:
			word := "says"
			if m.Reasoning {
				word = "thinks"
			}
			fmt.Fprintf(&b, "%s: %s\n", word, m.Content)
		case message.TypeToolCall:
			fmt.Fprintf(&b, "%s %s\n", m.Tool, m.Input)
		case message.TypeToolResult:
			word := "->"
			if m.IsError {
				word = "-> failed:"
			}
			fmt.Fprintf(&b, "%s %s\n", word, strings.ReplaceAll(m.Output, "\n", "|"))
		case message.TypeResult:
			word := "done"
			if m.IsError {
				word = "failed"
			}
			fmt.Fprintf(&b, "%s: %s %s\n", word, m.Content, m.Data)
		case message.TypeUsage:
			if i == len(e.messages)-1 {
				fmt.Fprintf(&b, "%d turns\n", m.Usage.Turns)
			}
		}
	}
	return b.String()
}

func (e ended) result(t *testing.T) message.Message {
	t.Helper()
	if n := len(e.messages); n < 2 || e.messages[n-1].Type != message.TypeUsage ||
		e.messages[n-2].Type != message.TypeResult {
		t.Fatalf("it does not end with result and usage:\n%s%s", e.story(), e.stderr)
	}
	return e.messages[len(e.messages)-2]
}

const work = `
prompts:
  - turns:
      - think: Where am I?
        say: I look around.
        do:
          - write: {path: sub/hello.txt, content: "hello\nworld\n"}
          - read: sub/hello.txt
        usage: {input: 100, output: 10, cache_read: 1000}
      - do:
          - edit: {path: sub/hello.txt, old: world, new: moon}
          - shell: cat sub/hello.txt; exit 3
          - tool: {name: fly, input: {to: moon}}
        usage: {input: 50, output: 20}
      - say: It is done.
        usage: {input: 10, output: 5}
`

func TestTask(t *testing.T) {
	data, err := os.ReadFile("../../docs/message.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	schema, err := jsonschema.Compile(data)
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range model.Dialects {
		t.Run(string(kind), func(t *testing.T) {
			l := newLab(t, kind, work)
			e := l.run("agentic", "go to the moon")
			thinks := "thinks: Where am I?\n"
			want := thinks + `says: I look around.
write {"content":"hello\nworld\n","path":"sub/hello.txt"}
-> created sub/hello.txt: 2 lines, 12 bytes
read {"path":"sub/hello.txt"}
->      1	hello|     2	world
edit {"new":"moon","old":"world","path":"sub/hello.txt"}
-> replaced at line 2 of sub/hello.txt: 1 lines by 1
bash {"command":"cat sub/hello.txt; exit 3"}
-> failed: hello|moon|[exit code 3]
fly {"to":"moon"}
-> failed: there is no tool "fly"; there are read, write, edit, list, glob, grep, bash, bash_output, bash_kill, todo
done: It is done. ` + `
3 turns
`
			got := e.story()
			if kind == model.Chat { // this API has no field for it
				got = strings.TrimPrefix(got, thinks)
				want = strings.TrimPrefix(want, thinks)
			}
			if got != want || e.code != 0 {
				t.Errorf("exit code %d, messages:\n%s\nwant:\n%s\n%s", e.code, got, want, e.stderr)
			}
			for line := range bytes.Lines(e.stdout) {
				if err := schema.Validate(line); err != nil {
					t.Errorf("%v: %s", err, line)
				}
			}
			if u := e.messages[len(e.messages)-1].Usage; u.InputTokens != 160 || u.OutputTokens != 35 ||
				u.CacheReadTokens != 1000 || u.Duration <= 0 {
				t.Errorf("usage %+v", u)
			}
			turns := 0
			for _, m := range e.messages[:len(e.messages)-1] {
				if m.Type == message.TypeUsage {
					if turns++; m.Usage.Turns != turns || m.Usage.InputTokens <= 0 {
						t.Errorf("after answer %d: %+v", turns, m.Usage)
					}
				}
			}
			if all := e.messages[len(e.messages)-1].Usage.Turns; turns != all {
				t.Errorf("what was used was said after %d of %d answers", turns, all)
			}
			session := e.messages[0].Session
			calls := map[string]bool{}
			for _, m := range e.messages {
				if m.Session != session || session == "" {
					t.Errorf("session %q of %s", m.Session, m.Type)
				}
				switch m.Type {
				case message.TypeToolCall:
					calls[m.Call] = true
				case message.TypeToolResult:
					if !calls[m.Call] || m.Call == "" {
						t.Errorf("the result of %q is of no call", m.Call)
					}
				}
			}
			for _, r := range l.server.Requests() {
				if r.Status != 200 || r.Problem != "" || r.Model != "m-1" || r.Prompt != "go to the moon" ||
					!strings.HasPrefix(r.Header.Get("User-Agent"), "cove-worker/") {
					t.Errorf("%d %q %q %q %q", r.Status, r.Problem, r.Model, r.Prompt, r.Header.Get("User-Agent"))
				}
				if kind == model.Anthropic && strings.Count(r.Body, `"cache_control"`) != 2 {
					t.Errorf("what is asked again is not to be cached: %s", r.Body)
				}
				if anthropic := r.Header.Get("X-Api-Key") != ""; anthropic != (kind == model.Anthropic) {
					t.Errorf("headers %v", r.Header)
				}
			}
		})
	}
}

// TestBrokenAnswers: a broken answer is requested again as a whole, and the output shows no trace of the failure.
func TestBrokenAnswers(t *testing.T) {
	for _, kind := range model.Dialects {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			l := newLab(t, kind, `
prompts:
  - turns:
      - say: I say a few words before I call something.
        do: [{shell: echo once >> log}]
        fail: [{after: 3, cut: true}, {status: 529}, {after: 2, garbage: "data: {{{\n\n"}]
      - say: It is done.
        fail: [{status: 429, retry_after: 1}, {after: 1, status: 500}]
`)
			e := l.run("agentic", "go")
			want := `says: I say a few words before I call something.
bash {"command":"echo once \u003e\u003e log"}
-> (no output)
done: It is done. ` + `
2 turns
`
			if got := strings.ReplaceAll(e.story(), ">>", `\u003e\u003e`); got != want || e.code != 0 {
				t.Errorf("exit code %d, messages:\n%s\nwant:\n%s\n%s", e.code, got, want, e.stderr)
			}
			if log, _ := os.ReadFile(filepath.Join(l.dir, "log")); string(log) != "once\n" {
				t.Errorf("the command ran as %q", log)
			}
			if n := len(l.server.Requests()); n != 7 || strings.Count(e.stderr, "the model is asked again") != 5 {
				t.Errorf("%d requests\n%s", n, e.stderr)
			}
		})
	}
}

// TestSchema: an invalid answer is requested once more.
func TestSchema(t *testing.T) {
	const schema = `{"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], ` +
		`"additionalProperties": false}`
	for _, c := range []struct {
		name, mode, script string
		code               int
		story              string
	}{
		{"at once", "generate", `prompts: [{turns: [{say: '{"n": 3}'}]}]`, 0, "done: {\"n\": 3} {\"n\":3}\n1 turns\n"},
		{"in a block", "generate", "prompts: [{turns: [{say: \"Here it is:\\n```json\\n{\\\"n\\\": 3}\\n```\"}]}]", 0,
			"done: Here it is:\n```json\n{\"n\": 3}\n``` {\"n\":3}\n1 turns\n"},
		{"corrected", "generate",
			`prompts: [{when: cannot be used, turns: [{say: '{"n": 4}'}]}, {turns: [{say: '{"n": "x"}'}]}]`, 0,
			"done: {\"n\": 4} {\"n\":4}\n2 turns\n"},
		{"never", "generate", `prompts: [{turns: [{say: '{"n": "x"}'}]}]`, 5,
			"failed: {\"n\": \"x\"}\n\nthe document does not match its schema: $.n: got string, want integer \n2 turns\n"},
		{"after work", "agentic",
			`prompts: [{when: cannot be used, turns: [{say: '{"n": 4}'}]}, {turns: [{do: [{shell: echo hi}]}, {say: 'well'}]}]`,
			0, "bash {\"command\":\"echo hi\"}\n-> hi\ndone: {\"n\": 4} {\"n\":4}\n3 turns\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t, model.Anthropic, c.script)
			e := l.run(c.mode, "how many?", "--schema", l.file("schema.json", schema))
			if e.code != c.code || e.story() != c.story {
				t.Errorf("exit code %d, messages:\n%s\nwant %d:\n%s\n%s", e.code, e.story(), c.code, c.story, e.stderr)
			}
			for _, r := range l.server.Requests() {
				if !strings.Contains(r.Body, `additionalProperties`) {
					t.Errorf("the schema is not in the request: %s", r.Body)
				}
			}
		})
	}
}

func TestGenerate(t *testing.T) {
	l := newLab(t, model.Chat, `prompts: [{turns: [{say: "Blue."}]}]`)
	e := l.run("generate", "which colour?", "--system", "Be brief.")
	if want := "done: Blue. \n1 turns\n"; e.story() != want || e.code != 0 {
		t.Errorf("exit code %d:\n%s%s", e.code, e.story(), e.stderr)
	}
	if r := l.server.Requests(); len(r) != 1 || strings.Contains(r[0].Body, `"tools"`) ||
		!strings.Contains(r[0].Body, "Be brief.") {
		t.Errorf("%+v", r)
	}
	if entries, _ := os.ReadDir(l.home); len(entries) > 0 {
		t.Errorf("it left %v", entries)
	}
}

// TestModelsAreListed: without --model, the endpoint's first is used.
func TestModelsAreListed(t *testing.T) {
	l := newLab(t, model.Anthropic, `prompts: [{turns: [{say: "Blue."}]}]`)
	args := l.args("generate", "which colour?")
	i := slices.Index(args, "--model")
	e := run(t, l.env(), slices.Delete(args, i, i+2)...)
	if e.code != 0 || e.result(t).Content != "Blue." || l.server.Requests()[1].Model == "" {
		t.Errorf("exit code %d:\n%s%s", e.code, e.story(), e.stderr)
	}
}

func TestMaxTurns(t *testing.T) {
	l := newLab(t, model.Anthropic, `prompts: [{loop: true, turns: [{do: [{shell: "true"}]}]}]`)
	e := l.run("agentic", "go", "--max-turns", "3")
	if e.code != 3 || !e.result(t).IsError || !strings.Contains(e.result(t).Content, "not done after 3 answers") ||
		len(l.server.Requests()) != 3 {
		t.Errorf("exit code %d, %d requests:\n%s", e.code, len(l.server.Requests()), e.story())
	}
}

// TestResume: a conversation continues, by its id or as the last one of a directory.
func TestResume(t *testing.T) {
	const script = `
prompts:
  - when: second
    turns: [{say: I remember.}]
  - when: third
    turns: [{say: I remember both.}]
  - turns: [{do: [{tool: {name: todo, input: {items: [{text: rest, status: pending}]}}}, {shell: echo unforgettable}]}, {say: First.}]
`
	for _, kind := range model.Dialects {
		t.Run(string(kind), func(t *testing.T) {
			l := newLab(t, kind, script)
			one := l.run("agentic", "first thing")
			two := l.run("agentic", "second thing", "--resume")
			three := l.run("agentic", "third thing", "--resume="+one.messages[0].Session)
			if one.code+two.code+three.code != 0 || three.result(t).Content != "I remember both." {
				t.Fatalf("%s%s%s%s", one.story(), two.story(), three.story(), three.stderr)
			}
			for _, e := range []ended{two, three} {
				if e.messages[0].Session != one.messages[0].Session {
					t.Errorf("another session: %s", e.messages[0].Session)
				}
			}
			all := l.server.Requests()
			for _, words := range []string{"first thing", "unforgettable", "First.", "second thing", "I remember.",
				"third thing"} {
				if !strings.Contains(all[len(all)-1].Body, words) {
					t.Errorf("%q is forgotten", words)
				}
			}
		})
	}
	l := newLab(t, model.Anthropic, script)
	for flag, want := range map[string]string{"--resume": "there is no session of",
		"--resume=0123456789abcdef": "there is no session 0123456789abcdef",
		"--resume=../../etc/passwd": "is no id of a session"} {
		if e := l.run("agentic", "go", flag); e.code != 2 || !strings.Contains(e.stderr, want) || len(e.messages) > 0 {
			t.Errorf("%s: exit code %d, %s", flag, e.code, e.stderr)
		}
	}
}

// TestWithoutAHome: a task runs even if its session cannot be stored.
func TestWithoutAHome(t *testing.T) {
	l := newLab(t, model.Anthropic, `prompts: [{turns: [{say: Done.}]}]`)
	env := []string{"PATH=" + os.Getenv("PATH"), "ANTHROPIC_API_KEY=placeholder"}
	for name, env := range map[string][]string{"none": env, "no directory": append(env, "HOME="+l.file("home", "x"))} {
		if e := run(t, env, l.args("agentic", "go")...); e.code != 0 ||
			!strings.Contains(e.stderr, "the session is not kept") {
			t.Errorf("%s: exit code %d, %s", name, e.code, e.stderr)
		}
	}
}

// TestFullDisk: a session that can no longer be stored does not end the task.
func TestFullDisk(t *testing.T) {
	l := newLab(t, model.Anthropic,
		`prompts: [{turns: [{do: [{shell: "rm -r ~/.local; touch ~/.local"}]}, {say: Done.}]}]`)
	if e := l.run("agentic", "go"); e.code != 0 || e.result(t).Content != "Done." ||
		!strings.Contains(e.stderr, "the session is not kept") {
		t.Errorf("exit code %d:\n%s%s", e.code, e.story(), e.stderr)
	}
}

// TestLongConversations: in a small window requests stay small, the task is not forgotten, and no request is malformed.
func TestLongConversations(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds; make test runs it")
	}
	for _, kind := range model.Dialects {
		t.Run(string(kind), func(t *testing.T) {
			l := newLab(t, kind, `
aside: I read the file many times, and saw no COLOUR.
prompts:
  - when: COLOUR
    loop: true
    turns:
      - say: Again.
        do: [{read: big.txt}, {shell: cat big.txt}]
`)
			l.file("big.txt", strings.Repeat("all work and no play makes jack a dull boy\n", 200))
			e := l.run("agentic", "what COLOUR is it?", "--max-turns", "30", "--context-window", "16000", "--tools", "read,bash")
			if e.code != 3 {
				t.Fatalf("exit code %d:\n%.3000s", e.code, e.stderr)
			}
			summaries := 0
			for _, r := range l.server.Requests() {
				if len(r.Body) > 16000*4 {
					t.Errorf("a request of %d bytes", len(r.Body))
				}
				if r.Status != 200 || r.Problem != "" {
					t.Errorf("%d %s", r.Status, r.Problem)
				}
				if strings.Contains(r.Body, "You summarise what a coding agent") {
					summaries++
				} else if !strings.Contains(r.Body, "what COLOUR is it?") {
					t.Error("the task is forgotten")
				}
			}
			if summaries == 0 {
				t.Errorf("nothing was summarised:\n%.3000s", e.stderr)
			}
		})
	}
}

// TestTooLong: an endpoint whose window is smaller than assumed.
func TestTooLong(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds; make test runs it")
	}
	for kind, said := range map[model.Dialect]string{
		model.Anthropic: `{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 210000 ` +
			`tokens > 200000 maximum"}}`,
		model.Chat: `{"error":{"message":"This model's maximum context length is 8192 ` +
			`tokens.","type":"invalid_request_error","code":"context_length_exceeded"}}`,
		model.Responses: `{"error":{"message":"Your input exceeds the context window of this ` +
			`model.","code":"context_length_exceeded"}}`,
	} {
		t.Run(string(kind), func(t *testing.T) {
			l := newLab(t, kind, `
aside: What was read was dull.
prompts:
  - when: GO
    turns: [{do: [{shell: cat big.txt}]}, {do: [{shell: cat big.txt}]}, {do: [{shell: cat big.txt}]}, {do: [{shell: cat big.txt}]}, {do: [{shell: cat big.txt}]}, {do: [{shell: cat big.txt}]}, {say: Done.}]
  - turns: [{say: What was read was dull.}]
`)
			l.file("big.txt", strings.Repeat("all work and no play makes jack a dull boy\n", 300))
			behind := l.server
			refused := 0
			front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.ContentLength > 50_000 {
					refused++
					w.WriteHeader(http.StatusBadRequest)
					fmt.Fprint(w, said)
					return
				}
				behind.ServeHTTP(w, r)
			}))
			defer front.Close()
			l.url = front.URL
			e := l.run("agentic", "GO", "--tools", "bash")
			if refused == 0 || e.messages[len(e.messages)-1].Type != message.TypeUsage || e.code != 0 && e.code != 4 {
				t.Fatalf("exit code %d, %d refused:\n%s", e.code, refused, e.stderr)
			}
			if e.code != 0 {
				t.Errorf("exit code %d:\n%s", e.code, e.stderr)
			}
		})
	}
}

// TestRefusals covers refusals of the gateway and of providers.
func TestRefusals(t *testing.T) {
	blocked :=
		`{"error": {"type": "blocked", "message": "blocked"}, "message": "blocked", "host": "api.example.com", "port": 443,
		"stage": "policy", "rule": "default", "reason": "no rule allows api.example.com", "allow": "cove policy allow sb_1 api.example.com"}`
	for _, c := range []struct {
		name   string
		status int
		header string
		body   string
		code   int
		says   string
	}{
		{"blocked", 403, "", blocked, 4, "does not let api.example.com port 443 be reached: no rule allows api.example.com " +
			"(to allow it: cove policy allow sb_1 api.example.com)"},
		{"budget", 429, "X-Should-Retry: false",
			`{"type": "error", "error": {"type": "rate_limit_error", "message": "the budget of this sandbox is used up: 100 ` +
				`of 100 requests"}, "cove": {"error": "budget_exhausted", "budget": "requests", "limit": "100", "used": "100"}}`, 7,
			"the budget of this sandbox is used up: 100 of 100 requests"},
		{"quota", 429, "",
			`{"error": {"message": "You exceeded your current quota", "type": "insufficient_quota", "code": ` +
				`"insufficient_quota"}}`, 7, "You exceeded your current quota"},
		{"a long wait", 429, "Retry-After: 3600", `{"error": {"message": "slow down"}}`, 4, "asked again after 1h0m0s"},
		{"no key", 401, "", `{"error": {"message": "invalid x-api-key"}}`, 4, "does not accept the key: invalid x-api-key"},
		{"bad request", 400, "", `{"error": {"message": "max_tokens: too large"}}`, 4, "answers 400: max_tokens: too large"},
		{"a page", 404, "", `<html><body>Not here</body></html>`, 4, "answers 404: <html>"},
		{"elsewhere", 302, "Location: https://evil.example/", ``, 4, "answers 302: Found"},
		{"no stream", 200, "", `{"content": []}`, 4, "instead of a stream of events"},
	} {
		t.Run(c.name, func(t *testing.T) {
			asked := 0
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				asked++
				if name, value, ok := strings.Cut(c.header, ": "); ok {
					w.Header().Set(name, value)
				}
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(c.status)
				fmt.Fprint(w, c.body)
			}))
			defer s.Close()
			l := newLab(t, model.Anthropic, `prompts: [{turns: [{say: x}]}]`)
			l.url = s.URL
			e := l.run("agentic", "go")
			if r := e.result(t); e.code != c.code || !r.IsError || !strings.Contains(r.Content, c.says) ||
				!strings.Contains(e.stderr, c.says) || asked != 1 {
				t.Errorf("exit code %d, asked %d times: %s", e.code, asked, r.Content)
			}
		})
	}
}

// TestProxy: the environment's proxy is used, and its refusal reported.
func TestProxy(t *testing.T) {
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprintf(w,
			`{"error": {"type": "blocked"}, "host": "api.example.com", "port": 443, "reason": "no rule allows %s", "allow": `+
				`"cove policy allow sb_1 api.example.com"}`, r.Host)
	}))
	defer proxy.Close()
	l := newLab(t, model.Anthropic, `prompts: [{turns: [{say: x}]}]`)
	l.url = "https://api.example.com"
	out, code := l.program(append(l.env(), "HTTPS_PROXY="+proxy.URL), l.args("agentic", "go")...)
	e := ended{messages: parse(t, out)}
	if r := e.result(t); code != 4 || !strings.Contains(r.Content,
		"no rule allows api.example.com:443 (to allow it: cove policy allow sb_1 api.example.com)") {
		t.Errorf("exit code %d: %s", code, r.Content)
	}
}

// TestTheHostUnderstands: the agent parser accepts the worker's output and exit codes.
func TestTheHostUnderstands(t *testing.T) {
	declared, err := agent.Find(agent.Builtin(), agent.Worker)
	if err != nil {
		t.Fatal(err)
	}
	const refused = "data: {\"type\":\"content_block_start\",\"content_block\":{\"type\":\"text\",\"text\":\"No.\"}}\n\n" +
		"data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"refusal\"}}\n\ndata: {\"type\":\"message_stop\"}\n\n"
	for _, c := range []struct {
		name, script string
		status       int // with instead: the status of the answer, whatever the script
		instead      string
		args         []string
		code         cove.Code
		is           error
	}{
		{name: "done", script: `[{say: x, do: [{shell: echo hi}]}, {say: y}]`},
		{name: "refused", script: `[{say: x}]`, status: 200, instead: refused},
		{name: "turns", script: `[{do: [{shell: "true"}]}, {do: [{shell: "true"}]}, {say: x}]`,
			args: []string{"--max-turns", "2"}, code: cove.LimitReached, is: agent.ErrTurns},
		{name: "model", script: `[{say: x, fail: [{status: 400, message: no such model}]}]`, code: cove.ModelUnreachable},
		{name: "schema", script: `[{say: x}]`, args: []string{"--schema", "schema.json"}, code: cove.SchemaMismatch},
		{name: "budget", script: `[{say: x}]`, status: 429,
			instead: `{"cove": {"error": "budget_exhausted"}, "error": {"message": "used up"}}`, code: cove.LimitReached,
			is: agent.ErrBudget},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t, model.Anthropic, "prompts: [{turns: "+c.script+"}]")
			l.file("schema.json", `{"type": "object"}`)
			t.Chdir(l.dir)
			if c.instead != "" {
				s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set("Content-Type", "text/event-stream")
					w.WriteHeader(c.status)
					fmt.Fprint(w, c.instead)
				}))
				defer s.Close()
				l.url = s.URL
			}
			e := l.run("agentic", "go", c.args...)
			p := declared.NewParser(message.AgentUsage{})
			var messages []message.Message
			for line := range bytes.Lines(e.stdout) {
				more, err := p.Line(bytes.TrimSuffix(line, []byte("\n")))
				if err != nil {
					t.Fatal(err)
				}
				messages = append(messages, more...)
			}
			more, err := p.End(e.code, e.stderr)
			if messages = append(messages, more...); !reflect.DeepEqual(messages, e.messages) {
				t.Errorf("%+v, want %+v", messages, e.messages)
			}
			if c.name == "schema" && !strings.HasSuffix(fmt.Sprint(err),
				"does not match the schema: the answer is not one JSON document") {
				t.Errorf("%v", err)
			}
			if cove.ErrorCode(err) != c.code || c.is != nil && !errors.Is(err, c.is) || (e.code != 0) != e.result(t).IsError {
				t.Errorf("exit code %d: %v\n%s", e.code, err, e.story())
			}
		})
	}
}

func TestUsage(t *testing.T) {
	l := newLab(t, model.Anthropic, `prompts: [{turns: [{say: x}]}]`)
	empty := l.file("empty", " \n")
	for _, c := range []struct {
		name string
		args []string
		says string
	}{
		{"nothing", nil, "the first argument is agentic or generate"},
		{"another mode", []string{"interactive"}, "the first argument is agentic or generate"},
		{"no prompt", []string{"agentic"}, "--prompt-file"},
		{"an empty prompt", []string{"generate", "--prompt-file", empty}, "the prompt is empty"},
		{"a prompt that is not there", []string{"generate", "--prompt-file", empty + "x"}, "no such file"},
		{"bytes", []string{"generate", "--prompt-file", l.file("bytes", "\xff\xfe")}, "not UTF-8"},
		{"a wrong flag", []string{"generate", "--resume"}, "unknown flag: --resume"},
		{"words", l.args("agentic", "go", "at", "once"), `"at" is too much`},
		{"a wrong kind", l.args("agentic", "go", "--provider-kind", "telnet"),
			"there are anthropic, openai-chat, openai-responses"},
		{"a wrong address", l.args("agentic", "go", "--base-url", "telnet://x"), "is no address of a model's API"},
		{"a wrong tool", l.args("agentic", "go", "--tools", "read,fly"), `there is no tool "fly"`},
		{"no directory", l.args("agentic", "go", "--cwd", empty), "is no directory"},
		{"no turns", l.args("agentic", "go", "--max-turns", "0"), "above 0"},
		{"a schema that is none", l.args("generate", "go", "--schema", l.file("s.json", `{"type": 3}`)),
			"the schema is not valid"},
		{"a schema that is not there", l.args("generate", "go", "--schema", empty+"x"), "no such file"},
		{"a key that is not there", l.args("generate", "go", "--key-env", "NOBODY"), "NOBODY"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if e := run(t, l.env(), c.args...); e.code != 2 || !strings.Contains(e.stderr, c.says) || len(e.messages) > 0 {
				t.Errorf("exit code %d: %s%s", e.code, e.stderr, e.story())
			}
		})
	}
	var out bytes.Buffer
	if code := Main(t.Context(), Process{Args: []string{"version"}, Stdout: &out, Stderr: &out}); code != 0 ||
		out.String() != "cove-worker dev\n" {
		t.Errorf("%d %s", code, out.String())
	}
}

// TestProjectFiles: the model gets a project's files for agents.
func TestProjectFiles(t *testing.T) {
	l := newLab(t, model.Anthropic, `prompts: [{turns: [{say: x}]}]`)
	l.file("CLAUDE.md", "never this")
	l.file("AGENTS.md", "Use tabs. "+strings.Repeat("é", maxProjectFile))
	l.run("agentic", "go", "--instructions", "Mind the gap.")
	body := l.server.Requests()[0].Body
	if !strings.Contains(body, "Use tabs.") || strings.Contains(body, "never this") ||
		!strings.Contains(body, "Mind the gap.") || !strings.Contains(body, "[the file goes on]") ||
		len(body) > 2*maxProjectFile {
		t.Errorf("%d bytes: %.2000s", len(body), body)
	}
}

// TestReaderGone: a closed output ends the task.
func TestReaderGone(t *testing.T) {
	l := newLab(t, model.Anthropic, work)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	r.Close()
	var stderr bytes.Buffer
	code := Main(context.Background(), Process{Args: l.args("agentic", "go"), Stdout: w, Stderr: &stderr, Env: l.env()})
	if code != exitDefect || len(l.server.Requests()) != 1 {
		t.Errorf("exit code %d after %d requests: %s", code, len(l.server.Requests()), stderr.String())
	}
}
