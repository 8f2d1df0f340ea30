package run

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/hostdisk"
	"github.com/cove-sandbox/cove/internal/store"
)

// excess returns how many bytes of files are beyond the bounds, on a disk with so many free. It is pure.
func (b Bounds) excess(used, free int64) int64 {
	var over int64
	if b.Size > 0 {
		over = used - b.Size
	}
	return max(over, b.Free-free, 0)
}

// taken is a run, and the bytes that its files take.
type taken struct {
	run   store.Run
	bytes int64
}

// outgoing returns the runs whose files make room for so many bytes: those that ended first. It is pure.
func outgoing(all []taken, bytes int64) (out []store.Run) {
	all = slices.DeleteFunc(slices.Clone(all), func(t taken) bool { return t.run.EndedAt == nil || t.bytes == 0 })
	slices.SortFunc(all, func(a, b taken) int { return a.run.EndedAt.Compare(*b.run.EndedAt) })
	for _, t := range all {
		if bytes <= 0 {
			break
		}
		out = append(out, t.run)
		bytes -= t.bytes
	}
	return out
}

// makeRoom keeps the files of runs within their bounds; here tells of runs that need theirs.
func makeRoom(ctx context.Context, o Options, here func(cove.RunID) bool) error {
	sizes, used := sizesOf(o.Dir)
	if len(sizes) == 0 {
		return nil
	}
	disk, err := hostdisk.Of(o.Dir)
	if err != nil {
		return err
	}
	excess := o.Bounds.excess(used, disk.Free)
	if excess == 0 {
		return nil
	}
	var all []taken
	for id, bytes := range sizes {
		if here(id) {
			continue
		}
		if record, err := o.Store.For(cove.System("")).Run(ctx, id); err == nil {
			all = append(all, taken{record, bytes})
		}
	}
	out := outgoing(all, excess)
	var errs []error
	for _, record := range out {
		// The record comes first, so that no run lacks its files without a word.
		err := o.Store.For(record.Owner()).ChangeRun(ctx, record.ID, func(r *store.Run) error {
			r.OutputGone = store.GoneHistorySize
			return nil
		})
		if err == nil {
			err = os.RemoveAll(filepath.Join(o.Dir, string(record.ID)))
		}
		errs = append(errs, err)
	}
	if len(out) > 0 {
		o.Log.Warn("removed the files of the oldest runs, to keep the history within its bounds", "runs", len(out))
	}
	return errors.Join(errs...)
}

// sizesOf returns what the files of each run take, and all of them together.
func sizesOf(dir string) (sizes map[cove.RunID]int64, used int64) {
	entries, _ := os.ReadDir(dir) // there may be none yet
	sizes = map[cove.RunID]int64{}
	for _, entry := range entries {
		id, err := cove.ParseRunID(entry.Name())
		if err != nil {
			continue
		}
		files, _ := os.ReadDir(filepath.Join(dir, entry.Name()))
		for _, f := range files {
			if info, err := f.Info(); err == nil { // else it has gone meanwhile
				sizes[id] += info.Size()
			}
		}
		used += sizes[id]
	}
	return sizes, used
}

// checkFiles refuses what needs the files of a run that has none any more.
func checkFiles(r store.Run) error {
	if r.OutputGone == "" {
		return nil
	}
	return cove.Errorf(cove.NotFound, "the messages and recordings of the run %s were removed, to bound the size of the "+
		"history (history.max_mb)", r.ID).WithHint("its record is there: cove runs show %s", r.ID)
}
