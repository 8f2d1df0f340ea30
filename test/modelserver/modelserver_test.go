package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove/test/modeltest"
)

// TestModelServer: it says where it is, answers by the script, records what came in, and ends.
func TestModelServer(t *testing.T) {
	dir := t.TempDir()
	script, record := filepath.Join(dir, "script.yaml"), filepath.Join(dir, "requests.ndjson")
	if err := os.WriteFile(script, []byte("prompts: [{turns: [{say: It works.}]}]"), 0o600); err != nil {
		t.Fatal(err)
	}
	stdout, out := io.Pipe()
	defer stdout.Close()
	var stderr bytes.Buffer
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		err := run(ctx, []string{"--listen", "127.0.0.1:0", "--key", "right", "--script", script, "--record", record}, out,
			&stderr)
		out.CloseWithError(err)
		ended <- err
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
	if err := <-ended; err != nil {
		t.Error(err)
	}
	lines, err := os.ReadFile(record)
	if err != nil || strings.Count(string(lines), "\n") != 2 || !strings.Contains(string(lines), `"X-Api-Key":["right"]`) {
		t.Errorf("%s %v", lines, err)
	}
	said := stderr.String()
	if !strings.Contains(said, `POST /v1/messages 200, turn 1 of "does it?"`) ||
		!strings.Contains(said, "POST /v1/messages 401") {
		t.Error(said)
	}
}

// TestRefused: what it cannot serve with is said before it listens.
func TestRefused(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	if err := os.WriteFile(bad, []byte("prompts: [{turns: [{}]}]"), 0o600); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{
		"--script " + bad:       `bad.yaml: the prompt "": turn 1: it says nothing and does nothing`,
		"--script missing.yaml": "missing.yaml",
		"--tls-cert cert.pem":   "--tls-cert and --tls-key",
		"--listen nowhere":      "choose another address with --listen",
		"nothing":               `"nothing" is no flag`,
	} {
		var stdout bytes.Buffer
		err := run(t.Context(), strings.Fields(args), &stdout, io.Discard)
		if err == nil || !strings.Contains(err.Error(), want) || stdout.Len() > 0 {
			t.Errorf("%s: %q %v", args, stdout.String(), err)
		}
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
