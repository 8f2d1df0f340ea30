package execution

import (
	"context"

	"golang.org/x/sync/semaphore"

	"github.com/cove-sandbox/cove/internal/spool"
	"github.com/cove-sandbox/cove/internal/store"
)

const (
	// maxText is the most of one stream that a record is given. The store cuts what it gets at MaxOutput, and says so.
	maxText = store.MaxOutput + 1
	// maxTexts bounds the output that is in memory as text, on its way to or from the store, in bytes: the store writes
	// one record at a time, and reads are short.
	maxTexts = 8 << 20
)

// texts bounds the output that is in memory as text.
type texts struct{ room *semaphore.Weighted }

func newTexts() texts { return texts{semaphore.NewWeighted(maxTexts)} }

// add adds to a record the output that it is to have, as far as it can be read. release is called once the record is
// written; records wait for the ones before them.
func (t texts) add(ctx context.Context, e *store.Execution, o *spool.Output) (release func(), err error) {
	n := min(o.Stdout().Size(), maxText) + min(o.Stderr().Size(), maxText)
	t.room.Acquire(context.WithoutCancel(ctx), n) // the end of an execution is recorded whether or not its caller left
	if e.Output, err = o.Stdout().String(maxText); err == nil {
		e.Stderr, err = o.Stderr().String(maxText)
	}
	if err != nil {
		e.Output, e.Stderr, e.Truncated = "", "", true
	}
	return func() { t.room.Release(n) }, err
}
