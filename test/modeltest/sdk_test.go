package modeltest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// programs finds the clients of this run, or builds them.
func programs(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("COVE_TEST_BIN")
	if dir == "" {
		dir = t.TempDir()
		cmd := exec.CommandContext(t.Context(), "go", "build", "-C", "../../test/clients", "-o", dir+"/", ".")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	return filepath.Join(dir, "clients")
}

// TestSDKs: the providers' own clients understand every answer: several turns with tools, as streams and not, and
// errors that they try again after. Gemini's is understood by Gemini CLI (test/agents).
func TestSDKs(t *testing.T) {
	if testing.Short() {
		t.Skip("runs programs of other languages for seconds; make test runs it")
	}
	clients := programs(t)
	s, url := start(t, `
prompts:
  - when: work
    turns:
      - think: Hm, let me see.
        say: I look at what is here, with words like "größer".
        usage: {input: 10, output: 20, cache_read: 30, cache_write: 40}
        do:
          - shell: echo "hello" && ls
          - shell: pwd
      - usage: {input: 1, output: 2}
        fail: [{status: 429}, {status: 500}]
        do:
          - shell: date
      - say: It is done.
        usage: {input: 1, output: 3}
  - when: busy
    turns:
      - say: never
        fail:
          - {status: 529, message: too busy, retry_after: 1}
          - {status: 529, message: too busy}
          - {status: 529, message: too busy}
  - when: broken
    turns:
      - say: It is a long answer, which does not come to its end.
        fail: [{cut: true, after: 5}, {cut: true, after: 5}, {cut: true, after: 5}]
`, "key")
	run := func(args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), clients, args...)
		cmd.Env = []string{"ANTHROPIC_BASE_URL=" + url, "OPENAI_BASE_URL=" + url + "/v1", "ANTHROPIC_API_KEY=key",
			"OPENAI_API_KEY=key", "HOME=" + t.TempDir()}
		var stderr strings.Builder
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			err = fmt.Errorf("%w: %s", err, stderr.String())
		}
		return string(out), err
	}
	finish := map[string][]string{"messages": {"tool_use", "tool_use", "end_turn"},
		"chat": {"tool_calls", "tool_calls", "stop"}, "responses": {"completed", "completed", "completed"}}
	for api, f := range finish {
		for _, how := range []string{"whole", "stream"} {
			t.Run(api+"/"+how, func(t *testing.T) {
				t.Parallel()
				got, err := run("agent", api, how, "work, "+how)
				if err != nil {
					t.Fatalf("%v\n%s", err, got)
				}
				want := "thinks Hm, let me see.\nsays I look at what is here, with words like \"größer\".\ncalls bash " +
					"{\"command\":\"echo \\\"hello\\\" && ls\"}\ncalls bash {\"command\":\"pwd\"}\ntokens true 20 " + f[0] +
					"\ncalls bash {\"command\":\"date\"}\ntokens true 2 " + f[1] + "\nsays It is done.\ntokens true 3 " + f[2] + "\n"
				if api == "chat" { // whose SDK has no word for it
					_, want, _ = strings.Cut(want, "\n")
				}
				if got != want {
					t.Errorf("%s\nwant\n%s", got, want)
				}
				if got, err := run("agent", api, how, "busy, "+how); err == nil || !strings.Contains(got, "error 529 ") ||
					api == "messages" && !strings.Contains(got, "overloaded_error") || api != "messages" &&
					!strings.Contains(got, "too busy") {
					t.Errorf("busy: %q %v", got, err)
				}
				if got, err := run("agent", api, how, "broken, "+how); err == nil || strings.Contains(got, "tokens") {
					t.Errorf("broken: %q %v", got, err)
				}
			})
		}
	}
	got, err := run("list")
	if err != nil || got != "tokens true\nmodels scripted scripted\n" {
		t.Errorf("%q %v", got, err)
	}
	for _, r := range s.Requests() {
		if r.Problem != "" {
			t.Errorf("%+v", r)
		}
	}
}
