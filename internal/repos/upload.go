package repos

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/filelock"
	"github.com/cove-sandbox/cove/internal/hostdisk"
	"github.com/cove-sandbox/cove/internal/hostgit"
	"github.com/cove-sandbox/cove/internal/workspace"
)

const (
	maxUploads = 16 // of one caller, which no sandbox has taken
	maxShallow = 10_000
	// uploadStep is the number of bytes that an upload of unknown length reserves at a time.
	uploadStep = 4 << 20
)

// Sending describes an upload before it comes.
type Sending struct {
	Length int64 // bytes; negative if unknown
	// Fits refuses more bytes of the caller's uploads beside those that they have, what has come of this one included.
	Fits func(sent, more int64) error
}

// Receive stores a pack that a caller sends, for one sandbox that the caller makes next. It is not looked into before
// that. What breaks off leaves nothing. Errors: TooLarge, InvalidArgument, Overloaded, Canceled, StorageFull, those of
// Fits.
func (s *Store) Receive(ctx context.Context, who cove.Principal, from Sending, pack io.Reader) (id cove.UploadID,
	size int64, err error) {
	id = cove.NewUploadID()
	if from.Length > s.o.MaxImport {
		return "", 0, uploadTooLarge(s.o.MaxImport)
	}
	defer s.uploads.settle(id)
	to := &reserved{left: max(0, from.Length),
		grow: func(more int64) error { return s.uploads.reserve(id, who, more, from.Fits) }}
	if to.room, err = s.disks.room.Reserve(hostdisk.Fitting("the upload", to.left)); err != nil {
		return "", 0, err
	}
	defer to.room.End()
	if err := to.grow(to.left); err != nil {
		return "", 0, err
	}
	f, err := newUpload(ctx, s, who, id)
	if err != nil {
		return "", 0, err
	}
	defer func() { err = arrived(f, filepath.Join(s.uploads.of(who), string(id)), err) }()
	body := &brokenOff{r: io.LimitReader(pack, s.o.MaxImport+1)}
	var head [4]byte
	n, err := io.ReadFull(body, head[:])
	switch {
	case body.err != nil:
		return "", 0, cove.Errorf(cove.Canceled, "the upload broke off: %w", body.err)
	case err != nil || string(head[:]) != "PACK": // gitformat-pack(5)
		return "", 0, cove.Errorf(cove.InvalidArgument, "the upload is no pack of git's")
	}
	to.w = f
	size, err = io.Copy(to, io.MultiReader(bytes.NewReader(head[:n]), body))
	switch {
	case body.err != nil:
		return "", 0, cove.Errorf(cove.Canceled, "the upload broke off: %w", body.err)
	case to.refused != nil:
		return "", 0, to.refused
	case err != nil:
		return "", 0, storageFull("write the upload", err)
	case size > s.o.MaxImport:
		return "", 0, uploadTooLarge(s.o.MaxImport)
	}
	return id, size, nil
}

// arrived gives the file of an upload its name, or removes it after an error, and releases its lock last.
func arrived(f *os.File, path string, err error) error {
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	if e := f.Close(); err == nil && e != nil {
		os.Remove(path)
		err = storageFull("write the upload", e)
	}
	return err
}

func uploadTooLarge(most int64) error {
	return cove.Errorf(cove.TooLarge, "a folder may have %d MiB when it is packed", most>>20).
		WithHint("name what is generated in .gitignore, or push it and name the repository")
}

// reserved writes what it has reserved before.
type reserved struct {
	w       io.Writer
	left    int64 // bytes reserved and not written
	unseen  int64 // bytes written since the host's disk was looked at
	room    *hostdisk.Reservation
	grow    func(more int64) error
	refused error // of grow or room
}

func (r *reserved) Write(p []byte) (int, error) {
	if int64(len(p)) > r.left {
		more := int64(max(len(p), uploadStep))
		if r.refused = r.grow(more); r.refused != nil {
			return 0, r.refused
		}
		r.left, r.unseen = r.left+more, uploadStep
	}
	if r.unseen >= uploadStep {
		r.unseen = 0
		if r.refused = r.room.Change(hostdisk.Fitting("the upload", r.left)); r.refused != nil {
			return 0, r.refused
		}
	}
	n, err := r.w.Write(p)
	r.left, r.unseen = r.left-int64(n), r.unseen+int64(n)
	return n, err
}

// newUpload opens the file of an upload that comes, which is locked until it has come, and removes those that no
// sandbox takes any more.
func newUpload(ctx context.Context, s *Store, who cove.Principal, id cove.UploadID) (*os.File, error) {
	dir := s.uploads.of(who)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, storageFull("store the upload", err)
	}
	l, err := lock(ctx, uploadsLock(s.uploads.dir), filelock.Exclusive)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	dropUploads(s.uploads.dir, time.Now())
	all, err := os.ReadDir(dir)
	if err != nil {
		return nil, storageFull("store the upload", err)
	}
	if len(all) >= maxUploads {
		return nil, cove.Errorf(cove.Overloaded, "%d uploads wait for the sandboxes that take them", len(all)).
			WithHint("try again in %v", uploadAge)
	}
	f, err := os.OpenFile(filepath.Join(dir, coming+string(id)), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, storageFull("store the upload", err)
	}
	if err := filelock.Try(f, filelock.Exclusive); err != nil {
		os.Remove(f.Name())
		f.Close()
		return nil, storageFull("lock the upload", err)
	}
	return f, nil
}

// takeUpload opens a caller's upload, whose file is gone then, whatever becomes of it. Errors: NotFound.
func takeUpload(s *Store, who cove.Principal, ref string) (*os.File, error) {
	id, err := cove.ParseUploadID(ref)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(s.uploads.of(who), string(id))
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, cove.Errorf(cove.NotFound, "there is no upload %s", id).
			WithHint("one is for one sandbox, which is made within %v: send it again", uploadAge)
	}
	if err == nil {
		err = os.Remove(path)
	}
	if err != nil {
		return nil, storageFull("read the upload", err)
	}
	return f, nil
}

// uploaded makes the checkout of a folder of another machine: its pack is checked as one that a stranger sends, and
// becomes the history of a repository of the workspace's own. Nothing is borrowed and nothing fetched.
func uploaded(ctx context.Context, w *making, want workspace.Repository) error {
	u := *want.Upload
	pack, err := takeUpload(w.s, w.spec.Owner, u.ID)
	if err != nil {
		return err
	}
	defer pack.Close()
	info, err := pack.Stat()
	if err == nil {
		err = w.disk.reserve(info.Size(), 0)
	}
	if err != nil {
		return err
	}
	w.record.Source, w.record.Repository = want.Source, keyOfDirectory(want.Source)
	w.record.Remote = pushAddress(u.Remote)
	at, err := w.plan(ctx, advert{}, want)
	if err != nil {
		return err
	}
	if at.id, at.from = u.Commit, u.From; !hostgit.ValidBranch(u.From) {
		at.from = u.Commit
	}
	w.record.From, w.record.Base = at.from, u.Commit
	format := formatOf(u.Commit)
	if err := w.importer(format, nil, false, at); err != nil {
		return err
	}
	tell(w.progress, "checking the upload")
	if err := unpack(ctx, w, pack, u); err != nil {
		return err
	}
	if err := w.remember(); err != nil {
		return err
	}
	tell(w.progress, w.checkoutStep())
	return w.private(ctx, at, nil, want.Sparse)
}

// unpack puts a pack into import.git, if all its objects are sound and none is missing. Errors: InvalidArgument,
// TooLarge.
func unpack(ctx context.Context, w *making, pack *os.File, u workspace.Upload) error {
	dir := w.in(importDir)
	if len(u.Shallow) > 0 {
		if err := writeFile(filepath.Join(dir, "shallow"), strings.Join(u.Shallow, "\n")+"\n"); err != nil {
			return err
		}
	}
	_, err := w.git(ctx, hostgit.Run{Dir: dir, Command: []string{"index-pack"}, Flags: []string{"--stdin",
		"--strict=" + hostgit.Harmless(), fmt.Sprintf("--max-input-size=%d", w.s.o.MaxImport)}, Stdin: pack,
		Limits: hostgit.Limits{Memory: importMemory, FileSize: 2 * w.s.o.MaxImport, CPU: importCPU}})
	if err == nil {
		_, err = w.git(ctx, hostgit.Run{Dir: dir, Command: []string{"rev-parse"}, Flags: []string{"--verify", "--quiet"},
			Args: []string{u.Commit + "^{commit}"}})
	}
	if hostgit.ExitCode(err) > 0 {
		return cove.Errorf(cove.InvalidArgument, "git refuses the upload: %w", err).
			WithHint("look at the folder with \"git fsck\"")
	}
	return err
}

// checkUpload refuses what an upload cannot be asked for. Errors: InvalidArgument.
func checkUpload(want workspace.Repository) error {
	bad := func(format string, args ...any) error { return cove.Errorf(cove.InvalidArgument, format, args...) }
	switch u := want.Upload; {
	case want.Worktree || want.Uncommitted || want.Depth > 0 || want.From != "" || len(want.Ignored) > 0:
		return bad("an upload is what is checked out: it goes with no other beginning, and with nothing of this machine")
	case !strings.HasPrefix(want.Source, workspace.FolderScheme) || len(want.Source) > maxSource:
		return bad("the source of an upload is the name of a folder: file://HOST/PATH")
	case !hostgit.ValidID(u.Commit):
		return bad("%.80q is no commit that an upload begins at", u.Commit)
	case len(u.Shallow) > maxShallow:
		return bad("at most %d commits of an upload have no parents there", maxShallow)
	default:
		for _, id := range u.Shallow {
			if !hostgit.ValidID(id) || len(id) != len(u.Commit) {
				return bad("%.80q is no commit of the upload", id)
			}
		}
	}
	return nil
}

// brokenOff remembers the error of reading.
type brokenOff struct {
	r   io.Reader
	err error
}

func (b *brokenOff) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		b.err = err
	}
	return n, err
}
