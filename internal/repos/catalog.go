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
	"github.com/cove-sandbox/cove/internal/workspace"
)

// catalog finds workspaces by their ids: their directories and records.
type catalog struct{ workspaces string }

// directory returns the path of a workspace, existing or not.
func (c catalog) directory(id cove.SandboxID) string { return filepath.Join(c.workspaces, string(id)) }

// filesIn returns the directory that holds the checkout and the home of a workspace at dir.
func (c catalog) filesIn(dir string, r record) string {
	if r.Within != "" && r.Files != "" {
		return filepath.Join(c.directory(r.Within), r.Files, withinDir, string(r.ID))
	}
	return filepath.Join(dir, r.Files)
}

// Prefixes of directories being made, and being removed.
const (
	coming = ".new-"
	going  = ".gone-"
)

// Names in a workspace's directory.
const (
	checkoutDir   = "checkout"
	homeDir       = "home"
	layerDir      = "layer" // changes to the root filesystem
	volumesDir    = "volumes"
	importDir     = "import.git"
	repositoryDir = "repository.git"
	diskDir       = "disk"     // where its disk is mounted, with checkout, home and hidden repository
	imageFile     = "disk.img" // of the disk
	keepingDir    = "keeping"  // work that is being kept, off the disk
	withinDir     = "within"   // on a disk: checkouts within the sandbox that are being made or removed
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

	Disk workspace.DiskKind `json:"disk,omitempty"` // what bounds it; empty for a workspace of an earlier version
	// Files is the path of its files, below its own directory or, for one within another sandbox, below that one's.
	Files string `json:"files,omitempty"`

	Layer bool `json:"layer,omitempty"` // there is a layerDir among its files

	Kept bool `json:"kept,omitempty"` // the sandbox is gone, its work remains
}

func writeRecord(dir string, r record) error { return putRecord(dir, r, atomicfile.Write) }

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
func (c catalog) records() ([]record, error) {
	entries, err := os.ReadDir(c.workspaces)
	if err != nil {
		return nil, storageFull("read "+c.workspaces, err)
	}
	var all []record
	var errs []error
	for _, e := range entries {
		if !e.IsDir() || strings.HasPrefix(e.Name(), going) {
			continue
		}
		r, err := readRecord(filepath.Join(c.workspaces, e.Name()))
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

// importOf returns the repository of the imported work of a sandbox.
func (c catalog) importOf(id cove.SandboxID) string { return filepath.Join(c.directory(id), importDir) }

// borrowers returns the workspaces that borrow objects of a mirror.
func (c catalog) borrowers(key string) ([]cove.SandboxID, error) {
	all, err := c.records()
	var ids []cove.SandboxID
	for _, r := range all {
		if r.Mirror == key {
			ids = append(ids, r.ID)
		}
	}
	return ids, err
}

// read returns the record of a sandbox's workspace. Errors: NotFound, Corrupt.
func (c catalog) read(id cove.SandboxID) (record, error) {
	if _, err := cove.ParseSandboxID(string(id)); err != nil {
		return record{}, err
	}
	r, err := readRecord(c.directory(id))
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
