package repos

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/hostgit"
)

// unlessLacking explains the failure of a git that reads a partial clone of this machine by itself, for a purpose.
func unlessLacking(r remote, purpose string, err error) error {
	if hostgit.ExitCode(err) <= 0 || !r.isPartialClone() {
		return err
	}
	return cove.Errorf(cove.Unsupported, "the repository %s is a partial clone, and lacks what %s needs: %w", r.Dir,
		purpose, err).WithHint("go without it, or " + makeWhole)
}

const makeWhole = `name the address that it was cloned from, or make it whole: "git fetch --refetch --no-filter"`

func refusedPartial(r remote) error {
	return cove.Errorf(cove.Unsupported, "the repository %s is a partial clone: it lacks contents of files, and its "+
		"remote \"origin\" is no address that they can be fetched from", r.Dir).WithHint(makeWhole)
}

// bring fetches objects that a partial mirror omits into a repository, all at once.
func (s *Store) bring(ctx context.Context, held []*os.File, p peer, address, dir string, ids []string,
	said func(string)) error {
	if len(ids) == 0 {
		return nil
	}
	run := leavingOut(fetchRun(dir, bytes.NewBufferString(strings.Join(ids, "\n")+"\n")), address, contents)
	run.Settings = append(run.Settings, hostgit.Setting{Key: "fetch.negotiationAlgorithm", Value: "noop"})
	run.Said = said
	_, err := p(ctx, held, run)
	return err
}

// bringPromised fetches objects that a partial clone of this machine lacks into a repository of Cove's, with Cove's own
// route and credentials.
func bringPromised(ctx context.Context, s *Store, held []*os.File, r remote, dir string, ids []string,
	said func(string)) error {
	if r.promisor == "" {
		return refusedPartial(r)
	}
	p, hangUp, err := s.dialBy(ctx, s.o.Outlet, remote{Source: Source{URL: r.promisor}, who: r.who}, false)
	if err == nil {
		err = errors.Join(s.bring(ctx, held, p, r.promisor, dir, ids, said), hangUp())
	}
	if err != nil {
		return cove.Errorf(cove.ErrorCode(err), "the repository %s is a partial clone, and what it lacks cannot be fetched: "+
			"%w", r.Dir, err).WithHint("try again when %s answers, or %s", r.promisor, makeWhole)
	}
	return nil
}

// take copies from a partial clone of this machine what it has of the wanted refs into a repository of Cove's: all of
// the person's own commits, and of the others what git has fetched so far. The rest is promised by the clone's remote.
// Only missing trees are fetched at once, because a partial mirror has all of them.
func take(ctx context.Context, s *Store, held []*os.File, r remote, dir string, have, want map[string]string,
	said func(string)) error {
	var revisions, update strings.Builder
	for _, ref := range slices.Sorted(maps.Keys(want)) {
		if have[ref] != want[ref] {
			revisions.WriteString(want[ref] + "\n")
			update.WriteString("update " + ref + " " + want[ref] + "\n")
		}
	}
	if update.Len() == 0 {
		return nil
	}
	for _, ref := range slices.Sorted(maps.Keys(have)) {
		revisions.WriteString("^" + have[ref] + "\n")
	}
	err := takePack(ctx, s, held, r, dir, revisions.String(), said)
	if hostgit.ExitCode(err) > 0 && r.promisor != "" {
		trees, e := lackedTrees(ctx, s, held, r, dir, revisions.String())
		if e != nil || len(trees) == 0 {
			return err
		}
		if err := bringPromised(ctx, s, held, r, dir, trees, said); err != nil {
			return err
		}
		err = takePack(ctx, s, held, r, dir, revisions.String(), said)
	}
	if err != nil {
		return err
	}
	if err := os.Remove(filepath.Join(dir, "shallow")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return storageFull("copy objects", err)
	}
	if err := copyShallow(r.git, dir); err != nil {
		return err
	}
	_, err = s.git(ctx, held, hostgit.Run{Dir: dir, Command: []string{"update-ref"}, Flags: []string{"--stdin"},
		Stdin: strings.NewReader(update.String())})
	return err
}

// reading returns a run of git in a partial clone that finds the objects of a repository of Cove's, too.
func reading(r remote, dir string, command string, flags ...string) hostgit.Run {
	return hostgit.Run{Dir: r.git, Command: []string{command}, Flags: flags,
		Env: []string{"GIT_ALTERNATE_OBJECT_DIRECTORIES=" + filepath.Join(dir, "objects")}}
}

// takePack copies the objects of revisions that a partial clone of this machine has, if all of them are sound. Git that
// stores a pack with missing objects knows no harmless findings before 2.44: then the pack is checked by itself.
func takePack(ctx context.Context, s *Store, held []*os.File, r remote, dir, revisions string,
	said func(string)) error {
	pack := reading(r, dir, "pack-objects", "--revs", "--stdout", "--quiet", "--delta-base-offset")
	if r.promisor == "" {
		return copyPack(ctx, s, held, pack, revisions, dir, said, "--strict="+hostgit.Harmless())
	}
	pack.Flags = append(pack.Flags, "--missing=allow-any")
	err := copyPack(ctx, s, held, pack, revisions, dir, said, "--promisor", "--fsck-objects")
	if hostgit.ExitCode(err) <= 0 || !strings.Contains(err.Error(), "fsck error") {
		return err
	}
	aside, err := os.MkdirTemp(s.o.Home, "taken-")
	if err != nil {
		return storageFull("copy objects", err)
	}
	defer os.RemoveAll(aside)
	if err := emptyRepository(aside, coreConfig(formatOf(revisions[:strings.Index(revisions, "\n")]), true)); err != nil {
		return err
	}
	if err := copyPack(ctx, s, held, pack, revisions, aside, said, "--promisor"); err != nil {
		return err
	}
	check := hostgit.Run{Dir: aside, Own: true, Command: []string{"fsck"},
		Flags:    []string{"--strict", "--no-dangling", "--no-progress"},
		Settings: promised(r.promisor, contents)}
	for setting := range strings.SplitSeq(hostgit.Harmless(), ",") {
		finding, level, _ := strings.Cut(setting, "=")
		check.Settings = append(check.Settings, hostgit.Setting{Key: "fsck." + finding, Value: level})
	}
	if _, err := s.git(ctx, held, check); err != nil {
		return err
	}
	return movePacks(aside, dir)
}

// copyPack copies the objects of revisions from one repository to another: one git packs them, and another one checks
// and stores the pack.
func copyPack(ctx context.Context, s *Store, held []*os.File, pack hostgit.Run, revisions, dir string,
	said func(string), checks ...string) error {
	from, to, err := os.Pipe()
	if err != nil {
		return cove.Errorf(cove.Internal, "make a pipe: %w", err)
	}
	begun := sync.OnceFunc(func() { to.Close() }) // git has its own copy
	pack.Stdin, pack.Stdout, pack.Started = strings.NewReader(revisions), to, begun
	packed := make(chan error, 1)
	go func() {
		_, err := s.git(ctx, held, pack)
		begun()
		packed <- err
	}()
	_, err = s.git(ctx, held, hostgit.Run{Dir: dir, Command: []string{"index-pack"},
		Flags: append([]string{"--stdin", "-v"}, checks...), Stdin: from, Said: said})
	from.Close()
	why := <-packed
	if err == nil || hostgit.ExitCode(why) > 0 { // not the end of the reader
		return why
	}
	return err
}

// lackedTrees returns the trees of revisions that a partial clone of this machine lacks.
func lackedTrees(ctx context.Context, s *Store, held []*os.File, r remote, dir, revisions string) ([]string, error) {
	var trees []string
	run := reading(r, dir, "rev-list", "--objects", "--no-object-names", "--filter="+contents, "--missing=print",
		"--stdin")
	run.Stdin = strings.NewReader(revisions)
	run.Stdout = &fields{end: '\n', each: func(line string) error {
		if id, ok := strings.CutPrefix(line, "?"); ok && hostgit.ValidID(id) {
			trees = append(trees, id)
		}
		return nil
	}}
	_, err := s.git(ctx, held, run)
	return trees, err
}
