package agent

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/message"
)

// claudeParser parses Claude Code's stream-json, one object a line: "assistant" and "user" contain messages of its API,
// "system" reports progress, and "result" the outcome. A result comes whenever the agent becomes idle, and background
// helpers may cause further ones.
type claudeParser struct {
	outcome
	answers map[string]claudeUsage // by ids of the model's answers, including helpers'
	tools   map[string]string      // by ids of calls without a result
	counted bool                   // results have stated usage
	problem error
}

// claudeLine holds the relevant fields of a line.
type claudeLine struct {
	Type    string `json:"type"`
	Subtype string `json:"subtype"`
	Session string `json:"session_id"`
	Model   string `json:"model"`              // of system init
	Parent  string `json:"parent_tool_use_id"` // set on messages of a helper
	Made    bool   `json:"is_api_error_message"`
	Message *struct {
		ID      string          `json:"id"`
		Model   string          `json:"model"`
		Content json.RawMessage `json:"content"`
		Usage   claudeUsage     `json:"usage"`
	} `json:"message"`

	Result   string                 `json:"result"` // result and the fields below: of a result
	IsError  bool                   `json:"is_error"`
	Errors   []string               `json:"errors"`
	Data     json.RawMessage        `json:"structured_output"`
	Reason   string                 `json:"terminal_reason"`
	Status   int                    `json:"api_error_status"`
	Cost     float64                `json:"total_cost_usd"`
	Millis   float64                `json:"duration_ms"`
	Usage    claudeUsage            `json:"usage"`
	Models   map[string]claudeModel `json:"modelUsage"`                    // of the conversation
	Recently map[string]claudeModel `json:"model_usage_since_last_result"` // of this process
}

type claudeUsage struct {
	Input      int64 `json:"input_tokens"`
	Output     int64 `json:"output_tokens"`
	CacheRead  int64 `json:"cache_read_input_tokens"`
	CacheWrite int64 `json:"cache_creation_input_tokens"`
}

func (u claudeUsage) plus(to message.AgentUsage) message.AgentUsage {
	return to.Plus(message.AgentUsage{InputTokens: u.Input, OutputTokens: u.Output, CacheReadTokens: u.CacheRead,
		CacheWriteTokens: u.CacheWrite})
}

type claudeModel struct {
	Input      int64   `json:"inputTokens"`
	Output     int64   `json:"outputTokens"`
	CacheRead  int64   `json:"cacheReadInputTokens"`
	CacheWrite int64   `json:"cacheCreationInputTokens"`
	Cost       float64 `json:"costUSD"`
}

// claudeBlock is a part of a message.
type claudeBlock struct {
	Type     string          `json:"type"`
	Text     string          `json:"text"`
	Thinking string          `json:"thinking"`
	ID       string          `json:"id"`
	Name     string          `json:"name"`
	Input    json.RawMessage `json:"input"`
	Call     string          `json:"tool_use_id"`
	Content  json.RawMessage `json:"content"`
	IsError  bool            `json:"is_error"`
}

// blocks parses content: blocks, or a single text.
func blocks(content json.RawMessage) ([]claudeBlock, error) {
	var text string
	if json.Unmarshal(content, &text) == nil {
		return []claudeBlock{{Type: "text", Text: text}}, nil
	}
	var all []claudeBlock
	err := json.Unmarshal(content, &all)
	return all, err
}

func (p *claudeParser) Line(line []byte) ([]message.Message, error) {
	if len(bytes.TrimSpace(line)) == 0 {
		return nil, nil
	}
	var l claudeLine
	if err := p.object(line, &l); err != nil {
		return nil, err
	}
	if l.Type == "" {
		return nil, p.malformed(line, "has no type")
	}
	if l.Session != "" {
		p.session = l.Session
	}
	switch l.Type {
	case "system":
		if l.Subtype == "init" && l.Model != "" {
			p.model = l.Model
		}
	case "assistant", "user":
		if l.Message == nil {
			return nil, p.malformed(line, "has no message")
		}
		parts, err := blocks(l.Message.Content)
		if err != nil {
			return nil, p.malformed(line, "has no content")
		}
		if l.Type == "user" {
			return p.answered(l, parts), nil
		}
		return p.said(l, parts), nil
	case "result":
		p.result(l)
	}
	return nil, nil
}

// said returns the messages for the model's text and calls.
func (p *claudeParser) said(l claudeLine, parts []claudeBlock) (all []message.Message) {
	if l.Made { // made by the program, not the model; also in the result
		return nil
	}
	p.answers[l.Message.ID] = l.Message.Usage
	for _, b := range parts {
		m := message.Message{Model: l.Message.Model, Parent: l.Parent}
		switch {
		case b.Type == "thinking" && b.Thinking != "":
			m.Type, m.Content, m.Reasoning = message.TypeThinking, b.Thinking, true
		case b.Type == "text" && l.Parent == "":
			all = append(all, p.hold(b.Text)...)
			continue
		case b.Type == "text" && b.Text != "":
			m.Type, m.Content = message.TypeThinking, b.Text
		case b.Type == "tool_use" || b.Type == "server_tool_use" || b.Type == "mcp_tool_use":
			m.Type, m.Call, m.Tool, m.Input = message.TypeToolCall, b.ID, b.Name, b.Input
			p.tools[b.ID] = b.Name
		default:
			continue
		}
		all = append(append(all, p.release()...), p.message(m))
	}
	return append(all, p.spent(p.soFar())...)
}

// soFar returns the usage according to the answers, without cost, which only results state.
func (p *claudeParser) soFar() message.AgentUsage {
	sum := message.AgentUsage{Cost: p.usage.Cost, Duration: p.usage.Duration, Turns: len(p.answers)}
	for _, u := range p.answers {
		sum = u.plus(sum)
	}
	return sum
}

// answered returns the messages for tool results.
func (p *claudeParser) answered(l claudeLine, parts []claudeBlock) (all []message.Message) {
	for _, b := range parts {
		if b.Type != "tool_result" {
			continue // text for the model
		}
		var output []string
		if of, err := blocks(b.Content); err == nil {
			for _, c := range of {
				switch {
				case c.Type == "text":
					output = append(output, c.Text)
				default:
					output = append(output, "["+c.Type+"]")
				}
			}
		}
		all = append(append(all, p.release()...), p.message(message.Message{
			Type: message.TypeToolResult, Call: b.Call, Tool: p.tools[b.Call], Output: strings.Join(output, "\n"),
			IsError: b.IsError, Parent: l.Parent,
		}))
		delete(p.tools, b.Call)
	}
	return all
}

// claudeDiagnostic begins an error that is about Claude Code's own state, and comes with each interruption.
const claudeDiagnostic = "[ede_diagnostic]"

// result records a result. The last one counts, and the usage of all.
func (p *claudeParser) result(l claudeLine) {
	m := &message.Message{Content: l.Result, IsError: l.IsError}
	said := slices.DeleteFunc(l.Errors, func(s string) bool { return strings.HasPrefix(s, claudeDiagnostic) })
	m.Content = cmp.Or(m.Content, strings.Join(said, "\n"))
	if len(l.Data) > 0 && string(l.Data) != "null" {
		m.Data = l.Data
	}
	p.answer = m
	p.usage.Duration += l.Millis / 1000
	switch {
	case l.Recently != nil:
		p.count(l.Recently)
	case l.Models != nil: // the sum of all results so far
		p.usage = message.AgentUsage{Duration: p.usage.Duration}
		p.count(l.Models)
	default:
		p.usage = l.Usage.plus(p.usage)
		p.usage.Cost, p.counted = l.Cost, true
	}
	p.problem = nil
	switch {
	case l.Subtype == "error_max_turns":
		p.problem = cove.Errorf(cove.LimitReached, "%s has reached %w", p.agent,
			ErrTurns).WithHint("allow more, or let it go on with --resume")
	case l.Subtype == "error_max_budget_usd":
		p.problem = cove.Errorf(cove.LimitReached, "%s has used up %w", p.agent,
			ErrBudget).WithHint("allow more, or let it go on with --resume")
	case l.IsError && l.Reason == "api_error" && (l.Status == 0 || refuses(l.Status)), l.IsError && refuses(l.Status):
		p.problem = p.unreachable(m.Content)
	}
}

// refuses reports a status that means an unavailable endpoint or an invalid credential. Other statuses concern the
// request.
func refuses(status int) bool {
	switch status {
	case 401, 402, 403, 407, 408, 429:
		return true
	}
	return status >= 500
}

func (p *claudeParser) count(models map[string]claudeModel) {
	p.counted = true
	for _, m := range models {
		p.usage = p.usage.Plus(message.AgentUsage{
			InputTokens: m.Input, OutputTokens: m.Output, CacheReadTokens: m.CacheRead,
			CacheWriteTokens: m.CacheWrite, Cost: m.Cost,
		})
	}
}

func (p *claudeParser) End(exitCode int, stderr string) ([]message.Message, error) {
	if !p.counted {
		p.usage = p.soFar()
	}
	p.usage.Turns = len(p.answers)
	err := p.problem
	if p.answer == nil {
		err = p.silent(exitCode, stderr)
		for _, sign := range []string{"ECONNREFUSED", "ENOTFOUND", "Connection refused", "API Error"} {
			if exitCode != 0 && strings.Contains(stderr, sign) {
				err = p.unreachable(stderr)
			}
		}
	}
	return p.end(), err
}
