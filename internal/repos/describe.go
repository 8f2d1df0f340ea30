package repos

import (
	"fmt"

	"github.com/cove-sandbox/cove/internal/store"
)

// Describe returns changes in the form of a record.
func Describe(changes []Change) []store.FileChange {
	all := []store.FileChange{}
	for _, c := range changes {
		kind := "changed"
		switch {
		case c.Old == (Entry{}):
			kind = "added"
		case c.New == (Entry{}):
			kind = "deleted"
		case c.OldPath != "":
			kind = "renamed"
		}
		all = append(all, store.FileChange{Path: c.Path, OldPath: c.OldPath, Change: kind, OldMode: modeText(c.Old),
			NewMode: modeText(c.New), NewID: c.New.ID, Added: c.Added, Removed: c.Removed, Binary: c.Binary, Patch: c.Patch})
	}
	return all
}

// modeText returns the mode of an entry as git writes it.
func modeText(e Entry) string {
	if e.Mode == 0 {
		return ""
	}
	return fmt.Sprintf("%06o", e.Mode)
}
