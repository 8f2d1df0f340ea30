package modeltest

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/cove-sandbox/cove"
)

// Script is what a model says. Its YAML form is docs/model-server.md.
type Script struct {
	// Aside answers requests that come without tools where the turn wants one, such as for a conversation's title.
	Aside   string   `yaml:"aside"`
	Prompts []Prompt `yaml:"prompts"`
}

// Prompt is what follows a prompt, turn by turn.
type Prompt struct {
	When  string `yaml:"when"`  // words of the prompt; without it: one that no other is for
	Turns []Turn `yaml:"turns"` // the last one again, once they are over
	Loop  bool   `yaml:"loop"`  // from the first one again instead, without end
}

// Turn is one answer of the model. What it does is called at once.
type Turn struct {
	Think string        `yaml:"think"`
	Say   string        `yaml:"say"`
	Do    []Action      `yaml:"do"`
	Fail  []Fault       `yaml:"fail"` // what becomes of the first tries, one each
	Pace  time.Duration `yaml:"pace"` // between the events of a stream
	Usage *Usage        `yaml:"usage"`
	// Answer is what an answer is that was asked for by a schema: said as JSON, or
	// given to the tool that the agent has for it.
	Answer map[string]any `yaml:"answer"`
}

// Action is one thing to do, in words that are no agent's own. It becomes a call of whichever tool there is for it.
type Action struct {
	Shell string `yaml:"shell"`
	Read  string `yaml:"read"` // a path
	Write *Write `yaml:"write"`
	Edit  *Edit  `yaml:"edit"`
	Tool  *Tool  `yaml:"tool"` // a certain tool, for what the others have no word for
}

// Write is a file with its content.
type Write struct {
	Path    string `yaml:"path"`
	Content string `yaml:"content"`
}

// Edit is a piece of a file with what comes into its place.
type Edit struct {
	Path string `yaml:"path"`
	Old  string `yaml:"old"`
	New  string `yaml:"new"`
}

// Tool is a call as it is.
type Tool struct {
	Name  string         `yaml:"name"`
	Input map[string]any `yaml:"input"`
}

// Usage is what an answer says it used. What is not said is counted: four bytes are a token.
type Usage struct {
	Input      int64 `yaml:"input"`
	Output     int64 `yaml:"output"`
	CacheRead  int64 `yaml:"cache_read"`
	CacheWrite int64 `yaml:"cache_write"`
}

// Fault is what goes wrong with one try. Exactly one of the kinds is said.
type Fault struct {
	After      int           `yaml:"after"`       // so many events of the stream, which are sent as if nothing were
	Status     int           `yaml:"status"`      // an error of the API's own form; after events one in the stream
	RetryAfter int           `yaml:"retry_after"` // seconds, with a status
	Message    string        `yaml:"message"`     // with a status
	Cut        bool          `yaml:"cut"`         // the connection ends
	Stall      time.Duration `yaml:"stall"`       // silence, then it goes on
	Garbage    string        `yaml:"garbage"`     // in the place of an event; without a stream, of the answer
	Endless    bool          `yaml:"endless"`     // the same words until whoever asked has gone
}

//go:embed script.yaml
var builtIn []byte

// BuiltIn is a script that does something sensible with any prompt, in a small project.
func BuiltIn() *Script {
	s, err := Parse("script.yaml", builtIn)
	if err != nil {
		panic(err) // it is a part of the program
	}
	return s
}

// Parse reads a script in YAML, strictly. Errors: InvalidArgument with source.
func Parse(source string, data []byte) (*Script, error) {
	d := yaml.NewDecoder(bytes.NewReader(data))
	d.KnownFields(true)
	var s Script
	if err := d.Decode(&s); err != nil && !errors.Is(err, io.EOF) {
		return nil, cove.Errorf(cove.InvalidArgument, "%s: %s", source, strings.TrimPrefix(err.Error(), "yaml: ")).
			WithHint("a script has prompts, each with when and turns; a turn has think, say, do, answer, fail, pace and usage")
	}
	if err := s.check(); err != nil {
		return nil, cove.Errorf(cove.InvalidArgument, "%s: %w", source, err)
	}
	return &s, nil
}

func (s *Script) check() error {
	if len(s.Prompts) == 0 {
		return errors.New("there are no prompts")
	}
	seen := map[string]bool{}
	for _, p := range s.Prompts {
		if seen[p.When] {
			return fmt.Errorf("the prompt %.80q is there twice", p.When)
		}
		seen[p.When] = true
		if err := p.check(); err != nil {
			return fmt.Errorf("the prompt %.80q: %w", p.When, err)
		}
	}
	return nil
}

func (p Prompt) check() error {
	if len(p.Turns) == 0 {
		return errors.New("there are no turns")
	}
	if last := p.Turns[len(p.Turns)-1]; len(last.Do) > 0 && !p.Loop {
		return errors.New("the last turn calls tools, so it would never end: add one that only says something, or loop: true")
	}
	for i, t := range p.Turns {
		if err := t.check(); err != nil {
			return fmt.Errorf("turn %d: %w", i+1, err)
		}
	}
	return nil
}

func (t Turn) check() error {
	for _, a := range t.Do {
		if count(a.Shell != "", a.Read != "", a.Write != nil, a.Edit != nil, a.Tool != nil) != 1 {
			return errors.New("an action is one of shell, read, write, edit and tool")
		}
		if a.Tool != nil {
			if _, err := json.Marshal(a.Tool.Input); err != nil {
				return fmt.Errorf("the input of %q is no JSON: %w", a.Tool.Name, err)
			}
		}
	}
	if _, err := json.Marshal(t.Answer); err != nil {
		return fmt.Errorf("the answer is no JSON: %w", err)
	}
	for _, f := range t.Fail {
		if count(f.Status != 0, f.Cut, f.Stall != 0, f.Garbage != "", f.Endless) != 1 {
			return errors.New("a fault is one of status, cut, stall, garbage and endless")
		}
		if f.Status != 0 && (f.Status < 400 || f.Status > 599) {
			return fmt.Errorf("%d is no status of an error", f.Status)
		}
		if f.After < 0 || f.RetryAfter < 0 || f.Stall < 0 {
			return errors.New("a fault has numbers below zero")
		}
	}
	if t.Think == "" && t.Say == "" && len(t.Do) == 0 && t.Answer == nil && len(t.Fail) == 0 {
		return errors.New("it says nothing and does nothing")
	}
	return nil
}

func count(which ...bool) int {
	n := 0
	for _, one := range which {
		if one {
			n++
		}
	}
	return n
}

// choose finds what follows a prompt.
func (s *Script) choose(prompt string) (Prompt, bool) {
	var otherwise *Prompt
	for i, p := range s.Prompts {
		switch {
		case p.When == "":
			otherwise = &s.Prompts[i]
		case strings.Contains(prompt, p.When):
			return p, true
		}
	}
	if otherwise == nil {
		return Prompt{}, false
	}
	return *otherwise, true
}

// turn is which of Turns answers what has been answered so often.
func (p Prompt) turn(answered int) int {
	if p.Loop {
		return answered % len(p.Turns)
	}
	return min(answered, len(p.Turns)-1)
}
