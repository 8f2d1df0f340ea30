package settle

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/message"
)

func FuzzShorten(f *testing.F) {
	f.Add("text", []byte(`{"a": "b", "c": [1, {"d": "e"}]}`), 1)
	f.Fuzz(func(t *testing.T, text string, input []byte, times int) {
		times = 1 + max(0, times)%20_000
		long := message.Message{Content: strings.Repeat(text, times)}
		if json.Valid(input) {
			long.Input = json.RawMessage("[" + strings.Repeat(string(input)+",", times%2000) + string(input) + "]")
		}
		short := shorten(long)
		if len(short.Content) > maxShown+100 || len(short.Input) > maxInput ||
			utf8.ValidString(long.Content) && !utf8.ValidString(short.Content) {
			t.Errorf("%d bytes of text and %d of input are left", len(short.Content), len(short.Input))
		}
		if long.Input != nil && !json.Valid(short.Input) {
			t.Errorf("the input is %.200s", short.Input)
		}
		if again := shorten(long); again.Content != short.Content || !bytes.Equal(again.Input, short.Input) {
			t.Error("it is not the same each time")
		}
	})
}

// TestFit: an answer becomes the document of the schema, or an error.
func TestFit(t *testing.T) {
	schema := []byte(`{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}`)
	for name, c := range map[string]struct {
		m    message.Message
		data string
		want string // of the error
	}{
		"the agent's own": {message.Message{Type: message.TypeResult, Data: []byte(`{"n":1}`)}, `{"n":1}`, ""},
		"in words":        {message.Message{Type: message.TypeResult, Content: `{"n": 2}`}, `{"n": 2}`, ""},
		"in a fence": {message.Message{Type: message.TypeResult, Content: "Here:\n```json\n{\"n\":3}\n```"},
			`{"n":3}`, ""},
		"another type":                {message.Message{Type: message.TypeResult, Content: `{"n":"x"}`}, `{"n":"x"}`, "$.n"},
		"no document":                 {message.Message{Type: message.TypeResult, Content: "three"}, "", "no JSON"},
		"one who could not do it":     {message.Message{Type: message.TypeResult, Content: "no", IsError: true}, "", ""},
		"something that is no answer": {message.Message{Type: message.TypeThinking, Content: "hm"}, "", ""},
	} {
		m, err := fit(c.m, schema)
		if string(m.Data) != c.data || (err == nil) != (c.want == "") ||
			err != nil && (cove.ErrorCode(err) != cove.SchemaMismatch || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %s, %v", name, m.Data, err)
		}
	}
	if m, err := fit(message.Message{Type: message.TypeResult, Content: "three"}, nil); err != nil || m.Data != nil {
		t.Errorf("without a schema: %s, %v", m.Data, err)
	}
}
