package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/atomicfile"
	"github.com/cove-sandbox/cove/internal/engine/provision"
	"github.com/cove-sandbox/cove/internal/hostpath"
)

// marksName is the file with the marks of a sandbox's mounts, in the directory of what the sandbox is shown.
const marksName = "marks.json"

// keepMarks writes the marks of a sandbox's mounts, for a later server that adopts it.
func keepMarks(dir string, sb *provision.Sandbox) error {
	file := filepath.Join(dir, marksName)
	if len(sb.Marks) == 0 {
		if err := os.Remove(file); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	data, err := json.Marshal(sb.Marks)
	if err == nil {
		err = atomicfile.Write(file, data, 0o600)
	}
	if err != nil {
		return cove.Errorf(cove.StorageFull, "cannot write what the mounts of a sandbox held: %w", err).
			WithHint("free some space, or choose another home with COVE_HOME")
	}
	return nil
}

// readMarks reads the marks of a sandbox that another server has made.
func readMarks(dir string, log *slog.Logger) (all []hostpath.Mark) {
	data, err := os.ReadFile(filepath.Join(dir, marksName))
	if err == nil {
		err = json.Unmarshal(data, &all)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		log.Warn("what the mounts of a sandbox held is not known any more", "directory", dir, "error", err)
	}
	return all
}

// lookAtMounts ends what runs in a sandbox with writable mounts, and notes in the audit log what it has made in them
// that decides what programs of their owner run.
func (rd *records) lookAtMounts(sb *provision.Sandbox) []hostpath.Made {
	ctx := context.Background()
	all := sb.Made(ctx)
	if len(all) == 0 {
		return nil
	}
	owner := cove.MachineOwner()
	if record, err := rd.own().Sandbox(ctx, sb.ID()); err == nil {
		owner = record.Owner
	}
	for _, made := range all {
		rd.Audit(ctx, owner, auditRecord("mounts", sb.ID(), made.Text(), nil))
		rd.o.Log.Warn("a sandbox has made in a mount what decides what others run", "sandbox", sb.ID(), "made", made.Text())
	}
	return all
}

// MadeSoFar returns what a sandbox that goes on has made in its writable mounts that decides what programs of their
// owner run. What it makes afterwards is known when it ends.
func (rd *records) MadeSoFar(ctx context.Context, who cove.Principal, ref string) []hostpath.Made {
	found, err := rd.find(ctx, who, ref)
	if err != nil {
		return nil
	}
	rd.mu.Lock()
	r := rd.held[found.box()]
	rd.mu.Unlock()
	if r == nil {
		return nil
	}
	bx, _ := rd.running(r)
	if bx == nil {
		return nil
	}
	return bx.MadeSoFar(ctx)
}
