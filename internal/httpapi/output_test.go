package httpapi

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"testing"

	"github.com/cove-sandbox/cove/api"
)

// TestEncodeOutput: an event of output has the JSON of an api.OutputEvent, whatever the buffer held.
func TestEncodeOutput(t *testing.T) {
	var b bytes.Buffer
	for _, c := range []struct {
		output string
		want   api.OutputEvent
	}{
		{"a\tb \"c\" <d> \u2028\n", api.OutputEvent{Data: "a\tb \"c\" <d> \u2028\n"}},
		{"\xff\x00?>", api.OutputEvent{Data: base64.StdEncoding.EncodeToString([]byte("\xff\x00?>")), Encoding: "base64"}},
		{"", api.OutputEvent{}},
	} {
		want, err := json.Marshal(c.want)
		if err != nil {
			t.Fatal(err)
		}
		b.Reset()
		if err := encodeOutput(&b, []byte(c.output)); err != nil || b.String() != string(want)+"\n" {
			t.Errorf("%q: %q, %v; want %s", c.output, b.String(), err, want)
		}
	}
}
