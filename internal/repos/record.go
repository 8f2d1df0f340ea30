package repos

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/atomicfile"
)

// record is what a workspace is: record.json of its directory.
type record struct {
	ID      cove.SandboxID `json:"id"`
	Client  string         `json:"client,omitempty"`
	Created time.Time      `json:"created"`

	Bound   string `json:"bound,omitempty"`   // a directory of somebody's own that it is instead
	Guarded bool   `json:"guarded,omitempty"` // it has a .git, which is read-only inside

	Source     string   `json:"source,omitempty"`     // as it was asked for
	Repository string   `json:"repository,omitempty"` // key of it in the store, whether it borrows or not
	Mirror     string   `json:"mirror,omitempty"`     // key of the mirror it borrows from
	Remote     string   `json:"remote,omitempty"`
	Branch     string   `json:"branch,omitempty"`
	From       string   `json:"from,omitempty"`
	Base       string   `json:"base,omitempty"`
	Shared     []string `json:"shared,omitempty"`

	Hidden   string `json:"hidden,omitempty"`   // git directory of a worktree; relative to the workspace when it is its own
	Worktree string `json:"worktree,omitempty"` // its name below Hidden/worktrees
	NewRef   string `json:"new_ref,omitempty"`  // the branch that was made for it in somebody's own repository

	Within cove.SandboxID `json:"within,omitempty"` // the sandbox in whose home the checkout is
	Place  string         `json:"place,omitempty"`  // its name there

	Kept bool `json:"kept,omitempty"` // the sandbox is gone, its work is not
}

const (
	recordFile = "record.json"
	maxRecord  = 1 << 20 // bytes
)

func writeRecord(dir string, r record) error { return putRecord(dir, r, atomicfile.Write) }

// claim says in the record of a workspace that is being made what is its own, for
// others to see. It need not outlive the machine: what is half made goes then.
func (w *making) claim() error { return putRecord(w.dir, w.record, atomicfile.Replace) }

func putRecord(dir string, r record, write func(string, []byte, fs.FileMode) error) error {
	data, err := json.MarshalIndent(r, "", "\t")
	if err == nil {
		err = write(filepath.Join(dir, recordFile), data, 0o600)
	}
	if err != nil {
		return storageFull("write the record of a workspace", err)
	}
	return nil
}

// readRecord reads what a directory's workspace is. Errors: NotFound, Corrupt.
func readRecord(dir string) (record, error) {
	var r record
	data, err := os.ReadFile(filepath.Join(dir, recordFile))
	if errors.Is(err, fs.ErrNotExist) {
		return r, cove.Errorf(cove.NotFound, "there is no such workspace")
	}
	if err == nil && len(data) > maxRecord {
		err = errors.New("it is too large")
	}
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	if err != nil {
		return r, cove.Errorf(cove.Corrupt, "the record of a workspace cannot be read: %w", err).WithHint("remove it: cove destroy %s", filepath.Base(dir))
	}
	return r, nil
}

// records reads those of all workspaces, also of those that are being made. One
// that cannot be read is an error, with those that can: it may borrow anything.
func (s *Store) records() ([]record, error) {
	entries, err := os.ReadDir(s.workspaces)
	if err != nil {
		return nil, storageFull("read "+s.workspaces, err)
	}
	var all []record
	var errs []error
	for _, e := range entries {
		if !e.IsDir() || strings.HasPrefix(e.Name(), going) {
			continue
		}
		r, err := readRecord(filepath.Join(s.workspaces, e.Name()))
		if cove.ErrorCode(err) == cove.NotFound {
			continue // no longer, or not yet: then it borrows nothing yet
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		all = append(all, r)
	}
	return all, errors.Join(errs...)
}

// borrowers are the workspaces that borrow objects of a mirror.
func (s *Store) borrowers(key string) ([]cove.SandboxID, error) {
	all, err := s.records()
	var ids []cove.SandboxID
	for _, r := range all {
		if r.Mirror == key {
			ids = append(ids, r.ID)
		}
	}
	return ids, err
}
