package httpapi

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/egress/model"
	"github.com/cove-sandbox/cove/internal/store"
	"github.com/cove-sandbox/cove/test/await"
)

// TestAgentsAreExecuted: the execution of an agent is one like every other: it has an id, is listed, shown, followed,
// counted and killed, and nothing of its sandbox is left after it.
func TestAgentsAreExecuted(t *testing.T) {
	e := newEstate(t)
	e.changes = []store.FileChange{{Path: "made", Change: "added"}} // for which a run's own sandbox would stay
	execute := func(body string) api.Execution {
		code, text := e.ask(t, keeper, "POST", "/execute", body)
		return decode[api.Execution](t, reply{&http.Response{StatusCode: code}, text}, http.StatusOK)
	}
	gone := func(after string) {
		t.Helper()
		if all := get[api.SandboxList](t, e, machine, "/sandboxes").Sandboxes; len(all) > 0 {
			t.Errorf("after %s there are %d sandboxes", after, len(all))
		}
	}

	done := execute(`{"language":"claude","code":"mend it","labels":{"task":"7"}}`)
	if done.Status != api.StatusCompleted || done.ExitCode != 0 || done.Engine != "fake" ||
		!strings.Contains(done.Output, `"content":"mend it"`) || done.Timeout != 1800 {
		t.Errorf("%+v", done)
	}
	gone("its end")
	shown := get[api.Execution](t, e, keeper, "/executions/"+done.ID)
	if shown.Output != done.Output || shown.Status != done.Status || shown.Labels["task"] != "7" {
		t.Errorf("it is shown as %+v", shown)
	}
	for _, query := range []string{"", "?language=claude", "?status=completed", "?label=task%3D7"} {
		if all := get[api.ExecutionList](t, e, keeper, "/executions"+query).Executions; len(all) != 1 ||
			all[0].ID != done.ID {
			t.Errorf("%q lists %+v", query, all)
		}
	}
	if all := get[api.ExecutionList](t, e, stranger, "/executions").Executions; len(all) > 0 {
		t.Errorf("another caller sees %+v", all)
	}
	run := get[api.Run](t, e, keeper, "/runs/"+strings.Replace(done.ID, "ex_", "ru_", 1))
	if run.Prompt != "mend it" || run.Status != api.RunSucceeded {
		t.Errorf("its run is %+v", run)
	}

	late := execute(`{"language":"claude","code":"wait","timeout":"300ms"}`)
	if late.Status != api.StatusTimeout || late.ExitCode != -1 || late.LimitHit != string(cove.LimitTimeout) {
		t.Errorf("out of time: %+v", late)
	}
	gone("its time")

	for _, way := range []string{"/execute", "/execute/stream"} {
		var asking sync.WaitGroup
		asking.Go(func() {
			code, text := e.ask(t, keeper, "POST", way, `{"language":"claude","code":"wait"}`)
			if code != http.StatusOK || !strings.Contains(text, `"status":"killed"`) {
				t.Errorf("%s: %d %s", way, code, text)
			}
		})
		var id string
		await.That(t, "an agent runs", func() bool {
			for id = range e.running(t) {
			}
			return id != "" && len(get[api.RunList](t, e, keeper, "/runs?status=running").Runs) > 0
		})
		if code, text := e.ask(t, keeper, "GET", "/executions/"+id+"/stream", ""); code != http.StatusOK {
			t.Errorf("follow: %d %s", code, text)
		}
		if code, text := e.ask(t, stranger, "DELETE", "/executions/"+id, ""); code != http.StatusNotFound {
			t.Errorf("another caller: %d %s", code, text)
		}
		code, text := e.ask(t, keeper, "DELETE", "/executions/"+id, "")
		killed := decode[api.Execution](t, reply{&http.Response{StatusCode: code}, text}, http.StatusOK)
		if killed.Status != api.StatusKilled || killed.ExitCode != -1 {
			t.Errorf("killed: %+v", killed)
		}
		asking.Wait()
		gone("its death")
	}

	if code, text := e.ask(t, machine, "GET", "/metrics", ""); code != http.StatusOK ||
		!strings.Contains(text, `sandbox_executions_total{engine="fake",language="claude",status="completed"} 1`) ||
		!strings.Contains(text, `sandbox_executions_total{engine="fake",language="claude",status="killed"} 2`) ||
		!strings.Contains(text, `sandbox_executions_total{engine="fake",language="claude",status="timeout"} 1`) {
		t.Errorf("metrics: %d %s", code, text)
	}
}

// TestAgentOfACallerThatLeaves: it ends, and its sandbox with it.
func TestAgentOfACallerThatLeaves(t *testing.T) {
	e := newEstate(t)
	e.changes = []store.FileChange{{Path: "made", Change: "added"}}
	for _, way := range []string{"/execute", "/execute/stream"} {
		leave, answered := e.leaving(t, keeper, "POST", way, `{"language":"claude","code":"wait"}`)
		var id string
		await.That(t, "an agent runs", func() bool {
			for id = range e.running(t) {
			}
			return id != "" && len(get[api.RunList](t, e, keeper, "/runs?status=running").Runs) > 0
		})
		leave()
		<-answered
		if x := get[api.Execution](t, e, keeper, "/executions/"+id); x.Status != api.StatusKilled || x.ExitCode != -1 {
			t.Errorf("%s: %+v", way, x)
		}
		if all := get[api.SandboxList](t, e, machine, "/sandboxes").Sandboxes; len(all) > 0 {
			t.Errorf("%s: %d sandboxes are left", way, len(all))
		}
	}
}

// TestAgentsWithoutModels: an agent that needs the models of the machine's owner is refused at once to other callers,
// unless what they ask for lets it reach some, or their key has a budget for models and some of it left.
func TestAgentsWithoutModels(t *testing.T) {
	e := newEstate(t)
	asks := map[string]string{"/execute": `{"language":"%s","code":"mend it","permissions":{"network":%s}}`,
		"/runs": `{"agent":"%s","prompt":"mend it","new":{"network":%s}}`, "/sandboxes": `{"agent":"%s","network":%s}`}
	asks["/execute/stream"], asks["/runs/check"] = asks["/execute"], asks["/runs"]
	for way, body := range asks {
		for name, c := range map[string]struct {
			who, agent, network string
			refused             bool
		}{
			"a key":                                {keeper, "keyed", "null", true},
			"without a network":                    {keeper, "keyed", `{"enabled":false}`, true},
			"with a network":                       {keeper, "keyed", `{"enabled":true,"allow":["models.test"]}`, false},
			"the machine's owner":                  {machine, "keyed", "null", false},
			"without need of them":                 {keeper, "claude", "null", false},
			"a key that has a budget":              {rich, "keyed", "null", false},
			"with a budget, and without a network": {rich, "keyed", `{"enabled":false}`, true},
		} {
			code, text := e.ask(t, c.who, "POST", way, fmt.Sprintf(body, c.agent, c.network))
			if refused := code == http.StatusForbidden && strings.Contains(text, "Keyed has no models here") &&
				strings.Contains(text, "as the owner"); refused != c.refused {
				t.Errorf("%s, %s: %d %s", way, name, code, text)
			}
		}
	}
	all := get[api.SandboxList](t, e, rich, "/sandboxes").Sandboxes
	if len(all) == 0 {
		t.Fatal("the key with a budget has made no sandbox")
	}
	if code, text := e.ask(t, rich, "GET", "/sandboxes/"+all[0].ID+"/network", ""); code != 200 ||
		!strings.Contains(text, `"providers":["anthropic"]`) {
		t.Errorf("its sandbox reaches %d %s", code, text)
	}
	if err := e.store.UseModels(t.Context(), "key:rich", model.ProviderUsage{Provider: "anthropic",
		Usage: model.Usage{Requests: 5}}); err != nil {
		t.Fatal(err)
	}
	for way, body := range asks {
		if code, text := e.ask(t, rich, "POST", way, fmt.Sprintf(body, "keyed", "null")); code != 429 ||
			!strings.Contains(text, "5 of 5 requests") {
			t.Errorf("%s, with nothing left: %d %s", way, code, text)
		}
	}
}
