package agent

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/cove-sandbox/cove/message"
)

// opencodeParser parses the output of "opencode run --format json": complete parts of answers. A step is one answer of
// the model with its tools' results; the program ends after the last one.
type opencodeParser struct {
	outcome
	ended  bool // the last step made no calls
	failed *message.Message
	lost   bool // the model was unreachable
}

// opencodeLine holds the relevant fields of a line.
type opencodeLine struct {
	Type    string          `json:"type"`
	Session string          `json:"sessionID"`
	Part    *opencodePart   `json:"part"`
	Error   *opencodeFailed `json:"error"`
}

type opencodePart struct {
	Text      string  `json:"text"`
	Synthetic bool    `json:"synthetic"` // of a text that is not the model's
	Reason    string  `json:"reason"`    // of the end of a step
	Cost      float64 `json:"cost"`      // of a step, as are the fields below
	Tokens    struct {
		Input     int64 `json:"input"`
		Output    int64 `json:"output"`
		Reasoning int64 `json:"reasoning"`
		Cache     struct {
			Read  int64 `json:"read"`
			Write int64 `json:"write"`
		} `json:"cache"`
	} `json:"tokens"`
	Call  string `json:"callID"` // of a tool, as are the fields below
	Tool  string `json:"tool"`
	State struct {
		Status   string          `json:"status"`
		Input    json.RawMessage `json:"input"`
		Output   string          `json:"output"`
		Error    string          `json:"error"`
		Metadata struct {
			Exit *int `json:"exit"`
		} `json:"metadata"`
	} `json:"state"`
}

type opencodeFailed struct {
	Name string `json:"name"`
	Data struct {
		Message string `json:"message"`
		Status  int    `json:"statusCode"`
	} `json:"data"`
}

func (p *opencodeParser) Line(line []byte) ([]message.Message, error) {
	if len(bytes.TrimSpace(line)) == 0 {
		return nil, nil
	}
	var l opencodeLine
	if err := p.object(line, &l); err != nil {
		return nil, err
	}
	if l.Session != "" {
		p.session = l.Session
	}
	switch l.Type {
	case "":
		return nil, p.malformed(line, "has no type")
	case "error":
		if l.Error == nil {
			return nil, p.malformed(line, "has no error")
		}
		p.fail(*l.Error)
	case "step_start", "step_finish", "text", "reasoning", "tool_use":
		if l.Part == nil {
			return nil, p.malformed(line, "has no part")
		}
		return p.part(l.Type, *l.Part), nil
	}
	return nil, nil
}

func (p *opencodeParser) part(kind string, part opencodePart) []message.Message {
	switch kind {
	case "step_start":
		p.ended = false
	case "step_finish":
		p.ended, p.failed, p.lost = part.Reason != "tool-calls", nil, false
		t := part.Tokens
		p.usage = p.usage.Plus(message.AgentUsage{
			InputTokens: max(0, t.Input), OutputTokens: max(0, t.Output) + max(0, t.Reasoning),
			CacheReadTokens: max(0, t.Cache.Read), CacheWriteTokens: max(0, t.Cache.Write),
			Cost: max(0, part.Cost), Turns: 1,
		})
		return p.spent(p.usage)
	case "text":
		if part.Text != "" && !part.Synthetic {
			return p.hold(part.Text)
		}
	case "reasoning":
		if part.Text != "" {
			return append(p.release(), p.message(message.Message{Type: message.TypeThinking, Content: part.Text,
				Reasoning: true}))
		}
	case "tool_use":
		output, failed := part.output()
		return append(p.release(),
			p.message(message.Message{Type: message.TypeToolCall, Call: part.Call, Tool: part.Tool, Input: part.State.Input}),
			p.message(message.Message{Type: message.TypeToolResult, Call: part.Call, Tool: part.Tool, Output: output,
				IsError: failed}))
	}
	return nil
}

// output returns a tool's output, and whether it failed.
func (p opencodePart) output() (string, bool) {
	s := p.State
	if s.Status == "error" {
		return s.Error, true
	}
	output := strings.TrimSuffix(s.Output, "\n")
	if exit := s.Metadata.Exit; exit != nil && *exit != 0 {
		return strings.TrimPrefix(fmt.Sprintf("%s\nexit code %d", output, *exit), "\n"), true
	}
	return output, p.Tool == "invalid" // stands for an unknown tool
}

// fail records an error from which the program may recover.
func (p *opencodeParser) fail(e opencodeFailed) {
	why := cmp.Or(e.Data.Message, e.Name)
	p.failed = &message.Message{Content: why, IsError: true}
	p.lost = e.Name == "ProviderAuthError" || e.Name == "APIError" && (e.Data.Status == 0 || refuses(e.Data.Status))
}

func (p *opencodeParser) End(exitCode int, stderr string) ([]message.Message, error) {
	switch {
	case p.failed != nil:
		p.answer = p.failed
		if p.lost {
			return p.end(), p.unreachable(p.failed.Content)
		}
		return p.end(), nil
	case exitCode != 0 || !p.ended:
		return p.end(), p.silent(exitCode, stderr)
	}
	p.answer = &message.Message{Content: p.held}
	p.held = ""
	return p.end(), nil
}
