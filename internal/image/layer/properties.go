package layer

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io/fs"
	"os"
	"path"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// Properties identifies the files that words of a COPY mean in a context by their properties, without reading them:
// a hash of places, kinds, modes, owners, sizes, inodes and times. changed is when the last of them changed, as far as
// the file system says. What changes later has other properties, unless its file system cannot tell the times apart.
func (s *Source) Properties(ctx context.Context, words []string) (sum string, changed time.Time, err error) {
	p := properties{Source: s, hash: sha256.New()}
	fmt.Fprintf(p.hash, "%q\n", s.ignores)
	for _, word := range words {
		names, err := s.find(word)
		if err != nil {
			return "", changed, err
		}
		for _, name := range names {
			real, err := s.resolve(name)
			if err != nil {
				return "", changed, err
			}
			fmt.Fprintf(p.hash, "%q\n", name)
			if err := p.named(ctx, real); err != nil {
				return "", changed, failure(err, "read the context")
			}
		}
	}
	return hex.EncodeToString(p.hash.Sum(nil)), time.Unix(0, p.changed), nil
}

type properties struct {
	*Source
	hash    hash.Hash
	changed int64 // Unix time in nanoseconds
}

// named adds what a word names.
func (p *properties) named(ctx context.Context, name string) error {
	dir, err := p.root.Open(path.Dir(name))
	if err != nil {
		return err
	}
	defer dir.Close()
	return p.add(ctx, dir, name, false)
}

// add adds a file of an open directory, or a directory with what is in it; one that is skipped may have something that
// is not. The times of a directory are those of names that came and went.
func (p *properties) add(ctx context.Context, dir *os.File, name string, skip bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstatat(int(dir.Fd()), path.Base(name), &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return &fs.PathError{Op: "stat", Path: name, Err: err}
	}
	mtime, ctime, is := st.Mtim.Nano(), st.Ctim.Nano(), kind(st) == unix.S_IFDIR
	if skip && !is {
		return nil
	}
	p.changed = max(p.changed, mtime, ctime)
	if is {
		fmt.Fprintf(p.hash, "%q %o\n", name, st.Mode)
		return p.directory(ctx, dir, name)
	}
	fmt.Fprintf(p.hash, "%q %o %d:%d %d %d %d %d %d\n", name, st.Mode, st.Uid, st.Gid, st.Size, st.Dev, st.Ino, mtime,
		ctime)
	return nil
}

// directory adds what is in a directory of an open one.
func (p *properties) directory(ctx context.Context, in *os.File, name string) error {
	fd, err := unix.Openat(int(in.Fd()), path.Base(name), unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: name, Err: err}
	}
	dir := os.NewFile(uintptr(fd), name)
	defer dir.Close()
	names, err := dir.Readdirnames(0)
	if err != nil {
		return err
	}
	slices.Sort(names)
	for _, base := range names {
		below := path.Join(name, base)
		skip, err := p.skips(below)
		if err != nil {
			return err
		}
		if skip && !p.ignored.Exclusions() {
			continue
		}
		if err := p.add(ctx, dir, below, skip); err != nil {
			return err
		}
	}
	return nil
}
