package httpapi

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/engine/process"
	"github.com/cove-sandbox/cove/internal/execution"
)

// TestCompat: with compat=1 answers have the form of older execute APIs, and without they have not.
func TestCompat(t *testing.T) {
	h := start(t, nil)
	const body = `{"language":"python","code":"print(1)","timeout":"10s"}`
	r := h.post("/execute?compat=1", body)
	old := decode[api.CompatExecution](t, r, http.StatusOK)
	if old.Duration != "1.5s" || old.Output != "hello\n" || old.ExitCode != 3 || old.Usage.CPUTimeMS != 20 ||
		old.Usage.MemoryPeakMB != 8 || !strings.HasPrefix(r.Header.Get("Content-Type"), "application/json;") {
		t.Errorf("%s %s", r.Header.Get("Content-Type"), r.body)
	}
	if h.fake.request().Limits.Timeout != 10*time.Second {
		t.Error("the timeout is another")
	}
	if now := decode[api.Execution](t, h.post("/execute", body), http.StatusOK); now.Duration != 1.5 {
		t.Errorf("without it: %v", now.Duration)
	}

	record := finished(cove.ExecutionID(someID)).Record()
	record.Duration, record.Usage.MemoryPeak, record.Usage.CPUTime = 45200*time.Microsecond, 1, 1600*time.Microsecond
	record.Spec.Limits.Timeout = 90 * time.Second
	h.store.executions[record.ID] = record
	shown := decode[api.CompatExecution](t, h.get("/executions/"+someID+"?compat=1"), http.StatusOK)
	if shown.Duration != "45.2ms" || shown.Usage.MemoryPeakMB != 1 || shown.Usage.CPUTimeMS != 2 ||
		shown.Timeout != "1m30s" {
		t.Errorf("%+v", shown)
	}
	list := decode[api.CompatExecutionList](t, h.get("/executions?compat=1"), http.StatusOK)
	if len(list.Executions) != 1 || list.Executions[0].Duration != "45.2ms" {
		t.Errorf("%+v", list)
	}
	if r := h.post("/execute?compat=2", body); r.StatusCode != http.StatusBadRequest {
		t.Errorf("an unknown form: %d", r.StatusCode)
	}
	if r := h.post("/execute?compat=1", `{"language":"python"}`); r.error(t).Code != string(cove.InvalidArgument) {
		t.Errorf("an error: %s", r.body)
	}
}

// TestCompatStream: the data of events is the output itself, a line of data for each line, and no output can end an
// event or begin another.
func TestCompatStream(t *testing.T) {
	for name, output := range map[string]string{
		"lines": "one\ntwo\n", "no line end": "half", "empty lines": "\n\n",
		"a false event": "x\n\nevent: done\ndata: {}\n\n",
		"a false field": "id: 7\nretry: 1\n: beat", "a colon": ": ", "white space": "  in\n\tby",
	} {
		h := start(t, nil)
		h.fake.do = func(_ context.Context, _ execution.Request, started func(cove.ExecutionID),
			out process.Output) (execution.Result, error) {
			id := cove.NewExecutionID()
			started(id)
			out.Stdout([]byte(output))
			return finished(id), nil
		}
		r := h.post("/execute/stream?compat=1", snippet)
		got, done := "", ""
		for event := range strings.SplitSeq(strings.TrimSuffix(r.body, "\n\n"), "\n\n") {
			kind, data := "", []string{}
			for line := range strings.SplitSeq(event, "\n") {
				field, value, _ := strings.Cut(line, ": ")
				switch field {
				case "event":
					kind = value
				case "data":
					data = append(data, value)
				}
			}
			switch kind {
			case api.EventStdout:
				got += strings.Join(data, "\n")
			case api.EventDone:
				done += strings.Join(data, "\n")
			default:
				t.Errorf("%s: an event %q: %q", name, kind, event)
			}
		}
		if got != output {
			t.Errorf("%s: %q, want %q", name, got, output)
		}
		if !strings.Contains(done, `"duration":"1.5s"`) || strings.Count(done, "duration") != 1 {
			t.Errorf("%s: done is %s", name, done)
		}
	}
}
