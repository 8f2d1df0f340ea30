package repos

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/atomicfile"
	"github.com/cove-sandbox/cove/internal/filelock"
	"github.com/cove-sandbox/cove/internal/hostgit"
	"github.com/cove-sandbox/cove/internal/workspace"
)

// making is a workspace in the making.
type making struct {
	s        *Store
	spec     workspace.Spec
	dir      string // its temporary path
	final    string // its final path
	disk     newDisk
	files    string // where its files are made: on its disk, if it has one
	host     record // of the containing sandbox
	held     []*os.File
	record   record
	head     string // full name of the remote's default branch
	partial  bool   // of the mirror
	progress func(workspace.Step)
}

// private makes a checkout with its own .git.
func (w *making) private(ctx context.Context, at start, refs map[string]string, sparse []string) error {
	tree, dir := filepath.Join(w.files, checkoutDir), filepath.Join(w.files, checkoutDir, ".git")
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
			known[sharedRefs+strings.TrimPrefix(ref, "refs/")] = id
		}
	}
	mirror := w.s.mirror(w.record.Mirror).dir
	if err := writeFile(filepath.Join(dir, "objects/info/alternates"), filepath.Join(mirror, "objects")+"\n"); err != nil {
		return err
	}
	if err := copyShallow(mirror, dir); err != nil {
		return err
	}
	return writeFile(filepath.Join(dir, "packed-refs"), packedRefs(known, nil))
}

// bare makes the sandbox's own repository: its alternates, readable refs, branch, and push address.
func (w *making) bare(ctx context.Context, dir, borrowed string, bare bool, at start, refs map[string]string) error {
	tracked := ""
	if at.tracks {
		tracked = at.branch
	}
	if err := emptyRepository(dir, checkoutConfig(w.record, tracked, w.partial, bare)); err != nil {
		return err
	}
	if w.record.Mirror != "" {
		if err := os.Symlink(filepath.Join(w.s.mirror(w.record.Mirror).dir, "objects"),
			filepath.Join(w.files, workspace.BorrowedPlace)); err != nil {
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

// claim writes the record of a workspace in the making, for other processes. It need not survive a crash of the
// machine, which ends the making.
func (w *making) claim() error { return putRecord(w.dir, w.record, atomicfile.Replace) }

func (w *making) in(name string) string { return filepath.Join(w.dir, name) }

func (w *making) git(ctx context.Context, r hostgit.Run) ([]byte, error) {
	return w.s.git(ctx, w.held, r)
}

// directories makes the directories common to all workspaces.
func (w *making) directories() error {
	for _, d := range []struct {
		path string
		mode fs.FileMode
	}{{w.dir, 0o700}, {w.files, 0o700},
		{filepath.Join(w.files, checkoutDir), 0o755}, {filepath.Join(w.files, homeDir), 0o700},
		{filepath.Join(w.files, filepath.Dir(workspace.BorrowedPlace)), 0o755}} {
		err := os.MkdirAll(d.path, 0o755)
		if err == nil {
			err = os.Chmod(d.path, d.mode) // independent of the umask
		}
		if err != nil {
			return storageFull("make a workspace", err)
		}
	}
	return nil
}

// plan decides the start of the branch, and claims the branch in the record before another workspace can.
func (w *making) plan(ctx context.Context, a advert, want workspace.Repository) (start, error) {
	l, err := lock(ctx, filepath.Join(w.s.workspaces, ".branches.lock"), filelock.Exclusive)
	if err != nil {
		return start{}, err
	}
	defer l.Close()
	all, err := w.s.records()
	if err != nil {
		w.s.o.Log.Warn("whose branches are whose is not known entirely", "error", err)
	}
	at, err := plan(a, w.spec.Name, want.Branch, want.From, func(branch string) bool {
		return slices.ContainsFunc(all, func(r record) bool {
			return r.ID != w.spec.ID && !r.Kept && r.Repository == w.record.Repository && strings.EqualFold(r.Branch, branch)
		})
	})
	if err != nil {
		return start{}, err
	}
	w.record.Branch, w.record.From = at.branch, at.from
	return at, w.claim()
}

// borrowWithin sets a repository's alternates to the path of the objects in its sandbox, and only to that, since the
// host has them elsewhere.
func (w *making) borrowWithin(dir string) error {
	if w.spec.Within == "" || w.record.Mirror == "" {
		return nil
	}
	if w.record.Mirror != w.host.Mirror {
		return cove.Errorf(cove.Conflict, "the sandbox %s has no objects of this repository to borrow", w.host.ID)
	}
	return writeFile(filepath.Join(dir, "objects/info/alternates"), workspace.BorrowedPlace+"\n")
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
		Flags: []string{"--format=%(objectname) %(*objectname)"}, Args: []string{sharedRefs + "tags/"}})
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
	if user := uint32(cove.AgentUser.UID); err == nil && own && os.Getuid() != cove.AgentUser.UID {
		if err := ownIndex(filepath.Join(dir, "index"), user, user, len(w.record.Base) == 64); err != nil {
			w.s.o.Log.Debug("git will read each file again at first", "sandbox", w.record.ID, "error", err)
		}
	}
	return err
}

func (w *making) checkoutStep() string {
	return "checking out " + cmp.Or(w.record.From, "an empty repository")
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

// weigh refuses a checkout that is too large for the machine: a pack of a few kilobytes can hold more files than a disk
// has room for.
func (w *making) weigh(ctx context.Context, sparse []string) error {
	if w.record.Base == "" {
		return nil
	}
	var bytes, files int64
	list := &fields{each: func(entry string) error {
		if f := strings.Fields(entry); len(f) > 3 { // mode, type, id, size
			if size, err := strconv.ParseInt(f[3], 10, 64); err == nil { // a submodule has no size
				bytes += size
			}
		}
		if files++; bytes > w.s.o.MaxCheckout || files > maxFiles {
			return errTooLarge
		}
		return nil
	}}
	_, err := w.git(ctx, hostgit.Run{Dir: w.in(importDir), Command: []string{"ls-tree"}, Flags: []string{"-r", "-l", "-z"},
		Args: []string{w.record.Base}, Paths: sparse, Stdout: list})
	if bytes > w.s.o.MaxCheckout || files > maxFiles {
		return w.s.tooMuch()
	}
	if err != nil {
		return err
	}
	return w.disk.reserve(bytes, files)
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
	if r.git != "" && w.partial {
		shared, err := w.s.mirror(r.Key).refs(ctx)
		if err != nil {
			return err
		}
		return take(ctx, w.s, w.held, r, dir, shared, map[string]string{beginRef: at.id},
			following(w.progress, "fetching "+source))
	}
	run := fetchRun(dir, bytes.NewBufferString("+"+source+":"+beginRef+"\n"))
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
	if depth == 0 && hostgit.ExitCode(err) > 0 && r.isPartialClone() {
		return refusedPartial(r)
	}
	return unlessLacking(r, "such a depth", err)
}

// checkoutConfig returns the configuration of a sandbox's repository. A branch that the remote lacks is tracked from
// its first push on.
func checkoutConfig(r record, tracked string, partial, bare bool) string {
	var extensions []string
	if partial {
		extensions = append(extensions, "partialClone = origin")
	}
	var b strings.Builder
	b.WriteString(coreConfig(formatOf(r.Base), bare, extensions...))
	b.WriteString("[core]\n\tlogAllRefUpdates = true\n[push]\n\tdefault = current\n\tautoSetupRemote = true\n")
	if r.Remote == "" {
		return b.String()
	}
	fmt.Fprintf(&b, "[remote \"origin\"]\n\turl = %s\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n",
		quoteConfig(r.Remote))
	if partial {
		b.WriteString("\tpromisor = true\n\tpartialCloneFilter = " + contents + "\n")
	}
	if tracked != "" {
		fmt.Fprintf(&b, "[branch %s]\n\tremote = origin\n\tmerge = %s\n", quoteConfig(tracked),
			quoteConfig("refs/heads/"+tracked))
	}
	return b.String()
}

// quoteConfig quotes a value, or the name of a section, for git. Neither contains control characters.
func quoteConfig(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
}

// remember names the base by a ref, so that it is kept and can be compared with.
func (w *making) remember() error {
	return writeFile(filepath.Join(w.in(importDir), "refs/cove/base"), w.record.Base+"\n")
}
