package repos

import (
	"context"
	"strings"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/hostgit"
)

// WorkRef is the ref of the commit, in a sandbox's repository, that holds uncommitted work for Import.
const WorkRef = "refs/cove/work"

// stashRef is git's name of the last stash.
const stashRef = "refs/stash"

// imported is the prefix of the sandbox's refs in import.git: HEAD, work, stash, and heads/NAME.
const imported = "refs/sandbox/"

// Ref is a ref imported from a sandbox.
type Ref struct {
	Name string // "HEAD", "work" (WorkRef), "stash", "heads/NAME"
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
