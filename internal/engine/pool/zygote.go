package pool

import (
	"context"
	"log/slog"
	"os"
	"time"

	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/guest"
)

// Programs that come from one zygote share the layout of their memory, and what was drawn at random when the first of
// them started. A zygote serves for a while only, so that little is learned by learning that.
const (
	zygoteAge  = 10 * time.Minute
	zygoteUses = 1000
	// zygoteTries is how often it is tried to make one of a key's program.
	zygoteTries = 3
)

// zygotes holds the zygote of a key, if there is one. Only the goroutine that makes sandboxes uses it.
type zygotes struct {
	file   *os.File // nil for none; closed when it is replaced, or with the key
	born   clock.Instant
	uses   int
	failed int
}

// copy is the program to make from a zygote that is fresh enough; nil for none.
func (z *zygotes) copy(now clock.Instant, p Parked) *engine.Copy {
	if z.file != nil && (now.Sub(z.born) >= zygoteAge || z.uses >= zygoteUses) {
		z.drop()
	}
	if z.file == nil {
		return nil
	}
	z.uses++
	return &engine.Copy{Zygote: z.file, Path: p.Path, Spec: p.Spec}
}

func (z *zygotes) drop() {
	z.file.Close()
	z.file = nil
}

// broken drops a zygote of which no program could be made. It may have been of files that have changed since.
func (z *zygotes) broken(log *slog.Logger, err error) {
	z.drop()
	z.failed++
	log.Info("a zygote makes no programs", "error", err)
}

// make makes a zygote of a program that was started anew.
func (z *zygotes) make(ctx context.Context, log *slog.Logger, now clock.Instant, p *Prepared, path string) {
	if z.failed >= zygoteTries {
		return
	}
	f, err := guest.MakeZygote(ctx, p.Process.RemoteProcess, path)
	if err != nil {
		z.failed++
		log.Info("no zygote can be made of a parked program: each is started", "error", err)
		return
	}
	*z = zygotes{file: f, born: now, failed: z.failed}
}
