package model

import (
	"strings"
	"testing"

	"github.com/cove-sandbox/cove"
)

// TestGenerate: a single answer over each API, said as it comes, continued when cut, corrected once by its schema.
func TestGenerate(t *testing.T) {
	const script = `prompts:
  - {when: colour, turns: [{say: "It is blue, I think."}]}
  - {when: broken, turns: [{say: "It is blue, I think.", fail: [{after: 6, cut: true}]}]}
  - {when: figures, turns: [{say: '{"n": "x"}'}]}
  - {when: does not match, turns: [{say: '{"n": 3}'}]}
`
	for _, dialect := range Dialects {
		t.Run(string(dialect), func(t *testing.T) {
			s, at := scripted(t, script)
			c, _ := client(t, dialect, at)
			said := ""
			c.Said = func(text string) { said += text }
			g, err := c.Generate(t.Context(), "m", Question{Prompt: "which colour?", Instructions: "Be brief.",
				Files: []File{{"sky.txt", "the sky is meant"}}})
			if err != nil || g.Text != "It is blue, I think." || said != g.Text ||
				g.Usage.InputTokens == 0 || g.Usage.Turns != 1 {
				t.Errorf("%+v, %v; said %q", g, err, said)
			}
			if body := s.Requests()[0].Body; !strings.Contains(body, "the sky is meant") ||
				!strings.Contains(body, "Be brief.") || strings.Contains(body, `"tools"`) {
				t.Error(body)
			}
			// Text that was printed is not repeated; an answer without a follower is requested anew.
			said = ""
			if _, err := c.Generate(t.Context(), "m", Question{Prompt: "broken"}); said != "It is blue, I think." &&
				cove.ErrorCode(err) != cove.ModelUnreachable {
				t.Errorf("%v after %q", err, said)
			}
			c.Said = nil
			g, err = c.Generate(t.Context(), "m", Question{Prompt: "the figures",
				Schema: []byte(`{"type":"object","properties":{"n":{"type":"integer"}}}`)})
			if err != nil || string(g.Data) != `{"n": 3}` || g.Usage.Turns != 2 {
				t.Errorf("%+v, %v", g, err)
			}
		})
	}
	for _, q := range []Question{{}, {Prompt: "\xff"}, {Prompt: "x", Files: []File{{"a", "\x00"}}},
		{Prompt: "x", Schema: []byte(`{"type": 3}`)}, {Prompt: strings.Repeat("x", MaxQuestion+1)}} {
		if code := cove.ErrorCode(q.Check()); code != cove.InvalidArgument && code != cove.TooLarge {
			t.Errorf("%.20q: %v", q.Prompt, q.Check())
		}
	}
}
