package httpapi

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/engine/process"
	"github.com/cove-sandbox/cove/internal/execution"
	"github.com/cove-sandbox/cove/internal/generate"
	"github.com/cove-sandbox/cove/internal/model"
)

// fakeGenerator answers with the prompt, or fails as the prompt says.
type fakeGenerator struct{ asked []generate.Request }

func (f *fakeGenerator) Generate(_ context.Context, _ cove.Principal, q generate.Request,
	started func(cove.ExecutionID), out process.Output) (generate.Result, error) {
	f.asked = append(f.asked, q)
	if q.Prompt == "keyless" {
		return generate.Result{}, cove.Errorf(cove.Unavailable, "there is no key").WithHint("export one")
	}
	id := cove.NewExecutionID()
	started(id)
	if out != nil {
		out.Stdout([]byte(q.Prompt))
	}
	r := generate.Result{Provider: "anthropic", Execution: execution.Result{ID: id},
		Generated: model.Generated{Text: q.Prompt, Model: "m", Data: q.Schema}}
	switch q.Prompt {
	case "refuse":
		r.Err = cove.Errorf(cove.AgentFailed, "the model refuses to answer")
	case "misfit":
		r.Err = cove.Errorf(cove.SchemaMismatch, "it does not fit")
	case "late":
		r.Execution.Limit, r.Err = cove.LimitTimeout, cove.Errorf(cove.LimitReached, "there was no answer")
	case "kill":
		r.Execution.Killed, r.Err = true, cove.Errorf(cove.Canceled, "it was given up")
	case "away":
		r.Err = cove.Errorf(cove.ModelUnreachable, "anthropic answers 502")
	}
	return r, nil
}

// TestGenerate: an answer, or what became of it, as JSON and as events; what cannot be asked has a status.
func TestGenerate(t *testing.T) {
	f := &fakeGenerator{}
	h := start(t, func(o *Options) {
		o.Generator = f
		o.Profiles = func() ([]api.Profile, error) {
			return []api.Profile{{Name: "careful", Provider: "anthropic", Model: "small", Instructions: "be brief",
				Network: &api.ProfileNetwork{Budget: &api.ModelBudget{Requests: 2}}}}, nil
		}
	})
	for _, c := range []struct {
		prompt, status, code string
		http                 int
	}{
		{"hello", api.RunSucceeded, "", 200}, {"refuse", api.RunFailed, "agent_failed", 200},
		{"misfit", api.RunFailed, "schema_mismatch", 200}, {"late", api.RunLimit, "limit_reached", 200},
		{"kill", api.RunInterrupted, "canceled", 200}, {"away", "", "model_unreachable", 502},
		{"keyless", "", "unavailable", 503},
	} {
		body := `{"prompt":"` + c.prompt + `","profile":"careful","files":[{"path":"a","content":"A"}],"max_tokens":5}`
		got := h.do(h.owner, "POST", "/generate", body)
		resp, text := got.Response, got.body
		var g api.Generated
		var e api.Error
		json.Unmarshal([]byte(text), &g)
		json.Unmarshal([]byte(text), &e)
		if g.Status != "" && g.Error != nil {
			e = *g.Error
		}
		if resp.StatusCode != c.http || g.Status != c.status || e.Code != c.code && c.code != "" ||
			c.status == api.RunSucceeded && (g.Text != c.prompt || g.Error != nil) {
			t.Errorf("%s: %d %s", c.prompt, resp.StatusCode, text)
		}
		got = h.do(h.owner, "POST", "/generate", strings.Replace(body, "{", `{"stream":true,`, 1))
		resp, text = got.Response, got.body
		last := "event: done"
		if c.status == "" {
			last = "event: error"
		}
		switch {
		case c.prompt == "keyless":
			if resp.StatusCode != http.StatusServiceUnavailable {
				t.Errorf("%s: %d %s", c.prompt, resp.StatusCode, text)
			}
		case resp.StatusCode != 200 || resp.Header.Get(api.ExecutionIDHeader) == "" || !strings.Contains(text, last) ||
			!strings.Contains(text, `event: stdout`+"\n"+`data: {"data":"`+c.prompt+`"}`):
			t.Errorf("%s, streamed: %d %s", c.prompt, resp.StatusCode, text)
		}
	}
	q := f.asked[0]
	if q.Provider != "anthropic" || q.Model != "small" || q.Instructions != "be brief" || q.Budget.Requests != 2 ||
		len(q.Files) != 1 || q.Files[0].Text != "A" || q.MaxOutput != 5 {
		t.Errorf("of the profile: %+v", q)
	}
	for _, body := range []string{`{}`, `{"prompt":"x","max_tokens":0}`, `{"prompt":"x","profile":"nobody"}`} {
		if got := h.do(h.owner, "POST", "/generate", body); got.StatusCode/100 != 4 {
			t.Errorf("%s: %d %s", body, got.StatusCode, got.body)
		}
	}
	if got := h.post("/generate", `{"prompt":"x"}`); got.StatusCode != http.StatusForbidden {
		t.Errorf("another caller: %d %s", got.StatusCode, got.body)
	}
}
