package run

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/apispec"
	"github.com/cove-sandbox/cove/internal/egress/decision"
	"github.com/cove-sandbox/cove/internal/store"
)

// maxListed is how much of a prompt or a result a list shows, in bytes.
const maxListed = 400

// Runs returns a page of the runs that a caller sees, newest first, with the beginnings of long texts.
func (r *Runner) Runs(ctx context.Context, who cove.Principal, q store.RunQuery) (store.RunPage, error) {
	page, err := r.o.Store.For(who).Runs(ctx, q)
	if q.Status == store.RunRunning {
		page.Runs = slices.DeleteFunc(page.Runs, func(run store.Run) bool { return r.ends.has(run.ID) })
	}
	for i, run := range page.Runs {
		run = r.ends.known(run)
		run.Prompt, run.Result, run.Changes, run.Made = brief(run.Prompt), brief(run.Result), nil, nil
		page.Runs[i] = show(who, run)
	}
	return page, err
}

func brief(s string) string {
	short, cut := store.Cut(s, maxListed)
	if cut {
		short += "…"
	}
	return short
}

// show is a run as a caller sees it: where the owner keeps things is the owner's.
func show(who cove.Principal, run store.Run) store.Run {
	if !who.IsOwner() {
		run.Directory = ""
	}
	return run
}

// Run returns one, by its id or the beginning of it that no other has. Errors: NotFound, Conflict.
func (r *Runner) Run(ctx context.Context, who cove.Principal, ref string) (store.Run, error) {
	record, err := r.find(ctx, who, ref)
	if err != nil {
		return store.Run{}, err
	}
	run := r.current(record)
	run.Recordings, err = r.recordings(run.ID)
	return show(who, run), err
}

// current is a run as it is now: of one that runs, with what it has said.
func (r *Runner) current(record store.Run) store.Run {
	run := record
	if l := r.liveOf(record.ID); l != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		run.Session, run.Model, run.Usage = l.record.Session, l.record.Model, l.record.Usage
	}
	return run
}

// Interrupt has an agent stop. With kill it is ended at once. Errors: NotFound, Conflict when it has ended.
func (r *Runner) Interrupt(ctx context.Context, who cove.Principal, ref string, kill bool) error {
	record, err := r.find(ctx, who, ref)
	if err != nil {
		return err
	}
	l := r.liveOf(record.ID)
	if record.Interactive && record.Status == store.RunRunning {
		return cove.Errorf(cove.Conflict, "the run %s is interactive, in a terminal", record.ID).
			WithHint("end it there: cove attach %s", record.SandboxName)
	}
	if l == nil {
		return cove.Errorf(cove.Conflict, "the run %s does not run (%s)", record.ID, record.Status)
	}
	how, action := askedInterrupt, "interrupt"
	if kill {
		how, action = askedKill, "kill"
	}
	l.stop(how)
	return r.o.Store.For(who).Append(ctx, store.Record{Time: r.o.Clock.Now().UTC(), Action: action,
		Object: string(record.ID), Verdict: "ok", Detail: record.Agent})
}

// Remove removes the record of a run that has ended. Errors: NotFound, Conflict.
func (r *Runner) Remove(ctx context.Context, who cove.Principal, ref string) error {
	record, err := r.find(ctx, who, ref)
	if err != nil {
		return err
	}
	if record.Unrecorded {
		if err := r.ends.Retry(ctx); err != nil {
			return err
		}
	}
	id := record.ID
	if err := r.o.Store.For(who).RemoveRun(ctx, id); err != nil {
		return err
	}
	return os.RemoveAll(r.dirOf(id))
}

// Export writes the record of a run as a tar archive: run.json, messages.ndjson, stderr.log, decisions.ndjson,
// actions.ndjson, changes.patch, and recordings; without the files that are gone. The texts of the agent and its
// sandbox are not verified. Errors, before anything is written: NotFound, Conflict.
func (r *Runner) Export(ctx context.Context, who cove.Principal, ref string, out io.Writer) error {
	record, err := r.find(ctx, who, ref)
	if err != nil {
		return err
	}
	a := archive{w: tar.NewWriter(out), dir: r.o.Dir, at: record.StartedAt}
	dir := r.dirOf(record.ID)
	a.add("run.json", func(w io.Writer) error {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(apispec.Run(show(who, r.current(record))))
	})
	gone := record.OutputGone != "" // run.json says so
	a.addIf(!gone, "messages.ndjson", func(w io.Writer) error {
		return each(dir, func(e entry) error {
			if e.Message == nil {
				return nil
			}
			return json.NewEncoder(w).Encode(e.Message)
		})
	})
	a.addIf(!gone, "stderr.log", func(w io.Writer) error {
		return each(dir, func(e entry) error {
			_, err := io.WriteString(w, e.Log)
			return err
		})
	})
	a.add("decisions.ndjson", func(w io.Writer) error {
		all, err := r.decisions(ctx, record)
		for _, d := range all {
			err = errors.Join(err, json.NewEncoder(w).Encode(apispec.Decision(d)))
		}
		return err
	})
	a.add("actions.ndjson", func(w io.Writer) error { return r.actions(ctx, who, record, w) })
	for _, name := range files(dir, patchFile, castSuffix) {
		a.add(name, func(w io.Writer) error {
			f, err := os.Open(filepath.Join(dir, name))
			if err != nil {
				return err
			}
			defer f.Close()
			_, err = io.Copy(w, f)
			return err
		})
	}
	if a.err != nil {
		return a.err
	}
	return a.w.Close()
}

// archive writes files, each of which is made first: a tar's header says how long a file is.
type archive struct {
	w   *tar.Writer
	dir string // for files in the making
	at  time.Time
	err error
}

// addIf adds a file where there is one.
func (a *archive) addIf(there bool, name string, write func(io.Writer) error) {
	if there {
		a.add(name, write)
	}
}

func (a *archive) add(name string, write func(io.Writer) error) {
	if a.err != nil {
		return
	}
	f, err := os.CreateTemp(a.dir, "export-")
	if err != nil {
		a.err = unwritable(err)
		return
	}
	defer f.Close()
	defer os.Remove(f.Name())
	if err = write(f); err == nil {
		err = a.copy(name, f)
	}
	if err != nil {
		a.err = err
	}
}

func (a *archive) copy(name string, f *os.File) error {
	size, err := f.Seek(0, io.SeekEnd)
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err == nil {
		err = a.w.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: size, ModTime: a.at, Format: tar.FormatPAX})
	}
	if err == nil {
		_, err = io.Copy(a.w, f)
	}
	return err
}

// each hands out the entries of a run.
func each(dir string, take func(entry) error) error {
	r, err := openReader(dir, 0)
	if err != nil {
		return err
	}
	defer r.close()
	for {
		e, err := r.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = take(e)
		}
		if err != nil {
			return err
		}
	}
}

// decisions returns the network decisions of a run's sandbox while it ran, oldest first.
func (r *Runner) decisions(ctx context.Context, record store.Run) ([]decision.Decision, error) {
	if record.Sandbox == "" {
		return nil, nil
	}
	r.o.Flush()
	q := store.DecisionQuery{Sandbox: boxOf(record), Since: record.StartedAt, Limit: store.MaxPage}
	if record.EndedAt != nil {
		q.Until = *record.EndedAt
	}
	var all []decision.Decision
	for {
		page, err := r.o.Store.For(record.Owner()).ListDecisions(ctx, q)
		if err != nil {
			return nil, err
		}
		all = append(all, page.Decisions...)
		if q.Cursor = page.Next; q.Cursor == "" {
			slices.Reverse(all)
			slices.SortStableFunc(all, byTime)
			return all, nil
		}
	}
}

// actions writes the audit records of a run's sandbox while it ran, newest first. A caller that does not see the whole
// log gets its own, and those of programs in the sandbox, without hashes.
func (r *Runner) actions(ctx context.Context, who cove.Principal, record store.Run, w io.Writer) error {
	if record.Sandbox == "" {
		return nil
	}
	inside := cove.InSandbox(record.SandboxName).String() // as earlier versions recorded them
	q := store.AuditQuery{Object: record.Sandbox, Since: record.StartedAt, Limit: store.MaxPage}
	if record.EndedAt != nil {
		q.Until = record.EndedAt.Add(time.Microsecond)
	}
	for {
		page, err := r.o.Store.For(cove.System("")).Audit(ctx, q)
		if err != nil {
			return err
		}
		for _, a := range page.Records {
			if !who.SeesAll() {
				if a.Who != who.String() && a.Who != inside {
					continue
				}
				a.Hash = ""
			}
			if err := json.NewEncoder(w).Encode(apispec.AuditRecord(a)); err != nil {
				return err
			}
		}
		if q.Cursor = page.Next; q.Cursor == "" {
			return nil
		}
	}
}

// files are the names in a directory that are, or end as, one of some.
func files(dir string, ends ...string) []string {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var all []string
	for _, e := range entries {
		if slices.ContainsFunc(ends, func(end string) bool { return strings.HasSuffix(e.Name(), end) }) {
			all = append(all, e.Name())
		}
	}
	return all
}

// recordings are the terminals of a run that have one.
func (r *Runner) recordings(id cove.RunID) ([]string, error) {
	all := files(r.dirOf(id), castSuffix)
	for i := range all {
		all[i] = strings.TrimSuffix(all[i], castSuffix)
	}
	return all, nil
}

// Recording writes the recording of a terminal of a run. Errors: NotFound.
func (r *Runner) Recording(ctx context.Context, who cove.Principal, ref, terminal string, out io.Writer) error {
	record, err := r.find(ctx, who, ref)
	if err != nil {
		return err
	}
	if err := checkFiles(record); err != nil {
		return err
	}
	dir := r.dirOf(record.ID)
	if !slices.Contains(files(dir, castSuffix), terminal+castSuffix) {
		return cove.Errorf(cove.NotFound, "the run %s has no recording of a terminal %.20q", record.ID, terminal)
	}
	f, err := os.Open(filepath.Join(dir, terminal+castSuffix))
	if err != nil {
		return cove.Errorf(cove.Corrupt, "the recording cannot be read: %w", err)
	}
	defer f.Close()
	_, err = io.Copy(out, f)
	return err
}

func byTime(a, b decision.Decision) int { return a.Time.Compare(b.Time) }
