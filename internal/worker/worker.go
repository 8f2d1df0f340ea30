// Package worker is Cove's own agent: it asks a model, executes the model's calls with package tools, and repeats until
// there is an answer. It runs inside a sandbox, which is its wall. Its output is messages (message.Message), one on
// each line.
package worker

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/jsonschema"
	"github.com/cove-sandbox/cove/internal/model"
	"github.com/cove-sandbox/cove/internal/worker/tools"
	"github.com/cove-sandbox/cove/message"
)

// asker is implemented by model.Client.
type asker interface {
	Ask(context.Context, model.Request) (model.Answer, error)
}

type worker struct {
	model    asker
	request  model.Request
	tools    *tools.Set // nil: none
	schema   *jsonschema.Schema
	maxTurns int
	window   int // context window, in tokens
	session  *session
	out      *messages
	log      *slog.Logger
	usage    message.AgentUsage
	density  float64 // tokens a byte
}

type messages struct {
	w       io.Writer
	session string
	model   string
}

func (m *messages) send(msg message.Message) error {
	msg.Version, msg.Session = message.Version, m.session
	if msg.Type != message.TypeUsage && msg.Type != message.TypeToolResult {
		msg.Model = m.model
	}
	line := json.NewEncoder(m.w) // writes once
	line.SetEscapeHTML(false)
	return line.Encode(msg)
}

type outcome struct {
	text string
	data json.RawMessage
	err  error // its code is the kind of failure; nil: done
}

// run works on the conversation until it has an answer, and reports the result and usage in every case.
func (w *worker) run(ctx context.Context) error {
	began := time.Now()
	end := w.work(ctx)
	if ctx.Err() != nil {
		end = outcome{err: cove.Errorf(cove.Canceled, "interrupted: %w", context.Cause(ctx))}
	}
	w.usage.Duration = time.Since(began).Round(time.Millisecond).Seconds()
	result := message.Message{Type: message.TypeResult, Content: end.text, Data: end.data}
	if end.err != nil {
		result.IsError = true
		result.Content = strings.TrimSpace(end.text + "\n\n" + end.err.Error())
	}
	return errors.Join(end.err, w.out.send(result), w.out.send(message.Message{Type: message.TypeUsage, Usage: &w.usage}))
}

func (w *worker) work(ctx context.Context) outcome {
	draft := model.Draft{Schema: w.schema}
	for {
		answer, err := w.ask(ctx)
		if err != nil {
			return outcome{text: draft.Text, err: err}
		}
		if len(answer.Message.Calls()) > 0 {
			if err := w.follow(ctx, answer.Message); err != nil {
				return outcome{err: err}
			}
			continue
		}
		if err := w.think(answer.Message, model.Reasoning); err != nil {
			return outcome{err: err}
		}
		again, err := draft.Take(answer)
		if again == "" {
			return outcome{text: draft.Text, data: draft.Data, err: err}
		}
		if err != nil {
			w.log.Warn("the answer does not match the schema; the model is asked again", "error", err)
		}
		w.note(again)
	}
}

func (w *worker) ask(ctx context.Context) (model.Answer, error) {
	if w.usage.Turns >= w.maxTurns {
		return model.Answer{}, cove.Errorf(cove.LimitReached, "the task is not done after %d answers of the model",
			w.usage.Turns).WithHint("--max-turns allows more, and --resume goes on")
	}
	if err := w.fit(ctx); err != nil {
		return model.Answer{}, err
	}
	w.request.Messages = w.session.Messages
	answer, err := w.model.Ask(ctx, w.request)
	for try := 1; try < 3 && cove.ErrorCode(err) == cove.TooLarge; try++ { // the window turned out to be smaller
		w.log.Warn("the conversation does not fit the model and is shortened", "error", err)
		w.window = w.tokens() * 3 / 4
		if err := w.fit(ctx); err != nil {
			return model.Answer{}, err
		}
		w.request.Messages = w.session.Messages
		answer, err = w.model.Ask(ctx, w.request)
	}
	if err != nil {
		return model.Answer{}, err
	}
	w.usage = w.usage.Plus(answer.Usage)
	w.usage.Turns++
	if answer.Model != "" {
		w.out.model = answer.Model
	}
	if len(answer.Message.Parts) == 0 { // no API accepts it back
		answer.Message.Parts = []model.Part{{Kind: model.Text}}
	}
	w.session.Messages = append(w.session.Messages, answer.Message)
	w.learn(answer.Usage)
	w.save()
	return answer, w.out.send(message.Message{Type: message.TypeUsage, Usage: &w.usage})
}

// save stores the session. A failure does not end the task, which may be about a full disk.
func (w *worker) save() {
	if err := w.session.save(); err != nil {
		w.log.Warn("the session is not kept", "error", err)
	}
}

// note adds a text of the worker's own to the conversation.
func (w *worker) note(text string) {
	w.session.Messages = append(w.session.Messages, model.Message{
		Role: model.User, Parts: []model.Part{{Kind: model.Text, Text: text, Note: true}},
	})
}

func (w *worker) think(m model.Message, kinds ...model.PartKind) error {
	for _, p := range m.Parts {
		if !slices.Contains(kinds, p.Kind) || strings.TrimSpace(p.Text) == "" {
			continue
		}
		thought := message.Message{Type: message.TypeThinking, Content: p.Text, Reasoning: p.Kind == model.Reasoning}
		if err := w.out.send(thought); err != nil {
			return err
		}
	}
	return nil
}

// follow executes the calls of an answer. Each gets a result, even in an interrupted task, so that it can be resumed.
func (w *worker) follow(ctx context.Context, m model.Message) error {
	if err := w.think(m, model.Reasoning, model.Text); err != nil {
		return err
	}
	results := model.Message{Role: model.User}
	for _, call := range m.Calls() {
		said := message.Message{Type: message.TypeToolCall, Call: call.ID, Tool: call.Tool, Input: call.Input}
		if err := w.out.send(said); err != nil {
			return err
		}
		output, failed := "interrupted before it began", true
		switch {
		case ctx.Err() != nil:
		case w.tools == nil:
			output = "there are no tools"
		default:
			output, failed = w.tools.Do(ctx, call)
		}
		results.Parts = append(results.Parts, model.Part{Kind: model.Result, ID: call.ID, Text: output, Failed: failed})
		said = message.Message{Type: message.TypeToolResult, Call: call.ID, Tool: call.Tool, Output: output, IsError: failed}
		if err := w.out.send(said); err != nil {
			return err
		}
	}
	w.session.Messages = append(w.session.Messages, results)
	if w.tools != nil {
		w.session.Todo = w.tools.Todo()
	}
	w.save()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}
