package instance

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/filelock"
)

// LockHome makes this the only server of a home; single commands share it.
func LockHome(home string) (*os.File, error) {
	return LockDirectory(home, "server", "set another home with COVE_HOME",
		"stop it, or give this one a home of its own with COVE_HOME and COVE_RUN_DIR")
}

// LockRunDirectory makes this the only server of a run directory.
func LockRunDirectory(dir string) (*os.File, error) {
	return LockDirectory(dir, "server", "set another run directory with COVE_RUN_DIR",
		"stop it (cove server stop), or give this one a run directory of its own with COVE_RUN_DIR")
}

// lockPatience is how long a process that was killed may keep its locks: its children have them until each is the
// program that it becomes.
const lockPatience = 2 * time.Second

// Await has a lock made that a process which was killed may still have.
func Await(ctx context.Context, lock func() (*os.File, error)) (*os.File, error) {
	ctx, cancel := context.WithTimeout(ctx, lockPatience)
	defer cancel()
	for {
		f, err := lock()
		if cove.ErrorCode(err) != cove.Conflict {
			return f, err
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return nil, err
		}
	}
}

// Serves reports whether a server uses a home or a run directory now.
func Serves(home, runDir string) bool {
	for _, lock := range []func() (*os.File, error){
		func() (*os.File, error) { return LockHome(home) },
		func() (*os.File, error) { return LockRunDirectory(runDir) },
	} {
		f, err := lock()
		if cove.ErrorCode(err) == cove.Conflict {
			return true
		}
		if err == nil {
			f.Close()
		}
	}
	return false
}

// LockDirectory makes this process the only server or gateway (kind) of a directory. The hints follow from an unusable
// directory, and from another process that uses it.
func LockDirectory(dir, kind, unusable, used string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, kind+".lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, cove.Errorf(cove.StorageFull, "cannot use %s: %w", dir, err).WithHint("%s", unusable)
	}
	if err := filelock.Try(f, filelock.Exclusive); err != nil {
		f.Close()
		return nil, cove.Errorf(cove.Conflict, "another %s uses %s", kind, dir).WithHint("%s", used)
	}
	return f, nil
}
