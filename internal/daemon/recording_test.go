//go:build linux

package daemon_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove/test/await"

	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/internal/agent"
)

// until reads what a terminal shows until a text is in it, or, without a text, until its program has ended.
func until(t *testing.T, term *client.Terminal, want string) {
	t.Helper()
	var shown strings.Builder
	for {
		p, err := term.Next()
		shown.Write(p)
		switch {
		case want != "" && strings.Contains(shown.String(), want):
			return
		case want == "" && errors.Is(err, io.EOF):
			return
		case err != nil:
			t.Fatalf("%v after %q", err, shown.String())
		}
	}
}

// TestRecording: what an agent's own screen shows is kept, across servers, as a
// run that says how it ended and what it changed.
func TestRecording(t *testing.T) {
	cfg := settings(t)
	cfg.Agents = []agent.Agent{{
		Name: "screen", Title: "Screen", Program: "sh", Prompt: agent.ByStdin, Output: agent.FormatText,
		Interactive: []string{"sh", "-c", `echo "one ö"; read line; echo "two $line"; echo second >> file; exit 3`},
	}}
	cfg.Sandbox.CgroupParent = "cove-screen-" + strconv.Itoa(os.Getpid())
	p := serve(t, cfg)
	made, err := p.CreateSandbox(t.Context(), api.SandboxRequest{Name: "mine", Agent: "screen",
		Repository: &api.RepositoryRequest{Source: repository(t), Uncommitted: true}}, nil)
	must(t, err)
	term, err := p.AttachTerminal(t.Context(), "mine", client.TerminalOptions{Rows: 20, Columns: 70})
	must(t, err)
	until(t, term, "one ö")
	term.Close()

	list, err := p.Runs(t.Context(), client.RunQuery{Sandbox: made.ID})
	if err != nil || len(list.Runs) != 1 || !list.Runs[0].Interactive || list.Runs[0].Status != api.RunRunning ||
		list.Runs[0].Agent != "screen" {
		t.Fatalf("%+v, %v", list, err)
	}
	id := list.Runs[0].ID
	if _, err := p.FollowRun(t.Context(), id, client.RunStream{}); err == nil {
		t.Error("it is followed, and has no messages")
	}
	if err := p.InterruptRun(t.Context(), id, false); err == nil || !strings.Contains(err.Error(), "cove attach mine") {
		t.Errorf("%v", err)
	}

	p.kill()
	p = serve(t, cfg)
	term, err = p.AttachTerminal(t.Context(), "mine", client.TerminalOptions{Rows: 24, Columns: 80})
	must(t, err)
	_, err = term.Write([]byte("again\n"))
	must(t, err)
	until(t, term, "")
	term.Close()

	var r api.Run
	await.That(t, "the run ends", func() bool {
		r, err = p.Run(t.Context(), id)
		must(t, err)
		return r.EndedAt != nil
	})
	if r.Status != api.RunFailed || r.ExitCode == nil || *r.ExitCode != 3 || len(r.Changes) != 1 ||
		len(r.Recordings) != 1 {
		t.Errorf("%+v", r)
	}
	var cast bytes.Buffer
	must(t, p.RunRecording(t.Context(), id, r.Recordings[0], &cast))
	var header struct{ Version, Width, Height int }
	first, rest, _ := strings.Cut(cast.String(), "\n")
	if err := json.Unmarshal([]byte(first), &header); err != nil || header.Version != 2 || header.Width != 70 ||
		header.Height != 20 {
		t.Errorf("%s: %v", first, err)
	}
	shown, sizes, last := "", "", 0.0
	for line := range strings.Lines(rest) {
		var event []any
		if err := json.Unmarshal([]byte(line), &event); err != nil || len(event) != 3 || event[0].(float64) < last {
			t.Fatalf("%s: %v", line, err)
		}
		switch last = event[0].(float64); event[1] {
		case "o":
			shown += event[2].(string)
		case "r":
			sizes += event[2].(string)
		}
	}
	if !strings.Contains(shown, "one ö") || !strings.Contains(shown, "two again") || !strings.Contains(sizes, "80x24") {
		t.Errorf("shown: %q, sizes: %q", shown, sizes)
	}

	// What somebody else runs in the sandbox is nobody's run.
	term, err = p.AttachTerminal(t.Context(), "mine",
		client.TerminalOptions{New: true, Args: []string{"sh", "-c", "echo private"}, Rows: 24, Columns: 80})
	must(t, err)
	until(t, term, "")
	term.Close()
	if list, err := p.Runs(t.Context(), client.RunQuery{Sandbox: made.ID}); err != nil || len(list.Runs) != 1 {
		t.Errorf("%+v, %v", list, err)
	}
	must(t, fails(p.DestroySandbox(t.Context(), "mine", false)))
	p.kill()
	reap(t, cfg)
}
