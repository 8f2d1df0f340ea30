// Package tools is the model's tools on the worker's machine: files, searches, commands, and a list of tasks.
//
// The sandbox is the wall: tools reach whatever their user may reach. Their answers are exact and bounded, and name
// what they omit.
package tools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/jsonschema"
	"github.com/cove-sandbox/cove/internal/model"
)

const (
	maxOutput = 30_000 // bytes of one answer
	maxLine   = 2_000  // bytes of one line in it
	maxLines  = 2_000
	maxNames  = 500
	maxFile   = 16 << 20 // bytes of a file to search or edit
)

// Set holds the tools of one task.
type Set struct {
	dir       string
	tools     []tool
	todo      []Item
	processes processes
}

type tool struct {
	model.Tool
	schema *jsonschema.Schema
	do     func(context.Context, json.RawMessage) (string, error)
}

// Names lists the selectable names: bash stands for bash_output and bash_kill too.
var Names = []string{"read", "write", "edit", "list", "grep", "glob", "bash", "todo"}

// New returns tools for an absolute directory: the named ones, or all. Commands get env. Errors: InvalidArgument.
func New(dir string, env, names []string) (*Set, error) {
	for _, name := range names {
		if !slices.Contains(Names, name) {
			return nil, cove.Errorf(cove.InvalidArgument, "there is no tool %.80q", name).WithHint("there are %s",
				strings.Join(Names, ", "))
		}
	}
	s := &Set{dir: dir, processes: processes{env: quiet(env)}}
	for _, t := range slices.Concat(s.fileTools(), s.searchTools(), s.commandTools(), s.todoTools()) {
		group, _, _ := strings.Cut(t.Name, "_")
		if len(names) > 0 && !slices.Contains(names, group) {
			continue
		}
		var err error
		if t.schema, err = jsonschema.Compile(t.Input); err != nil {
			return nil, fmt.Errorf("the tool %s: %w", t.Name, err)
		}
		s.tools = append(s.tools, t)
	}
	s.processes.adopt()
	return s, nil
}

// Declared returns the tools in the model's form.
func (s *Set) Declared() []model.Tool {
	var all []model.Tool
	for _, t := range s.tools {
		all = append(all, t.Tool)
	}
	return all
}

// Do executes a call. A failure is an answer too, for the model to handle.
func (s *Set) Do(ctx context.Context, call model.Part) (output string, failed bool) {
	i := slices.IndexFunc(s.tools, func(t tool) bool { return t.Name == call.Tool })
	if i < 0 {
		var names []string
		for _, t := range s.tools {
			names = append(names, t.Name)
		}
		return fmt.Sprintf("there is no tool %.80q; there are %s", call.Tool, strings.Join(names, ", ")), true
	}
	if call.Cut {
		return "the input of this call is no JSON object: it was cut off at the longest answer that you can give, or is " +
			"malformed; do it in smaller steps", true
	}
	if err := s.tools[i].schema.Validate(call.Input); err != nil {
		return "the input of this call is wrong: " + strings.TrimPrefix(err.Error(),
			"the document does not match its schema: "), true
	}
	output, err := s.tools[i].do(ctx, call.Input)
	if err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("interrupted: %w", err)
		}
		if output != "" {
			output += "\n"
		}
		return output + err.Error(), true
	}
	return output, false
}

// Close ends every process started by the tools, with its descendants.
func (s *Set) Close() { s.processes.end() }

// define returns a tool whose input is T.
func define[T any](name, description, properties string, required []string,
	do func(context.Context, T) (string, error)) tool {
	needs, _ := json.Marshal(required) // strings always encode
	return tool{
		Tool: model.Tool{Name: name, Description: description, Input: json.RawMessage(
			`{"type":"object","properties":{` + properties + `},"required":` + string(needs) +
				`,"additionalProperties":false}`)},
		do: func(ctx context.Context, input json.RawMessage) (string, error) {
			var in T
			if err := json.Unmarshal(input, &in); err != nil {
				return "", err
			}
			return do(ctx, in)
		},
	}
}

// at returns an absolute path; relative ones begin at the task's directory.
func (s *Set) at(path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(s.dir, path)
}

var errBinary = errors.New("it is a binary file: look at it with a program, such as file, xxd or strings")

// binary reports a zero byte near the beginning, the test of git and grep.
func binary(data []byte) bool { return slices.Contains(data[:min(len(data), 8000)], 0) }

func line(text string) string {
	text = strings.ToValidUTF8(strings.TrimRight(text, "\r\n"), "\uFFFD")
	if len(text) <= maxLine {
		return text
	}
	kept := strings.ToValidUTF8(text[:maxLine], "")
	return fmt.Sprintf("%s [%d more bytes of this line]", kept, len(text)-len(kept))
}

// Item is one entry of the list.
type Item struct {
	Text   string `json:"text"`
	Status string `json:"status"`
}

// Todo returns the list.
func (s *Set) Todo() []Item { return s.todo }

// SetTodo restores the list of an earlier session.
func (s *Set) SetTodo(items []Item) { s.todo = items }

func (s *Set) todoTools() []tool {
	type input struct {
		Items []Item `json:"items"`
	}
	return []tool{define("todo",
		"Keeps the list of what is to be done, for work of several steps. Give the whole list each time; one item at most "+
			"is doing.",
		`"items":{"type":"array","maxItems":100,"items":{"type":"object","properties":{
			"text":{"type":"string","maxLength":500},"status":{"enum":["pending","doing","done"]}},
			"required":["text","status"],"additionalProperties":false}}`,
		[]string{"items"}, func(_ context.Context, in input) (string, error) {
			s.todo = in.Items
			return Show(in.Items), nil
		})}
}

// Show returns the list as text.
func Show(items []Item) string {
	var b strings.Builder
	for _, item := range items {
		mark := map[string]string{"pending": " ", "doing": ">", "done": "x"}[item.Status]
		fmt.Fprintf(&b, "[%s] %s\n", mark, item.Text)
	}
	if len(items) == 0 {
		return "nothing is to be done"
	}
	return strings.TrimSuffix(b.String(), "\n")
}
