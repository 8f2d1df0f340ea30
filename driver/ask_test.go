package driver

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/test/modeltest"
)

// TestAsk: both drivers ask a model alone, with the same results, usage and errors.
func TestAsk(t *testing.T) {
	script, err := modeltest.Parse("script", []byte(`prompts:
  - {when: colour, turns: [{say: blue}]}
  - {when: figures, turns: [{say: none}]}
  - {when: cannot be used, turns: [{say: none}]}
`))
	if err != nil {
		t.Fatal(err)
	}
	models := httptest.NewServer(modeltest.New(modeltest.Options{Script: script}))
	t.Cleanup(models.Close)
	t.Setenv("ANTHROPIC_BASE_URL", models.URL)
	t.Setenv("ANTHROPIC_API_KEY", "k")
	const done = `{"id":"ex_1","status":"%s","text":"%s","provider":"p","usage":{"input_tokens":5},` +
		`"timeout":1%s}`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		if r.ContentLength > 60 { // with a schema
			fmt.Fprint(w, event("done", fmt.Sprintf(done, "failed", "none",
				`,"error":{"error":"it does not fit","code":"schema_mismatch","request_id":"r"}`)))
			return
		}
		fmt.Fprint(w, event("stdout", `{"data":"blue"}`)+event("done", fmt.Sprintf(done, "succeeded", "blue", "")))
	}))
	t.Cleanup(server.Close)
	c, err := client.New(client.Options{Address: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	for name, d := range map[string]Driver{"local": worker(t, ""), "sandboxed": Sandboxed(c, Config{})} {
		said := ""
		r, err := d.Ask(t.Context(), "which colour?", AskOptions{Text: func(s string) { said += s }})
		if err != nil || r.Text != "blue" || said != "blue" || r.Usage.InputTokens == 0 || r.IsError {
			t.Errorf("%s: %+v, %v, said %q", name, r, err, said)
		}
		if d.Usage().InputTokens != r.Usage.InputTokens {
			t.Errorf("%s: %+v", name, d.Usage())
		}
		r, err = d.Ask(t.Context(), "the figures", AskOptions{Schema: []byte(`{"type":"object"}`)})
		if cove.ErrorCode(err) != cove.SchemaMismatch || r.Text != "none" {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
		if _, err := d.Ask(t.Context(), " ", AskOptions{}); cove.ErrorCode(err) != cove.InvalidArgument {
			t.Errorf("%s: no prompt: %v", name, err)
		}
	}
	local := worker(t, "")
	if _, err := local.Ask(t.Context(), "x", AskOptions{Budget: &api.ModelBudget{Requests: 1}}); cove.ErrorCode(err) !=
		cove.Unsupported {
		t.Error(err)
	}
	t.Setenv("ANTHROPIC_BASE_URL", "")
	for _, name := range []string{"ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"} {
		t.Setenv(name, "")
	}
	if _, err := local.Ask(t.Context(), "x", AskOptions{}); cove.ErrorCode(err) != cove.Unavailable {
		t.Errorf("without a key: %v", err)
	}
}
