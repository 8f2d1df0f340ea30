//go:build linux

package agents

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/driver"
	"github.com/cove-sandbox/cove/internal/agent"
)

var both = `
aside: A title
prompts:
  - when: mend it
    turns:
      - think: The tests will tell.
        say: I run the tests first.
        usage: {input: 1200, output: 60, cache_write: 9000}
        do:
          - shell: python3 -B -m unittest -q 2>&1 | grep FAILED; exit 3
      - say: One fails, so I look at the code.
        usage: {input: 300, output: 45, cache_read: 9000}
        do:
          - read: add.py
          - shell: cat draft.txt
      - usage: {input: 250, output: 90, cache_read: 9500}
        do:
          - edit: {path: add.py, old: "    return a - b\n", new: "    return a + b\n"}
      - usage: {input: 260, output: 80, cache_read: 9600}
        do:
          - write: {path: docs/NOTES.md, content: "# Notes\n\nadd() subtracted.\n"}
      - usage: {input: 260, output: 80, cache_read: 9600}
        do:
          - read: nowhere.py
      - say: The test passes now.
        usage: {input: 280, output: 20, cache_read: 9800}
  - when: go on
    turns:
      - usage: {input: 100, output: 10, cache_read: 9900}
        do:
          - shell: cat docs/NOTES.md
      - say: I went on.
        usage: {input: 110, output: 11, cache_read: 9950}
  - when: how many
    turns:
      - answer: {passed: 12}
        usage: {input: 10, output: 5}
      - say: I have answered.
        usage: {input: 10, output: 5}
  - when: in words
    turns:
      - say: There are twelve.
        usage: {input: 10, output: 5}
  - when: structured-output-enforce
    turns: [{say: I would rather not., usage: {input: 10, output: 5}}]
  - when: cannot be used
    turns: [{say: I would rather not., usage: {input: 10, output: 5}}]
  - when: that is wrong
    turns: [{say: Nobody reads this., fail: [` + strings.Repeat(`{status: 400, message: no such request}, `, 40) + `]}]
  - when: that is secret
    turns: [{say: Nobody reads this., fail: [` + strings.Repeat(`{status: 401, message: this key has ended}, `, 40) + `]}]
  - when: nobody is there
    turns: [{say: Nobody reads this., usage: {input: 10}, fail: [` + strings.Repeat(`{cut: true}, `, 40) + `]}]
  - when: it breaks off
    turns: [{say: Nobody reads this., usage: {input: 10}, fail: [` + strings.Repeat(`{cut: true, after: 2}, `, 40) + `]}]
  - when: be killed
    turns:
      - say: I end it all.
        usage: {input: 10, output: 5}
        do: [{shell: "kill -9 $PPID; sleep 20"}]
      - say: I live.
`

const passed = `{"type":"object","required":["passed"],"additionalProperties":false,"properties":{"passed":{"type":"integer","minimum":1}}}`

// drivers are a local driver and one of sandboxes, of one agent.
type drivers struct {
	of   []driver.Driver
	dirs []string // what each works on
	used []api.AgentUsage
	same *strings.Replacer
}

// local is a driver of an agent on this machine, installed as for a user: its
// program is on PATH, and its files are in a home. models is where it finds them.
func (l *lab) local(t *testing.T, name, models string, env map[string]string) driver.Driver {
	t.Helper()
	a, err := agent.Find(agent.Builtin(), name)
	if err != nil {
		t.Fatal(err)
	}
	home := "local-" + name
	files, err := a.Home(agent.Place{BaseURL: models + "/v1", Kind: "openai", Provider: "lab"})
	if err != nil {
		t.Fatal(err)
	}
	l.write(t, home+"/tmp/x", "") // Codex wants no home below TMPDIR
	at := filepath.Join(l.dir, home)
	tmp := filepath.Join(at, "tmp")
	for _, f := range files {
		l.write(t, filepath.Join(home, f.Path), strings.ReplaceAll(f.Content, `"/tmp/`, `"`+tmp+"/")) // a sandbox's is its own
	}
	t.Setenv("PATH", strings.Join(append(globbed(t, filepath.Join(l.dir, "home/agents", name, "*/bin")), l.bin, os.Getenv("PATH")), ":"))
	all := map[string]string{"HOME": at, "TMPDIR": tmp, "CLAUDE_CODE_TMPDIR": tmp, "IS_SANDBOX": "1", "ANTHROPIC_BASE_URL": models}
	maps.Copy(all, env)
	d, err := driver.Local(driver.Config{Agent: name, New: api.SandboxRequest{Spec: api.Spec{Env: all}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// drivers makes both.
func (l *lab) drivers(t *testing.T, name, host string) *drivers {
	t.Helper()
	endpoint := httptest.NewServer(l.models)
	t.Cleanup(endpoint.Close)
	few := map[string]string{"CLAUDE_CODE_MAX_RETRIES": "1"}
	env := maps.Clone(few)
	maps.Copy(env, map[string]string{"ANTHROPIC_API_KEY": key, "OPENAI_API_KEY": key, "NO_PROXY": "127.0.0.1"})
	if got := l.cove(t, l.dir, "list"); got.code != 0 { // which starts a server
		t.Fatalf("%+v", got)
	}
	c := l.client(t)
	sandboxed := driver.Sandboxed(c, driver.Config{Agent: name, New: api.SandboxRequest{Spec: api.Spec{Env: few}}})
	t.Cleanup(func() { sandboxed.Close(); c.Close() })
	return &drivers{
		of: []driver.Driver{l.local(t, name, endpoint.URL, env), sandboxed}, used: make([]api.AgentUsage, 2),
		dirs: []string{l.project(t, name+"-local"), l.project(t, name+"-sandboxed")},
		same: strings.NewReplacer(filepath.Join(l.dir, name+"-local"), cove.Workspace, "/bin/bash -lc", "/bin/sh -lc",
			endpoint.URL, "https://"+host, strings.TrimPrefix(endpoint.URL, "http://"), host),
	}
}

// told is what a driver has yielded for a task, and what names the conversation.
type told struct {
	messages []api.Message
	err      error
	resume   string
}

// run gives a task to both, at once; a conversation that goes on is each one's own.
func (d *drivers) run(t *testing.T, prompt string, o driver.Options, earlier ...told) []told {
	t.Helper()
	all := make([]told, len(d.of))
	var both sync.WaitGroup
	for i, one := range d.of {
		both.Go(func() {
			o, got := o, &all[i]
			o.Directory, o.Bind = d.dirs[i], i == 0
			o.Started = func(r api.Run) { got.resume = r.ID }
			if len(earlier) > 0 {
				o.Resume = earlier[i].resume
			}
			for m, err := range one.Run(t.Context(), prompt, o) {
				if got.err != nil {
					t.Errorf("something follows the error %v", got.err)
				}
				if got.err = err; err == nil {
					got.messages = append(got.messages, m)
				}
				if i == 0 {
					got.resume = cmp.Or(m.Session, got.resume)
				}
			}
			if n := len(got.messages); n > 0 && got.messages[n-1].Usage != nil {
				d.used[i] = d.used[i].Plus(*got.messages[n-1].Usage)
			}
		})
	}
	both.Wait()
	return all
}

// text is what drivers have to agree on: names of sessions, times and directories
// are each one's own, and so are its shell and the address of the model.
func (d *drivers) text(t *testing.T, got told) string {
	t.Helper()
	var b strings.Builder
	for _, m := range inOrder(t, got.messages) {
		if m.Time.IsZero() {
			t.Errorf("no time: %+v", m)
		}
		if m.Time = (time.Time{}); m.Session != "" {
			m.Session = "a session"
		}
		if m.Usage != nil {
			u := *m.Usage
			u.Duration = 0
			m.Usage = &u
		}
		line, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		b.Write(append(line, '\n'))
	}
	fmt.Fprintf(&b, "%s: %v\n", cove.ErrorCode(got.err), got.err)
	return d.same.Replace(b.String())
}

// outline is what is left of a text where models are not to be had, and each way has its own words for that.
func outline(got told) string {
	var types []string
	for _, m := range got.messages {
		types = append(types, fmt.Sprint(m.Type, m.IsError))
	}
	return fmt.Sprint(types, cove.ErrorCode(got.err))
}

// inOrder puts each tool's answer behind its call: of what is called at once, either may be ready first.
func inOrder(t *testing.T, all []api.Message) []api.Message {
	t.Helper()
	var ordered []api.Message
	for _, m := range all {
		at := len(ordered)
		if m.Type == api.MessageToolResult {
			if at = 1 + slices.IndexFunc(ordered, func(c api.Message) bool { return c.Type == api.MessageToolCall && c.Call == m.Call }); at == 0 {
				t.Errorf("an answer before its call: %+v", m)
			}
		}
		ordered = slices.Insert(ordered, at, m)
	}
	return ordered
}

// TestDrivers: an agent says, does and uses the same on this machine as it is and
// in a sandbox, and what goes wrong is the same error.
func TestDrivers(t *testing.T) {
	l := newLab(t, both)
	for _, a := range agents {
		t.Run(a.name, func(t *testing.T) {
			d := l.drivers(t, a.name, a.host)
			var mended []told
			for _, c := range []struct {
				prompt string
				schema string
				code   map[string]cove.Code // by the agent; of the others, under ""
				words  bool                 // each way has its own
				slow   string               // agents that try again for too long to wait for them
			}{
				{prompt: "mend it"},
				{prompt: "go on"}, // with that
				{prompt: "how many", schema: passed},
				{prompt: "in words", schema: passed, code: map[string]cove.Code{"": cove.SchemaMismatch}},
				{prompt: " \n", code: map[string]cove.Code{"": cove.InvalidArgument}},
				{prompt: "nothing", schema: `{"type":7}`, code: map[string]cove.Code{"": cove.InvalidArgument}},
				{prompt: "that is wrong", code: map[string]cove.Code{"worker": cove.ModelUnreachable}},
				{prompt: "that is secret", code: map[string]cove.Code{"": cove.ModelUnreachable}},
				{prompt: "nobody is there", code: map[string]cove.Code{"": cove.ModelUnreachable}, words: true, slow: "codex worker"},
				{prompt: "it breaks off", code: map[string]cove.Code{"": cove.ModelUnreachable}, words: true, slow: "worker"},
				{prompt: "be killed", code: map[string]cove.Code{"": cove.AgentFailed}},
			} {
				if strings.Contains(c.slow, a.name) {
					continue
				}
				t.Run(strings.ReplaceAll(c.prompt, " ", "_"), func(t *testing.T) {
					l.models.Forget()
					var o driver.Options
					if c.schema != "" {
						o.Schema = []byte(c.schema)
					}
					got := d.run(t, c.prompt, o, mended...)
					texts := []string{d.text(t, got[0]), d.text(t, got[1])}
					if c.words {
						texts = []string{outline(got[0]), outline(got[1])}
					}
					if texts[0] != texts[1] {
						t.Errorf("on this machine\n%s\nand in a sandbox\n%s", texts[0], texts[1])
					}
					code, ok := c.code[a.name]
					if !ok {
						code = c.code[""]
					}
					if cove.ErrorCode(got[0].err) != code {
						t.Errorf("%v, want %q", got[0].err, code)
					}
					if len(mended) > 0 {
						l.remembered(t, "mend it", "The test passes now.")
					}
					if mended = nil; c.prompt == "mend it" {
						mended = got
					}
				})
			}
			for i, one := range d.of {
				if one.Usage() != d.used[i] || d.used[i].InputTokens < 2000 {
					t.Errorf("all used %+v, and it says %+v", d.used[i], one.Usage())
				}
			}
		})
	}
}

// remembered: whoever asked the model had what was said before with it.
func (l *lab) remembered(t *testing.T, said ...string) {
	t.Helper()
	asked := 0
	for _, r := range l.models.Requests() {
		if r.Turn == 0 {
			continue
		}
		asked++
		for _, s := range said {
			if !strings.Contains(r.Body, s) {
				t.Errorf("the model is not told what was said before, %q: %.2000s", s, r.Body)
			}
		}
	}
	if asked == 0 {
		t.Error("no model was asked")
	}
}
