package agent

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

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
