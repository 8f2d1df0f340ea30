package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/engine/process"
	"github.com/cove-sandbox/cove/internal/execution"
	"github.com/cove-sandbox/cove/internal/spool"
)

// FuzzWholeExecution: an execution whose output is written from where it lies is the same JSON as one that has it.
func FuzzWholeExecution(f *testing.F) {
	f.Add([]byte("hello\n"), []byte("oops\n"), "python", uint16(1), false)
	f.Add([]byte("a\xff\xffb\x00\x1b[2J\u2028<&>\"\\"), []byte(`"output":"","stderr":""`), `"output":"","stderr":""`,
		uint16(20_000), true)
	f.Add([]byte("\xe2\x82"), []byte("\xac"), "", uint16(9_999), false)
	f.Fuzz(func(t *testing.T, stdout, stderr []byte, language string, times uint16, compat bool) {
		if len(stdout)+len(stderr) > 100 {
			t.Skip("it would take long")
		}
		stdout, stderr = bytes.Repeat(stdout, int(times)), bytes.Repeat(stderr, int(times%7))
		e := api.Execution{ID: "ex_1", Language: language, Labels: map[string]string{"output": language}, Error: language}
		form := func(e api.Execution) any {
			if compat {
				return compatOf(e)
			}
			return e
		}
		output := spool.Text(string(stdout), string(stderr))
		var got, want bytes.Buffer
		if err := strictJSON.Marshal(&got, withOutput{form(e), output}); err != nil {
			t.Fatal(err)
		}
		e.Output, e.Stderr = strings.ToValidUTF8(string(stdout), "\uFFFD"), strings.ToValidUTF8(string(stderr), "\uFFFD")
		if err := strictJSON.Marshal(&want, form(e)); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got.Bytes(), want.Bytes()) {
			t.Fatalf("%.200q, want %.200q", got.String(), want.String())
		}
	})
}

// TestWholeAnswers: every route that answers with output has all of it, and lets go of it after the answer; an answer
// that breaks off is an error.
func TestWholeAnswers(t *testing.T) {
	kept := spool.New(spool.Options{Dir: t.TempDir(), Disk: 1 << 30})
	h := start(t, nil)
	text := strings.Repeat("\"é\"\n", 300_000)
	h.fake.do = func(_ context.Context, _ execution.Request, started func(cove.ExecutionID),
		_ process.Output) (execution.Result, error) {
		r := finished(someAgent)
		started(r.ID)
		made := kept.New(cove.MachineOwner(), 1<<30, 1<<30)
		made.Stdout().Write([]byte(text))
		made.Stderr().Write([]byte("oops"))
		r.Output = made
		return r, nil
	}
	for _, path := range []string{"/execute", "/execute?compat=1", "/execute/stream"} {
		r := h.post(path, snippet)
		if path != "/execute/stream" {
			var e api.CompatExecution
			json.Unmarshal([]byte(r.body), &e.Execution)
			if e.Output != text || e.Stderr != "oops" {
				t.Errorf("%s: %d and %d bytes", path, len(e.Output), len(e.Stderr))
			}
		}
		if memory, disk := kept.Used(); r.StatusCode != http.StatusOK || memory != 0 || disk != 0 {
			t.Errorf("%s: %d; %d bytes of memory and %d of disk are taken after the answer", path, r.StatusCode, memory, disk)
		}
	}
	var b bytes.Buffer
	o := spool.Text("hello", "")
	if err := (withOutput{api.Execution{}, o}).writeJSON(failing{&b}); !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("a caller that has gone: %v", err)
	}
	if err := (withOutput{api.Error{}, o}).writeJSON(&b); err == nil {
		t.Error("an error has output")
	}
}

// failing is a writer that takes the first write only.
type failing struct{ b *bytes.Buffer }

func (f failing) Write(p []byte) (int, error) {
	if f.b.Len() > 0 {
		return 0, io.ErrShortWrite
	}
	return f.b.Write(p)
}
