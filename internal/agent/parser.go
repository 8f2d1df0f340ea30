package agent

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"strings"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/message"
)

// Limits that a LimitReached of a Parser wraps.
var (
	ErrTurns  = errors.New("the bound of turns")
	ErrBudget = errors.New("the budget")
)

// outcome collects the state common to parsers.
type outcome struct {
	agent   string // its title, for errors
	session string
	model   string
	held    string // text that may be the answer
	answer  *message.Message
	usage   message.AgentUsage
	told    message.AgentUsage // the last reported usage
}

// message returns a message of the run.
func (o *outcome) message(m message.Message) message.Message {
	m.Version, m.Session = message.Version, o.session
	if m.Model == "" && m.Type != message.TypeUsage {
		m.Model = o.model
	}
	return m
}

// hold keeps a text, since the last one is the answer, and returns the one held before.
func (o *outcome) hold(text string) []message.Message {
	before := o.release()
	o.held = text
	return before
}

// release returns the held text: it was not the answer.
func (o *outcome) release() []message.Message {
	if o.held == "" {
		return nil
	}
	m := o.message(message.Message{Type: message.TypeThinking, Content: o.held})
	o.held = ""
	return []message.Message{m}
}

// spent reports usage if it has changed.
func (o *outcome) spent(usage message.AgentUsage) []message.Message {
	if usage == o.told {
		return nil
	}
	o.told = usage
	return []message.Message{o.message(message.Message{Type: message.TypeUsage, Usage: &usage})}
}

// end returns result and usage, if there was an answer.
func (o *outcome) end() []message.Message {
	var all []message.Message
	if o.answer == nil || strings.TrimSpace(o.held) != strings.TrimSpace(o.answer.Content) {
		all = o.release()
	}
	if o.answer != nil {
		o.answer.Type = message.TypeResult
		all = append(all, o.message(*o.answer))
	}
	usage := o.usage
	return append(all, o.message(message.Message{Type: message.TypeUsage, Usage: &usage}))
}

// silent returns the error of a program that ended without an answer.
func (o *outcome) silent(exitCode int, stderr string) error {
	said := tail(stderr, 2000)
	if exitCode == 0 {
		e := cove.Errorf(cove.AgentProtocol, "%s ended without a result", o.agent)
		if said != "" {
			e.Message += ": " + said
		}
		return e
	}
	said = cmp.Or(said, "it wrote nothing to its standard error")
	return cove.Errorf(cove.AgentFailed, "%s ended with exit code %d: %s", o.agent, exitCode, said)
}

// tail returns the end of a text, if possible from the beginning of a line.
func tail(text string, most int) string {
	text = strings.TrimSpace(strings.ToValidUTF8(text, "?"))
	if len(text) <= most {
		return text
	}
	text = strings.ToValidUTF8(text[len(text)-most:], "")
	if _, rest, ok := strings.Cut(text, "\n"); ok {
		text = rest
	}
	return "… " + text
}

const shownOfLine = 200 // bytes

// malformed returns the error of an invalid line.
func (o *outcome) malformed(line []byte, why string) error {
	shown, more := line, ""
	if len(shown) > shownOfLine {
		shown, more = shown[:shownOfLine], "…"
	}
	return cove.Errorf(cove.AgentProtocol, "%s wrote a line that %s: %q%s", o.agent, why, shown, more).
		WithHint("is its version one that Cove knows? cove agents list")
}

// object parses a line with one JSON object. Fields of a wrong type count as missing.
func (o *outcome) object(line []byte, to any) error {
	line = bytes.TrimSpace(line)
	err := json.Unmarshal(line, to)
	if _, other := errors.AsType[*json.UnmarshalTypeError](err); err != nil && !other || len(line) == 0 || line[0] != '{' {
		return o.malformed(line, "is no JSON object")
	}
	return nil
}

// unreachable returns the error of an unreachable model.
func (o *outcome) unreachable(why string) error {
	return cove.Errorf(cove.ModelUnreachable, "the model did not answer %s: %s", o.agent, tail(why, 1000)).
		WithHint("see that its credential is there and its host may be reached: cove agents doctor")
}

// textParser parses the output of programs that print their answer.
type textParser struct {
	outcome
	text strings.Builder
}

const maxText = 4 << 20 // maximum bytes of an answer

func (p *textParser) Line(line []byte) ([]message.Message, error) {
	if p.text.Len()+len(line) < maxText {
		p.text.Write(line)
		p.text.WriteByte('\n')
	}
	return nil, nil
}

func (p *textParser) End(exitCode int, stderr string) ([]message.Message, error) {
	text := strings.TrimSpace(strings.ToValidUTF8(p.text.String(), "\uFFFD"))
	if exitCode != 0 {
		p.held = text
		return p.end(), p.silent(exitCode, stderr)
	}
	p.answer = &message.Message{Content: text}
	return p.end(), nil
}

// messagesParser parses the output of programs that print Cove's messages.
type messagesParser struct {
	outcome
	ended bool // the last message has come
}

func (p *messagesParser) Line(line []byte) ([]message.Message, error) {
	if len(bytes.TrimSpace(line)) == 0 {
		return nil, nil
	}
	var m message.Message
	if err := p.object(line, &m); err != nil {
		return nil, err
	}
	if m.Version != message.Version || m.Type == "" || len(m.Input) > 0 && !isObject(m.Input) {
		return nil, p.malformed(line, "is no message")
	}
	if p.ended {
		return nil, p.malformed(line, "follows the last message")
	}
	if m.Session != "" {
		p.session = m.Session
	}
	if m.Model != "" {
		p.model = m.Model
	}
	switch m.Type {
	case message.TypeResult:
		if p.answer != nil {
			return nil, p.malformed(line, "is a second result")
		}
		p.answer = &m
	case message.TypeUsage:
		if m.Usage == nil {
			return nil, p.malformed(line, "says nothing of what was used")
		}
		p.ended, p.usage = p.answer != nil, *m.Usage
	}
	return []message.Message{m}, nil
}

func (p *messagesParser) End(exitCode int, stderr string) ([]message.Message, error) {
	var err error
	if p.answer == nil {
		err = p.silent(exitCode, stderr)
	} else if p.answer.IsError {
		err = p.failure(exitCode)
	}
	if p.ended {
		return nil, err
	}
	return []message.Message{p.message(message.Message{Type: message.TypeUsage, Usage: &p.usage})}, err
}

// failure returns the error of an exit code beyond a failed task (docs/worker.md). The last paragraph of stderr gives
// the reason.
func (p *messagesParser) failure(exitCode int) error {
	why := strings.TrimSpace(p.answer.Content)
	why = tail(why[strings.LastIndex(why, "\n\n")+1:], 1000)
	switch exitCode {
	case 3:
		return cove.Errorf(cove.LimitReached, "%s has reached %w", p.agent,
			ErrTurns).WithHint("allow more, or let it go on with --resume")
	case 4:
		return p.unreachable(why)
	case 5:
		return cove.Errorf(cove.SchemaMismatch, "the answer of %s does not match the schema: %s", p.agent, why)
	case 7:
		return cove.Errorf(cove.LimitReached, "%s has used up %w: %s", p.agent, ErrBudget, why)
	}
	return nil
}

func isObject(j json.RawMessage) bool {
	j = bytes.TrimSpace(j)
	return len(j) > 0 && j[0] == '{'
}
