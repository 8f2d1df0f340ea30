package repos

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/hostgit"
)

// Held counts the work of a sandbox that is nowhere else: what was neither pushed nor applied.
type Held struct {
	Commits int // on any branch, those of a stash included
	Aside   int // of them: those that the commit that is checked out does not have
	Files   int // changed since the last commit, without what programs make again, such as __pycache__
}

// maxDelivered bounds that file, in bytes; what is delivered beyond it counts as held.
const maxDelivered = 1 << 20

// Deliver records that commits of a sandbox are elsewhere, too: pushed, or applied. Where that cannot be recorded, they
// count as held.
func (s *Store) Deliver(id cove.SandboxID, commits ...string) {
	if r, err := s.read(id); err != nil || r.Source == "" {
		return
	}
	f, err := os.OpenFile(filepath.Join(s.directory(id), deliveredFile), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err == nil {
		var i fs.FileInfo
		if i, err = f.Stat(); err == nil && i.Size() < maxDelivered {
			_, err = f.WriteString(strings.Join(commits, "\n") + "\n")
		}
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		s.o.Log.Warn("cannot record what was pushed or applied", "sandbox", id, "error", err)
	}
}

// Held looks at the work that was imported last, of which refs are the refs.
func (s *Store) Held(ctx context.Context, id cove.SandboxID, refs []Ref) (h Held, err error) {
	r, err := s.repositoryOf(id)
	if err != nil {
		return h, err
	}
	in := importRepository{Store: s, dir: s.importOf(id)}
	held, err := keepImported(ctx, in.dir)
	if err != nil {
		return h, err
	}
	defer held.Close()
	known, err := in.delivered(ctx)
	if err != nil {
		return h, err
	}
	var heads []string
	head, snapshot := "", ""
	for _, ref := range refs {
		switch ref.Name {
		case "work":
			snapshot = ref.ID
			continue
		case "HEAD":
			head = ref.ID
		}
		heads = append(heads, ref.ID)
	}
	elsewhere := append(slices.Clone(known), r.Base)
	if len(heads) > 0 {
		if h.Commits, err = in.notIn(ctx, heads, elsewhere); err != nil {
			return h, err
		}
	}
	if h.Commits > 0 {
		if h.Aside, err = in.notIn(ctx, heads, append(elsewhere, head)); err != nil {
			return h, err
		}
	}
	if snapshot != "" {
		h.Files, err = in.uncommitted(ctx, snapshot, known)
	}
	return h, err
}

// notIn counts the commits in the history of heads that are not in that of others.
func (r importRepository) notIn(ctx context.Context, heads, others []string) (n int, err error) {
	var in bytes.Buffer
	for _, id := range heads {
		fmt.Fprintln(&in, id)
	}
	for _, id := range others {
		if id != "" {
			fmt.Fprintln(&in, "^"+id)
		}
	}
	out, err := r.line(ctx, nil, hostgit.Run{Dir: r.dir, Command: []string{"rev-list"},
		Flags: []string{"--count", "--stdin"}, Stdin: &in})
	if err == nil {
		_, err = fmt.Sscan(out, &n)
	}
	return n, err
}

// uncommitted counts the files of a snapshot that differ from its parent. A snapshot with the tree of a delivered
// commit is delivered.
func (r importRepository) uncommitted(ctx context.Context, snapshot string, known []string) (n int, err error) {
	var in strings.Builder
	for _, id := range append([]string{snapshot}, known...) {
		in.WriteString(id + "^{tree}\n")
	}
	out, err := r.git(ctx, nil, hostgit.Run{Dir: r.dir, Command: []string{"cat-file"},
		Flags: []string{"--batch-check=%(objectname)"}, Stdin: strings.NewReader(in.String())})
	if trees := strings.Fields(string(out)); err != nil || slices.Contains(trees[1:], trees[0]) {
		return 0, err
	}
	out, err = r.git(ctx, nil, hostgit.Run{Dir: r.dir, Command: []string{"diff-tree"},
		Flags: []string{"-r", "--root", "-z", "--name-only", "--no-commit-id"}, Args: []string{snapshot},
		MaxOutput: maxWords})
	for name := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		if name != "" && !madeAgain(name) {
			n++
		}
	}
	return n, err
}

// madeAgain reports files that programs write for themselves, and write again when they are gone.
func madeAgain(path string) bool {
	for part := range strings.SplitSeq(path, "/") {
		switch part {
		case "__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".DS_Store", "node_modules":
			return true
		}
	}
	return strings.HasSuffix(path, ".pyc")
}
