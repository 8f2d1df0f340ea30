package agent

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/message"
)

// geminiParser parses Gemini CLI's stream-json: text comes in pieces, and usage with the result only. The model's
// reasoning is missing.
type geminiParser struct {
	outcome
	said    strings.Builder   // pieces of an unfinished text
	tools   map[string]string // by ids of calls without a result
	open    bool              // an answer of the model has begun
	turns   int
	problem error
}

// geminiLine holds the relevant fields of a line.
type geminiLine struct {
	Type    string          `json:"type"`
	Session string          `json:"session_id"`
	Model   string          `json:"model"`
	Role    string          `json:"role"`
	Content string          `json:"content"`
	Call    string          `json:"tool_id"`
	Tool    string          `json:"tool_name"`
	Input   json.RawMessage `json:"parameters"`
	Status  string          `json:"status"`
	Output  string          `json:"output"`
	Message string          `json:"message"` // of a warning
	Error   struct {
		Type    string `json:"type"`
		Message string `json:"message"`
	} `json:"error"`
	Stats struct {
		Input     int64   `json:"input"` // excluding cached ones
		CacheRead int64   `json:"cached"`
		Output    int64   `json:"output_tokens"`
		Millis    float64 `json:"duration_ms"`
	} `json:"stats"`
}

func (p *geminiParser) Line(line []byte) ([]message.Message, error) {
	if len(bytes.TrimSpace(line)) == 0 {
		return nil, nil
	}
	var l geminiLine
	if err := p.object(line, &l); err != nil {
		return nil, err
	}
	switch l.Type {
	case "":
		return nil, p.malformed(line, "has no type")
	case "init":
		p.session, p.model = l.Session, l.Model
		if p.model == "auto" { // the actual model is not stated
			p.model = ""
		}
	case "message":
		if l.Role == "assistant" {
			p.answering()
			p.said.WriteString(l.Content)
		}
	case "tool_use":
		p.answering()
		p.tools[l.Call] = l.Tool
		return append(p.flush(),
			p.message(message.Message{Type: message.TypeToolCall, Call: l.Call, Tool: l.Tool, Input: l.Input})), nil
	case "tool_result":
		p.open = false
		m := message.Message{Type: message.TypeToolResult, Call: l.Call, Tool: p.tools[l.Call], Output: l.Output,
			IsError: l.Status == "error"}
		if m.IsError && l.Error.Message != "" {
			m.Output = l.Error.Message
		}
		delete(p.tools, l.Call)
		return append(p.flush(), p.message(m)), nil
	case "error":
		return append(p.flush(), p.message(message.Message{Type: message.TypeThinking, Content: l.Message})), nil
	case "result":
		return p.result(l), nil
	}
	return nil, nil
}

// answering counts an answer of the model, once.
func (p *geminiParser) answering() {
	if !p.open {
		p.open = true
		p.turns++
	}
}

// flush returns collected text before another event.
func (p *geminiParser) flush() []message.Message {
	p.keep()
	return p.release()
}

// keep joins the pieces of text.
func (p *geminiParser) keep() {
	if p.said.Len() > 0 {
		p.held += p.said.String()
		p.said.Reset()
	}
}

// result records the outcome.
func (p *geminiParser) result(l geminiLine) []message.Message {
	s := l.Stats
	p.usage = message.AgentUsage{InputTokens: max(0, s.Input), OutputTokens: max(0, s.Output),
		CacheReadTokens: max(0, s.CacheRead), Duration: max(0, s.Millis/1000)}
	if l.Status != "error" {
		p.keep()
		p.answer = &message.Message{Content: p.held}
		return nil
	}
	said := p.flush()
	why, problem := geminiProblem(l.Error.Message)
	p.answer = &message.Message{Content: why, IsError: true}
	switch {
	case l.Error.Type == "FatalTurnLimitedError":
		p.problem = cove.Errorf(cove.LimitReached, "%s has reached %w", p.agent,
			ErrTurns).WithHint("allow more in its settings.json, or let it go on with --resume")
	case problem:
		p.problem = p.unreachable(why)
	}
	return said
}

// geminiProblem returns the inner message of an error, and whether the model was unreachable.
func geminiProblem(message string) (why string, unreachable bool) {
	of, ok := strings.CutPrefix(message, "[API Error: ")
	if !ok {
		return message, false
	}
	of = strings.TrimSuffix(of, "]")
	var e struct {
		Error struct {
			Code    int    `json:"code"`
			Message string `json:"message"`
		} `json:"error"`
	}
	if json.Unmarshal([]byte(of), &e) != nil || e.Error.Code == 0 {
		return of, true // no answer came
	}
	// An invalid key is answered like any other bad request.
	return e.Error.Message, refuses(e.Error.Code) || strings.Contains(e.Error.Message, "API key not valid")
}

func (p *geminiParser) End(exitCode int, stderr string) ([]message.Message, error) {
	p.usage.Turns = p.turns
	if p.answer == nil {
		p.keep()
		return p.end(), p.silent(exitCode, stderr)
	}
	if !p.answer.IsError {
		p.held = "" // it was the answer
	}
	return p.end(), p.problem
}
