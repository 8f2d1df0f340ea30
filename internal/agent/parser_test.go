package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/message"
)

var update = flag.Bool("update", false, "write the golden files anew")

// recording returns the recorded output of a real program, for its parser.
func recording(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name+".ndjson"))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// read passes a whole output to a parser.
func read(p Parser, output []byte, exitCode int, stderr string) ([]message.Message, error) {
	var all []message.Message
	for line := range bytes.Lines(output) {
		more, err := p.Line(bytes.TrimSuffix(line, []byte("\n")))
		all = append(all, more...)
		if err != nil {
			return all, err
		}
	}
	more, err := p.End(exitCode, stderr)
	return append(all, more...), err
}

func parserOf(t testing.TB, name string, before message.AgentUsage) Parser {
	agentName, _, _ := strings.Cut(name, "-")
	return builtinAgent(t, agentName).NewParser(before)
}

// TestRecordings compares the messages for recorded outputs of real programs with golden files, which -update rewrites.
func TestRecordings(t *testing.T) {
	task := message.AgentUsage{InputTokens: 177, OutputTokens: 55, CacheReadTokens: 3300}
	work := used(t, "codex-work")
	for _, c := range []struct {
		name   string
		exit   int
		before message.AgentUsage
		code   cove.Code
	}{
		{name: "claude-task"}, {name: "claude-resumed"}, {name: "claude-helper"}, {name: "claude-schema"},
		{name: "claude-work"}, {name: "claude-resume"},
		{name: "claude-ratelimit"}, {name: "claude-broken"}, {name: "claude-notool"}, {name: "claude-subagent"},
		{name: "claude-turns", exit: 1, code: cove.LimitReached},
		{name: "claude-unauthorized", exit: 1, code: cove.ModelUnreachable},
		{name: "claude-overloaded", exit: 1, code: cove.ModelUnreachable},
		{name: "claude-unreachable", exit: 1, code: cove.ModelUnreachable},
		{name: "claude-toolong", exit: 1}, {name: "claude-refused", exit: 1}, // the model's own text, without an error
		{name: "claude-killed", exit: 143, code: cove.AgentFailed},
		{name: "codex-task"}, {name: "codex-resumed", before: task}, {name: "codex-work"}, {name: "codex-work-shell"},
		{name: "codex-ratelimit"},
		{name: "codex-broken"}, {name: "codex-schema"}, {name: "codex-resume", before: work},
		{name: "codex-unauthorized", exit: 1, code: cove.ModelUnreachable},
		{name: "codex-waiting", exit: 137, code: cove.ModelUnreachable},
		{name: "codex-toolong", exit: 1}, {name: "codex-refused", exit: 1},
		{name: "codex-killed", exit: 143, code: cove.AgentFailed},
		{name: "gemini-work"}, {name: "gemini-resumed"}, {name: "gemini-ratelimit"}, {name: "gemini-notool"},
		{name: "gemini-refused", exit: 144},
		{name: "gemini-broken", exit: 1, code: cove.ModelUnreachable},
		{name: "gemini-unauthorized", exit: 145, code: cove.ModelUnreachable},
		{name: "gemini-turns", exit: 53, code: cove.LimitReached},
		{name: "gemini-killed", code: cove.AgentProtocol}, // its output does not show it
		{name: "opencode-work"}, {name: "opencode-resumed"}, {name: "opencode-ratelimit"}, {name: "opencode-broken"},
		{name: "opencode-notool"},
		{name: "opencode-toolong", exit: 1},
		{name: "opencode-unauthorized", exit: 1, code: cove.ModelUnreachable},
		{name: "opencode-killed", exit: 143, code: cove.AgentFailed},
	} {
		t.Run(c.name, func(t *testing.T) {
			all, err := read(parserOf(t, c.name, c.before), recording(t, c.name), c.exit, "Terminated")
			if cove.ErrorCode(err) != c.code {
				t.Errorf("%v, want %s", err, c.code)
			}
			wellFormed(t, all, err)
			var got bytes.Buffer
			for _, m := range all {
				line, err := json.Marshal(m)
				if err != nil {
					t.Fatal(err)
				}
				got.Write(append(line, '\n'))
			}
			golden := filepath.Join("testdata", c.name+".messages")
			if *update {
				if err := os.WriteFile(golden, got.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if want, err := os.ReadFile(golden); err != nil || !bytes.Equal(got.Bytes(), want) {
				t.Errorf("%v, the messages are\n%s", err, got.Bytes())
			}
		})
	}
}

// used returns the usage in a recording.
func used(t *testing.T, name string) message.AgentUsage {
	all, err := read(parserOf(t, name, message.AgentUsage{}), recording(t, name), 0, "")
	if err != nil {
		t.Fatal(err)
	}
	return *all[len(all)-1].Usage
}

// wellFormed checks that messages conform to api, for any output.
func wellFormed(t *testing.T, all []message.Message, err error) {
	t.Helper()
	results, calls, used := 0, map[string]bool{}, message.AgentUsage{}
	for i, m := range all {
		if m.Version != message.Version || m.Type == "" {
			t.Errorf("message %d: %+v", i, m)
		}
		switch m.Type {
		case message.TypeResult:
			results++
		case message.TypeToolCall:
			calls[m.Call] = true
		case message.TypeUsage:
			if m.Usage == nil || m.Usage.Turns < used.Turns {
				t.Errorf("message %d of %d says that %+v were used, after %+v", i, len(all), m.Usage, used)
				return
			}
			used = *m.Usage
		}
	}
	if err == nil && all[len(all)-1].Type != message.TypeUsage {
		t.Errorf("the last message is %+v", all[len(all)-1])
	}
	if results > 1 || results == 0 && err == nil {
		t.Errorf("%d results, %v", results, err)
	}
}

// TestUsage sums up the usage in the recordings' scripts.
func TestUsage(t *testing.T) {
	for name, want := range map[string]message.AgentUsage{
		"claude-task": {InputTokens: 122, OutputTokens: 55, CacheReadTokens: 3300, CacheWriteTokens: 55, Turns: 3},
		// A resumed run repeats the conversation's usage, which includes the helper's.
		"claude-resumed": {InputTokens: 122, OutputTokens: 55, CacheReadTokens: 3300, CacheWriteTokens: 55, Turns: 3},
		"claude-helper":  {InputTokens: 12355 + 12696 + 13068 + 5 + 6, OutputTokens: 42, Turns: 5},
		"codex-task":     {InputTokens: 177, OutputTokens: 55, CacheReadTokens: 3300},
		"codex-resumed":  {InputTokens: 177, OutputTokens: 55, CacheReadTokens: 3300},
		// The model's protocol does not state cache writes.
		"gemini-work":      {InputTokens: 11550, OutputTokens: 375, CacheReadTokens: 47500, Turns: 6},
		"gemini-resumed":   {InputTokens: 110, OutputTokens: 11, CacheReadTokens: 1850, Turns: 2},
		"opencode-work":    {InputTokens: 2550, OutputTokens: 375, CacheReadTokens: 47500, CacheWriteTokens: 9000, Turns: 6},
		"opencode-resumed": {InputTokens: 110, OutputTokens: 11, CacheReadTokens: 1850, Turns: 2},
	} {
		before := message.AgentUsage{}
		if name == "codex-resumed" {
			before = message.AgentUsage{InputTokens: 177, OutputTokens: 55, CacheReadTokens: 3300}
		}
		all, err := read(parserOf(t, name, before), recording(t, name), 0, "")
		if err != nil {
			t.Fatal(err)
		}
		got := *all[len(all)-1].Usage
		agent, _, _ := strings.Cut(name, "-")
		if (agent == "claude" || agent == "opencode") && got.Cost <= 0 ||
			(agent == "claude" || agent == "gemini") && got.Duration <= 0 {
			t.Errorf("%s: %+v", name, got)
		}
		if got.Cost, got.Duration = 0, 0; got != want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
}

// TestUsageOnTheWay: usage is reported after each answer, if the program states it.
func TestUsageOnTheWay(t *testing.T) {
	for name, want := range map[string]string{
		"claude-task":   "[1:1000 2:2100 3:3300 3:3300]",
		"opencode-work": "[1:0 2:9000 3:18500 4:28100 5:37700 6:47500 6:47500]",
		"codex-task":    "[0:3300]",
		"gemini-work":   "[6:47500]",
	} {
		all, err := read(parserOf(t, name, message.AgentUsage{}), recording(t, name), 0, "")
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, m := range all {
			if m.Type == message.TypeUsage {
				got = append(got, fmt.Sprintf("%d:%d", m.Usage.Turns, m.Usage.CacheReadTokens))
			}
		}
		if fmt.Sprint(got) != want {
			t.Errorf("%s: turns and tokens from a cache: %s, want %s", name, got, want)
		}
	}
}

// TestOlderClaude: without the fields of newer versions, the total counts.
func TestOlderClaude(t *testing.T) {
	for _, form := range []string{
		`"modelUsage":{"a":{"inputTokens":1,"outputTokens":2,"cacheReadInputTokens":3,"cacheCreationInputTokens":4,` +
			`"costUSD":0.5},"b":{"inputTokens":10,"costUSD":0.25}}`,
		`"total_cost_usd":0.75,"usage":{"input_tokens":11,"output_tokens":2,"cache_read_input_tokens":3,` +
			`"cache_creation_input_tokens":4}`,
	} {
		line := `{"is_error":false,"result":"ok",` + form + `,"type":"result","duration_ms":1500}`
		all, err := read(builtinAgent(t, "claude").NewParser(message.AgentUsage{}), []byte(line), 0, "")
		if want := (message.AgentUsage{InputTokens: 11, OutputTokens: 2, CacheReadTokens: 3, CacheWriteTokens: 4, Cost: 0.75,
			Duration: 1.5}); err != nil || *all[len(all)-1].Usage != want {
			t.Errorf("%+v, %v", all, err)
		}
	}
}

// TestCutOff: messages before a program was killed are kept, with the known usage.
func TestCutOff(t *testing.T) {
	for _, name := range []string{"claude-task", "codex-task", "gemini-work", "opencode-work"} {
		whole := recording(t, name)
		lines := bytes.Count(whole, []byte("\n"))
		for n := range lines - 1 {
			part := bytes.Join(bytes.SplitAfter(whole, []byte("\n"))[:n], nil)
			all, err := read(parserOf(t, name, message.AgentUsage{}), part, 137, "Killed\n")
			if cove.ErrorCode(err) != cove.AgentFailed || !strings.Contains(err.Error(), "137: Killed") {
				t.Fatalf("%s, %d lines: %v", name, n, err)
			}
			wellFormed(t, all, err)
			if len(all) == 0 || all[len(all)-1].Type != message.TypeUsage {
				t.Errorf("%s, %d lines: %+v", name, n, all)
			}
			if all, err := read(parserOf(t, name, message.AgentUsage{}), part, 0,
				""); cove.ErrorCode(err) != cove.AgentProtocol {
				t.Errorf("%s, %d lines, exit code 0: %+v %v", name, n, all, err)
			}
		}
	}
	all, err := read(parserOf(t, "claude-task", message.AgentUsage{}),
		bytes.Join(bytes.SplitAfter(recording(t, "claude-task"), []byte("\n"))[:13], nil), 137, "")
	if u := all[len(all)-1].Usage; err == nil || u.InputTokens != 122 || u.CacheReadTokens != 3300 {
		t.Errorf("%+v %v", u, err)
	}
}

func TestMalformed(t *testing.T) {
	long := "{\"type\": \"assistant\", " + strings.Repeat("x", 500)
	for _, name := range []string{"claude", "codex", "gemini", "opencode", "worker"} {
		for _, line := range []string{long, "Segmentation fault", "[1]", "null", `{"type":7}`, `{}`,
			"{\"type\":\"result\"} trailing", "\x00\xff"} {
			_, err := builtinAgent(t, name).NewParser(message.AgentUsage{}).Line([]byte(line))
			if cove.ErrorCode(err) != cove.AgentProtocol {
				t.Errorf("%s: %.40q: %v", name, line, err)
				continue
			}
			if line == long && (!strings.Contains(err.Error(), strings.Repeat("x", 178)) ||
				strings.Contains(err.Error(), strings.Repeat("x", 179))) {
				t.Errorf("%s: not the first 200 bytes: %v", name, err)
			}
			if !utf8.ValidString(err.Error()) || strings.ContainsAny(err.Error(), "\x00\x1b") {
				t.Errorf("%s: cannot be shown: %q", name, err)
			}
		}
		if all, err := builtinAgent(t, name).NewParser(message.AgentUsage{}).Line([]byte(" \r")); all != nil || err != nil {
			t.Errorf("%s: an empty line: %v %v", name, all, err)
		}
	}
	for _, line := range []string{`{"type":"assistant"}`, `{"type":"user","message":{"content":5}}`} {
		if _, err := builtinAgent(t,
			"claude").NewParser(message.AgentUsage{}).Line([]byte(line)); cove.ErrorCode(err) != cove.AgentProtocol {
			t.Errorf("%s: %v", line, err)
		}
	}
	for _, line := range []string{`{"type":"text"}`, `{"type":"error","part":{}}`} {
		if _, err := builtinAgent(t,
			"opencode").NewParser(message.AgentUsage{}).Line([]byte(line)); cove.ErrorCode(err) != cove.AgentProtocol {
			t.Errorf("%s: %v", line, err)
		}
	}
	if _, err := builtinAgent(t, "codex").NewParser(message.AgentUsage{}).Line(
		[]byte(`{"type":"item.completed","item":{}}`)); cove.ErrorCode(err) != cove.AgentProtocol {
		t.Error(err)
	}
}

func TestLimits(t *testing.T) {
	for subtype, want := range map[string]error{"error_max_turns": ErrTurns, "error_max_budget_usd": ErrBudget} {
		all, err := read(builtinAgent(t, "claude").NewParser(message.AgentUsage{}),
			[]byte(`{"type":"result","subtype":"`+subtype+`","is_error":true,"errors":["enough"]}`), 1, "")
		if cove.ErrorCode(err) != cove.LimitReached || !errors.Is(err, want) || len(all) != 2 || all[0].Content != "enough" ||
			!all[0].IsError {
			t.Errorf("%s: %+v %v", subtype, all, err)
		}
	}
}

// TestClaudeDiagnostics: what Claude Code notes of its own state at an interruption is no word of the agent's.
func TestClaudeDiagnostics(t *testing.T) {
	output := `{"type":"result","subtype":"error_during_execution","is_error":true,"session_id":"s","num_turns":1,` +
		`"errors":["[ede_diagnostic] result_type=user last_content_type=n/a stop_reason=null","it was stopped"]}` + "\n"
	all, err := read(parserOf(t, "claude", message.AgentUsage{}), []byte(output), 1, "")
	text := fmt.Sprintf("%+v %v", all, err)
	if strings.Contains(text, "ede_diagnostic") || !strings.Contains(text, "it was stopped") {
		t.Error(text)
	}
}

// TestTroubleAfterTheAnswer: an error of codex after its answer does not discard the answer.
func TestTroubleAfterTheAnswer(t *testing.T) {
	all, err := read(builtinAgent(t, "codex").NewParser(message.AgentUsage{}),
		[]byte(`{"type":"thread.started","thread_id":"t"}
{"type":"item.completed","item":{"id":"item_0","type":"agent_message","text":"It is full."}}
{"type":"item.completed","item":{"id":"item_1","type":"error","message":"Failed to save the conversation transcript"}}
{"type":"turn.completed","usage":{"input_tokens":5,"output_tokens":2}}
`), 0, "")
	if err != nil || len(all) != 3 || !strings.HasPrefix(all[0].Content, "Failed to save") ||
		all[1].Type != message.TypeResult || all[1].Content != "It is full." {
		t.Errorf("%+v %v", all, err)
	}
}

// TestMessages: messages of Cove's own worker are validated and pass unchanged.
func TestMessages(t *testing.T) {
	worker := builtinAgent(t, "worker")
	const begin = `{"version":1,"type":"tool_call","session_id":"s","model":"m","call_id":"c","tool":"bash",` +
		`"input":{"command":"ls"}}` + "\n"
	const result, usage = `{"version":1,"type":"result","content":"done"}` + "\n",
		`{"version":1,"type":"usage","usage":{"input_tokens":1,"output_tokens":2,"turns":1}}` + "\n"
	all, err := read(worker.NewParser(message.AgentUsage{}),
		[]byte(begin+`{"version":1,"type":"news","more":[1]}`+"\n"+result+usage), 0, "")
	if err != nil || len(all) != 4 || all[0].Tool != "bash" || all[3].Usage.OutputTokens != 2 {
		t.Errorf("%+v %v", all, err)
	}
	if all, err := read(worker.NewParser(message.AgentUsage{}), []byte(usage+begin+usage+result), 0, ""); err != nil ||
		len(all) != 5 || *all[4].Usage != *all[2].Usage {
		t.Errorf("usage on the way: %+v %v", all, err)
	}
	for _, wrong := range []string{result + result, result + usage + usage, result + usage + begin,
		`{"version":0,"type":"result"}`, `{"version":1,"type":"usage"}`, `{"version":1,"type":"tool_call","input":[1]}`} {
		if _, err := read(worker.NewParser(message.AgentUsage{}), []byte(wrong), 0,
			""); cove.ErrorCode(err) != cove.AgentProtocol {
			t.Errorf("%s: %v", wrong, err)
		}
	}
	if all, err := read(worker.NewParser(message.AgentUsage{}), []byte(begin), 1,
		"no model"); cove.ErrorCode(err) != cove.AgentFailed || all[len(all)-1].Type != message.TypeUsage ||
		all[len(all)-1].Session != "s" {
		t.Errorf("%+v %v", all, err)
	}
}

func TestText(t *testing.T) {
	plain := Agent{Title: "Plain", Output: FormatText}
	all, err := read(plain.NewParser(message.AgentUsage{}), []byte("\nline one\nline \xfftwo\n\n"), 0, "noise")
	if err != nil || len(all) != 2 || all[0].Content != "line one\nline \uFFFDtwo" || all[0].Type != message.TypeResult {
		t.Errorf("%+v %v", all, err)
	}
	stderr := strings.Repeat("noise\n", 1000) + "the reason\n"
	all, err = read(plain.NewParser(message.AgentUsage{}), []byte("so far"), 2, stderr)
	if cove.ErrorCode(err) != cove.AgentFailed || !strings.HasSuffix(err.Error(), "the reason") ||
		len(err.Error()) > 2200 || all[0].Content != "so far" || all[0].Type != message.TypeThinking {
		t.Errorf("%+v %v", all, err)
	}
}

// fuzzParser: no output breaks its parser, and the messages are well formed.
func fuzzParser(f *testing.F, name string) {
	files, _ := filepath.Glob("testdata/" + name + "-*.ndjson")
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data, 1)
	}
	f.Add([]byte(`{"version":10,"type":"news"}`), 0)
	f.Add([]byte(`{"version":1,"type":"result","content":"done"}`+"\n"+`{"version":1,"type":"usage","usage":{}}`), 0)
	f.Fuzz(func(t *testing.T, output []byte, exitCode int) {
		all, err := read(builtinAgent(t, name).NewParser(message.AgentUsage{}), output, exitCode, string(output))
		wellFormed(t, all, err)
		for _, m := range all {
			if _, err := json.Marshal(m); err != nil {
				t.Errorf("%+v: %v", m, err)
			}
			if m.Usage != nil && m.Type != message.TypeUsage && name != "worker" { // its messages pass unchanged
				t.Errorf("%+v", m)
			}
		}
	})
}

func FuzzClaude(f *testing.F)   { fuzzParser(f, "claude") }
func FuzzCodex(f *testing.F)    { fuzzParser(f, "codex") }
func FuzzGemini(f *testing.F)   { fuzzParser(f, "gemini") }
func FuzzOpencode(f *testing.F) { fuzzParser(f, "opencode") }
func FuzzMessages(f *testing.F) { fuzzParser(f, "worker") }
