package repos

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/hostgit"
	"github.com/cove-sandbox/cove/internal/workspace"
)

const (
	maxUploads = 16 // of one caller, which no sandbox has taken
	maxShallow = 10_000
	// uploadAge is how long an upload waits for the sandbox that takes it.
	uploadAge = 15 * time.Minute
)

// uploadsOf returns the directory of a caller's uploads: no caller finds those of another one.
func uploadsOf(s *Store, who cove.Principal) string {
	sum := sha256.Sum256([]byte(who.String()))
	return filepath.Join(s.o.Home, "uploads", hex.EncodeToString(sum[:16]))
}

// Receive stores a pack that a caller sends, for one sandbox that the caller makes next. It is not looked into before
// that. What breaks off leaves nothing. Errors: TooLarge, InvalidArgument, Overloaded, Canceled, StorageFull.
func (s *Store) Receive(ctx context.Context, who cove.Principal, pack io.Reader) (id cove.UploadID, size int64,
	err error) {
	id = cove.NewUploadID()
	f, err := newUpload(ctx, s, who, id)
	if err != nil {
		return "", 0, err
	}
	defer func() {
		if e := f.Close(); err == nil && e != nil {
			err = storageFull("write the upload", e)
		}
		if err == nil {
			err = os.Rename(f.Name(), filepath.Join(uploadsOf(s, who), string(id)))
		}
		if err != nil {
			os.Remove(f.Name())
		}
	}()
	from := &brokenOff{r: io.LimitReader(pack, s.o.MaxImport+1)}
	var head [4]byte
	n, err := io.ReadFull(from, head[:])
	switch {
	case from.err != nil:
		return "", 0, cove.Errorf(cove.Canceled, "the upload broke off: %w", from.err)
	case err != nil || string(head[:]) != "PACK": // gitformat-pack(5)
		return "", 0, cove.Errorf(cove.InvalidArgument, "the upload is no pack of git's")
	}
	rest, err := io.Copy(f, io.MultiReader(bytes.NewReader(head[:n]), from))
	switch {
	case from.err != nil:
		return "", 0, cove.Errorf(cove.Canceled, "the upload broke off: %w", from.err)
	case err != nil:
		return "", 0, storageFull("write the upload", err)
	case rest > s.o.MaxImport:
		return "", 0, cove.Errorf(cove.TooLarge, "a folder may have %d MiB when it is packed", s.o.MaxImport>>20).
			WithHint("name what is generated in .gitignore, or push it and name the repository")
	}
	return id, rest, nil
}

// newUpload opens the file of an upload that comes, and removes those that no sandbox has taken.
func newUpload(ctx context.Context, s *Store, who cove.Principal, id cove.UploadID) (*os.File, error) {
	dir := uploadsOf(s, who)
	l, err := lock(ctx, filepath.Join(s.o.Home, "uploads", ".lock"), syscall.LOCK_EX)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	dropUploads(s, time.Now().Add(-uploadAge))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, storageFull("store the upload", err)
	}
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
	return f, nil
}

// dropUploads removes uploads that were last written before a time: of all callers.
func dropUploads(s *Store, before time.Time) {
	old, _ := filepath.Glob(filepath.Join(s.o.Home, "uploads", "*", "*up_*"))
	for _, path := range old {
		if info, err := os.Lstat(path); err == nil && info.ModTime().Before(before) {
			os.Remove(path)
		}
	}
}

// takeUpload opens a caller's upload, whose file is gone then, whatever becomes of it. Errors: NotFound.
func takeUpload(s *Store, who cove.Principal, ref string) (*os.File, error) {
	id, err := cove.ParseUploadID(ref)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(uploadsOf(s, who), string(id))
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
