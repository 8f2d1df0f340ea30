package cli

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove/internal/modeltest"
)

// TestModelServer: it says where it is, answers by the script, records what came in, and ends.
func TestModelServer(t *testing.T) {
	dir := t.TempDir()
	script, record := filepath.Join(dir, "script.yaml"), filepath.Join(dir, "requests.ndjson")
	if err := os.WriteFile(script, []byte("prompts: [{turns: [{say: It works.}]}]"), 0o600); err != nil {
		t.Fatal(err)
	}
	stdout, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdout.Close()
	stderr, err := os.Create(filepath.Join(dir, "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	defer stderr.Close()
	ctx, cancel := context.WithCancel(t.Context())
	code := make(chan int)
	go func() {
		defer out.Close()
		code <- Main(ctx, []string{"dev", "model-server", "--listen", "127.0.0.1:0", "--key", "right", "--script", script,
			"--record", record}, Streams{Out: out, Err: stderr}, nil)
	}()
	address, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{"right": "It works.", "wrong": "authentication_error"} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, strings.TrimSpace(address)+"/v1/messages",
			strings.NewReader(`{"messages":[{"role":"user","content":"does it?"}]}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-Api-Key", key)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || !strings.Contains(string(body), want) {
			t.Errorf("%s: %q %v", key, body, err)
		}
	}
	cancel()
	if got := <-code; got != 0 {
		t.Errorf("it ended with %d", got)
	}
	lines, err := os.ReadFile(record)
	if err != nil || strings.Count(string(lines), "\n") != 2 || !strings.Contains(string(lines), `"X-Api-Key":["right"]`) {
		t.Errorf("%s %v", lines, err)
	}
	said, err := os.ReadFile(stderr.Name())
	if err != nil || !strings.Contains(string(said), `POST /v1/messages 200, turn 1 of "does it?"`) ||
		!strings.Contains(string(said), "POST /v1/messages 401") {
		t.Errorf("%s %v", said, err)
	}
}

// TestDocumentedScript: the script of the documents can be followed.
func TestDocumentedScript(t *testing.T) {
	text, err := os.ReadFile("../../docs/model-server.md")
	if err != nil {
		t.Fatal(err)
	}
	_, script, found := strings.Cut(string(text), "```yaml\n# script.yaml\n")
	script, _, ended := strings.Cut(script, "```")
	if !found || !ended {
		t.Fatal("there is none")
	}
	if _, err := modeltest.Parse("model-server.md", []byte(script)); err != nil {
		t.Error(err)
	}
}
