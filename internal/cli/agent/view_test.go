package agent

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/cli/ui"
)

// aTask is what an agent might say and do.
func aTask() []api.Message {
	call := func(id, tool, input string) api.Message {
		return api.Message{Type: api.MessageToolCall, Call: id, Tool: tool, Input: json.RawMessage(input)}
	}
	return []api.Message{
		{Type: api.MessageThinking, Content: "I'll look at the failing test first, and then at the code."},
		{Type: api.MessageThinking, Content: "  \n"},
		call("1", "Bash", `{"command":"go test ./... 2>&1","description":"Run the tests"}`),
		{Type: api.MessageToolResult, Call: "1",
			Output: "--- FAIL: TestAdd\r\n\tadd_test.go:8: Add(1, 2) = -1, and it should be " +
				"3\n\x1b[31mFAIL\x1b[0m\x1b]0;owned\a\n1%\r50%\r100%\n\n5\n6\n7\n8\n"},
		call("2", "Edit", `{"file_path":"/workspace/add.go","old_string":"a - b","new_string":"a + b"}`),
		{Type: api.MessageToolResult, Call: "2", Output: "The file was changed"},
		call("3", "Read", `{"file_path":"/workspace/add.go"}`),
		call("4", "Bash", `{"command":"cat \u202efile\n# and more"}`),
		{Type: api.MessageToolResult, Call: "4", Output: "No such file", IsError: true},
		{Type: api.MessageToolResult, Call: "3", Output: "package add"},
		{Type: api.MessageThinking, Content: "足し算は直りました。テストはすべて通ります。", Reasoning: true},
		{Type: api.MessageThinking, Content: "Done:\n\n- \x1b[1madd.go\u009b2J"},
		{Type: api.MessageResult, Content: "Done"},
	}
}

func TestAgentView(t *testing.T) {
	for width, want := range map[int]string{
		0: `I'll look at the failing test first, and then at the code.

● Bash  go test ./... 2>&1
  │ --- FAIL: TestAdd
  │     add_test.go:8: Add(1, 2) = -1, and it should be 3
  │ FAIL
  │ 100%
  │
  │ 5
  │ … 3 more lines
● Edit  add.go (+1 −1)
● Read  add.go
● Bash  cat \u202efile …
  ✗ No such file
○ Read  add.go
  │ package add

  足し算は直りました。テストはすべて通ります。

Done:

- add.go\x9b2J
`,
		40: `I'll look at the failing test first, and
then at the code.

● Bash  go test ./... 2>&1
  │ --- FAIL: TestAdd
  │     add_test.go:8: Add(1, 2) = -1, …
  │ FAIL
  │ 100%
  │
  │ 5
  │ … 3 more lines
● Edit  add.go (+1 −1)
● Read  add.go
● Bash  cat \u202efile …
  ✗ No such file
○ Read  add.go
  │ package add

  足し算は直りました。テストはすべて通り
  ます。

Done:

- add.go\x9b2J
`,
	} {
		t.Run(fmt.Sprint(width), func(t *testing.T) {
			var b strings.Builder
			v := newView(&b, func() int { return width })
			for _, m := range aTask() {
				v.message(m)
			}
			if b.String() != want {
				t.Errorf("%s\nwant\n%s", b.String(), want)
			}
			if v.spoken != "Done:\n\n- \x1b[1madd.go\u009b2J" {
				t.Errorf("spoken: %q", v.spoken)
			}
		})
	}
}

// TestFailureShowsItsEnd: of a long answer of a tool that has failed the end is shown, which says why.
func TestFailureShowsItsEnd(t *testing.T) {
	var b strings.Builder
	v := newView(&b, func() int { return 0 })
	v.message(api.Message{Type: api.MessageToolCall, Call: "1", Tool: "bash",
		Input: json.RawMessage(`{"command":"make"}`)})
	v.message(api.Message{Type: api.MessageToolResult, Call: "1", Output: "1\n2\n3\n4\n5\n6\nFAIL\n[exit code 2]\n",
		IsError: true})
	const want = "● bash  make\n  ✗ 1\n  ✗ … 2 lines\n  ✗ 4\n  ✗ 5\n  ✗ 6\n  ✗ FAIL\n  ✗ [exit code 2]\n"
	if b.String() != want {
		t.Errorf("%s\nwant\n%s", b.String(), want)
	}
}

// TestStatusFits: what there is no place for is left out, and the time is not.
func TestStatusFits(t *testing.T) {
	v := newView(nil, nil)
	v.doing("claude works")
	v.count(api.Message{Type: api.MessageUsage, Usage: &api.AgentUsage{InputTokens: 900, OutputTokens: 7}})
	v.count(api.Message{Type: api.MessageUsage, Usage: &api.AgentUsage{InputTokens: 1000, CacheReadTokens: 11345,
		OutputTokens: 40, Cost: 0.03}})
	v.count(api.Message{Type: api.MessageToolCall, Input: json.RawMessage(`{"path":"a","content":"x"}`)})
	v.count(api.Message{Type: api.MessageToolCall, Input: json.RawMessage(`{"path":"a","content":"y"}`)})
	v.count(api.Message{Type: api.MessageToolCall, Input: json.RawMessage(`{"path":"b","content":"y"}`)})
	for width, want := range map[int]string{
		100: "1:02:03 · claude works · 12.3k tokens in, 40 out, $0.0300 · 2 files · ctrl-c interrupts",
		60:  "1:02:03 · claude works · 12.3k tokens in, 40 out, $0.0300",
		55:  "1:02:03 · claude works · 2 files · ctrl-c interrupts",
		35:  "1:02:03 · claude works · 2 files",
		10:  "1:02:03",
		3:   "",
	} {
		if got := v.status(time.Hour+2*time.Minute+3*time.Second, width); got != want {
			t.Errorf("%d columns: %q, want %q", width, got, want)
		}
	}
	v.count(api.Message{Type: api.MessageUsage, Usage: &api.AgentUsage{InputTokens: 5, OutputTokens: 6}})
	if got := v.status(0, 100); !strings.Contains(got, "5 tokens in, 6 out ·") {
		t.Errorf("the usage of the whole: %q", got)
	}
}

func TestReadTool(t *testing.T) {
	for _, c := range []struct {
		name, input, about string
		files              []string
	}{
		{"a command", `{"command":"ls","description":"List"}`, "ls", nil},
		{"a list", `{"command":["git","log","-n 1"]}`, "git log '-n 1'", nil},
		{"a script", `{"command":["/bin/bash","-lc","ls | wc"]}`, "ls | wc", nil},
		{"a script in a text", `{"command":"/bin/bash -lc 'ls; exit 3'"}`, "ls; exit 3", nil},
		{"a script with more to it", `{"command":"bash -c \"a \\\"b\\\"\""}`, `bash -c "a \"b\""`, nil},
		{"a file that is read", `{"file_path":"/workspace/a/b.go","limit":10}`, "a/b.go", nil},
		{"a search", `{"pattern":"func .*","path":"/workspace/src"}`, "func .* in src", nil},
		{"a file", `{"file_path":"/workspace/a.go","content":"1\n2\n"}`, "a.go (+2)", []string{"a.go"}},
		{"an edit", `{"filePath":"a.go","oldString":"1\n2\n3\n","newString":"1\nx\ny\n3\n"}`, "a.go (+2 −1)",
			[]string{"a.go"}},
		{"the worker's edit", `{"path":"a.go","old":"a - b","new":"a + b"}`, "a.go (+1 −1)", []string{"a.go"}},
		{"edits", `{"file_path":"a.go","edits":[{"old_string":"1","new_string":"2"},{"old_string":"3","new_string":""}]}`,
			"a.go (+1 −2)", []string{"a.go"}},
		{"a patch",
			`{"input":"*** Begin Patch\n*** Update File: a.go\n@@\n-1\n+2\n+3\n*** Add File: b.go\n+x\n*** End Patch"}`,
			"a.go, b.go (+3 −1)", []string{"a.go", "b.go"}},
		{"changes", `{"changes":[{"path":"/workspace/a.go","kind":"update"},{"path":"b.go"}]}`, "a.go, b.go",
			[]string{"a.go", "b.go"}},
		{"changes by path", `{"changes":{"b.go":{},"a.go":{}}}`, "a.go, b.go", []string{"a.go", "b.go"}},
		{"a list of things to do",
			`{"todos":[{"content":"one","status":"completed"},{"content":"two","status":"in_progress"},{"content":"three"}]}`,
			"1 of 3 done, now: two", nil},
		{"something else", `{"depth":3}`, `{"depth":3}`, nil},
		{"nothing", `{}`, "", nil},
		{"no object", `[1]`, "[1]", nil},
		{"no JSON", ``, "", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := readTool(api.Message{Tool: "t", Input: json.RawMessage(c.input)})
			if got.name != "t" || got.about != c.about || !slices.Equal(got.files, c.files) {
				t.Errorf("%+v, want %q of %q", got, c.about, c.files)
			}
		})
	}
}

// FuzzAgentView: whatever an agent says, no line is wider than the terminal, and nothing comes through that one obeys.
func FuzzAgentView(f *testing.F) {
	for _, m := range aTask() {
		f.Add(m.Type, m.Content+m.Output, m.Tool, string(m.Input), uint8(40), m.Reasoning)
	}
	f.Add("tool_result", "a\r\x1b[2Jb\t\u200b\xff\x9b", "x\ny", "", uint8(3), true)
	f.Fuzz(func(t *testing.T, kind, text, name, input string, width uint8, flag bool) {
		var b strings.Builder
		v := newView(&b, func() int { return int(width) })
		v.verbose = flag
		m := api.Message{Type: kind, Content: text, Output: text, Tool: name, Input: json.RawMessage(input), Reasoning: flag,
			IsError: flag, Call: name}
		v.message(m)
		v.message(m)
		v.log(text)
		v.message(api.Message{Type: api.MessageToolCall, Tool: name, Input: json.RawMessage(input)})
		v.end()
		for _, r := range b.String() {
			if ui.Obeyed(r) {
				t.Fatalf("%q came through in %q", r, b.String())
			}
		}
		if width < 8 {
			return // there is no place for what marks a line
		}
		for line := range strings.Lines(b.String()) {
			if got := ansi.StringWidth(strings.TrimSuffix(line, "\n")); got > int(width) {
				t.Fatalf("%q has %d columns of %d", line, got, width)
			}
		}
	})
}
