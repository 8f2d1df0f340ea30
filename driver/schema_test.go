package driver

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/cove-sandbox/cove/internal/jsonschema"
)

// TestMessagesAreAsDocumented: messages of real agents match the documented schema, and other values do not.
func TestMessagesAreAsDocumented(t *testing.T) {
	text, err := os.ReadFile("../docs/message.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	schema, err := jsonschema.Compile(text)
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("../internal/agent/testdata/*.messages")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d recordings, %v", len(files), err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(data) {
			if line = bytes.TrimSpace(line); !bytes.HasPrefix(line, []byte("{")) {
				continue // the recorded exit
			}
			if err := schema.Validate(line); err != nil {
				t.Errorf("%s: %v\n%s", filepath.Base(file), err, line)
			}
		}
	}
	for _, line := range []string{`{}`, `{"version":2,"type":"result"}`, `{"version":1,"type":"tool_call"}`,
		`{"version":1,"type":"usage"}`, `{"version":1,"type":"usage","usage":{"input_tokens":-1,"output_tokens":0}}`} {
		if schema.Validate([]byte(line)) == nil {
			t.Errorf("it is taken for a message: %s", line)
		}
	}
}
