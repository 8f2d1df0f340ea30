package repos

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/hostgit"
	"github.com/cove-sandbox/cove/internal/workspace"
)

const (
	maxSparse      = 256       // directories
	maxFiles       = 1_000_000 // of a checkout
	checkoutMemory = 3 << 30   // bytes, of the git process that writes it
	checkoutCPU    = 10 * time.Minute
)

// repository makes the checkout of a repository.
func (w *making) repository(ctx context.Context, want workspace.Repository) error {
	if err := checkRepository(want); err != nil {
		return err
	}
	if want.Uncommitted {
		dir, err := w.s.plainDirectory(w.spec.Owner, want)
		if err != nil {
			return err
		}
		if dir != "" {
			return w.plain(ctx, dir, want)
		}
	}
	r, err := w.s.find(ctx, w.spec.Owner, want.Source)
	if err != nil {
		return err
	}
	w.record.Source, w.record.Repository = want.Source, r.Key
	if want.Worktree && r.git != "" {
		if w.record.Remote, err = w.s.origin(ctx, r); err != nil {
			return err
		}
		return w.worktreeOf(ctx, r, want)
	}
	if want.Depth == 0 {
		w.record.Mirror = r.Key
	}
	// From here on the mirror cannot be removed.
	if err := w.claim(); err != nil {
		return err
	}
	var origin string
	var why error
	var asking sync.WaitGroup
	asking.Go(func() { origin, why = w.s.origin(ctx, r) })
	at, refs, err := w.obtain(ctx, r, want)
	asking.Wait()
	if err := cmp.Or(err, why); err != nil {
		return err
	}
	w.record.Remote = origin
	if want.Uncommitted {
		top, err := worktreeTop(r.Dir)
		if err != nil {
			return err
		}
		if err := w.snapshot(ctx, top, r.git, maxFiles); err != nil {
			return err
		}
	}
	tell(w.progress, w.checkoutStep())
	if want.Worktree {
		return w.worktree(ctx, at, refs, want.Sparse)
	}
	return w.private(ctx, at, refs, want.Sparse)
}

// checkRepository refuses contradictory requests. Errors: InvalidArgument.
func checkRepository(want workspace.Repository) error {
	bad := func(format string, args ...any) error { return cove.Errorf(cove.InvalidArgument, format, args...) }
	switch {
	case want.Depth < 0:
		return bad("a depth is the number of commits")
	case want.Depth > 0 && want.Worktree:
		return bad("a worktree has the history of its repository: it has no depth of its own")
	case want.Uncommitted && (want.Worktree || want.Depth > 0 || want.From != ""):
		return bad("what is not committed comes after what is checked out: it goes with no worktree, depth or other " +
			"beginning")
	case len(want.Sparse) > maxSparse:
		return bad("at most %d directories can be checked out", maxSparse)
	}
	for _, dir := range want.Sparse {
		clean := path.Clean(dir)
		if dir == "" || !filepath.IsLocal(clean) || strings.HasPrefix(dir, "-") || strings.ContainsAny(dir, `*?[]!\"`) ||
			strings.ContainsFunc(dir, unicode.IsControl) {
			return bad("%.200q is no directory of a repository", dir)
		}
	}
	return nil
}

// obtain fetches the required objects into the mirror and the workspace's import.git, and decides the start. refs are
// those that every sandbox may read, and the starting ref.
func (w *making) obtain(ctx context.Context, r remote,
	want workspace.Repository) (at start, refs map[string]string, err error) {
	p, hangUp, err := w.s.dial(ctx, r, false)
	if err != nil {
		return start{}, nil, err
	}
	defer func() { err = errors.Join(err, hangUp()) }()
	tell(w.progress, fetchStep(r))
	var a advert
	if want.Depth > 0 {
		a, err = listRemote(ctx, w.held, p, "--symref")
	} else {
		a, err = w.mirrored(ctx, r, p)
	}
	if err != nil {
		return start{}, nil, err
	}
	if at, err = w.plan(ctx, a, want); err != nil {
		return start{}, nil, err
	}
	refs = a.shared(w.s.o.Shared)
	for _, ref := range slices.Sorted(maps.Keys(refs)) {
		if name, ok := strings.CutPrefix(ref, "refs/heads/"); ok {
			w.record.Shared = append(w.record.Shared, name)
		}
	}
	_, shared := refs[at.ref]
	if want.Depth > 0 {
		refs = map[string]string{} // their commits are missing
	}
	if at.ref != "" {
		refs[at.ref] = at.id
	}
	w.head = a.guessHead()
	if w.partial && want.Worktree {
		return start{}, nil, cove.Errorf(cove.InvalidArgument,
			"the store has the repository in part, and git beside a worktree fetches nothing by itself").WithHint(
			"leave out --worktree, or have it whole: cove repo remove, then cove repo fetch")
	}
	if err := w.importer(a.objectFormat(), refs, shared && want.Depth == 0, at); err != nil {
		return start{}, nil, err
	}
	if at.id == "" {
		return at, refs, nil
	}
	if !shared || want.Depth > 0 {
		if err := w.extra(ctx, r, p, at, want.Depth); err != nil {
			return start{}, nil, err
		}
	}
	w.record.Base = at.id
	if !strings.HasPrefix(at.ref, "refs/heads/") { // a branch always leads to a commit
		w.record.Base, err = w.s.line(ctx, w.held, hostgit.Run{Dir: w.in(importDir), Command: []string{"rev-parse"},
			Flags: []string{"--verify", "--quiet"}, Args: []string{at.id + "^{commit}"}})
		if err != nil {
			return start{}, nil, cove.Errorf(cove.NotFound, "the repository has no commit %s", at.id)
		}
	}
	if err := w.remember(); err != nil {
		return start{}, nil, err
	}
	if w.partial {
		err = w.complete(ctx, r, p, shared, want.Sparse)
	}
	return at, refs, err
}

// mirrored updates the mirror. If the remote does not answer, the machine's owner gets the last state. Other clients do
// not: only the remote knows whether they may read it.
func (w *making) mirrored(ctx context.Context, r remote, p peer) (advert, error) {
	m := w.s.mirror(r.Key)
	release, err := m.hold(ctx)
	if err != nil {
		return advert{}, err
	}
	defer release()
	a, err := m.fetch(ctx, r, p, asking{}, w.progress)
	was, _ := m.description()
	w.partial = was.Partial
	if cove.ErrorCode(err) != cove.Unavailable || ctx.Err() != nil || !r.who.IsOwner() || !m.there() {
		return a, err
	}
	tell(w.progress, "the remote does not answer; using what was fetched before")
	refs, e := m.refs(ctx)
	if e != nil || len(refs) == 0 {
		return advert{}, err
	}
	return advert{head: m.head(), refs: refs}, nil
}

// importer makes import.git, the host's own repository into which the sandbox's work is fetched. It knows the refs
// whose objects it borrows, so that only new objects are sent.
func (w *making) importer(format string, refs map[string]string, shared bool, at start) error {
	dir := w.in(importDir)
	if err := emptyRepository(dir, coreConfig(format, true)); err != nil {
		return err
	}
	if w.record.Mirror == "" {
		return nil
	}
	known := map[string]string{}
	for ref, id := range refs {
		if ref != at.ref || shared {
			known["refs/shared/"+strings.TrimPrefix(ref, "refs/")] = id
		}
	}
	if err := writeFile(filepath.Join(dir, "objects/info/alternates"),
		filepath.Join(w.s.mirror(w.record.Mirror).dir, "objects")+"\n"); err != nil {
		return err
	}
	return writeFile(filepath.Join(dir, "packed-refs"), packedRefs(known, nil))
}

// extra fetches the start into import.git if the mirror lacks it: an unshared branch, an id, or a shallow history.
func (w *making) extra(ctx context.Context, r remote, p peer, at start, depth int) error {
	dir := w.in(importDir)
	source := cmp.Or(at.ref, at.id)
	if at.ref == "" && depth == 0 {
		if _, err := w.git(ctx, hostgit.Run{Dir: dir, Command: []string{"cat-file"}, Flags: []string{"-e"},
			Args: []string{at.id + "^{commit}"}}); err == nil {
			return nil // the mirror has it
		}
	}
	run := fetchRun(dir, bytes.NewBufferString("+"+source+":refs/shared/begin\n"))
	if depth > 0 {
		run.Flags = append(run.Flags, fmt.Sprintf("--depth=%d", depth))
	}
	if w.partial { // differences could build on missing contents
		run = leavingOut(run, r.URL, contents)
	}
	run.Said = following(w.progress, "fetching "+source)
	_, err := p(ctx, w.held, run)
	if cove.ErrorCode(err) == cove.NotFound || err != nil && at.ref == "" &&
		strings.Contains(err.Error(), "unadvertised object") {
		return cove.Errorf(cove.NotFound, "the repository has no %.200q: %w", source, err)
	}
	return err
}

// remember names the base by a ref, so that it is kept and can be compared with.
func (w *making) remember() error {
	return writeFile(filepath.Join(w.in(importDir), "refs/cove/base"), w.record.Base+"\n")
}

// private makes a checkout with its own .git.
func (w *making) private(ctx context.Context, at start, refs map[string]string, sparse []string) error {
	tree, dir := w.in(checkoutDir), w.in(checkoutDir+"/.git")
	weighed := make(chan error, 1)
	go func() { weighed <- w.weigh(ctx, sparse) }()
	err := w.bare(ctx, dir, "../../.."+workspace.BorrowedPlace, false, at, refs)
	if err := cmp.Or(<-weighed, err); err != nil {
		return err
	}
	if err := writeFile(filepath.Join(dir, "HEAD"), "ref: refs/heads/"+at.branch+"\n"); err != nil {
		return err
	}
	if err := w.fill(ctx, dir, tree, sparse); err != nil {
		return err
	}
	return w.borrowWithin(dir)
}

// bare makes the sandbox's own repository: its alternates, readable refs, branch, and push address.
func (w *making) bare(ctx context.Context, dir, borrowed string, bare bool, at start, refs map[string]string) error {
	if err := emptyRepository(dir, w.config(at, bare)); err != nil {
		return err
	}
	if w.record.Mirror != "" {
		if err := os.Symlink(filepath.Join(w.s.mirror(w.record.Mirror).dir, "objects"),
			w.in(workspace.BorrowedPlace)); err != nil {
			return storageFull("make a workspace", err)
		}
		if err := writeFile(filepath.Join(dir, "objects/info/alternates"), borrowed+"\n"); err != nil {
			return err
		}
	}
	if err := copyPacks(w.in(importDir), dir); err != nil {
		return err
	}
	if err := writeFile(filepath.Join(dir, "packed-refs"),
		packedRefs(w.inside(at, refs), w.peeled(ctx, refs))); err != nil {
		return err
	}
	if head, ok := strings.CutPrefix(w.head, "refs/heads/"); ok && refs[w.head] != "" {
		return writeFile(filepath.Join(dir, "refs/remotes/origin/HEAD"), "ref: refs/remotes/origin/"+head+"\n")
	}
	return nil
}

// emptyRepository makes a git directory without commits.
func emptyRepository(dir, config string) error {
	for _, name := range []string{"objects/info", "objects/pack", "refs/heads", "refs/tags"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			return storageFull("make a repository", err)
		}
	}
	if err := writeFile(filepath.Join(dir, "config"), config); err != nil {
		return err
	}
	return writeFile(filepath.Join(dir, "HEAD"), "ref: refs/heads/main\n")
}

// coreConfig returns the beginning of the configuration of Cove's repositories. format is that of ids: "sha1" or
// "sha256".
func coreConfig(format string, bare bool, extensions ...string) string {
	if format != "sha1" {
		extensions = append(extensions, "objectFormat = "+format)
	}
	version, section := 0, ""
	if len(extensions) > 0 {
		version, section = 1, "[extensions]\n\t"+strings.Join(extensions, "\n\t")+"\n"
	}
	return fmt.Sprintf("[core]\n\trepositoryFormatVersion = %d\n\tfileMode = true\n\tbare = %v\n%s",
		version, bare, section)
}

// inside returns the refs of the sandbox's repository.
func (w *making) inside(at start, refs map[string]string) map[string]string {
	all := map[string]string{}
	for ref, id := range refs {
		if name, ok := strings.CutPrefix(ref, "refs/heads/"); ok {
			ref = "refs/remotes/origin/" + name
		}
		all[ref] = id
	}
	if w.record.Base != "" {
		all["refs/heads/"+at.branch] = w.record.Base
	}
	return all
}

// peeled returns the targets of tags, so that git inside need not read them.
func (w *making) peeled(ctx context.Context, refs map[string]string) map[string]string {
	tagged := slices.ContainsFunc(slices.Collect(maps.Keys(refs)), func(ref string) bool {
		return strings.HasPrefix(ref, "refs/tags/")
	})
	if w.record.Mirror == "" || !tagged {
		return nil
	}
	out, err := w.git(ctx, hostgit.Run{Dir: w.in(importDir), Command: []string{"for-each-ref"},
		Flags: []string{"--format=%(objectname) %(*objectname)"}, Args: []string{"refs/shared/tags/"}})
	if err != nil {
		return nil // only an optimisation
	}
	to := map[string]string{}
	for line := range strings.Lines(string(out)) {
		if id, commit, _ := strings.Cut(strings.TrimSpace(line), " "); hostgit.ValidID(commit) {
			to[id] = commit
		}
	}
	return to
}

// packedRefs returns the content of packed-refs. peeled maps tags' own ids to their targets.
func packedRefs(refs, peeled map[string]string) string {
	var b strings.Builder
	if peeled == nil {
		b.WriteString("# pack-refs with: sorted \n")
	} else {
		b.WriteString("# pack-refs with: peeled sorted \n") // a tag without a target is not annotated
	}
	for _, ref := range slices.Sorted(maps.Keys(refs)) {
		b.WriteString(refs[ref] + " " + ref + "\n")
		if to := peeled[refs[ref]]; to != "" && strings.HasPrefix(ref, "refs/tags/") {
			b.WriteString("^" + to + "\n")
		}
	}
	return b.String()
}

// config returns the configuration of the sandbox's repository. A branch that the remote lacks is tracked from its
// first push on.
func (w *making) config(at start, bare bool) string {
	var extensions []string
	if w.partial {
		extensions = append(extensions, "partialClone = origin")
	}
	format := map[bool]string{true: "sha256", false: "sha1"}[len(w.record.Base) == 64]
	var b strings.Builder
	b.WriteString(coreConfig(format, bare, extensions...))
	b.WriteString("[core]\n\tlogAllRefUpdates = true\n[push]\n\tdefault = current\n\tautoSetupRemote = true\n")
	if w.record.Remote == "" {
		return b.String()
	}
	fmt.Fprintf(&b, "[remote \"origin\"]\n\turl = %s\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n",
		quoteConfig(w.record.Remote))
	if w.partial {
		b.WriteString("\tpromisor = true\n\tpartialCloneFilter = " + contents + "\n")
	}
	if at.tracks {
		fmt.Fprintf(&b, "[branch %s]\n\tremote = origin\n\tmerge = %s\n", quoteConfig(at.branch),
			quoteConfig("refs/heads/"+at.branch))
	}
	return b.String()
}

// quoteConfig quotes a value, or the name of a section, for git. Neither contains control characters.
func quoteConfig(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
}

// fill writes the working files, after weigh. dir was just made by Cove, or is a person's own, and no process of a
// sandbox runs yet.
func (w *making) fill(ctx context.Context, dir, tree string, sparse []string) error {
	own := !filepath.IsAbs(w.record.Hidden)
	if len(sparse) > 0 {
		in := strings.NewReader(strings.Join(sparse, "\n") + "\n")
		if _, err := w.git(ctx, hostgit.Run{Dir: dir, WorkTree: tree, Own: own, Command: []string{"sparse-checkout", "set"},
			Flags: []string{"--cone", "--stdin"}, Stdin: in}); err != nil {
			return err
		}
	}
	if w.record.Base == "" {
		return nil
	}
	_, err := w.git(ctx, hostgit.Run{Dir: dir, WorkTree: tree, Own: own,
		Limits:  hostgit.Limits{Memory: checkoutMemory, FileSize: w.s.o.MaxCheckout, CPU: checkoutCPU},
		Command: []string{"read-tree"}, Flags: []string{"-m", "-u", "-v"}, Args: []string{w.record.Base},
		Said: following(w.progress, w.checkoutStep())})
	return err
}

// weigh refuses a checkout that is too large for the machine: a pack of a few kilobytes can hold more files than a disk
// has room for.
func (w *making) weigh(ctx context.Context, sparse []string) error {
	if w.record.Base == "" {
		return nil
	}
	left, files := w.s.o.MaxCheckout, maxFiles
	list := &fields{each: func(entry string) error {
		if f := strings.Fields(entry); len(f) > 3 { // mode, type, id, size
			if size, err := strconv.ParseInt(f[3], 10, 64); err == nil { // a submodule has no size
				left -= size
			}
		}
		if files--; left < 0 || files < 0 {
			return errTooLarge
		}
		return nil
	}}
	_, err := w.git(ctx, hostgit.Run{Dir: w.in(importDir), Command: []string{"ls-tree"}, Flags: []string{"-r", "-l", "-z"},
		Args: []string{w.record.Base}, Paths: sparse, Stdout: list})
	if left < 0 || files < 0 {
		return w.s.tooMuch()
	}
	return err
}

// tooMuch returns the error of a checkout that is too large.
func (s *Store) tooMuch() error {
	return cove.Errorf(cove.TooLarge, "a checkout has at most %d GiB and %d files", s.o.MaxCheckout>>30,
		maxFiles).WithHint("check out a part of it: --sparse DIRECTORY")
}

func (w *making) checkoutStep() string {
	return "checking out " + cmp.Or(w.record.From, "an empty repository")
}

// copyPacks copies a repository's own objects.
func copyPacks(from, to string) error {
	packs, err := filepath.Glob(filepath.Join(from, "objects/pack/pack-*"))
	if err != nil {
		return err
	}
	// Packs come before their indexes, so that no index is without its pack.
	slices.SortFunc(packs, func(a, b string) int {
		return cmp.Or(cmp.Compare(order(a), order(b)), strings.Compare(a, b))
	})
	for _, p := range packs {
		if err := copyFile(p, filepath.Join(to, "objects/pack", filepath.Base(p)), 0o444); err != nil {
			return storageFull("copy objects", err)
		}
	}
	err = copyFile(filepath.Join(from, "shallow"), filepath.Join(to, "shallow"), 0o644)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return storageFull("copy objects", err)
	}
	return nil
}

func order(pack string) int {
	return slices.Index([]string{".pack", ".rev", ".idx"}, filepath.Ext(pack))
}

func copyFile(from, to string, mode os.FileMode) error {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(dst, src) // shares blocks where the file system supports it
	return errors.Join(err, dst.Close())
}

// writeFile writes a file of a repository that is not in use yet.
func writeFile(path, content string) error {
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = os.WriteFile(path, []byte(content), 0o644)
	}
	if err != nil {
		return storageFull("make a repository", err)
	}
	return nil
}
