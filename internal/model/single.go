package model

import (
	"context"
	"encoding/json"
	"strings"
	"unicode/utf8"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/jsonschema"
	"github.com/cove-sandbox/cove/message"
)

// MaxQuestion bounds the texts of a Question together, in bytes.
const MaxQuestion = 4 << 20

// Question asks for a single answer: without tools, and without a conversation.
type Question struct {
	Prompt       string
	Files        []File // that belong to the prompt
	Instructions string
	Schema       json.RawMessage // that the answer is valid by; nil: none
	MaxOutput    int             // tokens; 0: the endpoint's default
}

// File is a text that belongs to a prompt.
type File struct {
	Name string
	Text string
}

// Check refuses a malformed question. Errors: InvalidArgument, TooLarge.
func (q Question) Check() error {
	size := len(q.Prompt) + len(q.Instructions) + len(q.Schema)
	for _, f := range q.Files {
		size += len(f.Name) + len(f.Text)
		if !plain(f.Name) || !plain(f.Text) {
			return cove.Errorf(cove.InvalidArgument, "the file %.200q is not UTF-8 text", f.Name).
				WithHint("a model without tools reads text only")
		}
	}
	switch {
	case strings.TrimSpace(q.Prompt) == "":
		return cove.Errorf(cove.InvalidArgument, "there is no prompt").WithHint("say what is to be answered")
	case size > MaxQuestion:
		return cove.Errorf(cove.TooLarge, "prompt, files, instructions and schema have more than %d MiB", MaxQuestion>>20).
			WithHint("give an agent the files instead: cove worker")
	case !plain(q.Prompt) || !plain(q.Instructions):
		return cove.Errorf(cove.InvalidArgument, "prompt and instructions are text, without NUL bytes")
	case q.MaxOutput < 0:
		return cove.Errorf(cove.InvalidArgument, "an answer has more than %d tokens", q.MaxOutput).
			WithHint("leave the limit out for the default")
	case q.Schema == nil:
		return nil
	}
	_, err := jsonschema.Compile(q.Schema)
	return err
}

func plain(text string) bool { return utf8.ValidString(text) && !strings.ContainsRune(text, 0) }

// Generated is the answer to a Question.
type Generated struct {
	Text  string
	Data  json.RawMessage // with a schema: the document in Text
	Model string          // the endpoint's name for it
	Usage message.AgentUsage
}

// Generate asks a model a question. A truncated answer is continued, and one that does not match the schema is
// requested once more, with the reason. With an error, what there is of the answer and its usage are returned, too.
// Errors: those of Ask, of Check and of Draft.Take.
func (c *Client) Generate(ctx context.Context, model string, q Question) (g Generated, err error) {
	if err := q.Check(); err != nil {
		return g, err
	}
	draft := Draft{}
	if q.Schema != nil {
		if draft.Schema, err = jsonschema.Compile(q.Schema); err != nil {
			return g, err
		}
	}
	g.Model = model
	r := Request{Model: model, System: strings.Join(Instructions(q.Instructions, q.Schema), "\n\n"),
		MaxOutput: q.MaxOutput, Messages: []Message{q.message()}}
	for {
		answer, err := c.Ask(ctx, r)
		if err != nil {
			g.Text = draft.Text
			return g, err
		}
		g.Usage = g.Usage.Plus(answer.Usage)
		g.Usage.Turns++
		if answer.Model != "" {
			g.Model = answer.Model
		}
		again, err := draft.Take(answer)
		if g.Text, g.Data = draft.Text, draft.Data; again == "" {
			return g, err
		}
		if err != nil {
			c.Log.Warn("the answer does not match the schema; the model is asked again", "error", err)
		}
		if len(answer.Message.Parts) == 0 { // no API accepts it back
			answer.Message.Parts = []Part{{Kind: Text}}
		}
		r.Messages = append(r.Messages, answer.Message,
			Message{Role: User, Parts: []Part{{Kind: Text, Text: again, Note: true}}})
	}
}

// message returns the question as the user's turn: the files, and then the prompt.
func (q Question) message() Message {
	m := Message{Role: User}
	for _, f := range q.Files {
		m.Parts = append(m.Parts, Part{Kind: Text, Text: "The file " + f.Name + ":\n\n" + f.Text})
	}
	m.Parts = append(m.Parts, Part{Kind: Text, Text: q.Prompt})
	return m
}
