package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/model"
	"github.com/cove-sandbox/cove/internal/worker/tools"
	"github.com/cove-sandbox/cove/message"
)

// malformed returns why an API would refuse a conversation as the next request, or "".
func malformed(all []model.Message) string {
	if len(all) == 0 || all[len(all)-1].Role != model.User {
		return "the user does not speak last"
	}
	var open []string
	for i, m := range all {
		if want := []model.Role{model.User, model.Assistant}[i%2]; m.Role != want {
			return fmt.Sprintf("message %d is the %s's", i, m.Role)
		}
		if len(m.Parts) == 0 {
			return fmt.Sprintf("message %d is empty", i)
		}
		var results, calls []string
		for _, p := range m.Parts {
			switch p.Kind {
			case model.Result:
				results = append(results, p.ID)
			case model.Call:
				calls = append(calls, p.ID)
			}
		}
		if !slices.Equal(results, open) {
			return fmt.Sprintf("message %d answers %q, and %q were called", i, results, open)
		}
		open = calls
	}
	if len(open) > 0 {
		return "calls are left"
	}
	return ""
}

// conversations generates a well-formed conversation, with prompts along the way.
func conversations(t *rapid.T) (all []model.Message, prompts []string) {
	text := func(most int) string { return strings.Repeat("é\n", rapid.IntRange(1, most).Draw(t, "length")) }
	prompt := func() model.Part {
		prompts = append(prompts, fmt.Sprintf("prompt %d %s", len(prompts), text(10)))
		return model.Part{Kind: model.Text, Text: prompts[len(prompts)-1]}
	}
	user := model.Message{Role: model.User, Parts: []model.Part{prompt()}}
	for i := range rapid.IntRange(0, 30).Draw(t, "turns") {
		all = append(all, user)
		user = model.Message{Role: model.User}
		answer := model.Message{Role: model.Assistant}
		if rapid.Bool().Draw(t, "says") {
			answer.Parts = append(answer.Parts, model.Part{Kind: model.Text, Text: text(300)})
		}
		for j := range rapid.IntRange(0, 3).Draw(t, "calls") {
			id := fmt.Sprintf("c%d.%d", i, j)
			input, _ := json.Marshal(map[string]string{"x": text(300)})
			answer.Parts = append(answer.Parts, model.Part{Kind: model.Call, ID: id, Tool: "bash", Input: input})
			user.Parts = append(user.Parts, model.Part{Kind: model.Result, ID: id, Text: text(3000),
				Failed: rapid.Bool().Draw(t, "failed")})
		}
		if len(answer.Parts) == 0 {
			answer.Parts = []model.Part{{Kind: model.Reasoning, Text: text(10)}}
		}
		switch {
		case len(user.Parts) == 0 && rapid.Bool().Draw(t, "note"):
			user.Parts = []model.Part{{Kind: model.Text, Text: "note " + text(10), Note: true}}
		case len(user.Parts) == 0, rapid.IntRange(0, 9).Draw(t, "prompt") == 0:
			user.Parts = append(user.Parts, prompt())
		}
		all = append(all, answer)
	}
	return append(all, user), prompts
}

func TestCompaction(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all, prompts := conversations(t)
		if why := malformed(all); why != "" {
			t.Fatal(why)
		}
		before, _ := json.Marshal(all)
		keep := rapid.IntRange(0, 12).Draw(t, "keep")

		short := elide(all, keep)
		if why := malformed(short); why != "" {
			t.Errorf("elided: %s", why)
		}
		if size(short) > size(all) || len(short) != len(all) {
			t.Errorf("%d bytes became %d", size(all), size(short))
		}
		last := max(0, len(all)-keep)
		if !reflect.DeepEqual(short[last:], all[last:]) {
			t.Error("the last messages were changed")
		}
		if again := elide(short, keep); !reflect.DeepEqual(again, short) {
			t.Error("to elide twice is not to elide once")
		}

		past, rest := split(all, keep)
		if len(past)+len(rest) != len(all) || len(rest) > keep {
			t.Errorf("%d and %d of %d, where %d are kept", len(past), len(rest), len(all), keep)
		}
		fresh := restart(past, "what was done", []tools.Item{{Text: "rest", Status: "pending"}}, rest)
		if len(past) > 0 {
			if why := malformed(fresh); why != "" {
				t.Errorf("restarted: %s", why)
			}
		}
		var kept []string
		for _, m := range fresh {
			for _, p := range m.Parts {
				if m.Role == model.User && p.Kind == model.Text && !p.Note {
					kept = append(kept, p.Text)
				}
			}
		}
		if !slices.Equal(kept, prompts) {
			t.Errorf("of what was asked there is %q, want %q", kept, prompts)
		}
		for name, text := range map[string]string{"transcript": transcript(all, 200, 5000), "calls": callsOf(all, 5000)} {
			if len(text) > 5100 {
				t.Errorf("%s: %d bytes", name, len(text))
			}
		}
		if after, _ := json.Marshal(all); string(after) != string(before) {
			t.Error("the conversation itself was changed")
		}
	})
}

// TestMend: a session continues wherever its worker was killed.
func TestMend(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all, _ := conversations(t)
		broken := all[:rapid.IntRange(0, len(all)).Draw(t, "kept")]
		broken = slices.Clone(broken)
		for range rapid.IntRange(0, 4).Draw(t, "losses") { // not written by a worker, but possible in a file
			if len(broken) == 0 {
				break
			}
			i := rapid.IntRange(0, len(broken)-1).Draw(t, "where")
			switch m := broken[i]; rapid.IntRange(0, 3).Draw(t, "loss") {
			case 0:
				broken = slices.Delete(broken, i, i+1)
			case 1:
				broken = slices.Insert(broken, i, m)
			case 2:
				broken[i].Parts = m.Parts[:len(m.Parts)/2]
			case 3:
				broken[i].Role = "system"
			}
		}
		mended := mend(broken)
		s := &session{Messages: slices.Clone(mended)}
		s.prompt("go on")
		if why := malformed(s.Messages); why != "" {
			t.Errorf("%s", why)
		}
		if again := mend(mended); !reflect.DeepEqual(again, mended) && len(again)+len(mended) > 0 {
			t.Error("to mend twice is not to mend once")
		}
		if good := mend(all); !reflect.DeepEqual(good, all) {
			t.Error("what was whole was changed")
		}
	})
}

// TestSummaries: a model that fails to summarise, and one with an exhausted budget.
func TestSummaries(t *testing.T) {
	long := func() []model.Message {
		all := []model.Message{{Role: model.User, Parts: []model.Part{{Kind: model.Text, Text: "the task"}}}}
		for i := range 40 {
			id := fmt.Sprint(i)
			all = append(all, model.Message{Role: model.Assistant,
				Parts: []model.Part{{Kind: model.Text, Text: strings.Repeat("I think. ", 50)},
					{Kind: model.Call, ID: id, Tool: "bash", Input: json.RawMessage(`{"command":"make ` + id + `"}`)}}},
				model.Message{Role: model.User, Parts: []model.Part{{Kind: model.Result, ID: id, Text: "ok", Failed: i == 3}}})
		}
		return all
	}
	for _, c := range []struct {
		name   string
		answer model.Answer
		err    error
		code   cove.Code
		says   string
	}{
		{"a summary", model.Answer{Message: model.Message{Parts: []model.Part{{Kind: model.Text, Text: "All went well."}}},
			Usage: message.AgentUsage{OutputTokens: 4}}, nil, "", "All went well."},
		{"nothing", model.Answer{}, nil, "", `bash {"command":"make 3"}: failed`},
		{"an error", model.Answer{}, cove.Errorf(cove.TooLarge, "no"), "", `bash {"command":"make 1"}: done`},
		{"interrupted", model.Answer{}, cove.Errorf(cove.Canceled, "no"), cove.Canceled, ""},
		{"no budget", model.Answer{}, cove.Errorf(cove.LimitReached, "no"), cove.LimitReached, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := &worker{window: 5000, density: usualDensity, session: &session{
				Messages: long(), Todo: []tools.Item{{Text: "rest", Status: "pending"}},
			}, log: slog.New(slog.DiscardHandler),
				model: asks(func(r model.Request) (model.Answer, error) {
					if len(r.Tools) > 0 || !strings.Contains(r.Messages[0].Parts[0].Text, "the task") {
						t.Errorf("it is asked %+v", r)
					}
					return c.answer, c.err
				})}
			err := w.fit(t.Context())
			if cove.ErrorCode(err) != c.code {
				t.Fatal(err)
			}
			if err != nil {
				return
			}
			first := w.session.Messages[0].Texts(model.Text)
			if why := malformed(w.session.Messages); why != "" || !strings.HasPrefix(first, "the task\n") ||
				!strings.Contains(first, c.says) || !strings.Contains(first, "[ ] rest") {
				t.Errorf("%s\n%s", why, first)
			}
			if w.tokens() > int(fullAt*5000) || w.usage.OutputTokens != c.answer.Usage.OutputTokens {
				t.Errorf("%d tokens, %+v", w.tokens(), w.usage)
			}
		})
	}
}

type asks func(model.Request) (model.Answer, error)

func (a asks) Ask(_ context.Context, r model.Request) (model.Answer, error) { return a(r) }

func TestSessionFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "sessions")
	s := newSession(dir, "/work")
	s.prompt("x")
	if err := s.save(); err != nil {
		t.Fatal(err)
	}
	for path, mode := range map[string]os.FileMode{dir: 0o700, s.path: 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
	for name, c := range map[string]struct {
		content string
		code    cove.Code
	}{
		"00000000000000aa": {`{"version": 2}`, cove.Corrupt}, "00000000000000ab": {`{`, cove.Corrupt},
		"00000000000000ac": {`{"version": 1, "messages": [{"role": "assistant"}]}`, ""},
	} {
		if err := os.WriteFile(filepath.Join(dir, name+".json"), []byte(c.content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := openSession(dir, name, "/work"); cove.ErrorCode(err) != c.code {
			t.Errorf("%s: %v", name, err)
		}
	}
	if found, err := openSession(dir, lastSession, "/work"); err != nil || found.ID != s.ID {
		t.Errorf("%+v, %v", found, err)
	}
	if _, err := openSession(dir, lastSession, "/elsewhere"); cove.ErrorCode(err) != cove.NotFound {
		t.Errorf("%v", err)
	}
}

func FuzzSession(f *testing.F) {
	f.Add(
		[]byte(
			`{"version":1,"id":"00","messages":[{"role":"user","parts":[{"kind":"text","text":"x"}]},{"role":"assistant",` +
				`"parts":[{"kind":"call","id":"a","tool":"b","input":{}}]}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "s.json")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := readSession(path)
		if err != nil {
			var known *cove.Error
			if !errors.As(err, &known) {
				t.Fatal(err)
			}
			return
		}
		s.prompt("go on")
		if why := malformed(s.Messages); why != "" {
			t.Fatalf("%s: %s", why, data)
		}
	})
}
