package modeltest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/cove-sandbox/cove/test/await"

	"github.com/cove-sandbox/cove"
)

func start(t testing.TB, script string, keys ...string) (*Server, string) {
	t.Helper()
	parsed, err := Parse("test.yaml", []byte(script))
	if err != nil {
		t.Fatal(err)
	}
	s := New(Options{Script: parsed, Keys: keys})
	h := httptest.NewServer(s)
	t.Cleanup(h.Close)
	return s, h.URL
}

// post sends a request and reads the answer to its end, however that comes.
func post(t testing.TB, url, body string, headers ...string) (*http.Response, string, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer k")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp, string(text), err
}

// ask is a first request to each API, with a prompt and a shell.
func ask(api, prompt string, stream bool) (path, body string) {
	schema := `{"type":"object","properties":{"command":{"type":"string"}},"required":["command"]}`
	switch api {
	case "messages":
		return "/v1/messages",
			fmt.Sprintf(
				`{"model":"m","stream":%t,"messages":[{"role":"user","content":%q}],"tools":[{"name":"Bash","input_schema":%s}]}`,
				stream, prompt, schema)
	case "chat":
		return "/v1/chat/completions",
			fmt.Sprintf(
				`{"model":"m","stream":%t,"messages":[{"role":"user","content":%q}],"tools":[{"type":"function",`+
					`"function":{"name":"bash","parameters":%s}}]}`, stream, prompt, schema)
	case "gemini":
		path, schema := "/v1beta/models/m:generateContent",
			`{"type":"OBJECT","properties":{"command":{"type":"STRING"}},"required":["command"]}`
		if stream {
			path = "/v1beta/models/m:streamGenerateContent?alt=sse"
		}
		return path,
			fmt.Sprintf(
				`{"contents":[{"role":"user","parts":[{"text":%q}]}],"tools":[{"functionDeclarations":[{"name":"shell",`+
					`"parameters":%s}]}]}`, prompt, schema)
	}
	return "/v1/responses",
		fmt.Sprintf(
			`{"model":"m","stream":%t,"input":[{"type":"message","role":"user","content":[{"type":"input_text",`+
				`"text":%q}]}],"tools":[{"type":"function","name":"shell","parameters":%s}]}`, stream, prompt, schema)
}

var apis = []string{"messages", "chat", "responses", "gemini"}

func TestParse(t *testing.T) {
	for _, c := range []struct{ name, script, want string }{
		{"nothing", "", "there are no prompts"},
		{"no turns", "prompts: [{when: a}]", "there are no turns"},
		{"twice", "prompts: [{turns: [{say: a}]}, {turns: [{say: b}]}]", "twice"},
		{"empty turn", "prompts: [{turns: [{}]}]", "says nothing"},
		{"no end", "prompts: [{turns: [{do: [{shell: ls}]}]}]", "would never end"},
		{"two in one", "prompts: [{turns: [{do: [{shell: ls, read: x}]}, {say: a}]}]", "an action is one of"},
		{"no action", "prompts: [{turns: [{do: [{}]}, {say: a}]}]", "an action is one of"},
		{"no fault", "prompts: [{turns: [{say: a, fail: [{after: 1}]}]}]", "a fault is one of"},
		{"no error", "prompts: [{turns: [{say: a, fail: [{status: 200}]}]}]", "no status of an error"},
		{"input", "prompts: [{turns: [{do: [{tool: {name: x, input: {a: .nan}}}]}, {say: a}]}]", "no JSON"},
		{"unknown", "prompts: [{turns: [{says: a}]}]", "field says not found"},
		{"good", "prompts: [{turns: [{say: a, pace: 5ms, fail: [{stall: 1s}]}]}]", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Parse("s.yaml", []byte(c.script))
			if c.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "s.yaml: ") ||
				cove.ErrorCode(err) != cove.InvalidArgument {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
	if len(BuiltIn().Prompts) == 0 {
		t.Error("the built-in script is empty")
	}
}

// TestLocate: how far a conversation is, from what it says.
func TestLocate(t *testing.T) {
	for _, c := range []struct {
		name  string
		items []item
		want  place
	}{
		{"first", []item{{system, "be"}, {user, "fix it"}}, place{prompt: "fix it"}},
		{"with reminders", []item{{user, "<system-reminder>\nfix that\n</system-reminder>"}, {user, "fix it"},
			{user, "<env><cwd>/x</cwd></env>"}}, place{prompt: "fix it"}},
		{"words that look like a tag", []item{{user, "is a<b and b>a?"}}, place{prompt: "is a<b and b>a?"}},
		{"one answer of three items", []item{{user, "p"}, {model, "t"}, {model, "s"}, {model, "c"}, {result, "r"}},
			place{prompt: "p", answered: 1}},
		{"two answers", []item{{user, "p"}, {model, "c"}, {result, "r"}, {result, "r"},
			{user, "<system-reminder>x</system-reminder>"}, {model, "c"}, {result, "r"}}, place{prompt: "p", answered: 2}},
		{"a second prompt", []item{{user, "p"}, {model, "c"}, {result, "r"}, {model, "s"}, {user, "q"}, {model, "c"},
			{result, "r"}}, place{prompt: "q", answered: 1, before: 2}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := locate(c.items); got != c.want {
				t.Errorf("%+v, want %+v", got, c.want)
			}
		})
	}
}

// TestChoose: an action becomes a call of what there is.
func TestChoose(t *testing.T) {
	of := func(name string, required string, properties ...string) tool {
		var s schema
		if err := json.Unmarshal(fmt.Appendf(nil, `{"properties":{%s},"required":[%s]}`, strings.Join(properties, ","),
			required), &s); err != nil {
			t.Fatal(err)
		}
		return tool{name: name, schema: s}
	}
	bash := of("Bash", `"command"`, `"command":{"type":"string"}`, `"timeout":{"type":"number"}`)
	tools := map[string][]tool{
		"claude": {bash, of("Write", "", `"file_path":{"type":"string"}`, `"content":{"type":"string"}`),
			of("Edit", "", `"file_path":{}`, `"old_string":{}`, `"new_string":{}`), of("Read", "", `"file_path":{}`)},
		"codex":    {of("exec_command", "", `"cmd":{"type":"string"}`)},
		"scripted": {{name: "exec", freeform: true}},
		"opencode": {of("bash", `"command","description","n"`, `"command":{}`, `"description":{"type":"string"}`,
			`"n":{"type":["integer","null"]}`), of("write", "", `"filePath":{}`, `"content":{}`)},
		"old": {of("shell", "", `"command":{"type":"array"}`)},
		"gemini": {of("run_shell_command", `"command","is_background"`, `"command":{"type":"STRING"}`,
			`"is_background":{"type":"BOOLEAN"}`), of("replace", `"instruction"`, `"file_path":{}`, `"old_string":{}`,
			`"new_string":{}`, `"instruction":{"type":"STRING"}`)},
	}
	for _, c := range []struct{ agent, action, want string }{
		{"claude", "shell: ls", `Bash {"command":"ls"}`},
		{"claude", "read: a", `Read {"file_path":"a"}`},
		{"claude", "write: {path: a, content: x}", `Write {"content":"x","file_path":"a"}`},
		{"claude", "edit: {path: a, old: x, new: y}", `Edit {"file_path":"a","new_string":"y","old_string":"x"}`},
		{"claude", "tool: {name: Bash, input: {command: pwd, timeout: 5}}", `Bash {"command":"pwd","timeout":5}`},
		{"claude", "tool: {name: Nothing}", `Nothing {}`},
		{"codex", "shell: ls", `exec_command {"cmd":"ls"}`},
		{"codex", "read: a b", `exec_command {"cmd":"cat 'a b'"}`},
		{"codex", "write: {path: a, content: \"x\\ny\\n\"}",
			`exec_command {"cmd":"apply_patch <<'END_OF_PATCH'\n*** Begin Patch\n*** Add File: a\n+x\n+y\n*** End Patch` +
				`\nEND_OF_PATCH\n"}`},
		{"codex", "edit: {path: a, old: x, new: y}",
			`exec_command {"cmd":"apply_patch <<'END_OF_PATCH'\n*** Begin Patch\n*** Update File: a\n@@\n-x\n+y` +
				`\n*** End Patch\nEND_OF_PATCH\n"}`},
		{"scripted", "shell: echo \"a\"", `exec text(await tools.exec_command({cmd: "echo \"a\""}));`},
		{"scripted", "write: {path: a, content: x}",
			`exec text(await tools.apply_patch("*** Begin Patch\n*** Add File: a\n+x\n*** End Patch\n"));`},
		{"opencode", "shell: ls", `bash {"command":"ls","description":"Run a command","n":0}`},
		{"opencode", "edit: {path: a, old: x, new: y}",
			`bash {"command":"OLD='x' NEW='y' perl -0pi -e 's/\\Q$ENV{OLD}\\E/$ENV{NEW}/' 'a'",` +
				`"description":"Run a command","n":0}`},
		{"gemini", "shell: ls", `run_shell_command {"command":"ls","is_background":false}`},
		{"gemini", "edit: {path: a, old: x, new: y}",
			`replace {"file_path":"a","instruction":"","new_string":"y","old_string":"x"}`},
		{"old", "shell: ls", `shell {"command":["bash","-lc","ls"]}`},
		{"old", "write: {path: d/a, content: it's}",
			`shell {"command":["bash","-lc","mkdir -p 'd' && printf %s 'it'\\''s' > 'd/a'"]}`},
	} {
		t.Run(c.agent+" "+c.action, func(t *testing.T) {
			s, err := Parse("x", []byte("prompts: [{turns: [{do: [{"+c.action+"}]}, {say: a}]}]"))
			if err != nil {
				t.Fatal(err)
			}
			got, err := s.Prompts[0].Turns[0].Do[0].choose(tools[c.agent])
			arguments := got.arguments()
			if arguments == "null" {
				arguments = "{}"
			}
			if err != nil || got.tool.name+" "+arguments != c.want {
				t.Errorf("%s %s, %v, want %s", got.tool.name, arguments, err, c.want)
			}
		})
	}
	if _, err := (Action{Shell: "ls"}).choose([]tool{{name: "think"}}); err == nil ||
		!strings.Contains(err.Error(), `"think"`) {
		t.Error(err)
	}
}

// TestFaults: each kind of fault, on each API, with and without a stream; the next try is answered.
func TestFaults(t *testing.T) {
	const text = "abcdefghijklmnopqrstuvwxyz, and once more abcdefghijklmnopqrstuvwxyz"
	for _, c := range []struct {
		fault  string
		status int // of the try; 0: there is no answer
		check  func(stream bool, r *http.Response, body string, err error) bool
	}{
		{"status: 429, retry_after: 7, message: slow down", 429, func(_ bool, r *http.Response, body string, err error) bool {
			return err == nil && r.Header.Get("Retry-After") == "7" && strings.Contains(body, "slow down")
		}},
		{"status: 529", 529, func(_ bool, _ *http.Response, body string, err error) bool {
			return err == nil && json.Valid([]byte(body))
		}},
		{"status: 500, after: 3", 0, func(stream bool, r *http.Response, body string, err error) bool {
			return err == nil && (stream && r.StatusCode == 200 && strings.Contains(body, "the script answers 500") || !stream &&
				r.StatusCode == 500)
		}},
		{"cut: true, after: 4", 200, func(stream bool, _ *http.Response, body string, err error) bool {
			return err != nil && body != "" && (!stream || strings.Count(body, "data: ") == 4)
		}},
		{"garbage: \"<html>busy\", after: 2", 200, func(stream bool, _ *http.Response, body string, err error) bool {
			return err == nil && (stream && strings.Contains(body, "data: <html>busy\n\n") && strings.Contains(body, "xyz") ||
				!stream && body == "<html>busy")
		}},
		{"stall: 30ms, after: 1", 200, func(_ bool, _ *http.Response, body string, err error) bool {
			return err == nil && strings.Contains(body, "data: ") || json.Valid([]byte(body))
		}},
	} {
		s, url := start(t, "prompts: [{turns: [{say: '"+text+"', fail: [{"+c.fault+"}]}]}]")
		for _, api := range apis {
			for _, stream := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%s/%t", c.fault, api, stream), func(t *testing.T) {
					s.Forget()
					path, body := ask(api, "hello", stream)
					r, got, err := post(t, url+path, body)
					if c.status != 0 && (r == nil || r.StatusCode != c.status) || !c.check(stream, r, got, err) {
						t.Errorf("%+v %q %v", r, got, err)
					}
					if r, got, err := post(t, url+path, body); err != nil || r.StatusCode != 200 ||
						!strings.Contains(got, "abcdefghijklmnop") {
						t.Errorf("the next try: %q %v", got, err)
					}
					seen := s.Requests()
					if len(seen) != 2 || !seen[0].Fault || seen[1].Fault || seen[1].Turn != 1 || seen[1].Prompt != "hello" ||
						!seen[1].Finished {
						t.Errorf("%+v", seen)
					}
				})
			}
		}
	}
}

// TestCutAtOnce: a connection that ends before there is an answer.
func TestCutAtOnce(t *testing.T) {
	_, url := start(t, "prompts: [{turns: [{say: a, fail: [{cut: true}]}]}]")
	path, body := ask("messages", "hello", true)
	if r, _, err := post(t, url+path, body); err == nil {
		t.Errorf("%+v", r)
	}
}

// TestEndless: it goes on until whoever asked has gone, and then ends.
func TestEndless(t *testing.T) {
	for _, stream := range []bool{false, true} {
		s, url := start(t, "prompts: [{turns: [{say: again, fail: [{endless: true}]}]}]")
		for _, api := range apis {
			s.Forget()
			path, body := ask(api, "hello", stream)
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+path, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Authorization", "Bearer k")
			resp, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := io.ReadAll(io.LimitReader(resp.Body, 64)); err != nil || len(got) != 64 {
				t.Errorf("%q %v", got, err)
			}
			resp.Body.Close()
			await.That(t, fmt.Sprint(api, " ends"), func() bool { return len(s.Requests()) > 0 })
			if seen := s.Requests()[0]; seen.Finished {
				t.Errorf("%+v", seen)
			}
		}
	}
}

// TestParallel: conversations do not disturb one another.
func TestParallel(t *testing.T) {
	_, url := start(t, "prompts: [{turns: [{do: [{shell: one}]}, {do: [{shell: two}]}, {say: three}]}]")
	var all sync.WaitGroup
	for n := range 20 {
		all.Go(func() {
			messages := []any{map[string]any{"role": "user", "content": fmt.Sprintf("hello %d", n)}}
			for turn, want := range []string{`"command":"one"`, `"command":"two"`, `"text":"three"`} {
				body := encode(map[string]any{"model": "m", "messages": messages, "tools": []any{map[string]any{"name": "Bash",
					"input_schema": map[string]any{"properties": map[string]any{"command": map[string]any{}}}}}})
				_, got, err := post(t, url+"/v1/messages", string(body))
				if err != nil || !strings.Contains(got, want) {
					t.Errorf("%d, turn %d: %q %v", n, turn, got, err)
					return
				}
				var said struct {
					Content []map[string]any `json:"content"`
				}
				if err := json.Unmarshal([]byte(got), &said); err != nil {
					t.Error(err)
					return
				}
				messages = append(messages, map[string]any{"role": "assistant", "content": said.Content},
					map[string]any{"role": "user",
						"content": []any{map[string]any{"type": "tool_result", "tool_use_id": said.Content[0]["id"], "content": "ok"}}})
			}
		})
	}
	all.Wait()
}

// TestRefused: what is no request for an answer has an error of the API's own.
func TestRefused(t *testing.T) {
	s, url := start(t, "aside: A title\nprompts: [{when: known, turns: [{do: [{shell: ls}]}, {say: a}]}]", "right")
	right := []string{"Authorization", "Bearer right"}
	for _, c := range []struct {
		name, path, body string
		headers          []string
		status           int
		want             string
	}{
		{"no such key", "/v1/messages", "{}", nil, 401, `"authentication_error"`},
		{"no such key of OpenAI's", "/v1/responses", "{}", nil, 401, `"invalid_api_key"`},
		{"a key of Anthropic's", "/v1/messages", `{"messages":[{"role":"user","content":"known"}]}`,
			[]string{"X-Api-Key", "right"}, 200, `"A title"`},
		{"WebSocket", "/v1/responses", "", append(right, "Connection", "Upgrade", "Upgrade", "websocket"), 426, "POST"},
		{"no JSON", "/v1/messages", "{", right, 400, `"invalid_request_error"`},
		{"content", "/v1/messages", `{"messages":[{"role":"user","content":7}]}`, right, 400, "neither"},
		{"unknown prompt", "/v1/messages", `{"messages":[{"role":"user","content":"who?"}]}`, right, 400,
			"nothing for the prompt"},
		{"unknown path", "/v1/files", "{}", right, 404, `"message"`},
		{"no tool", "/v1/messages", `{"messages":[{"role":"user","content":"known"}],"tools":[{"name":"think"}]}`, right, 200,
			"there is no tool for"},
		{"tokens", "/v1/messages/count_tokens", "{}", right, 200, `{"input_tokens":1}`},
		{"tokens of Gemini's", "/v1beta/models/m:countTokens", "{}", right, 200, `{"totalTokens":1}`},
		{"a key of Gemini's", "/v1beta/models/m:generateContent", `{"contents":[{"parts":[{"text":"known"}]}]}`,
			[]string{"Authorization", "", "X-Goog-Api-Key", "right"}, 200, `"A title"`},
		{"an aside by a schema", "/v1beta/models/m:generateContent",
			`{"contents":[{"parts":[{"text":"known"}]}],"generationConfig":{"responseJsonSchema":{"type":"OBJECT",` +
				`"properties":{"why":{"type":"STRING"},"which":{"enum":["fast","slow"]},"n":{"type":"INTEGER"},"more":{}},` +
				`"required":["why","which","n"]}}}`,
			right, 200, `{\"n\":0,\"which\":\"fast\",\"why\":\"\"}`},
		{"unknown path of Gemini's", "/v1beta/files", "{}", []string{"Authorization", "", "X-Goog-Api-Key", "right"}, 404,
			`"NOT_FOUND"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			s.Forget()
			r, body, err := post(t, url+c.path, c.body, c.headers...)
			if err != nil || r.StatusCode != c.status || !strings.Contains(body, c.want) || !json.Valid([]byte(body)) {
				t.Errorf("%v %q %v", r, body, err)
			}
			if seen := s.Requests(); len(seen) != 1 || seen[0].Status != c.status || seen[0].Path != c.path ||
				seen[0].Body != c.body || seen[0].Turn != 0 && c.name != "no tool" {
				t.Errorf("%+v", seen)
			}
		})
	}
}

// TestAnswer: an answer by a schema goes to the tool that is for it, once, and is said where there is none.
func TestAnswer(t *testing.T) {
	_, url := start(t, "prompts: [{turns: [{answer: {sum: 3}}]}]")
	const tool = `{"name":"StructuredOutput","input_schema":{"properties":{"sum":{"type":"integer"}}}}`
	for _, c := range []struct{ name, messages, tools, want string }{
		{"a tool", `{"role":"user","content":"p"}`, tool, `"input":{"sum":3}`},
		{"a tool that was called",
			`{"role":"user","content":"p"},{"role":"assistant","content":[{"type":"tool_use","id":"1",` +
				`"name":"StructuredOutput","input":{}}]},{"role":"user","content":[{"type":"tool_result",` +
				`"tool_use_id":"1"}]}`, tool, `"text":"I have answered."`},
		{"none", `{"role":"user","content":"p"}`, "", `"text":"{\"sum\":3}"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, got, err := post(t, url+"/v1/messages", `{"messages":[`+c.messages+`],"tools":[`+c.tools+`]}`); err != nil ||
				!strings.Contains(got, c.want) {
				t.Errorf("%q %v", got, err)
			}
		})
	}
}

// FuzzServe: whatever is asked is answered, with a document or a stream of them.
func FuzzServe(f *testing.F) {
	for _, api := range apis {
		for _, stream := range []bool{false, true} {
			path, body := ask(api, "hello", stream)
			path, _, _ = strings.Cut(path, "?")
			f.Add(path, []byte(body))
		}
	}
	f.Add("/v1/responses",
		[]byte(
			`{"input":[{"type":"additional_tools","tools":[{"type":"namespace","name":"functions",`+
				`"tools":[{"type":"custom","name":"exec"}]}]},{"role":"user","content":"x"}]}`))
	script, err := Parse("fuzz",
		[]byte("prompts: [{loop: true, turns: [{think: t, say: s, do: [{shell: ls}, {edit: {path: a, old: b, new: c}}]}]}]"))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, path string, body []byte) {
		r := httptest.NewRequest(http.MethodPost, "/?alt=sse", bytes.NewReader(body))
		r.URL.Path = path
		r.Header.Set("X-Api-Key", "k")
		w := httptest.NewRecorder()
		New(Options{Script: script}).ServeHTTP(w, r)
		got := w.Body.String()
		if w.Header().Get("Content-Type") == "application/json" {
			if !json.Valid([]byte(got)) {
				t.Fatalf("%q", got)
			}
			return
		}
		for line := range strings.Lines(got) {
			if data, ok := strings.CutPrefix(line, "data: "); ok && strings.TrimSpace(data) != "[DONE]" &&
				!json.Valid([]byte(data)) {
				t.Fatalf("%q", data)
			}
		}
	})
}

// FuzzParse: a script that is read can be followed.
func FuzzParse(f *testing.F) {
	f.Add(builtIn)
	f.Add([]byte("prompts: [{when: a, loop: true, turns: [{do: [{tool: {name: x, input: {a: {b: [1]}}}}], usage: " +
		"{input: 1}}]}]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := Parse("fuzz", data)
		if err != nil {
			return
		}
		for _, p := range s.Prompts {
			for n := range 3 {
				for _, a := range p.Turns[p.turn(n)].Do {
					if _, err := a.choose([]tool{{name: "exec", freeform: true}}); err != nil && a.Tool == nil {
						t.Fatal(err)
					}
				}
			}
		}
	})
}
