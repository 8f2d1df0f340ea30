//go:build linux

// Package backup makes one file of Cove's home, and a home of such a file.
//
// The file is a tar, compressed with zstd. Its first entry, backup.json, says what it is of, and its last one,
// manifest.json, has the SHA-256 of every byte of the tar before. A file with holes is in parts, an entry for each
// extent of data: NAME.part-OFFSET. It has its own name only when it is whole and on the disk.
package backup

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/atomicfile"
	"github.com/cove-sandbox/cove/internal/engine/local"
	"github.com/cove-sandbox/cove/internal/filelock"
)

const (
	format   = 1
	first    = "backup.json"
	last     = "manifest.json"
	describe = 64 << 10 // bytes of either, at most
)

// About says what a backup is of.
type About struct {
	Format int       `json:"format"`
	Cove   string    `json:"cove"`   // version
	Schema int       `json:"schema"` // of the database
	Made   time.Time `json:"made"`
	Root   bool      `json:"root"` // it was made by root, whose files have owners of the machine
}

type manifest struct {
	SHA256 string `json:"sha256"`
}

// Files reads and writes files with owners of their own: in this process, or for an ordinary user with subordinate ids
// in a process apart, for which Program calls Serve when its argument is Command.
type Files struct{ Program string }

// Writer writes a backup.
type Writer struct {
	files Files
	path  string
	temp  *os.File
	zip   *zstd.Encoder
	sum   hash.Hash
	all   io.Writer // the tar
}

// Create begins a backup, beside the file that it will replace. Finish or Discard must be called.
func (f Files) Create(path string, about About) (*Writer, error) {
	pattern := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".*")
	sweep(pattern)
	temp, err := os.CreateTemp(filepath.Split(pattern)) // for its owner alone
	if err == nil {
		err = filelock.Try(temp, filelock.Exclusive) // until its writer ends
	}
	if err != nil {
		return nil, unwritten(path, err)
	}
	zip, err := zstd.NewWriter(temp, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return nil, err
	}
	w := &Writer{files: f, path: path, temp: temp, zip: zip, sum: sha256.New()}
	w.all = io.MultiWriter(zip, w.sum)
	about.Format, about.Root = format, os.Geteuid() == 0
	if err := w.describe(first, about); err != nil {
		w.Discard()
		return nil, err
	}
	return w, nil
}

// sweep removes what backups that were killed have left.
func sweep(pattern string) {
	left, _ := filepath.Glob(pattern)
	for _, path := range left {
		if file, err := os.Open(path); err == nil {
			if filelock.Try(file, filelock.Exclusive) == nil {
				os.Remove(path)
			}
			file.Close()
		}
	}
}

// describe writes an entry of the backup's own.
func (w *Writer) describe(name string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	t := tar.NewWriter(w.all)
	if err := t.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(text))}); err != nil {
		return unwritten(w.path, err)
	}
	if of, ok := value.(manifest); ok { // its own digest has the length of the real one
		of.SHA256 = hex.EncodeToString(w.sum.Sum(nil))
		if text, err = json.Marshal(of); err != nil {
			return err
		}
	}
	_, err = t.Write(text)
	return unwritten(w.path, errors.Join(err, t.Flush()))
}

// Add adds a tree.
func (w *Writer) Add(ctx context.Context, t Tree) error {
	out := contextWriter{ctx, w.all}
	if m, ok := local.FindIDs().Apart(); ok {
		return unwritten(w.path, packApart(m, w.files.Program, t, out))
	}
	return unwritten(w.path, pack(t, out))
}

// Finish ends the backup, and gives it its name. It returns its size.
func (w *Writer) Finish() (size int64, err error) {
	defer w.Discard()
	if err := w.describe(last, manifest{hex.EncodeToString(make([]byte, sha256.Size))}); err != nil {
		return 0, err
	}
	if err = tar.NewWriter(w.all).Close(); err == nil {
		err = w.zip.Close()
	}
	if err == nil {
		err = w.temp.Sync()
	}
	if err == nil {
		size, err = w.temp.Seek(0, io.SeekCurrent)
	}
	if err == nil {
		err = os.Rename(w.temp.Name(), w.path)
	}
	if err == nil {
		err = atomicfile.SyncDir(filepath.Dir(w.path))
	}
	return size, unwritten(w.path, err)
}

// Discard removes what was written, unless it has its name.
func (w *Writer) Discard() {
	w.temp.Close()
	os.Remove(w.temp.Name())
}

func unwritten(path string, err error) error {
	switch {
	case err == nil, cove.ErrorCode(err) != cove.Internal:
		return err
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return cove.Errorf(cove.StorageFull, "the backup %s cannot be written: %w", path, err).
			WithHint("free some space there, or choose another disk")
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission), errors.Is(err, unix.EROFS),
		errors.Is(err, unix.ENOTDIR):
		return cove.Errorf(cove.InvalidArgument, "the backup %s cannot be written: %w", path, err).
			WithHint("name a file in a directory that the server's user can write to")
	}
	return err
}

// contextWriter writes until its context ends.
type contextWriter struct {
	ctx context.Context
	io.Writer
}

func (w contextWriter) Write(p []byte) (int, error) {
	if w.ctx.Err() != nil {
		return 0, cove.Errorf(cove.Canceled, "the backup was ended: %w", w.ctx.Err())
	}
	return w.Writer.Write(p)
}

// Restore makes a home of a backup. Nothing of it is seen in the home before all of it is right; of a restoration that
// was killed, the next one removes the rest. The caller keeps others out of the home. Errors: NotFound,
// InvalidArgument, Unsupported, Corrupt, StorageFull.
func (f Files) Restore(ctx context.Context, path, home string, schema int) (about About, err error) {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return about, cove.Errorf(cove.NotFound, "there is no file %s", path)
	}
	if err != nil {
		return about, err
	}
	defer file.Close()
	staging := filepath.Join(home, Staging)
	clear := func() error { return local.FindIDs().RemoveAll(staging) }
	if _, err := os.Lstat(staging); err == nil {
		if err := clear(); err != nil {
			return about, err
		}
	}
	if err := os.Mkdir(staging, 0o700); err != nil {
		return about, unread(path, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, clear())
		}
	}()
	zip, err := zstd.NewReader(file, zstd.WithDecoderConcurrency(1))
	if err != nil {
		return about, err
	}
	defer zip.Close()
	check := func(a About) error { about = a; return fits(a, schema, os.Geteuid() == 0) }
	if m, ok := local.FindIDs().Apart(); ok {
		err = unpackApart(ctx, m, f.Program, zip, staging, check)
	} else {
		err = unpack(ctx, zip, staging, check)
	}
	if err == nil {
		err = atomicfile.SyncAll(staging)
	}
	if err == nil {
		err = publish(staging, home)
	}
	return about, unread(path, err)
}

// Staging is the directory of a home in which a backup is unpacked.
const Staging = ".restoring"

// Database is the name of the database in a home. It is the last that a restoration puts there.
const Database = "cove.db"

func publish(staging, home string) error {
	entries, err := os.ReadDir(staging)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() != Database {
			err = errors.Join(err, os.Rename(filepath.Join(staging, e.Name()), filepath.Join(home, e.Name())))
		}
	}
	if err == nil {
		err = os.Rename(filepath.Join(staging, Database), filepath.Join(home, Database))
	}
	return errors.Join(err, os.RemoveAll(staging), atomicfile.SyncDir(home))
}

// fits refuses a backup that this Cove cannot restore. It is pure.
func fits(a About, schema int, root bool) error {
	who := map[bool]string{true: "root", false: "an ordinary user"}
	switch {
	case a.Format > format, a.Schema > schema:
		return cove.Errorf(cove.Unsupported, "the backup was made by a newer Cove (%s)", a.Cove).WithHint("upgrade this one")
	case a.Root != root:
		return cove.Errorf(cove.Unsupported, "the backup was made by %s, whose files have other owners than yours",
			who[a.Root]).WithHint("restore it as %s", who[a.Root])
	}
	return nil
}

// scan reads a backup to its end, and judges it. check judges what it is of, and take reads each entry.
func scan(in io.Reader, check func(About) error, take func(*tar.Header, io.Reader) error) error {
	sum := sha256.New()
	all := tar.NewReader(io.TeeReader(in, sum))
	read := func(value any) error {
		text, err := io.ReadAll(io.LimitReader(all, describe))
		if err == nil {
			err = json.Unmarshal(text, value)
		}
		return err
	}
	h, err := all.Next()
	if errors.Is(err, zstd.ErrMagicMismatch) || errors.Is(err, tar.ErrHeader) || err == io.EOF ||
		err == nil && h.Name != first {
		return cove.Errorf(cove.InvalidArgument, "it is no backup of Cove's").WithHint("cove backup FILE makes one")
	}
	var about About
	if err == nil {
		err = read(&about)
	}
	if err == nil {
		err = check(about)
	}
	for err == nil {
		if h, err = all.Next(); err != nil {
			break
		}
		if h.Name != last {
			err = take(h, all)
			continue
		}
		is, want := hex.EncodeToString(sum.Sum(nil)), manifest{}
		if err = read(&want); err == nil && is != want.SHA256 {
			err = errDamaged
		}
		if err == nil {
			_, err = io.Copy(io.Discard, in) // the checksum of zstd is at its end
		}
		return err
	}
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return err
}

var errDamaged = errors.New("its content is not what was written")

func unread(path string, err error) error {
	switch {
	case err == nil:
	case errors.Is(err, io.ErrUnexpectedEOF):
		return cove.Errorf(cove.Corrupt, "the backup %s is incomplete: it has been cut off", path).
			WithHint("copy it again from where it was made, or take an older one")
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return cove.Errorf(cove.StorageFull, "the backup %s cannot be restored: %w", path, err).
			WithHint("free some space, or set COVE_HOME to a directory of another disk")
	case cove.ErrorCode(err) != cove.Internal:
		e := cove.Errorf(cove.ErrorCode(err), "%s cannot be restored: %s", path, cove.ErrorMessage(err))
		if hint := cove.ErrorHint(err); hint != "" {
			e = e.WithHint("%s", hint)
		}
		return e
	case errors.As(err, new(*fs.PathError)), errors.As(err, new(*os.LinkError)), errors.As(err, new(unix.Errno)):
		return cove.Errorf(cove.Unavailable, "the backup %s cannot be restored: %w", path, err)
	default:
		return cove.Errorf(cove.Corrupt, "the backup %s is damaged: %w", path, err).
			WithHint("copy it again from where it was made, or take an older one")
	}
	return nil
}
