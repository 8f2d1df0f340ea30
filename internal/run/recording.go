package run

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/sandbox"
	"github.com/cove-sandbox/cove/internal/sandbox/terminals"
	"github.com/cove-sandbox/cove/internal/store"
	"github.com/cove-sandbox/cove/internal/terminal"
)

// maxRecording bounds the recording of a terminal, in bytes.
const maxRecording = 64 << 20

// recordTimeout is how long the store may take over the record of a run in a terminal.
const recordTimeout = 10 * time.Second

// RecordTerminal implements terminals.Recorders: it keeps what an agent's own screen
// shows, as a run of its own. Other terminals are not recorded.
func (r *Runner) RecordTerminal(t terminals.Started) terminals.Recorder {
	ctx, cancel := context.WithTimeout(context.Background(), recordTimeout)
	defer cancel()
	rec, err := r.recording(ctx, t)
	if err != nil {
		r.o.Log.Warn("a terminal of an agent is not recorded", "sandbox", t.Sandbox, "terminal", t.ID, "error", err)
	}
	if rec == nil {
		return nil
	}
	return rec
}

// recording begins the recording of a terminal, or goes on with one. It is nil of
// a terminal that is not to be recorded.
func (r *Runner) recording(ctx context.Context, t terminals.Started) (*recording, error) {
	of, err := r.o.Store.For(cove.System("")).Sandbox(ctx, t.Sandbox)
	if err != nil || of.Spec.Agent == "" || of.Spec.Screen == nil {
		return nil, err
	}
	if t.Adopted {
		record, err := r.interactive(ctx, of.Owner, t)
		if err != nil || record == nil {
			return nil, err
		}
		return r.castOf(*record, t, of)
	}
	if !slices.Equal(t.Args, of.Spec.Screen) {
		return nil, nil
	}
	now := r.o.Clock.Now().UTC().Truncate(time.Microsecond)
	record := store.Run{
		ID: cove.NewRunID(), Agent: of.Spec.Agent, Profile: of.Spec.Profile, Status: store.RunRunning, Interactive: true,
		Sandbox: string(of.ID), SandboxName: of.Name, Exposes: sandbox.Exposed(of.Spec.Mounts), CreatedBy: of.Owner.String(),
		StartedAt: now,
		Spec:      store.RunSpec{Keep: true, Terminal: t.ID},
	}
	if repository := of.Spec.Repository; repository != nil && filepath.IsAbs(repository.Source) {
		record.Directory = repository.Source
	}
	if err := r.o.Store.For(of.Owner).AddRun(ctx, record); err != nil {
		return nil, err
	}
	return r.castOf(record, t, of)
}

// interactive is the run of a terminal that an earlier server has begun; nil if there is none.
func (r *Runner) interactive(ctx context.Context, owner cove.Principal, t terminals.Started) (*store.Run, error) {
	page, err := r.o.Store.For(owner).
		Runs(ctx, store.RunQuery{Sandbox: string(t.Sandbox), Status: store.RunRunning, Limit: store.MaxPage})
	if err != nil {
		return nil, err
	}
	for _, record := range page.Runs {
		if record.Interactive && record.Spec.Terminal == t.ID {
			return &record, nil
		}
	}
	return nil, nil
}

// recording writes the output of a terminal as asciicast, version 2. Its methods must not be called concurrently.
type recording struct {
	r      *Runner
	record store.Run
	file   *os.File
	left   int // bytes that may be written
}

// castOf opens the recording of a run.
func (r *Runner) castOf(record store.Run, t terminals.Started, of store.Sandbox) (*recording, error) {
	dir := r.dirOf(record.ID)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, unwritable(err)
	}
	f, err := os.OpenFile(filepath.Join(dir, t.ID+castSuffix), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, unwritable(err)
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, unwritable(err)
	}
	rec := &recording{r: r, record: record, file: f, left: maxRecording - int(info.Size())}
	if info.Size() == 0 {
		rec.line(map[string]any{
			"version": 2, "width": t.Size.Columns, "height": t.Size.Rows, "timestamp": record.StartedAt.Unix(),
			"title": fmt.Sprintf("%s in %s", record.Agent, of.Name), "env": map[string]string{"TERM": "xterm-256color"},
		})
	}
	r.mu.Lock()
	r.screens[record.ID] = true
	r.mu.Unlock()
	return rec, nil
}

// Output implements terminals.Recorder.
func (c *recording) Output(p []byte) { c.event("o", strings.ToValidUTF8(string(p), "\uFFFD")) }

// Resized implements terminals.Recorder.
func (c *recording) Resized(s terminal.Size) { c.event("r", fmt.Sprintf("%dx%d", s.Columns, s.Rows)) }

func (c *recording) event(kind, data string) {
	at := c.r.o.Clock.Now().Sub(c.record.StartedAt).Seconds()
	c.line([]any{math.Round(max(at, 0)*1e6) / 1e6, kind, data})
}

// line writes one. What does not fit, or cannot be written, ends the recording, and not the program.
func (c *recording) line(v any) {
	if c.left <= 0 {
		return
	}
	data, err := json.Marshal(v)
	if err == nil && len(data) >= c.left {
		err = errTooMuch
	}
	if err == nil {
		_, err = c.file.Write(append(data, '\n'))
	}
	if c.left -= len(data) + 1; err != nil {
		c.left = 0
		c.r.o.Log.Warn("the recording of a terminal ends before the terminal", "run", c.record.ID, "error", err)
	}
}

// Detached implements terminals.Recorder: the next server goes on with it.
func (c *recording) Detached() {
	c.file.Close()
	c.r.mu.Lock()
	defer c.r.mu.Unlock()
	delete(c.r.screens, c.record.ID)
}

// Ended implements terminals.Recorder.
func (c *recording) Ended(exit int) {
	c.r.mu.Lock()
	closed := c.r.closed
	if !closed {
		c.r.running.Add(1)
	}
	c.r.mu.Unlock()
	if closed {
		c.Detached() // the next server finds that it has ended
		return
	}
	go func() {
		defer c.r.running.Done()
		c.r.concludeScreen(c.record, exit)
		c.Detached()
	}()
}

// concludeScreen records how a run in a terminal has ended: -1 where that is not known.
func (r *Runner) concludeScreen(record store.Run, exit int) {
	ctx, cancel := context.WithTimeout(context.Background(), concludeTimeout)
	defer cancel()
	changes, err := r.changes(ctx, record.Owner(), record)
	if err != nil {
		r.o.Log.Debug("what a run has changed is not known", "run", record.ID, "error", err) // its sandbox may be gone
	}
	record.EndedAt, record.Changes = new(r.o.Clock.Now()), changes
	record.Made = r.o.Sandboxes.MadeSoFar(ctx, record.Owner(), record.Sandbox)
	switch {
	case exit < 0:
		record.Status = store.RunInterrupted
	case exit == 0:
		record.Status, record.ExitCode = store.RunSucceeded, &exit
	default:
		record.Status, record.ExitCode = store.RunFailed, &exit
	}
	r.ends.record(end{record, func() {}})
}
