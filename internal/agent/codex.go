package agent

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/cove-sandbox/cove/internal/pattern"
	"github.com/cove-sandbox/cove/message"
)

// codexParser parses the output of "codex exec --json": items start and complete, and a turn answers one prompt.
type codexParser struct {
	outcome
	before  message.AgentUsage
	called  map[string]bool // announced items
	lately  string          // the last reported trouble
	waiting int             // consecutive reports of a missing network
	problem error
}

// codexLine holds the relevant fields of a line.
type codexLine struct {
	Type    string          `json:"type"`
	Thread  string          `json:"thread_id"`
	Item    json.RawMessage `json:"item"`
	Message string          `json:"message"` // of an error
	Error   struct {
		Message string `json:"message"`
	} `json:"error"`
	Usage struct {
		Input      int64 `json:"input_tokens"` // including cached ones
		CacheRead  int64 `json:"cached_input_tokens"`
		CacheWrite int64 `json:"cache_write_input_tokens"`
		Output     int64 `json:"output_tokens"`
	} `json:"usage"`
}

// codexItem is one item of a conversation.
type codexItem struct {
	ID       string          `json:"id"`
	Type     string          `json:"type"`
	Text     string          `json:"text"`    // of a message, or reasoning
	Message  string          `json:"message"` // of an error
	Status   string          `json:"status"`
	Output   string          `json:"aggregated_output"` // of a command
	ExitCode *int            `json:"exit_code"`
	Server   string          `json:"server"` // of a tool outside codex, as are the fields below
	Tool     string          `json:"tool"`
	Input    json.RawMessage `json:"arguments"`
	Result   json.RawMessage `json:"result"`
	Error    json.RawMessage `json:"error"`
	Changes  []struct {
		Path string `json:"path"`
		Kind string `json:"kind"`
	} `json:"changes"`
}

// patience bounds consecutive reports of a missing network, which codex would repeat for ever.
const patience = 4

func (p *codexParser) Line(line []byte) ([]message.Message, error) {
	if len(bytes.TrimSpace(line)) == 0 {
		return nil, nil
	}
	var l codexLine
	if err := p.object(line, &l); err != nil {
		return nil, err
	}
	if l.Type != "error" {
		p.waiting = 0
	}
	switch kind, phase, _ := strings.Cut(l.Type, "."); kind {
	case "":
		return nil, p.malformed(line, "has no type")
	case "thread":
		if l.Thread != "" {
			p.session = l.Thread
		}
	case "turn":
		return nil, p.turn(phase, l)
	case "item":
		var item codexItem
		if err := p.object(l.Item, &item); err != nil || item.Type == "" {
			return nil, p.malformed(line, "has no item")
		}
		return p.item(phase, item, l.Item), nil
	case "error":
		return nil, p.trouble(l.Message)
	}
	return nil, nil
}

// turn records the end of a turn. Its usage is that of the conversation.
func (p *codexParser) turn(phase string, l codexLine) error {
	switch phase {
	case "completed":
		u, b := l.Usage, p.before
		p.usage = message.AgentUsage{
			InputTokens: max(0, u.Input-u.CacheRead-u.CacheWrite-b.InputTokens), OutputTokens: max(0, u.Output-b.OutputTokens),
			CacheReadTokens: max(0, u.CacheRead-b.CacheReadTokens), CacheWriteTokens: max(0, u.CacheWrite-b.CacheWriteTokens),
		}
		p.answer, p.problem = &message.Message{Content: p.held}, nil
	case "failed":
		why := plain(l.Error.Message)
		p.answer, p.problem = &message.Message{Content: why, IsError: true}, nil
		if outOfReach(l.Error.Message) {
			p.problem = p.unreachable(why)
		}
	}
	return nil
}

// trouble records an error from which codex may recover.
func (p *codexParser) trouble(message string) error {
	p.lately = plain(message)
	if !strings.Contains(message, "waiting for network") {
		p.waiting = 0
		return nil
	}
	if p.waiting++; p.waiting < patience {
		return nil
	}
	return p.unreachable(p.lately)
}

func (p *codexParser) item(phase string, item codexItem, raw json.RawMessage) []message.Message {
	switch item.Type {
	case "agent_message":
		if phase == "completed" && item.Text != "" {
			return p.hold(item.Text)
		}
		return nil
	case "reasoning", "error":
		text := item.Text + item.Message
		if phase != "completed" || text == "" {
			return nil
		}
		said := p.message(message.Message{Type: message.TypeThinking, Content: text, Reasoning: item.Type == "reasoning"})
		if item.Type == "error" { // earlier text may still be the answer
			return []message.Message{said}
		}
		return append(p.release(), said)
	}
	all := p.release()
	if !p.called[item.ID] {
		p.called[item.ID] = true
		all = append(all,
			p.message(message.Message{Type: message.TypeToolCall, Call: item.ID, Tool: item.tool(), Input: item.input(raw)}))
	}
	if phase == "completed" {
		delete(p.called, item.ID)
		failed := item.Status == "failed" || item.Status == "declined" || item.ExitCode != nil && *item.ExitCode != 0
		all = append(all, p.message(message.Message{Type: message.TypeToolResult, Call: item.ID, Tool: item.tool(),
			Output: item.output(), IsError: failed}))
	}
	return all
}

// tool returns the name of an item's tool.
func (i codexItem) tool() string {
	if i.Type == "mcp_tool_call" && i.Tool != "" {
		return strings.TrimPrefix(i.Server+"/"+i.Tool, "/")
	}
	return i.Type
}

// input returns a tool's input; for codex's own tools the item without its output.
func (i codexItem) input(raw json.RawMessage) json.RawMessage {
	if isObject(i.Input) {
		return i.Input
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(raw, &fields) != nil {
		return nil
	}
	for _, late := range []string{"id", "type", "status", "aggregated_output", "exit_code", "result", "error", "server",
		"tool", "arguments"} {
		delete(fields, late)
	}
	input, err := json.Marshal(fields)
	if err != nil {
		return nil
	}
	return input
}

func (i codexItem) output() string {
	var said []string
	add := func(s string) {
		if s != "" {
			said = append(said, s)
		}
	}
	add(strings.TrimSuffix(i.Output, "\n"))
	for _, c := range i.Changes {
		add(c.Kind + " " + c.Path)
	}
	if i.ExitCode != nil && *i.ExitCode != 0 {
		add(fmt.Sprintf("exit code %d", *i.ExitCode))
	}
	for _, r := range []json.RawMessage{i.Result, i.Error} {
		if len(r) > 0 && string(r) != "null" {
			add(words(r))
		}
	}
	return strings.Join(said, "\n")
}

// words returns the texts of a tool's result, or the raw result.
func words(result json.RawMessage) string {
	var of struct {
		Message string        `json:"message"`
		Content []claudeBlock `json:"content"`
	}
	if json.Unmarshal(result, &of) == nil {
		var texts []string
		for _, b := range of.Content {
			if b.Text != "" {
				texts = append(texts, b.Text)
			}
		}
		if text := of.Message + strings.Join(texts, "\n"); text != "" {
			return text
		}
	}
	return string(result)
}

// plain returns the message inside an error of the API.
func plain(message string) string {
	var e struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	if json.Unmarshal([]byte(message), &e) == nil && e.Error.Message != "" {
		return e.Error.Message
	}
	return message
}

var unexpectedStatus = pattern.New(`(?:unexpected|last) status:? ([0-9]{3})\b`)

// outOfReach reports whether a turn failed because the model was unreachable.
func outOfReach(message string) bool {
	if m := unexpectedStatus.FindStringSubmatch(message); m != nil {
		status, _ := strconv.Atoi(m[1])
		return refuses(status)
	}
	for _, sign := range []string{"stream disconnected", "error sending request", "Connection failed",
		"waiting for network", "exceeded retry limit", "timeout waiting", "Missing environment variable"} {
		if strings.Contains(message, sign) {
			return true
		}
	}
	return false
}

func (p *codexParser) End(exitCode int, stderr string) ([]message.Message, error) {
	if p.answer != nil {
		if !p.answer.IsError {
			p.held = "" // it was the answer
		}
		return p.end(), p.problem
	}
	err := p.silent(exitCode, stderr)
	if p.lately != "" && outOfReach(p.lately) {
		err = p.unreachable(p.lately)
	}
	return p.end(), err
}
