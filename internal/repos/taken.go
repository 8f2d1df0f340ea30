package repos

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/filelock"
	"github.com/cove-sandbox/cove/internal/hostdisk"
	"github.com/cove-sandbox/cove/internal/hostgit"
)

// Imported work lies on the host's own disk, beside that of its sandbox, and so is bounded here: the repositories of
// imported work of a sandbox and of the checkouts in it have as much together as its disk.

// room decides how much one more import may bring; in bytes.
type room struct {
	most int64 // of the sandbox's imports together
	used int64 // by them
	once int64 // at most in one import
	free hostdisk.Room
}

// noRoom is the error of an import for which less that was imported before makes room.
type noRoom struct{ error }

// left returns the bytes that the next import may bring, and the error of one that brings more. It is pure.
func (r room) left() (int64, error) {
	// Refs, and what says that nothing is new, always come: work is taken out to make room, too.
	most, free := max(smallImport, r.most-r.used), max(smallImport, r.free.Left())
	switch left := min(most, free, r.once); left {
	case r.once:
		return left, cove.Errorf(cove.TooLarge, "the sandbox sends more than %d MiB", r.once>>20).
			WithHint("take part of its work: commit less at a time")
	case free:
		return left, cove.Errorf(cove.StorageFull, "the disk of this machine has no room for the sandbox's work: it "+
			"has %d MiB left, of which Cove leaves %d alone", max(0, r.free.Free)>>20, r.free.Floor()>>20).
			WithHint("free some space")
	default:
		return left, noRoom{cove.Errorf(cove.TooLarge, "the sandbox's work takes more than the %d MiB outside that its disk "+
			"has inside", r.most>>20).WithHint("commit less, or give it more: cove limits SANDBOX --disk SIZE (limits.disk_mb)")}
	}
}

// sharing returns the records of the workspaces whose imports share the room of one, itself included.
func (c catalog) sharing(r record) []record {
	all, _ := c.records() // the rest cannot be imported either
	return slices.DeleteFunc(all, func(other record) bool {
		return cmp.Or(other.Within, other.ID) != cmp.Or(r.Within, r.ID)
	})
}

// takenOf measures the room of the imports of a workspace's sandbox.
func (c catalog) takenOf(ctx context.Context, r record) (used int64, err error) {
	for _, other := range c.sharing(r) {
		size, _, err := hostdisk.Tree(ctx, c.importOf(other.ID))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return 0, storageFull("measure what was imported", err)
		}
		used += size
	}
	return used, nil
}

// deliveredFile is the file of a workspace that has the ids of the commits that were pushed or applied, one a line.
const deliveredFile = "delivered"

// importRepository is the repository of the work that was imported.
type importRepository struct {
	*Store
	dir     string
	partial bool // it borrows from a partial mirror, and may have what that lacks
}

// delivered returns the commits of the repository that are elsewhere, too.
func (r importRepository) delivered(ctx context.Context) ([]string, error) {
	text, err := os.ReadFile(filepath.Join(filepath.Dir(r.dir), deliveredFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, storageFull("read what was delivered", err)
	}
	ids := strings.Fields(string(text))
	slices.Sort(ids)
	out, err := r.git(ctx, nil, hostgit.Run{Dir: r.dir, Command: []string{"cat-file"},
		Flags: []string{"--batch-check=%(objectname) %(objecttype)"},
		Stdin: strings.NewReader(strings.Join(slices.Compact(ids), "\n") + "\n")})
	var there []string
	for line := range strings.Lines(string(out)) {
		if id, ok := strings.CutSuffix(line, " commit\n"); ok {
			there = append(there, id)
		}
	}
	return there, err
}

// keptFile has the size that the repository of imported work had when it was tidied last, in bytes.
const keptFile = "kept"

// smallImport is the growth of a repository of imported work that is never tidied.
const smallImport = 1 << 20 // bytes

// grown reports whether a repository of imported work is worth tidying: that takes time for what stays. It is pure.
func grown(size, kept int64) bool { return size > 2*kept+smallImport }

// tidy removes objects from the repository of a sandbox's imported work that nothing refers to any more, if it has
// grown; with all, in any case, and also those of delivered commits, by which Held knows work that is elsewhere. It
// leaves everything while it is read.
func (r importRepository) tidy(ctx context.Context, held []*os.File, all bool) error {
	size, _, err := hostdisk.Tree(ctx, r.dir)
	if err != nil {
		return storageFull("measure what was imported", err)
	}
	text, _ := os.ReadFile(filepath.Join(r.dir, keptFile)) // without it nothing was tidied yet
	kept, _ := strconv.ParseInt(string(text), 10, 64)
	if !all && !grown(size, kept) {
		return nil
	}
	r.disks.tidying.Lock() // what is kept is there twice for a while: once on this machine
	defer r.disks.tidying.Unlock()
	room, err := r.disks.room.Reserve(func(room hostdisk.Room) (int64, error) {
		if all {
			return size, nil
		}
		return size, room.Fits("what was imported", size)
	})
	if cove.ErrorCode(err) == cove.StorageFull && !all {
		return nil
	}
	if err != nil {
		return err
	}
	defer room.End()
	l, err := tryLock(readingLock(r.dir), filelock.Exclusive)
	if l == nil {
		return err
	}
	defer l.Close()
	var roots bytes.Buffer
	if !all {
		known, err := r.delivered(ctx)
		if err != nil {
			return err
		}
		for _, commit := range known {
			fmt.Fprintln(&roots, commit)
		}
	}
	if err := r.packAnew(ctx, append(held, l), &roots, size); err != nil {
		return err
	}
	if size, _, err = hostdisk.Tree(ctx, r.dir); err == nil {
		err = os.WriteFile(filepath.Join(r.dir, keptFile), strconv.AppendInt(nil, size, 10), 0o600)
	}
	if err != nil {
		return storageFull("tidy what was imported", err)
	}
	return nil
}

// packAnew puts what the refs of the repository and the given commits refer to into one pack, and removes its other
// packs, of that size. Unlike "git repack" it does so, too, where what a partial mirror lacks is missing.
func (r importRepository) packAnew(ctx context.Context, held []*os.File, commits *bytes.Buffer, size int64) error {
	before, err := packFiles(r.dir)
	if err != nil || len(before) == 0 {
		return err
	}
	if err := r.roots(ctx, held, commits); err != nil {
		return err
	}
	packs := filepath.Join(r.dir, "objects/pack/pack")
	made, err := r.line(ctx, held, hostgit.Run{Dir: r.dir, Command: []string{"pack-objects"},
		Flags: []string{"--revs", "--local", "--missing=allow-any", "--delta-base-offset", "--non-empty",
			"--quiet"}, Args: []string{packs}, Stdin: commits,
		Limits: hostgit.Limits{Memory: importMemory, FileSize: 2*size + smallImport, CPU: importCPU}})
	if err != nil {
		return err
	}
	old := slices.DeleteFunc(before, func(file string) bool {
		return made != "" && strings.HasPrefix(filepath.Base(file), "pack-"+made+".")
	})
	if slices.ContainsFunc(old, func(file string) bool { return filepath.Ext(file) == promisorMark }) && made != "" {
		err = os.WriteFile(packs+"-"+made+promisorMark, nil, 0o444)
	}
	for _, file := range slices.Backward(old) { // an index goes before its pack
		if err == nil {
			err = os.Remove(file)
		}
	}
	if err != nil {
		return storageFull("tidy what was imported", err)
	}
	return nil
}

// roots adds the repository's refs to what is packed. What the mirror has as well is left out, and its history not
// walked; with a partial mirror, that is where what it lacks was fetched to.
func (r importRepository) roots(ctx context.Context, held []*os.File, to *bytes.Buffer) error {
	out, err := r.git(ctx, held, hostgit.Run{Dir: r.dir, Command: []string{"for-each-ref"},
		Flags: []string{"--format=%(objectname) %(refname)"}})
	for line := range strings.Lines(string(out)) {
		id, ref, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if strings.HasPrefix(ref, sharedRefs) && ref != beginRef && !r.partial {
			id = "^" + id
		}
		fmt.Fprintln(to, id)
	}
	return err
}

// Refs of a repository of imported work: those of the mirror that it borrows from, and, where a checkout does not begin
// at one of these, its own beginning.
const (
	sharedRefs = "refs/shared/"
	beginRef   = sharedRefs + "begin"
)

// promisorMark ends the name of the mark of a pack whose objects may refer to what is not there.
const promisorMark = ".promisor"

// readingLock returns the lock file of those who read a repository of imported work.
func readingLock(dir string) string { return filepath.Join(filepath.Dir(dir), ".reading.lock") }

// keepImported keeps imported work in a repository from being tidied away until its Close.
func keepImported(ctx context.Context, dir string) (*os.File, error) {
	return lock(ctx, readingLock(dir), filelock.Shared)
}
