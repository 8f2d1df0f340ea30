package run_test

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cove-sandbox/cove/test/await"

	"go.uber.org/goleak"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/agent"
	"github.com/cove-sandbox/cove/internal/egress/decision"
	"github.com/cove-sandbox/cove/internal/run"
	"github.com/cove-sandbox/cove/internal/sandbox"
	"github.com/cove-sandbox/cove/internal/store"
	"github.com/cove-sandbox/cove/internal/workspace"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRun(t *testing.T) {
	l := newLab(t)
	s := l.serve(t)
	q := ask("think about it", "log loading", "env ROBOT", "answer 42")
	q.Task.Model, q.Task.Instructions = "big", "be brief"
	r := s.begin(t, q)
	if r.Status != store.RunRunning || r.Agent != "robot" || r.Version != "1.2.3" || r.Model != "big" ||
		r.SandboxName == "" || r.CreatedBy != "local" {
		t.Errorf("begun is %+v", r)
	}
	ended, text := s.follow(t, string(r.ID))
	for _, want := range []string{" tool_result be brief", " thinking about it", " log loading", " thinking yes",
		" result 42", " usage "} {
		if !strings.Contains(text, want) {
			t.Errorf("nobody hears %q, but\n%s", want, text)
		}
	}
	if ended.Status != store.RunSucceeded || ended.Result != "42" || *ended.ExitCode != 0 ||
		ended.Usage.InputTokens != 10 || ended.Session != "s1" || ended.EndedAt == nil || ended.Error != nil {
		t.Errorf("ended %+v", ended)
	}
	s.wantSandboxes(t, 0) // nothing has changed in it
	if files, _ := filepath.Glob(filepath.Join(l.dir, "runs", string(r.ID), "*")); len(files) != 1 {
		t.Errorf("files of the run: %v", files)
	}
	// Whoever comes later hears the same.
	if again, same := s.follow(t, string(r.ID)); same != text || again.Result != "42" {
		t.Errorf("later, one hears\n%s", same)
	}
	var h heard
	if _, err := s.Follow(t.Context(), owner, string(r.ID), 4, func(store.Run) error { return nil }, h.take); err != nil ||
		len(h.lines) != len(strings.Split(text, "\n"))-4 || !strings.HasPrefix(h.lines[0], "5 ") {
		t.Errorf("after the fourth, one hears\n%s, %v", h.text(), err)
	}
}

// TestRunLeavesItsWork: a sandbox stays when there is something in it, or when it is to be kept.
func TestRunLeavesItsWork(t *testing.T) {
	l := newLab(t)
	s := l.serve(t)
	l.work.set(store.FileChange{Path: "a", Change: "added", Added: 1})
	r, _ := s.follow(t, string(s.begin(t, ask("answer done")).ID))
	if len(r.Changes) != 1 || r.Changes[0].Path != "a" {
		t.Errorf("changed is %+v", r.Changes)
	}
	there := s.wantSandboxes(t, 1)
	if string(there[0].ID) != r.Sandbox || there[0].Spec.Labels[run.RunLabel] != string(r.ID) ||
		there[0].Spec.Agent != "robot" || there[0].Spec.Limits.Memory != 2<<30 || there[0].Spec.Limits.CPUs != 2 ||
		there[0].Spec.Limits.PIDs != 512 {
		t.Errorf("its sandbox is %+v", there[0])
	}
	l.work.set()
	q := ask("answer done")
	q.Keep = true
	s.follow(t, string(s.begin(t, q).ID))
	s.wantSandboxes(t, 2)
	for name, c := range map[string]struct {
		aside   bool
		unknown error
		stay    int
	}{
		"its work is on another branch":    {aside: true, stay: 3},
		"what it holds cannot be found":    {unknown: cove.Errorf(cove.StorageFull, "no room"), stay: 3},
		"it works in no repository":        {unknown: cove.Errorf(cove.InvalidArgument, "no repository"), stay: 2},
		"there is nothing on any branch":   {stay: 2},
		"with the run, whatever it has":    {aside: true, stay: -2},
		"with the run, although not known": {unknown: cove.Errorf(cove.Conflict, "broken"), stay: -2},
	} {
		l.work.mu.Lock()
		l.work.aside, l.work.unknown = c.aside, c.unknown
		l.work.mu.Unlock()
		q := ask("answer done")
		q.Ends = c.stay < 0
		r, _ := s.follow(t, string(s.begin(t, q).ID))
		t.Log(name)
		if s.wantSandboxes(t, max(c.stay, -c.stay)); c.stay > 2 {
			if _, err := s.sandboxes.Destroy(t.Context(), owner, r.Sandbox, false); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestRunEndings(t *testing.T) {
	l := newLab(t)
	s := l.serve(t)
	for _, c := range []struct {
		name    string
		steps   []string
		timeout time.Duration
		status  store.RunStatus
		limit   string
		code    cove.Code
		says    string
	}{
		{name: "the agent could not do it", steps: []string{"fail too hard"}, status: store.RunFailed},
		{name: "its program failed", steps: []string{"think", "log no such key", "exit 3"}, status: store.RunFailed,
			code: cove.AgentFailed, says: "no such key"},
		{name: "it breaks its word", steps: []string{"think", "print <html>", "wait /never"}, status: store.RunError,
			code: cove.AgentProtocol, says: "<html>"},
		{name: "it says nothing", steps: []string{"exit 0"}, status: store.RunError, code: cove.AgentProtocol},
		{name: "its time is up", steps: []string{"think", "wait /never"}, timeout: 300 * time.Millisecond,
			status: store.RunLimit, limit: "timeout"},
		{name: "it prints without end", steps: []string{"flood"}, status: store.RunLimit, limit: "output"},
	} {
		t.Run(c.name, func(t *testing.T) {
			q := ask(c.steps...)
			q.Timeout = c.timeout
			r, _ := s.follow(t, string(s.begin(t, q).ID))
			if r.Status != c.status || string(r.Limit) != c.limit {
				t.Errorf("%s, limit %q, error %+v", r.Status, string(r.Limit), r.Error)
			}
			if c.code != "" && (r.Error == nil || r.Error.Code != string(c.code) || !strings.Contains(r.Error.Error, c.says)) ||
				c.code == "" && r.Error != nil {
				t.Errorf("the error is %+v", r.Error)
			}
		})
	}
	s.wantSandboxes(t, 0)
}

func TestRunRefusals(t *testing.T) {
	l := newLab(t)
	s := l.serve(t)
	for name, c := range map[string]struct {
		change func(*run.Request)
		want   cove.Code
	}{
		"no prompt":                {func(q *run.Request) { q.Task.Prompt = " \n" }, cove.InvalidArgument},
		"a prompt with NUL":        {func(q *run.Request) { q.Task.Prompt = "a\x00b" }, cove.InvalidArgument},
		"a prompt without end":     {func(q *run.Request) { q.Task.Prompt = strings.Repeat("x", 2<<20) }, cove.TooLarge},
		"a schema that is none":    {func(q *run.Request) { q.Task.Schema = []byte("{") }, cove.InvalidArgument},
		"a time before":            {func(q *run.Request) { q.Timeout = -1 }, cove.InvalidArgument},
		"no agent":                 {func(q *run.Request) { q.Agent = "" }, cove.InvalidArgument},
		"an unknown agent":         {func(q *run.Request) { q.Agent = "nobody" }, cove.NotFound},
		"what it cannot be asked":  {func(q *run.Request) { q.Task.Turns = 3 }, cove.Unsupported},
		"an unknown sandbox":       {func(q *run.Request) { q.Sandbox = "nowhere" }, cove.NotFound},
		"an unknown run":           {func(q *run.Request) { q.Resume = "ru_x" }, cove.NotFound},
		"a sandbox it cannot have": {func(q *run.Request) { q.New.Name = "Capital" }, cove.InvalidArgument},
	} {
		t.Run(name, func(t *testing.T) {
			q := ask("answer")
			c.change(&q)
			_, err := s.Begin(t.Context(), owner, q)
			wantCode(t, "it", err, c.want)
		})
	}
	s.wantSandboxes(t, 0)
	if list, err := s.Runs(t.Context(), owner, store.RunQuery{Limit: 10}); err != nil || len(list.Runs) > 0 {
		t.Errorf("recorded are %+v, %v", list, err)
	}
}

// TestRunThatCannotBegin: what was made for it is gone, and the record says why.
func TestRunThatCannotBegin(t *testing.T) {
	l := newLab(t)
	s := l.serve(t)
	q := ask("answer")
	q.New.WorkDir = "../nowhere" // beyond the workspace, below which a directory is made
	_, err := s.Begin(t.Context(), owner, q)
	wantCode(t, "a directory that is not there", err, cove.RuntimeMissing)
	s.wantSandboxes(t, 0)
	list, err := s.Runs(t.Context(), owner, store.RunQuery{Limit: 10})
	if err != nil || len(list.Runs) != 1 || list.Runs[0].Status != store.RunError ||
		list.Runs[0].Error.Code != string(cove.RuntimeMissing) {
		t.Errorf("recorded are %+v, %v", list, err)
	}
}

// TestCredentialsOfRuns: an agent's network, which has credentials of the machine, is for the machine's owner.
func TestCredentialsOfRuns(t *testing.T) {
	s := newLab(t).serve(t)
	for who, want := range map[cove.Principal][]string{owner: {"models"}, ci: nil} {
		q := ask("answer")
		q.Agent, q.Keep = "keyed", true
		r, err := s.Begin(t.Context(), who, q)
		if err != nil {
			t.Fatal(err)
		}
		id, err := cove.ParseSandboxID(r.Sandbox)
		if err != nil {
			t.Fatal(err)
		}
		record, err := store.NewVault(s.lab.store).For(owner).Sandbox(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		if n := record.Spec.Network; n != nil {
			got = n.Credentials
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: a run has the credentials %q, want %q", who, got, want)
		}
		s.follow(t, string(r.ID))
	}
}

// TestKeysOfRuns: a run whose models have no key is not begun, and leaves nothing; one whose key is refused ends at
// once, with what to do.
func TestKeysOfRuns(t *testing.T) {
	run.SetRefusalGrace(t, 10*time.Millisecond)
	l := newLab(t)
	s := l.serve(t)
	q := ask("think", "wait /never")
	q.Agent = "keyed"
	refusal := cove.Errorf(cove.Unavailable, "there is no key").WithHint("export it")
	l.agents.missing = refusal
	_, err := s.Begin(t.Context(), owner, q)
	wantCode(t, "without a key", err, cove.Unavailable)
	if all, err := s.Runs(t.Context(), owner, store.RunQuery{Limit: 10}); err != nil || len(all.Runs) != 0 {
		t.Errorf("recorded is %+v, %v", all, err)
	}
	if all, err := s.sandboxes.List(t.Context(), owner); err != nil || len(all.Sandboxes) != 0 {
		t.Errorf("left is %+v, %v", all, err)
	}
	l.agents.missing = nil

	// What cannot be is refused before the agent is fetched, and by Check as by Begin.
	var steps []string
	q.Progress = func(s workspace.Step) { steps = append(steps, s.Text) }
	for name, c := range map[string]struct {
		change func(*run.Request)
		code   cove.Code
	}{
		"an unknown provider": {func(q *run.Request) {
			q.New.Network = &cove.Network{Enabled: true, Providers: []string{"nobody"}}
		}, cove.NotFound},
		"an unknown engine":        {func(q *run.Request) { q.New.Engine = "nothing" }, cove.InvalidArgument},
		"a name that is none":      {func(q *run.Request) { q.New.Name = "No Name" }, cove.InvalidArgument},
		"an option that it lacks":  {func(q *run.Request) { q.Task.Turns = 3 }, cove.Unsupported},
		"a sandbox without models": {func(q *run.Request) { l.agents.missing = refusal }, cove.Unavailable},
	} {
		asked := q
		c.change(&asked)
		_, err := s.Begin(t.Context(), owner, asked)
		wantCode(t, name, err, c.code)
		wantCode(t, name+", checked", s.Check(t.Context(), owner, asked), c.code)
		l.agents.missing = nil
	}
	if err := s.Check(t.Context(), owner, q); err != nil || len(steps) > 0 {
		t.Errorf("checked: %v, after %q", err, steps)
	}
	l.bounds = cove.Errorf(cove.Unsupported, "only root may mount")
	if _, err = s.Begin(t.Context(), ci, q); len(steps) > 0 {
		t.Errorf("refused after %q", steps)
	}
	wantCode(t, "a disk that nothing bounds", err, cove.Unsupported)
	wantCode(t, "a disk that nothing bounds, checked", s.Check(t.Context(), ci, q), cove.Unsupported)
	l.bounds = nil
	s.wantSandboxes(t, 0)
	q.Progress = nil

	refused := cove.Errorf(cove.Unavailable, "the key is refused").WithHint("make another")
	l.refusals.Note("models", refused) // of an earlier run: this one may have another key
	for _, noted := range []string{"other", "models"} {
		r := s.begin(t, q)
		h, done := s.listen(t, string(r.ID))
		h.until(t, "thinking")
		if l.refusals.Note(noted, refused); noted == "other" { // another program's, of another provider
			if err := s.Interrupt(t.Context(), owner, string(r.ID), true); err != nil {
				t.Fatal(err)
			}
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		r, _ = s.follow(t, string(r.ID))
		if noted == "other" {
			if r.Status != store.RunInterrupted {
				t.Errorf("%s: %+v", noted, r)
			}
			continue
		}
		if r.Status != store.RunError || r.Error == nil || r.Error.Code != string(cove.ModelUnreachable) ||
			r.Error.Error != "the key is refused" || r.Error.Hint != "make another" {
			t.Errorf("%s: %+v, %+v", noted, r, r.Error)
		}
	}
}

// TestOutages: a run whose models are not reached ends with the reason; one that meets a limit before names it, too.
func TestOutages(t *testing.T) {
	run.SetRefusalGrace(t, 10*time.Millisecond)
	l := newLab(t)
	s := l.serve(t)
	down := cove.Errorf(cove.Unavailable, "nothing listens there").WithHint("start it")
	for _, c := range []struct {
		lost    int
		timeout time.Duration
		status  store.RunStatus
		limit   cove.LimitKind
	}{{3, 0, store.RunError, ""}, {2, time.Second, store.RunLimit, cove.LimitTimeout}} {
		q := ask("think", "wait /never")
		q.Agent, q.Timeout = "keyed", c.timeout
		r := s.begin(t, q)
		h, done := s.listen(t, string(r.ID))
		h.until(t, "thinking")
		for range c.lost {
			l.refusals.Fail("models", down, true)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		r, _ = s.follow(t, string(r.ID))
		if r.Status != c.status || r.Limit != c.limit || r.Error == nil ||
			r.Error.Code != string(cove.ModelUnreachable) || r.Error.Error != "nothing listens there" ||
			r.Error.Hint != "start it" {
			t.Errorf("after %d requests: %+v, %+v", c.lost, r, r.Error)
		}
	}
}

func TestInterrupt(t *testing.T) {
	l := newLab(t)
	s := l.serve(t)
	for _, kill := range []bool{false, true} {
		r := s.begin(t, ask("think", "wait /never"))
		h, done := s.listen(t, string(r.ID))
		h.until(t, "thinking")
		wantCode(t, "another principal", s.Interrupt(t.Context(), ci, string(r.ID), kill), cove.NotFound)
		if err := s.Interrupt(t.Context(), owner, string(r.ID[:14]), kill); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
		ended, err := s.Run(t.Context(), owner, string(r.ID))
		if err != nil || ended.Status != store.RunInterrupted || ended.Error != nil {
			t.Errorf("ended %+v, %v", ended, err)
		}
		wantCode(t, "one that has ended", s.Interrupt(t.Context(), owner, string(r.ID), kill), cove.Conflict)
	}
	audit, err := l.store.Audit(t.Context(), store.AuditQuery{Limit: 50})
	var actions []string
	for _, a := range audit.Records {
		actions = append(actions, a.Action)
	}
	if err != nil || !slices.Contains(actions, "interrupt") || !slices.Contains(actions, "kill") {
		t.Errorf("recorded are %v, %v", actions, err)
	}
}

// TestServerDies: the next one goes on where it was, and nobody misses or hears twice what the agent says.
func TestServerDies(t *testing.T) {
	l := newLab(t)
	s := l.serve(t)
	r := s.begin(t, ask("think one", "think two", "wait /tmp/go", "think three", "answer done"))
	h, done := s.listen(t, string(r.ID))
	h.until(t, "thinking two")
	s.end(t)
	wantCode(t, "who follows", <-done, cove.Shutdown)
	_, err := s.Begin(t.Context(), owner, ask("answer"))
	wantCode(t, "a server that ends", err, cove.Shutdown)

	s = l.serve(t)
	h, done = s.listen(t, string(r.ID))
	h.until(t, "thinking two")
	s.touch(t, r, "/tmp/go")
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	wantText(t, h.text(), "1 thinking one\n2 thinking two\n3 thinking three\n4 result done\n5 usage ")
	ended, err := s.Run(t.Context(), owner, string(r.ID))
	if err != nil || ended.Status != store.RunSucceeded || ended.Result != "done" || ended.Usage.Turns != 1 {
		t.Errorf("ended %+v, %v", ended, err)
	}
	s.wantSandboxes(t, 0)
}

// TestServerLeavesWhileItRecovers: a run that a server does not take up, or cannot attend any more, since it was told
// to stop, is not counted, and goes on: the next server has it.
func TestServerLeavesWhileItRecovers(t *testing.T) {
	for name, stop := range map[string]func(*lab){
		"it is closed":     func(l *lab) { l.leaves = true },
		"its context ends": func(l *lab) { l.stopped = true },
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			s := l.serve(t)
			r := s.begin(t, ask("think one", "wait /tmp/go", "answer done"))
			if n := l.held.Load(); n != 1 {
				t.Fatalf("%d runs are counted", n)
			}
			h, done := s.listen(t, string(r.ID))
			h.until(t, "thinking one")
			s.end(t)
			<-done
			stop(l)
			for range 2 {
				s = l.serve(t)
				if now, err := s.Run(t.Context(), owner, string(r.ID)); err != nil || now.Status != store.RunRunning {
					t.Errorf("the run is %+v, %v", now, err)
				}
				s.end(t) // looks that none is counted
			}
			l.leaves, l.stopped = false, false
			s = l.serve(t)
			s.touch(t, r, "/tmp/go")
			if ended, _ := s.follow(t, string(r.ID)); ended.Status != store.RunSucceeded || ended.Result != "done" {
				t.Errorf("ended %+v", ended)
			}
		})
	}
}

// TestServerDiesInTheMiddle: a line that was half written, and a message that was not, are made up for.
func TestServerDiesInTheMiddle(t *testing.T) {
	l := newLab(t)
	s := l.serve(t)
	r := s.begin(t, ask("think one", "think two", "wait /tmp/go", "answer done"))
	h, done := s.listen(t, string(r.ID))
	h.until(t, "thinking two")
	s.end(t)
	<-done
	events := filepath.Join(l.dir, "runs", string(r.ID), "events.ndjson")
	data, err := os.ReadFile(events)
	if err != nil {
		t.Fatal(err)
	}
	first := bytes.IndexByte(data, '\n') + 1
	if err := os.WriteFile(events, data[:first+20], 0o600); err != nil {
		t.Fatal(err)
	}
	s = l.serve(t)
	s.touch(t, r, "/tmp/go")
	ended, text := s.follow(t, string(r.ID))
	wantText(t, text, "1 thinking one\n2 thinking two\n3 result done\n4 usage ")
	if ended.Status != store.RunSucceeded {
		t.Errorf("ended %+v", ended)
	}
}

// TestTornRecord: a record with a line that is torn in its middle, as an earlier server left it on a full disk, is one
// that can be read: the next server goes on with the run, or concludes it, and says what is damaged.
func TestTornRecord(t *testing.T) {
	for name, c := range map[string]struct {
		dies   bool // the program, with its machine
		status store.RunStatus
		heard  string
	}{
		"whose program is there": {false, store.RunSucceeded, "\n4 result done\n5 usage "},
		"whose program is gone":  {true, store.RunError, ""},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			s := l.serve(t)
			l.work.set(store.FileChange{Path: "a", Change: "added"})
			r := s.begin(t, ask("think one", "think two", "wait /tmp/go", "answer done"))
			h, done := s.listen(t, string(r.ID))
			h.until(t, "thinking two")
			s.end(t)
			<-done
			events := filepath.Join(l.dir, "runs", string(r.ID), "events.ndjson")
			data, err := os.ReadFile(events)
			if err != nil {
				t.Fatal(err)
			}
			first := bytes.IndexByte(data, '\n') + 1
			torn := slices.Concat(data[:first], []byte(`{"log":"the begin`), []byte(`{"log":"glued to it"}`+"\n"), data[first:])
			if err := os.WriteFile(events, torn, 0o600); err != nil {
				t.Fatal(err)
			}
			if c.dies {
				l.host.Reboot()
			}
			s = l.serve(t)
			if !c.dies {
				s.touch(t, r, "/tmp/go")
			}
			ended, text := s.follow(t, string(r.ID))
			wantText(t, text, "1 thinking one\n2 log [damaged: a part of this record cannot be read]\n3 thinking two"+c.heard)
			if ended.Status != c.status || len(ended.Changes) != 1 {
				t.Errorf("ended %+v, %+v", ended, ended.Error)
			}
			if err := s.Export(t.Context(), owner, string(r.ID), io.Discard); err != nil {
				t.Errorf("its export: %v", err)
			}
		})
	}
}

// TestDeadlineWithoutARecord: a run that the next server cannot take up, and whose time is up, is ended and concluded.
func TestDeadlineWithoutARecord(t *testing.T) {
	l := newLab(t)
	s := l.serve(t)
	q := ask("think one", "wait /never")
	q.Timeout = 2 * time.Second
	r := s.begin(t, q)
	h, done := s.listen(t, string(r.ID))
	h.until(t, "thinking one")
	s.end(t)
	<-done
	output := filepath.Join(l.dir, "runs", string(r.ID), "output")
	if err := errors.Join(os.Remove(output), os.Mkdir(output, 0o700)); err != nil { // cannot be opened
		t.Fatal(err)
	}
	s = l.serve(t)
	if now, err := s.Run(t.Context(), owner, string(r.ID)); err != nil || now.Status != store.RunRunning {
		t.Errorf("before its time is up: %+v, %v", now, err)
	}
	await.That(t, "the run is concluded", func() bool {
		if err := s.Recover(t.Context()); err != nil {
			t.Fatal(err)
		}
		now, err := s.Run(t.Context(), owner, string(r.ID))
		return err == nil && now.Status == store.RunError && now.EndedAt.After(r.Spec.Deadline)
	})
	s.wantSandboxes(t, 0)
}

// TestServerDiesBeforeThePromptIsFed: the next server sends the rest of a prompt that the agent had not taken, and the
// end of it, so that an agent does not wait for ever.
func TestServerDiesBeforeThePromptIsFed(t *testing.T) {
	for name, size := range map[string]int{"all but its end": 100 << 10, "a part": 700 << 10} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			s := l.serve(t)
			filler := strings.TrimSuffix(strings.Repeat("nothing at all\n", size/15), "\n")
			r := s.begin(t, ask("think one", "wait /tmp/go", filler, "answer done"))
			h, done := s.listen(t, string(r.ID))
			h.until(t, "thinking one")
			s.end(t)
			<-done
			s = l.serve(t)
			s.touch(t, r, "/tmp/go")
			h, done = s.listen(t, string(r.ID))
			select {
			case err := <-done:
				if err != nil {
					t.Fatal(err)
				}
			case <-time.After(20 * time.Second):
				t.Fatalf("the agent waits for its prompt, and has said\n%s", h.text())
			}
			wantText(t, h.text(), "1 thinking one\n2 result done\n3 usage ")
			if ended, err := s.Run(t.Context(), owner, string(r.ID)); err != nil ||
				ended.Status != store.RunSucceeded || ended.Spec.Input != nil {
				t.Errorf("ended %+v, %v", ended, err)
			}
		})
	}
}

// TestServerDiesBeforeTheAgentStarts: a run whose record is all that there is has done nothing, and may be asked for
// again.
func TestServerDiesBeforeTheAgentStarts(t *testing.T) {
	l := newLab(t)
	s := l.serve(t)
	there := s.begin(t, ask("wait /never"))
	r := there
	r.ID = cove.NewRunID()
	r.Spec.Own = false
	if err := os.MkdirAll(filepath.Join(l.dir, "runs", string(r.ID)), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := store.NewVault(l.store).For(owner).AddRun(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	s.end(t)
	s = l.serve(t)
	ended, text := s.follow(t, string(r.ID))
	if ended.Status != store.RunError || ended.Error.Code != string(cove.Shutdown) ||
		!strings.Contains(ended.Error.Hint, "again") {
		t.Errorf("ended %+v, %+v", ended, ended.Error)
	}
	wantText(t, text, "")
	if now, err := s.Run(t.Context(), owner, string(there.ID)); err != nil || now.Status != store.RunRunning {
		t.Errorf("the run beside it: %+v, %v", now, err)
	}
	if err := s.Interrupt(t.Context(), owner, string(there.ID), true); err != nil {
		t.Fatal(err)
	}
	s.follow(t, string(there.ID))
}

// TestServerDiesBeforeTheRecord: the sandbox of a run that was never recorded goes, and no other does.
func TestServerDiesBeforeTheRecord(t *testing.T) {
	l := newLab(t)
	s := l.serve(t)
	runs := filepath.Join(l.dir, "runs")
	q := ask("answer done")
	q.Keep = true
	kept := s.begin(t, q)
	s.follow(t, string(kept.ID))
	// Its server died right after it was recorded.
	if err := os.WriteFile(filepath.Join(runs, string(kept.ID), "begins"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s.end(t)
	s = l.serve(t)
	s.wantSandboxes(t, 1)
	if err := store.NewVault(l.store).For(owner).RemoveRun(t.Context(), kept.ID); err != nil { // as pruning does
		t.Fatal(err)
	}
	died := make(chan struct{})
	l.agents.parsed = runtime.Goexit
	go func() {
		defer close(died)
		s.Begin(t.Context(), owner, ask("answer never"))
	}()
	<-died
	l.agents.parsed = nil
	l.held.Add(-1) // of the server that died
	s.wantSandboxes(t, 2)
	s.end(t)
	s = l.serve(t)
	if there := s.wantSandboxes(t, 1); string(there[0].ID) != kept.Sandbox {
		t.Errorf("%+v is left, want the sandbox %s of the run beyond its retention", there, kept.Sandbox)
	}
	if left, err := os.ReadDir(runs); err != nil || len(left) != 0 {
		t.Errorf("files are left: %v, %v", left, err)
	}
}

// TestMachineDies: what is not there any more is recorded so, and its work stays.
func TestMachineDies(t *testing.T) {
	l := newLab(t)
	s := l.serve(t)
	l.work.set(store.FileChange{Path: "a", Change: "added"})
	lost := s.begin(t, ask("think one", "wait /never"))
	said := s.begin(t, ask("answer done", "wait /never"))
	for r, line := range map[string]string{string(lost.ID): "thinking one", string(said.ID): "usage"} {
		h, _ := s.listen(t, r)
		h.until(t, line)
	}
	s.end(t)
	l.host.Reboot()
	s = l.serve(t)
	ended, text := s.follow(t, string(lost.ID))
	if ended.Status != store.RunError || ended.Error.Code != string(cove.Unavailable) ||
		!strings.Contains(ended.Error.Hint, "cove diff "+lost.SandboxName) || len(ended.Changes) != 1 {
		t.Errorf("ended %+v, %+v", ended, ended.Error)
	}
	wantText(t, text, "1 thinking one")
	if ended, _ = s.follow(t, string(said.ID)); ended.Status != store.RunSucceeded || ended.Result != "done" ||
		ended.ExitCode != nil {
		t.Errorf("one that had said what it had to say: %+v", ended)
	}
	s.wantSandboxes(t, 2)
}

// TestPausedWhileServersChange: it goes on when it is resumed.
func TestPausedWhileServersChange(t *testing.T) {
	l := newLab(t)
	s := l.serve(t)
	r := s.begin(t, ask("think one", "wait /tmp/go", "answer done"))
	h, done := s.listen(t, string(r.ID))
	h.until(t, "thinking one")
	if _, err := s.sandboxes.Pause(t.Context(), owner, r.Sandbox); err != nil {
		t.Fatal(err)
	}
	s.end(t)
	<-done
	s = l.serve(t)
	if err := s.Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, err := s.Follow(t.Context(), owner, string(r.ID), 0, func(store.Run) error { return nil }, new(heard).take)
	wantCode(t, "following it", err, cove.Conflict)
	if _, err := s.sandboxes.Resume(t.Context(), owner, r.Sandbox); err != nil {
		t.Fatal(err)
	}
	s.touch(t, r, "/tmp/go")
	await.That(t, "the run succeeds", func() bool {
		now, err := s.Run(t.Context(), owner, string(r.ID))
		if err != nil {
			t.Fatal(err)
		}
		return now.Status == store.RunSucceeded
	})
}

// TestSandboxOfARunEnds: whoever stops or destroys it ends the run.
func TestSandboxOfARunEnds(t *testing.T) {
	l := newLab(t)
	s := l.serve(t)
	r := s.begin(t, ask("think", "wait /never"))
	h, done := s.listen(t, string(r.ID))
	h.until(t, "thinking")
	if _, err := s.sandboxes.Destroy(t.Context(), owner, r.Sandbox, false); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if ended, err := s.Run(t.Context(), owner, string(r.ID)); err != nil || ended.Status != store.RunError ||
		ended.Error.Code != string(cove.Conflict) {
		t.Errorf("ended %+v, %v", ended, err)
	}
}

// TestResume: the conversation goes on where it was, in its sandbox.
func TestResume(t *testing.T) {
	l := newLab(t)
	s := l.serve(t)
	q := ask("think", "answer first")
	q.Keep, q.New.Repository = true, &workspace.Repository{Source: "/srv/project"}
	first, _ := s.follow(t, string(s.begin(t, q).ID))
	if _, err := s.sandboxes.Stop(t.Context(), owner, first.Sandbox); err != nil {
		t.Fatal(err)
	}
	q = ask("env SESSION", "answer second")
	q.Agent, q.Resume = "", string(first.ID)
	second, text := s.follow(t, string(s.begin(t, q).ID))
	if second.Sandbox != first.Sandbox || second.Agent != "robot" || second.Result != "second" ||
		!strings.Contains(text, "thinking s1") || second.Directory != "/srv/project" {
		t.Errorf("it went on as %+v\n%s", second, text)
	}
	s.wantSandboxes(t, 1) // it is not the second's to destroy

	q.Resume, q.Agent = string(first.ID), "packed"
	_, err := s.Begin(t.Context(), owner, q)
	wantCode(t, "another agent", err, cove.InvalidArgument)
	if _, err := s.sandboxes.Destroy(t.Context(), owner, first.Sandbox, false); err != nil {
		t.Fatal(err)
	}
	q.Agent = ""
	_, err = s.Begin(t.Context(), owner, q)
	wantCode(t, "one whose sandbox is gone", err, cove.Conflict)
	if !strings.Contains(err.Error(), string(first.ID)) || strings.Contains(err.Error(), first.Sandbox) {
		t.Errorf("it does not name the run, or an id that no list has: %v", err)
	}
	silent, _ := s.follow(t, string(s.begin(t, ask("answer")).ID))
	q.Resume, q.Agent = string(silent.ID), ""
	_, err = s.Begin(t.Context(), owner, q)
	wantCode(t, "one without a name for its conversation", err, cove.Conflict)
}

// TestInASandbox: in one that is there, if the agent is.
func TestInASandbox(t *testing.T) {
	l := newLab(t)
	l.agents.files = []agent.File{{Path: ".robot/config", Content: "fresh"}}
	s := l.serve(t)
	there, err := s.sandboxes.Create(t.Context(), owner,
		sandbox.Request{Name: "mine", Spec: cove.Spec{WorkDir: "../tmp"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	q := ask("read /home/cove/.robot/config", "write /home/cove/.robot/config", "answer")
	q.Sandbox = "mine"
	r, text := s.follow(t, string(s.begin(t, q).ID))
	if r.Sandbox != string(there.ID) || !strings.Contains(text, "tool_result fresh") {
		t.Errorf("it was in %s\n%s", r.SandboxName, text)
	}
	if _, text = s.follow(t, string(s.begin(t, q).ID)); !strings.Contains(text, "tool_result written") {
		t.Errorf("its home is as it was not\n%s", text)
	}
	q.Agent = "packed"
	_, err = s.Begin(t.Context(), owner, q)
	wantCode(t, "one that is not in it", err, cove.Conflict)
	s.wantSandboxes(t, 1)
}

// TestFilesOfATaskAreRemoved, also when it fails.
func TestFilesOfATaskAreRemoved(t *testing.T) {
	l := newLab(t)
	s := l.serve(t)
	q := ask("exit 1")
	q.Task.Instructions, q.Keep = "secret plans", true
	r, _ := s.follow(t, string(s.begin(t, q).ID))
	in, err := s.sandboxes.Enter(t.Context(), owner, r.Sandbox)
	if err != nil {
		t.Fatal(err)
	}
	files, err := in.Guest.Guest().List(t.Context(), "/tmp")
	for _, f := range files {
		if strings.HasPrefix(f.Name, "cove-") {
			t.Errorf("%s is left", f.Name)
		}
	}
	if err != nil {
		t.Error(err)
	}
}

// TestNoSecretInTranscripts: values that the gateway sets are not in messages,
// logs and files, while a run goes on and when its next server has it.
func TestNoSecretInTranscripts(t *testing.T) {
	l := newLab(t)
	s := l.serve(t)
	q := ask("think of sk-real-key", "log with sk-real-key", "wait /tmp/go", "answer sk-real-key")
	q.New.Network, q.Keep = &cove.Network{Enabled: true, Mode: cove.NetworkLimited}, true
	r := s.begin(t, q)
	await.That(t, "what it prints is kept without the value, while it goes on", func() bool {
		printed, _ := os.ReadFile(filepath.Join(l.dir, "runs", string(r.ID), "output"))
		if bytes.Contains(printed, []byte("sk-real-key")) {
			t.Fatalf("what it prints is kept as %q", printed)
		}
		return bytes.Contains(printed, []byte(`"of ***********"`))
	})
	s.end(t)
	s = l.serve(t)
	follower, done := s.listen(t, string(r.ID))
	follower.until(t, "holds 1") // while the run goes on: it holds nothing afterwards
	s.touch(t, r, "/tmp/go")
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	r, text := s.follow(t, string(r.ID))
	if strings.Contains(text, "sk-real-key") || strings.Contains(follower.text(), "sk-real-key") ||
		r.Result != "***********" {
		t.Errorf("one hears\n%s", text)
	}
	found := 0
	filepath.WalkDir(l.dir, func(path string, d os.DirEntry, err error) error {
		if data, rerr := os.ReadFile(path); rerr == nil && bytes.Contains(data, []byte("think of sk-real-key")) {
			found++ // the prompt, in the store, is the caller's own words
		} else if rerr == nil && bytes.Contains(data, []byte("sk-real-key")) {
			t.Errorf("%s has it", path)
		}
		return err
	})
	if found == 0 {
		t.Error("the prompt is nowhere: nothing was looked through")
	}
}

// TestSlowFollower: nobody who reads slowly or leaves holds an agent up.
func TestSlowFollower(t *testing.T) {
	l := newLab(t)
	s := l.serve(t)
	steps := []string{}
	for range 200 {
		steps = append(steps, "much 20000")
	}
	r := s.begin(t, ask(append(steps, "answer done")...))
	stuck := make(chan struct{})
	var gone sync.WaitGroup
	gone.Go(func() {
		s.Follow(t.Context(), owner, string(r.ID), 0, func(store.Run) error { return nil },
			func(run.Event) error { <-stuck; return errors.New("left") })
	})
	ended, text := s.follow(t, string(r.ID))
	if ended.Status != store.RunSucceeded || strings.Count(text, "\n") != 201 {
		t.Errorf("ended %s with %d lines", ended.Status, strings.Count(text, "\n"))
	}
	close(stuck)
	gone.Wait()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r = s.begin(t, ask("wait /tmp/go", "answer"))
	_, err := s.Follow(ctx, owner, string(r.ID), 0, func(store.Run) error { return nil }, new(heard).take)
	wantCode(t, "who has left", err, cove.Canceled)
	s.touch(t, r, "/tmp/go")
	if ended, _ := s.follow(t, string(r.ID)); ended.Status != store.RunSucceeded {
		t.Errorf("ended %+v", ended)
	}
}

// TestLargeMessages are cut, and say so.
func TestLargeMessages(t *testing.T) {
	l := newLab(t)
	s := l.serve(t)
	_, text := s.follow(t, string(s.begin(t, ask("much 10485760", "answer")).ID))
	if len(text) > 1<<20 || !strings.Contains(text, "[cut: 262144 of 10485760 bytes]") {
		t.Errorf("one hears %d bytes", len(text))
	}
}

func TestSeveralAtOnce(t *testing.T) {
	l := newLab(t)
	s := l.serve(t)
	var all sync.WaitGroup
	for i := range 6 {
		all.Go(func() {
			r, err := s.Begin(t.Context(), owner, ask("think", fmt.Sprint("answer ", i)))
			if err != nil {
				t.Error(err)
				return
			}
			if r, err = s.Follow(t.Context(), owner, string(r.ID), 0, func(store.Run) error { return nil },
				new(heard).take); err != nil || r.Result != fmt.Sprint(i) {
				t.Errorf("%d: %+v, %v", i, r, err)
			}
		})
	}
	all.Wait()
	s.wantSandboxes(t, 0)
}

// TestFilesGiveWay: beyond their bounds the files of the run that ended first go, and its record stays and says so.
func TestFilesGiveWay(t *testing.T) {
	l := newLab(t)
	s := l.serve(t)
	first, _ := s.follow(t, string(s.begin(t, ask("much 100000", "log aside", "answer one")).ID))
	second, _ := s.follow(t, string(s.begin(t, ask("much 100000", "answer two")).ID))
	going := s.begin(t, ask("much 300000", "wait /tmp/done"))
	h, _ := s.listen(t, string(going.ID))
	h.until(t, "tool_result")
	if err := s.Reconcile(t.Context()); err != nil { // without bounds
		t.Fatal(err)
	}
	if _, text := s.follow(t, string(first.ID)); !strings.Contains(text, "result one") {
		t.Errorf("without a bound one hears\n%.200s", text)
	}
	s.end(t)
	_, used := run.SizesOf(filepath.Join(l.dir, "runs"))
	l.room.Size = used - 1000 // what runs takes most of it, and stays
	s = l.serve(t)
	now, err := s.Run(t.Context(), owner, string(first.ID))
	if err != nil || now.OutputGone != store.GoneHistorySize || now.Result != "one" {
		t.Errorf("the oldest is %+v, %v", now, err)
	}
	if _, err := os.Stat(filepath.Join(l.dir, "runs", string(first.ID))); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("its files: %v", err)
	}
	_, err = s.Follow(t.Context(), owner, string(first.ID), 0, func(store.Run) error { return nil }, h.take)
	wantCode(t, "its events", err, cove.NotFound)
	if err == nil || !strings.Contains(err.Error(), "history.max_mb") {
		t.Errorf("its events: %v", err)
	}
	wantCode(t, "its recordings", s.Recording(t.Context(), owner, string(first.ID), "t1", io.Discard), cove.NotFound)
	for id, want := range map[cove.RunID]bool{first.ID: false, second.ID: true} {
		var out bytes.Buffer
		if err := s.Export(t.Context(), owner, string(id), &out); err != nil {
			t.Fatal(err)
		}
		if got := bytes.Contains(out.Bytes(), []byte("messages.ndjson")); got != want {
			t.Errorf("the export of %s has messages: %v", id, got)
		}
		if got := bytes.Contains(out.Bytes(), []byte(`"output_gone": "history_size"`)); got == want {
			t.Errorf("the export of %s says that they are gone: %v", id, got)
		}
	}
	if _, text := s.follow(t, string(second.ID)); !strings.Contains(text, "result two") {
		t.Errorf("of the later one hears\n%.200s", text)
	}
	s.touch(t, going, "/tmp/done")
	if ended, text := s.follow(t, string(going.ID)); ended.OutputGone != "" || !strings.Contains(text, "tool_result") {
		t.Errorf("the one that ran is %+v", ended)
	}
}

// TestExportForAKey: what others did with the sandbox of a key's run is not in the key's export of it.
func TestExportForAKey(t *testing.T) {
	l := newLab(t)
	s := l.serve(t)
	r, err := s.Begin(t.Context(), ci, ask("answer yes"))
	if err != nil {
		t.Fatal(err)
	}
	vault := store.NewVault(l.store)
	for _, a := range []store.Record{{Detail: "its own"}, {Detail: "to /home/person", Who: "owner"},
		{Detail: "git of a program", Who: "inside"}} {
		of := ci
		switch a.Who {
		case "owner":
			of = owner
		case "inside":
			of = cove.InSandbox(r.SandboxName)
		}
		a.Time, a.Action, a.Object, a.Verdict = r.StartedAt, "apply", r.Sandbox, "ok"
		if err := vault.For(of).Append(t.Context(), a); err != nil {
			t.Fatal(err)
		}
	}
	s.follow(t, string(r.ID))
	for who, theirs := range map[cove.Principal][]bool{ci: {true, false, true}, owner: {true, true, true}} {
		var out bytes.Buffer
		if err := s.Export(t.Context(), who, string(r.ID), &out); err != nil {
			t.Fatal(err)
		}
		for i, text := range []string{"its own", "to /home/person", "git of a program"} {
			if got := bytes.Contains(out.Bytes(), []byte(text)); got != theirs[i] {
				t.Errorf("%s of %q: %v", who, text, got)
			}
		}
	}
}

func TestRecords(t *testing.T) {
	l := newLab(t)
	s := l.serve(t)
	l.work.set(store.FileChange{Path: "a", Change: "added"})
	r, _ := s.follow(t, string(s.begin(t, ask("log to be seen", "answer "+strings.Repeat("x", 1000))).ID))
	err := l.store.AppendDecisions(t.Context(), 100, decision.Decision{Sandbox: r.Sandbox,
		Time: r.StartedAt.Add(time.Microsecond), Host: "denied.example", Verdict: decision.Deny},
		decision.Decision{Sandbox: r.Sandbox, Time: r.StartedAt.Add(-time.Second), Host: "before.example"},
		decision.Decision{Sandbox: "sb_other", Time: r.StartedAt.Add(time.Microsecond), Host: "other.example"})
	if err != nil {
		t.Fatal(err)
	}
	if _, text := s.follow(t, string(r.ID)); !strings.Contains(text, "0 decision denied.example") ||
		strings.Contains(text, "before") || strings.Contains(text, "other") {
		t.Errorf("one hears\n%s", text)
	}
	list, err := s.Runs(t.Context(), owner, store.RunQuery{Limit: 10})
	if err != nil || len(list.Runs) != 1 || len(list.Runs[0].Result) > 500 || list.Runs[0].Changes != nil {
		t.Errorf("listed are %+v, %v", list, err)
	}
	if list, err = s.Runs(t.Context(), ci, store.RunQuery{Limit: 10}); err != nil || len(list.Runs) > 0 {
		t.Errorf("others see %+v, %v", list, err)
	}
	_, err = s.Run(t.Context(), ci, string(r.ID))
	wantCode(t, "another's", err, cove.NotFound)

	var out bytes.Buffer
	if err := s.Export(t.Context(), owner, string(r.ID), &out); err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for a := tar.NewReader(&out); ; {
		h, err := a.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		data, _ := io.ReadAll(a)
		files[h.Name] = string(data)
	}
	var exported store.Run
	if err := json.Unmarshal([]byte(files["run.json"]), &exported); err != nil || exported.ID != r.ID ||
		len(exported.Changes) != 1 {
		t.Errorf("run.json is %s, %v", files["run.json"], err)
	}
	for name, want := range map[string]string{"messages.ndjson": `"type":"usage"`, "stderr.log": "to be seen\n",
		"decisions.ndjson": "denied.example", "actions.ndjson": `"sandbox-create"`, "changes.patch": "+++ b"} {
		if !strings.Contains(files[name], want) {
			t.Errorf("%s is %q", name, files[name])
		}
	}
	wantCode(t, "exporting another's", s.Export(t.Context(), ci, string(r.ID), io.Discard), cove.NotFound)

	running := s.begin(t, ask("wait /tmp/go", "answer"))
	wantCode(t, "removing one that runs", s.Remove(t.Context(), owner, string(running.ID)), cove.Conflict)
	s.touch(t, running, "/tmp/go")
	s.follow(t, string(running.ID))
	wantCode(t, "removing another's", s.Remove(t.Context(), ci, string(r.ID)), cove.NotFound)
	if err := s.Remove(t.Context(), owner, string(r.ID)); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(l.dir, "runs", string(r.ID))); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its directory: %v", err)
	}
	// What is pruned from the store goes too.
	if _, err := l.store.Prune(t.Context(), time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if err := s.Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left, _ := os.ReadDir(filepath.Join(l.dir, "runs")); len(left) > 0 {
		t.Errorf("left are %v", left)
	}
}

// TestEndsAreKept: a server that goes away between the end of an agent and its record leaves that end to the next
// server, with the exit code.
func TestEndsAreKept(t *testing.T) {
	for name, steps := range map[string][]string{
		"an exit code": {"think hard", "exit 3"},
		"an answer":    {"answer done"},
		"a failure":    {"fail no", "exit 1"},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			s := l.serve(t)
			q := ask(steps...)
			q.Keep = true
			want, _ := s.follow(t, string(s.begin(t, q).ID))

			concluding, left := make(chan struct{}), make(chan struct{})
			l.work.hold(func() error {
				close(concluding)
				<-left
				return errors.New("the server goes away")
			})
			r := s.begin(t, q)
			<-concluding
			s.Leave()
			l.work.hold(nil)
			close(left)
			s.end(t)
			s = l.serve(t)
			got, _ := s.follow(t, string(r.ID))
			if got.Status != want.Status || got.Result != want.Result || got.ExitCode == nil ||
				*got.ExitCode != *want.ExitCode || !reflect.DeepEqual(got.Error, want.Error) {
				t.Errorf("it is recorded as %s, %q, %v, %+v; want %s, %q, %d, %+v", got.Status, got.Result, got.ExitCode,
					got.Error, want.Status, want.Result, *want.ExitCode, want.Error)
			}
			s.wantProcesses(t, got.Sandbox, 0)
		})
	}
}

// TestOverdrawn: a run that fails has used up a budget where a request to a model was refused for that, and not where a
// budget has refused it for another reason, such as an unknown price.
func TestOverdrawn(t *testing.T) {
	l := newLab(t)
	s := l.serve(t)
	for status, want := range map[int]store.RunStatus{http.StatusTooManyRequests: store.RunLimit,
		http.StatusForbidden: store.RunFailed} {
		r := s.begin(t, ask("wait /tmp/go", "fail no"))
		err := l.store.AppendDecisions(t.Context(), 100, decision.Decision{Time: time.Now(), Sandbox: r.Sandbox,
			Client: owner.String(), Verdict: decision.Deny, Stage: decision.StageBudget, Status: status, Reason: "the reason"})
		if err != nil {
			t.Fatal(err)
		}
		s.touch(t, r, "/tmp/go")
		got, said := s.follow(t, string(r.ID))
		if got.Status != want || (got.Limit == "budget") != (want == store.RunLimit) {
			t.Errorf("%d: %s, %q: %s", status, got.Status, got.Limit, said)
		}
	}
}

// TestEndsWithoutSandboxes: a server that is killed between the end of a run's sandbox and the run's record leaves the
// answer to the next server, also of an agent whose answer is known at its end only.
func TestEndsWithoutSandboxes(t *testing.T) {
	l := newLab(t)
	s := l.serve(t)
	q := ask("print done")
	q.Agent = "plain"
	want, _ := s.follow(t, string(s.begin(t, q).ID))

	taken := filepath.Join(t.TempDir(), "runs")
	dying, dead := make(chan struct{}), make(chan struct{})
	die := func() {
		close(dying)
		<-dead
	}
	l.flush.Store(&die)
	r := s.begin(t, q)
	<-dying
	s.wantSandboxes(t, 0)
	// The state of this moment is what a server that is killed now leaves.
	if err := os.CopyFS(taken, os.DirFS(filepath.Join(l.dir, "runs"))); err != nil {
		t.Fatal(err)
	}
	record, err := store.NewVault(l.store).For(owner).Run(t.Context(), r.ID)
	if err != nil || record.Status != store.RunRunning {
		t.Fatalf("%+v, %v", record, err)
	}
	l.flush.Store(nil)
	close(dead)
	s.follow(t, string(r.ID))
	s.end(t)
	place := filepath.Join(l.dir, "runs")
	if err := errors.Join(os.RemoveAll(place), os.Rename(taken, place)); err != nil {
		t.Fatal(err)
	}
	again := func(now *store.Run) error { *now = record; return nil }
	if err := store.NewVault(l.store).For(owner).ChangeRun(t.Context(), r.ID, again); err != nil {
		t.Fatal(err)
	}
	s = l.serve(t)
	if got, _ := s.follow(t, string(r.ID)); got.Status != want.Status || got.Result != want.Result {
		t.Errorf("it is recorded as %s, %q, %+v; want %s, %q", got.Status, got.Result, got.Error, want.Status, want.Result)
	}
}

// TestUnrecorded: whoever follows a run is told its end also when the store cannot be written to, and that it is not
// recorded. No list and no follower has it as running. It is recorded, whole, when the store can be written to again.
func TestUnrecorded(t *testing.T) {
	l := newLab(t)
	full := &fullStore{Store: l.store}
	l.store = full
	s := l.serve(t)
	stored := func(id cove.RunID) store.Run {
		t.Helper()
		r, err := full.Store.Run(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	whole := func(what string, r store.Run, unrecorded bool) {
		t.Helper()
		if r.Status != store.RunFailed || r.Result != "no" || r.ExitCode == nil || *r.ExitCode != 3 || r.EndedAt == nil ||
			r.Unrecorded != unrecorded {
			t.Errorf("%s: %+v", what, r)
		}
	}
	for name, again := range map[string]func() error{
		"its tending":   func() error { return s.Recover(t.Context()) },
		"its end":       func() error { s.end(t); return nil },
		"another's end": func() error { s.follow(t, string(s.begin(t, ask("answer done")).ID)); return nil },
	} {
		s.end(t)
		s = l.serve(t)
		full.is.Store(true)
		r := s.begin(t, ask("answer no", "exit 3"))
		got, _ := s.follow(t, string(r.ID))
		whole(name+": who followed", got, true)
		if now := stored(r.ID); now.Status != store.RunRunning {
			t.Fatalf("%s: it is recorded as %s", name, now.Status)
		}
		got, _ = s.follow(t, string(r.ID))
		whole(name+": who follows later", got, true)
		got, err := s.Run(t.Context(), owner, string(r.ID))
		if whole(name+": who asks", got, true); err != nil {
			t.Error(err)
		}
		all, err := s.Runs(t.Context(), owner, store.RunQuery{Limit: 1})
		if err != nil || len(all.Runs) != 1 {
			t.Fatalf("%+v, %v", all, err)
		}
		whole(name+": a list", all.Runs[0], true)
		all, err = s.Runs(t.Context(), owner, store.RunQuery{Status: store.RunRunning, Limit: 10})
		if err != nil || len(all.Runs) != 0 {
			t.Errorf("%s: these run: %+v, %v", name, all, err)
		}
		if err := s.Recover(t.Context()); cove.ErrorCode(err) != cove.StorageFull {
			t.Errorf("%s: the store is full: %v", name, err)
		}
		wantCode(t, name+": its removal", s.Remove(t.Context(), owner, string(r.ID)), cove.StorageFull)
		full.is.Store(false)
		if err := again(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		await.That(t, "the end is recorded after "+name, func() bool { return stored(r.ID).Status != store.RunRunning })
		whole(name+": the record", stored(r.ID), false)
	}
}

// fullStore records no end of a run while it is full.
type fullStore struct {
	store.Store
	is atomic.Bool
}

func (s *fullStore) ChangeRun(ctx context.Context, id cove.RunID, change func(*store.Run) error) error {
	if s.is.Load() {
		return cove.Errorf(cove.StorageFull, "the disk is full")
	}
	return s.Store.ChangeRun(ctx, id, change)
}

// wantProcesses has a sandbox's guest remember so many processes.
func (s *server) wantProcesses(t *testing.T, ref string, want int) {
	t.Helper()
	in, err := s.sandboxes.Enter(t.Context(), owner, ref)
	if err != nil {
		t.Fatal(err)
	}
	await.That(t, "the guest forgets what has been recorded", func() bool {
		all, err := in.Guest.Guest().Listed(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return len(all) == want
	})
}
