package run

import (
	"os"
	"path/filepath"
	"sync"

	"github.com/cove-sandbox/cove"
)

// beginsFile is in the directory of a run from before a sandbox is made for it until the run is recorded, or the
// sandbox is gone.
const beginsFile = "begins"

// beginnings are the runs that begin, and may have no record yet. The next server destroys the sandbox of one that was
// never recorded. The label of a sandbox alone does not tell that: a sandbox that is kept outlives its run's record.
type beginnings struct {
	dir string // of all runs

	mu   sync.Mutex
	here map[cove.RunID]bool
}

// begin says that a run begins, and with own that a sandbox is made for it.
func (b *beginnings) begin(id cove.RunID, own bool) error {
	b.mu.Lock()
	b.here[id] = true
	b.mu.Unlock()
	if !own {
		return nil
	}
	dir := filepath.Join(b.dir, string(id))
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, beginsFile), nil, 0o600)
	}
	if err != nil {
		b.end(id, false)
		return unwritable(err)
	}
	return nil
}

// end says that a run has begun, or will not. With stray a sandbox is there that is to be destroyed later.
func (b *beginnings) end(id cove.RunID, stray bool) {
	if !stray {
		b.forget(id)                                // Reconcile tries it again
		os.Remove(filepath.Join(b.dir, string(id))) // fails where files of the run are in it
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.here, id)
}

// has reports whether a run begins in this process.
func (b *beginnings) has(id cove.RunID) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.here[id]
}

// left reports whether an earlier server, or this one, has left a sandbox that was made for a run without a record.
func (b *beginnings) left(id cove.RunID) bool {
	_, err := os.Lstat(filepath.Join(b.dir, string(id), beginsFile))
	return err == nil
}

// forget says that a run is recorded.
func (b *beginnings) forget(id cove.RunID) error {
	return os.Remove(filepath.Join(b.dir, string(id), beginsFile))
}
