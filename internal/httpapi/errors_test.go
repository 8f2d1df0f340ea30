package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/engine/process"
	"github.com/cove-sandbox/cove/internal/execution"
)

func TestEveryCodeHasAStatus(t *testing.T) {
	for _, c := range cove.Codes {
		if statuses[c] < 400 {
			t.Errorf("%s has no status", c)
		}
	}
	if len(statuses) != len(cove.Codes) {
		t.Errorf("%d statuses for %d codes", len(statuses), len(cove.Codes))
	}
}

// fails answers every execution with err.
func fails(err error) executeFunc {
	return func(context.Context, execution.Request, func(cove.ExecutionID), process.Output) (execution.Result, error) {
		return execution.Result{}, err
	}
}

func TestErrorsOfTheSandbox(t *testing.T) {
	h := start(t, nil)
	for _, c := range cove.Codes {
		if c == cove.Unauthenticated || c == cove.Conflict {
			continue // Execute does not return them
		}
		h.fake.do = fails(fmt.Errorf("run: %w", cove.Errorf(c, "what happened").WithHint("do this")))
		r := h.post("/execute", snippet)
		e := r.error(t)
		if r.StatusCode != statuses[c] || e.Code != string(c) {
			t.Errorf("%s: status %d, code %s", c, r.StatusCode, e.Code)
		}
		if general, hide := hidden[c]; hide {
			if !strings.Contains(e.Error, general) || strings.Contains(e.Error, "what happened") {
				t.Errorf("%s: %q", c, e.Error)
			}
		} else if e.Error != "what happened (do this)" || e.Hint != "do this" {
			t.Errorf("%s: %q, hint %q", c, e.Error, e.Hint)
		}
		if (r.Header.Get("Retry-After") != "") != (r.StatusCode == 429 || r.StatusCode == 503) {
			t.Errorf("%s: Retry-After %q", c, r.Header.Get("Retry-After"))
		}
	}
}

// TestErrorsHideTheServersInsides is probe A16: strangers see no paths and no
// causes; the owner does, and so does the log.
func TestErrorsHideTheServersInsides(t *testing.T) {
	h := start(t, nil)
	for _, err := range []error{
		errors.New("open /root/secret: permission denied"),
		cove.Errorf(cove.Corrupt, "the database /root/secret is damaged"),
		cove.Errorf(cove.StorageFull, "cannot write /root/secret"),
		cove.Errorf(cove.Unavailable, "dial unix /root/secret: refused"),
		cove.Errorf(cove.Internal, "at /root/secret: %w", errors.New("cause")),
	} {
		h.fake.do = fails(err)
		for _, path := range []string{"/execute", "/execute/stream"} {
			r := h.post(path, snippet)
			if strings.Contains(r.body, "secret") || strings.Contains(r.body, "cause") {
				t.Errorf("%s: %s", path, r.body)
			}
			if e := r.error(t); !strings.Contains(h.log.String(), e.RequestID) {
				t.Errorf("the log has no %s", e.RequestID)
			}
		}
		if r := h.do(h.owner, "POST", "/execute", snippet); cove.ErrorCode(err) != cove.Internal &&
			!strings.Contains(r.body, "secret") {
			t.Errorf("the owner sees %s", r.body)
		}
	}
	if !strings.Contains(h.log.String(), "/root/secret") {
		t.Error("the log does not have the cause")
	}
}

// TestErrorsThatPassAreNamed: a stranger who is told when to ask again is told what failed.
func TestErrorsThatPassAreNamed(t *testing.T) {
	h := start(t, nil)
	h.fake.do = fails(cove.Errorf(cove.Unavailable, "no sandbox could be started").WithRetry(2 * time.Second))
	for _, path := range []string{"/execute", "/execute/stream"} {
		r := h.post(path, snippet)
		if e := r.error(t); e.Error != "no sandbox could be started (try again in 2s)" || r.Header.Get("Retry-After") != "2" {
			t.Errorf("%s: %q, Retry-After %q", path, e.Error, r.Header.Get("Retry-After"))
		}
	}
}

func TestPanics(t *testing.T) {
	h := start(t, nil)
	h.fake.do = func(context.Context, execution.Request, func(cove.ExecutionID),
		process.Output) (execution.Result, error) {
		panic("a secret defect")
	}
	r := h.post("/execute", snippet)
	if e := r.error(t); r.StatusCode != 500 || e.Code != string(cove.Internal) || strings.Contains(r.body, "secret") {
		t.Errorf("status %d: %s", r.StatusCode, r.body)
	}
	if log := h.log.String(); !strings.Contains(log, "a secret defect") || !strings.Contains(log, "errors_test.go") {
		t.Error("the log has no stack")
	}
	h.fake.do = func(_ context.Context, _ execution.Request, started func(cove.ExecutionID),
		_ process.Output) (execution.Result, error) {
		started(cove.NewExecutionID())
		panic("half way")
	}
	resp := h.streamed(t.Context(), h.client, snippet)
	if _, err := io.ReadAll(resp.Body); err == nil {
		t.Error("a stream that broke off looks whole")
	}
	h.fake.do = nil
	decode[api.Execution](t, h.post("/execute", snippet), 200) // the server lives, and has its places back
	if n := h.s.Requests(); n != 0 {
		t.Errorf("%d places are still taken", n)
	}
}

// TestTheLogCannotBeForged: what callers choose is escaped (probe A14).
func TestTheLogCannotBeForged(t *testing.T) {
	h := start(t, nil)
	h.get("/%0a%7b%22msg%22%3a%22forged%22%7d%1b%5b31m" + strings.Repeat("x", 5000))
	for line := range strings.SplitSeq(strings.TrimSpace(h.log.String()), "\n") {
		var v map[string]any
		if err := json.Unmarshal([]byte(line), &v); err != nil || v["msg"] == "forged" || strings.Contains(line, "\x1b") ||
			len(line) > 2000 {
			t.Errorf("line %.300q (%v)", line, err)
		}
	}
}

// TestMessagesAreEscaped: a caller's key that a message repeats cannot reorder or end its line.
func TestMessagesAreEscaped(t *testing.T) {
	h := start(t, nil)
	for what, r := range map[string]reply{
		"a property":        h.do(h.client, "POST", "/execute", `{"language":"bash","code":"","a\u202eb\u2028":1}`),
		"a query parameter": h.do(h.client, "GET", "/executions?x%E2%80%AEb%0A=1", ""),
	} {
		e := r.error(t)
		if r.StatusCode/100 != 4 || strings.ContainsAny(e.Error, "\u202e\u2028\n") || !strings.Contains(e.Error, `\u202eb`) {
			t.Errorf("%s: %d %q", what, r.StatusCode, e.Error)
		}
	}
}
