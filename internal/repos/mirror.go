package repos

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/atomicfile"
	"github.com/cove-sandbox/cove/internal/hostgit"
	"github.com/cove-sandbox/cove/internal/workspace"
)

// Mirror is a repository in the store.
type Mirror struct {
	Address   string           `json:"address"` // or the directory
	Key       string           `json:"key"`
	Size      int64            `json:"size"` // bytes on disk
	FetchedAt time.Time        `json:"fetched_at"`
	Borrowers []cove.SandboxID `json:"borrowers,omitempty"`
	Kept      []string         `json:"kept,omitempty"` // checkouts that outlive their sandbox and still borrow
	// HeadAt is when the remote last stated its default branch.
	HeadAt time.Time `json:"head_at"`
	// Partial omits contents of files until their first checkout.
	Partial bool `json:"partial,omitempty"`
}

// mirrorFile describes the mirror in its directory.
const mirrorFile = "cove.json"

// headAge is the validity of the remembered default branch.
const headAge = time.Hour

// tooManyPacks is the number of packs at which a fetch joins them: git searches every pack for each object.
const tooManyPacks = 40

// mirror is a repository of the store that may exist.
type mirror struct {
	s    *Store
	key  string
	dir  string
	held []*os.File // its lock, for git to inherit; nil when it is not held
}

// asking configures a mirror's fetch.
type asking struct {
	head    bool // ask for the default branch too, which is remembered for a while
	partial bool // omit contents, if the mirror is new
}

func (s *Store) mirror(key string) *mirror {
	return &mirror{s: s, key: key, dir: filepath.Join(s.repos, filepath.FromSlash(key)+".git")}
}

// hold waits for the mirror's exclusive lock.
func (m *mirror) hold(ctx context.Context) (release func(), err error) {
	sum := sha256.Sum256([]byte(m.key))
	l, err := lock(ctx, filepath.Join(m.s.repos, ".locks", hex.EncodeToString(sum[:16])), syscall.LOCK_EX)
	if err != nil {
		return nil, err
	}
	m.held = []*os.File{l}
	return func() { m.held = nil; l.Close() }, nil
}

func (m *mirror) there() bool {
	_, err := os.Stat(filepath.Join(m.dir, mirrorFile))
	return err == nil
}

// description reads the mirror's description. Errors: those of reading it.
func (m *mirror) description() (d Mirror, err error) {
	data, err := os.ReadFile(filepath.Join(m.dir, mirrorFile))
	if err == nil {
		err = json.Unmarshal(data, &d)
	}
	return d, err
}

func (m *mirror) git(ctx context.Context, r hostgit.Run) ([]byte, error) {
	r.Dir = m.dir
	return m.s.git(ctx, m.held, r)
}

// fetch updates the mirror, makes it if it is missing, and returns the remote's refs. The caller must hold the lock.
func (m *mirror) fetch(ctx context.Context, r remote, p peer, how asking,
	progress func(workspace.Step)) (advert, error) {
	was, _ := m.description() // of an existing mirror
	if how.partial && m.there() && !was.Partial {
		return advert{}, cove.Errorf(cove.Conflict, "the store has %s whole",
			m.key).WithHint("remove it first: cove repo remove %s", m.key)
	}
	was.Partial = was.Partial || how.partial
	anew := how.head || time.Since(was.HeadAt) > headAge
	var have map[string]string
	looked := make(chan error, 1)
	go func() { // while the remote prepares its answer
		var err error
		if m.there() {
			if err = cleanRepository(m.dir); err != nil {
				err = storageFull("clean a mirror", err)
			} else {
				have, err = m.refs(ctx)
			}
		}
		looked <- err
	}()
	a, err := m.list(ctx, r, p, anew)
	if err := cmp.Or(err, <-looked); err != nil {
		return advert{}, err
	}
	if anew || a.head != m.head() {
		was.HeadAt = time.Now().UTC()
	}
	if err := m.make(a.objectFormat()); err != nil {
		return advert{}, err
	}
	want := a.shared(m.s.o.Shared)
	if err := m.drop(ctx, have, want); err != nil {
		return advert{}, err
	}
	partial, err := m.get(ctx, r, p, have, want, was.Partial, fetching(r, progress))
	if err != nil {
		return advert{}, err
	}
	if was.Partial && !partial {
		tell(progress, "the remote gives its repository whole or not at all")
		was.Partial = false
	}
	if head := a.guessHead(); head != "" && head != m.head() {
		if _, err := m.git(ctx, hostgit.Run{Command: []string{"symbolic-ref"}, Args: []string{"HEAD", head}}); err != nil {
			return advert{}, err
		}
	}
	return a, m.describe(r, was)
}

// list returns a remote's refs. It requests only branches and tags where those suffice: forges have many more refs,
// hundreds of thousands of pull requests.
func (m *mirror) list(ctx context.Context, r remote, p peer, anew bool) (advert, error) {
	if r.git != "" {
		return m.s.listNeighbour(ctx, m.held, r.git)
	}
	if head := m.head(); head != "" && !anew {
		a, err := listRemote(ctx, m.held, p, "--heads", "--tags")
		if _, there := a.refs[head]; err != nil || there {
			a.head = head
			return a, err
		}
	}
	return listRemote(ctx, m.held, p, "--symref")
}

// head returns the default branch at the time of the last fetch; empty if unknown.
func (m *mirror) head() string {
	if !m.there() {
		return ""
	}
	text, _ := readSmall(filepath.Join(m.dir, "HEAD")) // if it is missing, the remote is asked
	head, _ := strings.CutPrefix(text, "ref: ")
	return head
}

// listRemote requests a remote's refs.
func listRemote(ctx context.Context, held []*os.File, p peer, flags ...string) (advert, error) {
	out, err := p(ctx, held, hostgit.Run{Command: []string{"ls-remote"}, Flags: flags})
	if err != nil {
		return advert{}, err
	}
	return parseAdvert(string(out))
}

// make makes an empty mirror. A directory without a description is the remains of an interrupted one.
func (m *mirror) make(format string) error {
	if m.there() {
		return nil
	}
	err := os.RemoveAll(m.dir)
	if err == nil {
		err = os.MkdirAll(m.dir, 0o700)
	}
	if err != nil {
		return storageFull("make a mirror", err)
	}
	return emptyRepository(m.dir, coreConfig(format, true))
}

// refs returns the refs of the mirror.
func (m *mirror) refs(ctx context.Context) (map[string]string, error) {
	out, err := m.git(ctx, hostgit.Run{Command: []string{"for-each-ref"},
		Flags: []string{"--format=%(objectname)%09%(refname)"}})
	if err != nil {
		return nil, err
	}
	a, err := parseAdvert(string(out))
	return a.refs, err
}

// drop removes refs that the remote has deleted. Their objects stay.
func (m *mirror) drop(ctx context.Context, have, want map[string]string) error {
	var in bytes.Buffer
	for _, ref := range slices.Sorted(maps.Keys(have)) {
		if _, ok := want[ref]; !ok {
			in.WriteString("delete " + ref + "\n")
		}
	}
	if in.Len() == 0 {
		return nil
	}
	_, err := m.git(ctx, hostgit.Run{Command: []string{"update-ref"}, Flags: []string{"--stdin"}, Stdin: &in})
	return err
}

// get fetches new objects, and reports whether a requested filter was applied.
func (m *mirror) get(ctx context.Context, r remote, p peer, have, want map[string]string, partial bool,
	said func(string)) (bool, error) {
	var in bytes.Buffer
	for _, ref := range slices.Sorted(maps.Keys(want)) {
		if have[ref] != want[ref] {
			in.WriteString("+" + ref + ":" + ref + "\n")
		}
	}
	if in.Len() == 0 {
		return partial, nil
	}
	run := fetchRun(m.dir, &in)
	run.Said = said
	if partial {
		run = leavingOut(run, r.URL, contents)
		run.Said = func(line string) {
			partial = partial && !strings.Contains(line, notFiltered)
			if said != nil {
				said(line)
			}
		}
	}
	_, err := p(ctx, m.held, run)
	// before 2.44 harmless findings cannot be listed for it
	if partial && err != nil && strings.Contains(err.Error(), "fsck error") {
		err = cove.Errorf(cove.ErrorCode(err), "%w", err).WithHint(
			"git before 2.44 takes no part of a repository with such commits: leave out --partial, or install a newer one")
	}
	if err != nil {
		return partial, err
	}
	packs, err := filepath.Glob(filepath.Join(m.dir, "objects/pack/*.pack"))
	if err != nil || len(packs) <= tooManyPacks {
		return partial, err
	}
	_, err = m.git(ctx, m.joining(partial, r.URL))
	return partial, err
}

// joining returns the run that joins packs. Packs of a partial mirror are marked, and the joined one must be marked
// too: so git joins all of them, and drops nothing.
func (m *mirror) joining(partial bool, address string) hostgit.Run {
	run := hostgit.Run{Command: []string{"repack"}, Flags: []string{"--quiet", "-d", "--geometric=2"}}
	if partial {
		run.Flags, run.Settings = []string{"--quiet", "-d", "-a"}, promised(address, contents)
	}
	return run
}

// fetchRun returns a fetch of refspecs, one a line, into a repository.
func fetchRun(dir string, refspecs *bytes.Buffer) hostgit.Run {
	return hostgit.Run{
		Dir: dir, Command: []string{"fetch"}, Stdin: refspecs,
		Flags: []string{"--progress", "--no-tags", "--no-write-fetch-head", "--atomic", "--stdin"},
		// A pack stays whole, whatever its size: its borrowers read few files.
		Settings: []hostgit.Setting{{Key: "fetch.unpackLimit", Value: "1"}},
	}
}

// describe writes the mirror's description, with the time of the fetch.
func (m *mirror) describe(r remote, d Mirror) error {
	d.Address, d.Key, d.FetchedAt = cmp.Or(r.URL, r.git), m.key, time.Now().UTC()
	data, err := json.Marshal(d)
	if write := atomicfile.Write; err == nil {
		if m.there() && !d.Partial {
			write = atomicfile.Replace // without it, its content can be fetched again
		}
		err = write(filepath.Join(m.dir, mirrorFile), data, 0o600)
	}
	if err != nil {
		return storageFull("describe a mirror", err)
	}
	return nil
}

// Mirrors returns the mirrors of the store.
func (s *Store) Mirrors(ctx context.Context, who cove.Principal) ([]Mirror, error) {
	if !who.SeesAll() {
		return nil, cove.Errorf(cove.Forbidden, "the store of repositories is for the machine's owner")
	}
	all, err := s.described()
	if err != nil {
		return nil, err
	}
	records, err := s.records()
	if err != nil {
		return nil, err
	}
	for i := range all {
		if err := ctx.Err(); err != nil {
			return nil, cove.Errorf(cove.Canceled, "listing repositories: %w", err)
		}
		if all[i].Size, err = diskUsed(ctx, s.mirror(all[i].Key).dir); err != nil {
			return nil, err
		}
		for _, r := range records {
			if r.Mirror == all[i].Key {
				all[i].Borrowers = append(all[i].Borrowers, r.ID)
				if r.Kept {
					all[i].Kept = append(all[i].Kept, filepath.Join(s.directory(r.ID), checkoutDir))
				}
			}
		}
	}
	return all, nil
}

// described reads the descriptions of all mirrors.
func (s *Store) described() ([]Mirror, error) {
	var all []Mirror
	err := filepath.WalkDir(s.repos, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // removed meanwhile
		}
		if err != nil || !d.IsDir() || !strings.HasSuffix(d.Name(), ".git") {
			return err
		}
		m, err := (&mirror{s: s, dir: path}).description()
		if errors.Is(err, fs.ErrNotExist) {
			return fs.SkipDir // incomplete
		}
		if err != nil || s.mirror(m.Key).dir != path {
			s.o.Log.Warn("mirror cannot be read", "dir", path, "error", err)
			return fs.SkipDir
		}
		all = append(all, m)
		return fs.SkipDir
	})
	if err != nil {
		return nil, storageFull("read the store", err)
	}
	slices.SortFunc(all, func(a, b Mirror) int { return strings.Compare(a.Key, b.Key) })
	return all, nil
}

// known returns a mirror by any of its names: the source as requested, its address, or its key. Errors: NotFound.
func (s *Store) known(who cove.Principal, source string) (Mirror, error) {
	all, err := s.described()
	if err != nil {
		return Mirror{}, err
	}
	keys := []string{source}
	if src, err := ParseSource(who, source); err == nil && src.Dir == "" {
		keys = append(keys, src.Key)
	} else if err == nil {
		if git, err := gitDirectory(src.Dir); err == nil {
			keys = append(keys, keyOfDirectory(git))
		}
	}
	// The form in the list takes precedence.
	for _, key := range keys {
		for _, m := range all {
			if m.Key == key || m.Address == key {
				return m, nil
			}
		}
	}
	return Mirror{}, cove.Errorf(cove.NotFound, "the store has no repository %.200q",
		source).WithHint(`"cove repo list" shows them`)
}

// FetchMirror fetches a repository into the store. partial omits contents of files until their first checkout.
// Errors: those of ParseSource, Outlet.Open and git; Conflict if a complete mirror exists.
func (s *Store) FetchMirror(ctx context.Context, who cove.Principal, source string, partial bool,
	progress func(workspace.Step)) (Mirror, error) {
	r, err := s.find(ctx, who, source)
	if err != nil {
		return Mirror{}, err
	}
	if partial && r.git != "" {
		return Mirror{}, cove.Errorf(cove.InvalidArgument, "%s is on this machine, and taken whole",
			r.Dir).WithHint("leave out --partial")
	}
	tell(progress, fetchStep(r))
	m := s.mirror(r.Key)
	release, err := m.hold(ctx)
	if err != nil {
		return Mirror{}, err
	}
	defer release()
	p, hangUp, err := s.dial(ctx, r, false)
	if err != nil {
		return Mirror{}, err
	}
	_, err = m.fetch(ctx, r, p, asking{head: true, partial: partial}, progress)
	if err := errors.Join(err, hangUp()); err != nil {
		return Mirror{}, err
	}
	found, err := s.known(who, r.Key)
	if err == nil {
		found.Size, err = diskUsed(ctx, m.dir)
	}
	return found, err
}

// RemoveMirror removes a mirror without borrowers. Errors: NotFound, Conflict.
func (s *Store) RemoveMirror(ctx context.Context, who cove.Principal, source string) error {
	found, err := s.known(who, source)
	if err != nil {
		return err
	}
	m := s.mirror(found.Key)
	release, err := m.hold(ctx)
	if err != nil {
		return err
	}
	defer release()
	if err := s.forget(ctx); err != nil {
		return err
	}
	// Borrowers register before they take the lock.
	ids, err := s.borrowers(m.key)
	if err != nil {
		return err
	}
	if len(ids) > 0 {
		return cove.Errorf(cove.Conflict, "%d workspaces borrow from %s, such as that of %s", len(ids),
			found.Address, ids[0]).
			WithHint("destroy those sandboxes first: their history would be gone")
	}
	// Without its description the mirror counts as incomplete, whatever fails from here on.
	err = os.Remove(filepath.Join(m.dir, mirrorFile))
	if err == nil {
		err = os.RemoveAll(m.dir)
	}
	if err != nil {
		return storageFull("remove "+found.Address, err)
	}
	return nil
}

// CollectMirror repacks a mirror. It keeps every object while the mirror has borrowers or is partial; otherwise it
// drops unreachable objects.
func (s *Store) CollectMirror(ctx context.Context, who cove.Principal, source string) error {
	found, err := s.known(who, source)
	if err != nil {
		return err
	}
	m := s.mirror(found.Key)
	release, err := m.hold(ctx)
	if err != nil {
		return err
	}
	defer release()
	if err := cleanRepository(m.dir); err != nil {
		return storageFull("clean a mirror", err)
	}
	if err := s.forget(ctx); err != nil {
		return err
	}
	ids, err := s.borrowers(m.key)
	if err != nil {
		return err
	}
	repack := m.joining(found.Partial, found.Address)
	if !found.Partial {
		repack.Flags = []string{"--quiet", "-a", "-d"}
		if len(ids) > 0 {
			repack.Flags = append(repack.Flags, "--keep-unreachable")
		}
	}
	runs := []hostgit.Run{
		{Command: []string{"pack-refs"}, Flags: []string{"--all"}},
		repack,
		{Command: []string{"commit-graph", "write"}, Flags: []string{"--reachable", "--no-progress"}},
	}
	if len(ids) == 0 && !found.Partial {
		runs = slices.Insert(runs, 2, hostgit.Run{Command: []string{"prune"}, Flags: []string{"--expire=now"}})
	}
	for _, r := range runs {
		if _, err := m.git(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

func fetchStep(r remote) string { return "fetching " + cmp.Or(r.URL, r.Dir) }

func tell(progress func(workspace.Step), text string) {
	if progress != nil {
		progress(workspace.Step{Text: text})
	}
}

// stages are the stages of a fetch and a checkout in git's words, with their share of the whole.
var stages = []struct {
	name        string
	from, until float64
}{{"Receiving objects", 0, 0.8}, {"Resolving deltas", 0.8, 1}, {"Updating files", 0, 1}}

// done parses git's progress. It is pure.
func done(line string) (part float64, ok bool) {
	for _, s := range stages {
		rest, is := strings.CutPrefix(line, s.name+":")
		percent, _, shown := strings.Cut(rest, "%")
		n, err := strconv.Atoi(strings.TrimSpace(percent))
		if is && shown && err == nil && n >= 0 && n <= 100 {
			return s.from + (s.until-s.from)*float64(n)/100, true
		}
	}
	return 0, false
}

// following converts git's progress to steps; nil without a receiver.
func following(progress func(workspace.Step), text string) func(string) {
	if progress == nil {
		return nil
	}
	return func(line string) {
		if part, ok := done(line); ok {
			progress(workspace.Step{Text: text, Done: part})
		}
	}
}

func fetching(r remote, progress func(workspace.Step)) func(string) {
	return following(progress, fetchStep(r))
}

// deepest bounds the measured depth of a tree: a sandbox could make it deep to make others wait.
const deepest = 256

// diskUsed returns the bytes of a tree, counting each file once.
func diskUsed(ctx context.Context, dir string) (int64, error) {
	type inode struct{ dev, ino uint64 }
	seen := map[inode]bool{}
	var total int64
	root, err := os.OpenRoot(dir)
	if err != nil {
		return 0, err
	}
	defer root.Close()
	err = fs.WalkDir(root.FS(), ".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case d == nil:
			return err
		}
		fi, infoErr := d.Info()
		if infoErr != nil {
			return nil // removed meanwhile
		}
		if st, ok := fi.Sys().(*syscall.Stat_t); ok {
			id := inode{st.Dev, st.Ino}
			if st.Nlink == 1 || !seen[id] {
				total += st.Blocks * 512
			}
			if st.Nlink > 1 && !d.IsDir() {
				seen[id] = true
			}
		}
		if d.IsDir() && (err != nil || strings.Count(path, "/") >= deepest) {
			return fs.SkipDir // unreadable or too deep: not counted
		}
		return nil
	})
	return total, err
}
