package driver

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cove-sandbox/cove/test/await"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
)

// worker installs a script in place of Cove's own worker.
func worker(t *testing.T, script string) Driver {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "cove-worker"), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	spec := api.Spec{Env: map[string]string{"MARK": "of the profile"}}
	d, err := Local(Config{Agent: "worker", New: api.SandboxRequest{Spec: spec}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// say prints messages as a worker does.
func say(lines ...string) string {
	var b strings.Builder
	for _, l := range lines {
		fmt.Fprintf(&b, "echo '%s'\n", l)
	}
	return b.String()
}

const (
	soFar    = `{"version":1,"type":"usage","usage":{"input_tokens":3,"output_tokens":1,"turns":1}}`
	thinking = `{"version":1,"type":"thinking","content":"hm"}`
	answer   = `{"version":1,"type":"result","content":"{\"n\": 3}"}`
	usage    = `{"version":1,"type":"usage","usage":{"input_tokens":5,"output_tokens":2,"turns":1}}`
)

func collect(ctx context.Context, d Driver, prompt string, o Options) (types []string, err error) {
	for m, e := range d.Run(ctx, prompt, o) {
		if e != nil {
			return types, e
		}
		types = append(types, m.Type)
	}
	return types, nil
}

func TestLocalRun(t *testing.T) {
	d := worker(t, `printf '{"version":1,"type":"thinking","content":"%s %s"}\n' "$MARK" "$(pwd)"`+"\n"+say(answer, usage))
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	var first string
	types := ""
	for m, err := range d.Run(t.Context(), "do it", Options{Directory: dir, Bind: true}) {
		if err != nil {
			t.Fatal(err)
		}
		if types += m.Type + " "; first == "" {
			first = m.Content
		}
	}
	if types != "thinking result usage " || first != "of the profile "+dir {
		t.Errorf("%s; %s", types, first)
	}
	if u := d.Usage(); u.InputTokens != 5 || u.Turns != 1 {
		t.Errorf("%+v", u)
	}
}

func TestLocalGenerate(t *testing.T) {
	d := worker(t, say(soFar, thinking, answer, usage)) // only the last usage counts
	for range 2 {
		r, err := d.Generate(t.Context(), "count", Options{
			Schema: []byte(`{"type":"object","properties":{"n":{"type":"integer"}}}`),
		})
		if err != nil || string(r.Data) != `{"n": 3}` || r.IsError || r.Usage.OutputTokens != 2 {
			t.Errorf("%+v, %v", r, err)
		}
	}
	if u := d.Usage(); u.InputTokens != 10 {
		t.Errorf("of both: %+v", u)
	}
	if _, err := d.Generate(t.Context(), "count", Options{
		Schema: []byte(`{"type":"object","properties":{"n":{"type":"string"}}}`),
	}); cove.ErrorCode(err) != cove.SchemaMismatch || !strings.Contains(err.Error(), "n") {
		t.Errorf("an answer that does not fit: %v", err)
	}
}

// TestLocalErrors is the contract of errors, as callers distinguish them.
func TestLocalErrors(t *testing.T) {
	for _, c := range []struct {
		name, script string
		prompt       string
		o            Options
		code         cove.Code
		want         string
	}{
		{"no prompt", "", " \n", Options{}, cove.InvalidArgument, "no prompt"},
		{"a schema that is none", "", "x", Options{Schema: []byte(`{"type":7}`)}, cove.InvalidArgument, ""},
		{"a copy, which there is not", "", "x", Options{Directory: "/tmp"}, cove.Unsupported, "no copy"},
		{"a line that is no message", say(thinking) + "echo 'Segmentation fault: " + strings.Repeat("x", 300) + "'\nsleep 60",
			"x", Options{}, cove.AgentProtocol, "Segmentation fault: xxx"},
		{"an exit code", "echo 'out of cheese' >&2\nexit 3", "x", Options{}, cove.AgentFailed, "out of cheese"},
		{"a signal", "kill -9 $$", "x", Options{}, cove.AgentFailed, "137"},
		{"an answer that does not fit", say(answer, usage), "x",
			Options{Schema: []byte(`{"properties":{"n":{"type":"string"}}}`)}, cove.SchemaMismatch, "$.n"},
		{"too long", say(thinking) + "sleep 60", "x", Options{Timeout: 300 * time.Millisecond}, cove.LimitReached, "300ms"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := worker(t, c.script)
			_, err := collect(t.Context(), d, c.prompt, c.o)
			if cove.ErrorCode(err) != c.code || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v", cove.ErrorCode(err), err)
			}
		})
	}
}

// TestLocalEnds: a caller that stops listening leaves no process behind.
func TestLocalEnds(t *testing.T) {
	mark := filepath.Join(t.TempDir(), "alive")
	script := say(thinking) + "trap 'rm " + mark + "; exit 130' INT\ntouch " + mark + "\necho '" + thinking +
		"'\nwhile :; do sleep 0.05; done"
	gone := func(t *testing.T) {
		t.Helper()
		if _, err := os.Stat(mark); err == nil {
			t.Error("the program was not asked to end")
		}
	}
	t.Run("breaking off", func(t *testing.T) {
		d := worker(t, script)
		n := 0
		for _, err := range d.Run(t.Context(), "x", Options{}) {
			if err != nil {
				t.Fatal(err)
			}
			if n++; n == 2 {
				break
			}
		}
		gone(t)
	})
	t.Run("the context", func(t *testing.T) {
		d := worker(t, script)
		ctx, cancel := context.WithCancel(t.Context())
		n := 0
		var last error
		for _, err := range d.Run(ctx, "x", Options{}) {
			if last = err; err == nil {
				if n++; n == 2 {
					cancel()
				}
			}
		}
		if cancel(); cove.ErrorCode(last) != cove.Canceled {
			t.Errorf("%v", last)
		}
		gone(t)
	})
	t.Run("closing", func(t *testing.T) {
		d := worker(t, script)
		began := make(chan struct{}, 2)
		ended := make(chan error)
		go func() {
			var last error
			for _, err := range d.Run(t.Context(), "x", Options{}) {
				if last = err; err == nil {
					began <- struct{}{}
				}
			}
			ended <- last
		}()
		<-began
		<-began
		d.Close()
		if err := <-ended; cove.ErrorCode(err) != cove.Canceled {
			t.Errorf("%v", err)
		}
		gone(t)
		if _, err := collect(t.Context(), d, "x", Options{}); cove.ErrorCode(err) != cove.Unavailable {
			t.Errorf("after it was closed: %v", err)
		}
	})
}

func TestLocalUnknown(t *testing.T) {
	if _, err := Local(Config{Agent: "nobody"}); cove.ErrorCode(err) != cove.NotFound {
		t.Errorf("%v", err)
	}
	t.Setenv("PATH", t.TempDir())
	if _, err := Local(Config{Agent: "claude"}); cove.ErrorCode(err) != cove.RuntimeMissing {
		t.Errorf("%v", err)
	}
}

// TestLocalProfile: a profile gives the defaults of a task.
func TestLocalProfile(t *testing.T) {
	d := worker(t, `printf '{"version":1,"type":"thinking","content":"%s %s"}\n' "$MARK" "$*"`+"\n"+say(answer, usage))
	d.(*local).config.profile = api.Profile{Model: "m1", MaxTurns: 3, Instructions: "be brief",
		Spec: api.Spec{Env: map[string]string{"MARK": "of both"}}}
	for _, c := range []struct {
		o    Options
		want []string
	}{
		{Options{}, []string{"of the profile", "--model m1", "--max-turns 3", "--instructions be brief"}},
		{Options{Model: "m2", MaxTurns: 5, Instructions: "be long"},
			[]string{"--model m2", "--max-turns 5", "--instructions be long"}},
	} {
		said := ""
		for m, err := range d.Run(t.Context(), "x", c.o) {
			if err != nil {
				t.Fatal(err)
			}
			if m.Type == api.MessageThinking {
				said = m.Content
			}
		}
		for _, want := range c.want {
			if !strings.Contains(said, want) {
				t.Errorf("%+v: %q does not have %q", c.o, said, want)
			}
		}
	}
}

// TestLocalInterrupt: an interrupted agent reports what it has, and the end of the context kills a stubborn one.
func TestLocalInterrupt(t *testing.T) {
	const loop = "while :; do sleep 0.05; done"
	for name, c := range map[string]struct {
		script string
		kill   bool
		want   string
	}{
		"it says what it has": {say(thinking) + "trap 'printf '\\''%s\\n%s\\n'\\'' '\\''" + answer + "'\\'' '\\''" + usage +
			"'\\''; exit 0' INT\n" + say(thinking) + loop, false, "thinking thinking result usage"},
		"it is stubborn": {"trap '' INT\n" + say(thinking, thinking) + loop, true, "thinking thinking usage"},
	} {
		t.Run(name, func(t *testing.T) {
			d := worker(t, c.script)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			interrupt := make(chan struct{})
			var types []string
			var last error
			for m, err := range d.Run(ctx, "x", Options{Interrupt: interrupt}) {
				if last = err; err != nil {
					break
				}
				if types = append(types, m.Type); len(types) == 2 {
					close(interrupt)
					if c.kill {
						time.AfterFunc(100*time.Millisecond, cancel)
					}
				}
			}
			if got := strings.Join(types, " "); got != c.want || cove.ErrorCode(last) != cove.Canceled {
				t.Errorf("%s; %v", got, last)
			}
		})
	}
}

// TestLocalLog: the program's standard error is passed on unchanged.
func TestLocalLog(t *testing.T) {
	d := worker(t, "echo noise >&2\n"+say(answer, usage))
	var log strings.Builder
	if _, err := d.Generate(t.Context(), "x", Options{Log: func(b []byte) {
		log.Write(b)
	}}); err != nil || log.String() != "noise\n" {
		t.Errorf("%q, %v", log.String(), err)
	}
}

// TestLocalLeavesNothing: an agent ends with its program, whatever that left behind.
func TestLocalLeavesNothing(t *testing.T) {
	left := filepath.Join(t.TempDir(), "pid")
	d := worker(t, "sleep 600 & echo $! > "+left+"\n"+say(answer, usage))
	if _, err := d.Generate(t.Context(), "x", Options{}); err != nil {
		t.Fatal(err)
	}
	pid, err := os.ReadFile(left)
	if err != nil {
		t.Fatal(err)
	}
	await.That(t, "the process that was left ends", func() bool { // when it is next scheduled
		state, err := os.ReadFile("/proc/" + strings.TrimSpace(string(pid)) + "/stat")
		return err != nil || strings.Contains(string(state), ") Z ")
	})
}
