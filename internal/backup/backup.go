//go:build linux

// Package backup makes one file of Cove's home, and a home of such a file.
//
// The file is a tar, compressed with zstd; zstd -dc and tar -xi read it, too. A frame at its end, which zstd skips,
// describes it and has the SHA-256 of all before. It has its own name only when it is whole and on the disk.
package backup

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"hash"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/atomicfile"
	"github.com/cove-sandbox/cove/internal/engine/local"
	"github.com/cove-sandbox/cove/internal/filelock"
)

const (
	format    = 1
	magic     = 0xfd2fb528 // of a frame with content
	skippable = 0x184d2a5c
	trailer   = 1024 // bytes of the frame at the end
)

// About says what a backup is of.
type About struct {
	Format int       `json:"format"`
	Cove   string    `json:"cove"`   // version
	Schema int       `json:"schema"` // of the database
	Made   time.Time `json:"made"`
	Root   bool      `json:"root"`   // it was made by root, whose files have owners of the machine
	SHA256 string    `json:"sha256"` // of what is before
}

// Writer writes a backup.
type Writer struct {
	about About
	path  string
	temp  *os.File
	sum   hash.Hash
	zip   *zstd.Encoder
}

// Create begins a backup, beside the file that it will replace. Finish or Discard must be called.
func Create(path string, about About) (*Writer, error) {
	pattern := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".*")
	left, _ := filepath.Glob(pattern)
	for _, name := range left { // by backups that were killed
		if f, err := filelock.Open(name, filelock.Exclusive); err == nil {
			os.Remove(name)
			f.Close()
		}
	}
	temp, err := os.CreateTemp(filepath.Split(pattern)) // for its owner alone
	if err == nil {
		err = filelock.Try(temp, filelock.Exclusive)
	}
	if err != nil {
		return nil, unwritten(path, err)
	}
	w := &Writer{about: about, path: path, temp: temp, sum: sha256.New()}
	w.about.Format, w.about.Root = format, os.Geteuid() == 0
	w.zip, err = zstd.NewWriter(io.MultiWriter(temp, w.sum), zstd.WithEncoderLevel(zstd.SpeedFastest),
		zstd.WithEncoderConcurrency(1))
	return w, err
}

// Add adds trees of a home by their names there, without some names and all below them. What is removed meanwhile is
// left out. With one, it does not go into other file systems.
func (w *Writer) Add(ctx context.Context, home string, names, without []string, one bool) error {
	args := []string{"--create", "--format=posix", "--sparse", "--anchored", "--no-wildcards"}
	for _, name := range without {
		args = append(args, "--exclude="+name)
	}
	if one {
		args = append(args, "--one-file-system")
	}
	var failed error
	out := writer(func(p []byte) (n int, err error) {
		n, err = w.zip.Write(p)
		failed = errors.Join(failed, err)
		return n, err
	})
	err := tar(ctx, nil, out, append(args, append([]string{"--directory=" + home, "--"}, names...)...)...)
	if failed != nil {
		err = failed
	}
	return unwritten(w.path, err)
}

type writer func(p []byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

// Finish ends the backup, and gives it its name. It returns its size.
func (w *Writer) Finish() (size int64, err error) {
	defer w.Discard()
	if err := w.zip.Close(); err != nil {
		return 0, unwritten(w.path, err)
	}
	w.about.SHA256 = hex.EncodeToString(w.sum.Sum(nil))
	text, err := json.Marshal(w.about)
	if err != nil {
		return 0, err
	}
	end := binary.LittleEndian.AppendUint32(nil, skippable)
	end = append(binary.LittleEndian.AppendUint32(end, trailer-8), text...)
	end = append(end, bytes.Repeat([]byte{' '}, trailer-len(end))...)
	if _, err = w.temp.Write(end); err == nil {
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
	os.Remove(w.temp.Name())
	w.temp.Close()
}

func unwritten(path string, err error) error {
	switch {
	case err == nil, cove.ErrorCode(err) != cove.Internal:
		return err
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return cove.Errorf(cove.StorageFull, "the backup %s cannot be written: %w", path, err).
			WithHint("free some space there, or choose another disk")
	}
	return cove.Errorf(cove.InvalidArgument, "the backup %s cannot be written: %w", path, err).
		WithHint("name a file in a directory that the server's user can write to")
}

// tar runs GNU tar, which keeps owners, modes, links, holes and attributes: for an ordinary user with subordinate ids
// in a user namespace, in which files have the owners that they have in sandboxes.
func tar(ctx context.Context, in io.Reader, out io.Writer, args ...string) error {
	cmd := exec.CommandContext(ctx, "tar", append([]string{"--numeric-owner", "--xattrs", "--xattrs-include=*",
		"--xattrs-exclude=security.selinux"}, args...)...)
	var said bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.Env = in, out, &said, []string{"LC_ALL=C", "PATH=" + os.Getenv("PATH")}
	err := local.FindIDs().Run(cmd)
	exit, exited := errors.AsType[*exec.ExitError](err)
	text := said.String()
	text = text[:min(len(text), 2000)]
	switch {
	case err == nil, exited && exit.ExitCode() == 1 && ctx.Err() == nil: // something has changed or gone meanwhile
		return nil
	case ctx.Err() != nil:
		return cove.Errorf(cove.Canceled, "it was ended: %w", ctx.Err())
	case strings.Contains(text, unix.ENOSPC.Error()), strings.Contains(text, "No space left"):
		return cove.Errorf(cove.StorageFull, "tar: %s", text).WithHint("free some space, or choose another disk")
	case errors.Is(err, exec.ErrNotFound), strings.Contains(text, "unrecognized option"):
		return cove.Errorf(cove.RuntimeMissing, "GNU tar is not there: %w: %s", err, text).WithHint("install GNU tar")
	}
	return cove.Errorf(cove.Unavailable, "tar: %w: %s", err, text)
}

// Staging is the directory of a home in which a backup is unpacked.
const Staging = ".restoring"

// Database is the name of the database in a home. It is the last that a restoration puts there.
const Database = "cove.db"

// Restore makes a home of a backup. Nothing of it is seen in the home before all of it is right; of a restoration that
// was killed, the next one removes the rest. The caller keeps others out of the home. Errors: NotFound,
// InvalidArgument, Unsupported, Corrupt, StorageFull.
func Restore(ctx context.Context, path, home string, schema int) (about About, err error) {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return about, cove.Errorf(cove.NotFound, "there is no file %s", path)
	}
	if err != nil {
		return about, err
	}
	defer file.Close()
	about, content, err := check(file, path, schema)
	if err != nil {
		return about, err
	}
	staging := filepath.Join(home, Staging)
	clear := func() error { return local.FindIDs().RemoveAll(staging) }
	if err = clear(); err == nil {
		err = os.Mkdir(staging, 0o700)
	}
	if err != nil {
		return about, err
	}
	zip, err := zstd.NewReader(content, zstd.WithDecoderConcurrency(1))
	if err == nil {
		defer zip.Close()
		err = tar(ctx, zip, nil, "--extract", "--ignore-zeros", "--same-permissions", "--directory="+staging)
	}
	if err == nil {
		err = atomicfile.SyncAll(staging)
	}
	if err != nil {
		return about, errors.Join(err, clear())
	}
	return about, publish(staging, home)
}

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

// check judges a whole file, and returns its tar.
func check(file *os.File, path string, schema int) (about About, content *io.SectionReader, err error) {
	again := "copy it again from where it was made, or take an older one"
	info, err := file.Stat()
	if err != nil {
		return about, nil, err
	}
	begin, end, length := make([]byte, 4), make([]byte, trailer), info.Size()-trailer
	if _, err = file.ReadAt(begin, 0); err == nil && length >= 0 {
		_, err = file.ReadAt(end, length)
	}
	switch {
	case err != nil && err != io.EOF:
		return about, nil, err
	case binary.LittleEndian.Uint32(begin) != magic:
		return about, nil, cove.Errorf(cove.InvalidArgument, "%s is no backup of Cove's", path).
			WithHint("cove backup FILE makes one")
	case binary.LittleEndian.Uint32(end) != skippable:
		return about, nil, cove.Errorf(cove.Corrupt, "the backup %s is incomplete: its end is not there", path).
			WithHint("%s", again)
	}
	content = io.NewSectionReader(file, 0, length)
	sum := sha256.New()
	if err = json.Unmarshal(end[8:], &about); err == nil {
		_, err = io.Copy(sum, content)
	}
	if err != nil || about.SHA256 != hex.EncodeToString(sum.Sum(nil)) {
		return about, nil, cove.Errorf(cove.Corrupt, "the backup %s is damaged: it is not what was written", path).
			WithHint("%s", again)
	}
	_, err = content.Seek(0, io.SeekStart)
	return about, content, errors.Join(err, fits(about, schema, os.Geteuid() == 0))
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
