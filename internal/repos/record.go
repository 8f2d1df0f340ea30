package repos

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/atomicfile"
	"github.com/cove-sandbox/cove/internal/hostgit"
)

// record is the record of a workspace: record.json of its directory.
type record struct {
	ID      cove.SandboxID `json:"id"`
	Client  string         `json:"client,omitempty"`
	Created time.Time      `json:"created"`

	Bound string `json:"bound,omitempty"` // a directory of the person's own in place of a checkout

	Source     string   `json:"source,omitempty"`     // as requested
	Repository string   `json:"repository,omitempty"` // its key in the store, whether or not the workspace borrows
	Mirror     string   `json:"mirror,omitempty"`     // key of the mirror it borrows from
	Remote     string   `json:"remote,omitempty"`
	Branch     string   `json:"branch,omitempty"`
	From       string   `json:"from,omitempty"`
	Base       string   `json:"base,omitempty"`
	Shared     []string `json:"shared,omitempty"`

	Hidden   string `json:"hidden,omitempty"`   // git directory of a worktree; relative if inside the workspace
	Worktree string `json:"worktree,omitempty"` // its name below Hidden/worktrees
	NewRef   string `json:"new_ref,omitempty"`  // the branch made for it in the person's own repository

	Within cove.SandboxID `json:"within,omitempty"` // the sandbox whose home contains the checkout
	Place  string         `json:"place,omitempty"`  // its name there

	Kept bool `json:"kept,omitempty"` // the sandbox is gone, its work remains
}

func writeRecord(dir string, r record) error { return putRecord(dir, r, atomicfile.Write) }

// WorkRef is the ref of the commit, in a sandbox's repository, that holds uncommitted work for Import.
const WorkRef = "refs/cove/work"

// imported is the prefix of the sandbox's refs in import.git: HEAD, work, and heads/NAME.
const imported = "refs/sandbox/"

// Ref is a ref imported from a sandbox.
type Ref struct {
	Name string // "HEAD", "work" (WorkRef), "heads/NAME"
	ID   string
}

func (s *Store) importedRefs(ctx context.Context, dir string) ([]Ref, error) {
	out, err := s.git(ctx, nil, hostgit.Run{Dir: dir, Command: []string{"for-each-ref"},
		Flags: []string{"--format=%(objectname) %(refname)"}, Args: []string{imported}})
	if err != nil {
		return nil, err
	}
	var refs []Ref
	for line := range strings.Lines(string(out)) {
		id, name, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		refs = append(refs, Ref{Name: strings.TrimPrefix(name, imported), ID: id})
	}
	return refs, nil
}

// repositoryOf returns the record of a workspace with a repository.
func (s *Store) repositoryOf(id cove.SandboxID) (record, error) {
	r, err := s.read(id)
	if err == nil && r.Source == "" {
		err = cove.Errorf(cove.InvalidArgument, "the sandbox works on no repository")
	}
	return r, err
}

const (
	recordFile = "record.json"
	maxRecord  = 1 << 20 // bytes
)

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

// readRecord reads the record in a directory. Errors: NotFound, Corrupt.
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
		return r, cove.Errorf(cove.Corrupt, "the record of a workspace cannot be read: %w",
			err).WithHint("remove it: cove destroy %s", filepath.Base(dir))
	}
	return r, nil
}

// records reads the records of all workspaces, including those in the making. It returns the readable ones, with an
// error if any is unreadable, since that one may borrow from any mirror.
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
			continue // removed, or not written yet and so without a mirror
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		all = append(all, r)
	}
	return all, errors.Join(errs...)
}

// borrowers returns the workspaces that borrow objects of a mirror.
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

// read returns the record of a sandbox's workspace. Errors: NotFound, Corrupt.
func (s *Store) read(id cove.SandboxID) (record, error) {
	if _, err := cove.ParseSandboxID(string(id)); err != nil {
		return record{}, err
	}
	r, err := readRecord(s.directory(id))
	switch {
	case err != nil:
		return record{}, err
	case r.ID != id:
		return record{}, cove.Errorf(cove.Corrupt, "the workspace of %s says that it is another's", id)
	case r.Kept:
		return record{}, cove.Errorf(cove.NotFound, "there is no such workspace")
	}
	return r, nil
}
