//go:build linux

package gitservice

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/hostgit"
)

// newPerson makes the repository that the companion has instead, if it is not there yet.
func newPerson(ctx context.Context, c *companion) (*person, error) {
	p := &person{c: c, dir: c.o.Workspace.Hidden}
	own := c.in("repository")
	if _, err := os.Stat(own); err != nil {
		making := own + ".making"
		if err := os.RemoveAll(making); err != nil {
			return nil, cove.Errorf(cove.StorageFull, "make a companion's repository: %w", err)
		}
		format, err := c.o.Git.Line(ctx, hostgit.Run{Dir: p.dir, Command: []string{"rev-parse"},
			Flags: []string{"--show-object-format"}})
		if err != nil {
			return nil, err
		}
		if _, err := c.o.Git.Output(ctx, hostgit.Run{Dir: making, Command: []string{"init"},
			Flags: []string{"--bare", "--quiet", "--template=", "--object-format=" + format}}); err != nil {
			return nil, err
		}
		err = errors.Join(os.MkdirAll(making+"/objects/info", 0o755),
			os.MkdirAll(making+"/worktrees/"+c.o.Workspace.Worktree, 0o755),
			os.WriteFile(making+"/objects/info/alternates", []byte(objects+"\n"), 0o644),
			os.WriteFile(making+"/HEAD", []byte("ref: refs/cove/none\n"), 0o644), // no branch is checked out there
			os.Rename(making, own))
		if err != nil {
			return nil, cove.Errorf(cove.StorageFull, "make a companion's repository: %w", err)
		}
	}
	if _, err := os.Stat(filepath.Join(p.dir, "objects/info/alternates")); err == nil {
		return nil, cove.Errorf(cove.Unsupported, "the repository borrows objects from another one").
			WithHint("give it objects of its own: git repack -a -d, and remove objects/info/alternates")
	}
	return p, nil
}

// mounts returns the parts of the person's repository that the companion sees,
// beside one of its own: the objects, and of the rest only what belongs to this worktree.
func (p *person) mounts() []cove.Mount {
	w := p.c.o.Workspace
	return []cove.Mount{
		{Source: filepath.Join(p.dir, "objects"), Target: objects, ReadOnly: true, NoExec: true},
		{Source: filepath.Join(p.dir, "worktrees", w.Worktree), Target: gitDir + "/worktrees/" + w.Worktree, NoExec: true},
	}
}

func (p *person) own() string { return "refs/heads/" + p.c.o.Workspace.Branch }

// refs returns the refs of the person's repository that the sandbox may see.
func (p *person) refs(ctx context.Context) (map[string]string, error) {
	out, err := p.c.o.Git.Output(ctx, hostgit.Run{Dir: p.dir, Command: []string{"for-each-ref"},
		Flags: []string{"--format=%(objectname) %(refname)"}})
	if err != nil {
		return nil, err
	}
	refs := map[string]string{}
	for line := range strings.Lines(string(out)) {
		id, name, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		branch, isBranch := strings.CutPrefix(name, "refs/heads/")
		followed, isFollowed := strings.CutPrefix(name, "refs/remotes/origin/")
		switch {
		case strings.HasPrefix(name, "refs/tags/"), name == p.own(), isBranch && p.shared(branch),
			isFollowed && (p.shared(followed) || followed == p.c.o.Workspace.Branch):
			refs[name] = id
		}
	}
	return refs, nil
}

func (p *person) shared(branch string) bool { return slices.Contains(p.c.o.Workspace.Shared, branch) }

// bring copies what has changed in the person's repository into the companion's. What the sandbox has done on its own
// branch is not undone by that: it counts until it could be taken back.
func (p *person) bring(ctx context.Context, b *box) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	refs, err := p.refs(ctx)
	if err != nil {
		return err
	}
	if !p.loaded {
		if p.shown, err = readShown(p.c.in("shown")); err != nil {
			return err
		}
		p.loaded = true
	}
	if maps.Equal(refs, p.shown) {
		return nil
	}
	var update bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(refs)) {
		if refs[name] == p.shown[name] {
			continue
		}
		if name == p.own() && p.shown[name] != "" {
			mine, err := b.answer(ctx, nil, "rev-parse", "--verify", "--quiet", name)
			if err != nil && exitCode(err) != 1 {
				return err
			}
			if id := strings.TrimSpace(string(mine)); id != p.shown[name] {
				continue // both have moved: take says so
			}
		}
		update.WriteString("update " + name + " " + refs[name] + "\n")
	}
	for name := range p.shown {
		if refs[name] == "" && name != p.own() {
			update.WriteString("delete " + name + "\n")
		}
	}
	if _, err := b.answer(ctx, update.Bytes(), "update-ref", "--stdin"); err != nil {
		return cove.Errorf(cove.Unavailable, "the branches of the repository cannot be shown to the sandbox: %w", err)
	}
	p.shown = refs
	return p.remember()
}

func (p *person) remember() error {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(p.shown)) {
		b.WriteString(p.shown[name] + " " + name + "\n")
	}
	if err := os.WriteFile(p.c.in("shown"), []byte(b.String()), 0o600); err != nil {
		return cove.Errorf(cove.StorageFull, "remember the branches of a sandbox: %w", err)
	}
	return nil
}

func readShown(file string) (map[string]string, error) {
	text, err := os.ReadFile(file)
	if err != nil && !os.IsNotExist(err) {
		return nil, cove.Errorf(cove.Corrupt, "the branches of a sandbox cannot be read: %w", err)
	}
	shown := map[string]string{}
	for line := range strings.Lines(string(text)) {
		id, name, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		shown[name] = id
	}
	return shown, nil
}

func exitCode(err error) int {
	if e, ok := errors.AsType[*exitError](err); ok {
		return e.code
	}
	return -1
}

// see refuses ids of objects that nothing reaches which the sandbox may see.
// The person's objects are all there, those of other branches too.
func (p *person) see(ctx context.Context, b *box, ids []string) error {
	for _, id := range ids {
		found, err := b.answer(ctx, nil, "rev-parse", "--disambiguate="+id)
		if err != nil {
			return err
		}
		for _, full := range strings.Fields(string(found)) {
			ok, err := p.reached(ctx, b, full)
			if err != nil {
				return err
			}
			if !ok {
				return cove.Errorf(cove.Forbidden, "bad object %s", id)
			}
		}
	}
	return nil
}

// seen are the beginnings of what a sandbox may see: its refs, what they were, and what it has added to the index.
var seen = []string{"--all", "--reflog", "HEAD"}

func (p *person) reached(ctx context.Context, b *box, id string) (bool, error) {
	kind, err := b.answer(ctx, nil, "cat-file", "-t", id)
	if err != nil {
		return false, nil
	}
	if strings.TrimSpace(string(kind)) == "commit" {
		missing, err := b.answer(ctx, nil, append([]string{"rev-list", "--max-count=1", id, "--not"}, seen...)...)
		return err == nil && len(missing) == 0, err
	}
	// A tag is listed by itself; a tree or a file by what has it.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	look := &lookout{id: id, found: cancel}
	args := append([]string{gitProgram, "rev-list", "--objects", "--no-object-names", "--indexed-objects"}, seen...)
	exit, err := b.process(ctx, guest.ProcessSpec{Args: args, Env: b.env, Dir: cove.Workspace}, nil, look, io.Discard)
	if look.seen {
		return true, nil
	}
	if err == nil && exit != 0 {
		err = cove.Errorf(cove.Unavailable, "git could not look for the object %s", id)
	}
	return false, err
}

// lookout looks for an id among lines.
type lookout struct {
	id    string
	found func()
	rest  []byte
	seen  bool
}

func (l *lookout) Write(p []byte) (int, error) {
	if l.seen {
		return len(p), nil
	}
	l.rest = append(l.rest, p...)
	for {
		i := bytes.IndexByte(l.rest, '\n')
		if i < 0 {
			return len(p), nil
		}
		if string(l.rest[:i]) == l.id {
			l.seen = true
			l.found()
			return len(p), nil
		}
		l.rest = l.rest[i+1:]
	}
}

// take brings the sandbox's own branch back to the person's repository, with
// every object that it, HEAD and the index need: git on the host checks them.
func (p *person) take(ctx context.Context, b *box) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	out, err := b.answer(ctx, nil, "rev-parse", "--verify", "--quiet", p.own()+"^{commit}")
	if err != nil {
		return nil // it has no commit yet
	}
	id := strings.TrimSpace(string(out))
	if strings.Trim(id, "0123456789abcdef") != "" || len(id) != 40 && len(id) != 64 {
		return cove.Errorf(cove.Internal, "git says that a branch is at %.100q", id)
	}
	if err := p.receive(ctx, b); err != nil {
		return err
	}
	was := p.shown[p.own()]
	if id == was {
		return nil
	}
	_, err = p.c.o.Git.Output(ctx, hostgit.Run{Dir: p.dir, Command: []string{"update-ref"},
		Flags: []string{"--create-reflog"}, Args: []string{p.own(), id, was}})
	if err != nil {
		return cove.Errorf(cove.Conflict, "the branch %s has been changed outside, too", p.c.o.Workspace.Branch).
			WithHint("commits of the sandbox are kept in it; reset it to %s to go on from there", id)
	}
	p.shown = maps.Clone(p.shown)
	p.shown[p.own()] = id
	return p.remember()
}

// loose is the number of objects from which on they are kept as they come, in a pack; fetch has the same.
const loose = 100

// maxPack is how many bytes may be brought back at a time.
const maxPack = 4 << 30

// receive has the companion send what the person's repository does not have.
// Nothing is put there before all of it has been checked.
func (p *person) receive(ctx context.Context, b *box) error {
	dir := p.c.in("incoming")
	file := filepath.Join(dir, "new.pack")
	defer os.RemoveAll(dir)
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(filepath.Join(dir, "objects"), 0o700)); err != nil {
		return cove.Errorf(cove.StorageFull, "bring the sandbox's work back: %w", err)
	}
	n, err := p.send(ctx, b, file)
	if err != nil || n == 0 {
		return err
	}
	// First to a place of its own, as receive-pack does, and then once more.
	aside := hostgit.Run{Dir: p.dir, Command: []string{"index-pack"},
		Flags: []string{"--stdin", "--strict"}, Env: []string{
			"GIT_OBJECT_DIRECTORY=" + filepath.Join(dir, "objects"),
			"GIT_ALTERNATE_OBJECT_DIRECTORIES=" + filepath.Join(p.dir, "objects"),
		}}
	if err := p.feed(ctx, aside, file); err != nil {
		return cove.Errorf(cove.Forbidden, "what the sandbox has added is not accepted: %w", err)
	}
	run := hostgit.Run{Dir: p.dir, Command: []string{"unpack-objects"}, Flags: []string{"-q"}}
	if n >= loose {
		run.Command, run.Flags = []string{"index-pack"}, []string{"--stdin"}
	}
	return p.feed(ctx, run, file)
}

// feed runs git with a file as its input.
func (p *person) feed(ctx context.Context, run hostgit.Run, file string) error {
	in, err := os.Open(file)
	if err != nil {
		return err
	}
	defer in.Close()
	run.Stdin = in
	_, err = p.c.o.Git.Output(ctx, run)
	return err
}

// send has the companion write the objects that are new, as a pack, to a file
// of the host's, and says how many they are.
func (p *person) send(ctx context.Context, b *box, file string) (n uint32, err error) {
	pack, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return 0, cove.Errorf(cove.StorageFull, "bring the sandbox's work back: %w", err)
	}
	defer pack.Close()
	marked, err := b.bisected(ctx)
	if err != nil {
		return 0, err
	}
	want := []byte(strings.Join(append(marked, "HEAD", p.own()), "\n") + "\n")
	for name, id := range p.shown {
		if strings.HasPrefix(name, "refs/heads/") || strings.HasPrefix(name, "refs/remotes/") {
			want = append(want, "^"+id+"\n"...)
		}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	args := []string{gitProgram, "pack-objects", "--stdout", "--revs", "--indexed-objects", "--local", "--quiet"}
	to := &bounded{w: pack, left: maxPack, over: cancel}
	exit, err := b.process(ctx, guest.ProcessSpec{Args: args, Env: b.env, Dir: cove.Workspace, Stdin: true}, want, to,
		io.Discard)
	switch {
	case context.Cause(ctx) != nil:
		return 0, context.Cause(ctx)
	case err != nil:
		return 0, err
	case exit != 0:
		return 0, cove.Errorf(cove.Unavailable, "git in the companion could not send what is new")
	}
	var head [12]byte // "PACK", version, number of objects (gitformat-pack)
	if _, err := pack.ReadAt(head[:], 0); err != nil {
		return 0, cove.Errorf(cove.Internal, "git in the companion has sent no pack: %w", err)
	}
	return binary.BigEndian.Uint32(head[8:]), nil
}

// bisected returns the ids that the refs of a bisection name: they are kept with the worktree.
func (b *box) bisected(ctx context.Context) ([]string, error) {
	w := b.c.o.Workspace
	if _, err := os.Lstat(filepath.Join(w.Hidden, "worktrees", w.Worktree, "BISECT_LOG")); err != nil {
		return nil, nil
	}
	out, err := b.answer(ctx, nil, "for-each-ref", "--format=%(objectname)", "refs/bisect")
	return strings.Fields(string(out)), err
}

// bounded writes so much, and then ends who writes.
type bounded struct {
	w    io.Writer
	left int
	over func(error)
}

func (b *bounded) Write(p []byte) (int, error) {
	if b.left -= len(p); b.left < 0 {
		b.over(cove.Errorf(cove.TooLarge, "the sandbox has added more than %d GiB at a time", maxPack>>30))
		return 0, io.ErrShortWrite
	}
	n, err := b.w.Write(p)
	if err != nil {
		b.over(cove.Errorf(cove.StorageFull, "bring the sandbox's work back: %w", err))
	}
	return n, err
}
