package layer

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"path"
)

// Digest identifies the files of a context: their names, modes and content, without those that are left out.
func (s *Source) Digest(ctx context.Context) (string, error) {
	h := sha256.New()
	err := s.digest(ctx, h, ".")
	return hex.EncodeToString(h.Sum(nil)), failure(err, "read the context")
}

func (s *Source) digest(ctx context.Context, h hash.Hash, dir string) error {
	names, err := s.root.Names(dir, 0)
	if err != nil {
		return err
	}
	for _, base := range names {
		if err := ctx.Err(); err != nil {
			return err
		}
		name := path.Join(dir, base)
		info, err := s.root.Lstat(name)
		if err != nil {
			return err
		}
		skip, err := s.skips(name)
		if err != nil {
			return err
		}
		if !skip {
			fmt.Fprintf(h, "%q %o", name, info.Mode())
			err = s.content(h, name, info.Mode())
			fmt.Fprintln(h)
		}
		if err == nil && info.IsDir() && (!skip || s.ignored.Exclusions()) {
			err = s.digest(ctx, h, name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// content adds that of a file or a link.
func (s *Source) content(h hash.Hash, name string, mode fs.FileMode) error {
	switch {
	case mode&fs.ModeSymlink != 0:
		to, err := s.root.Readlink(name)
		fmt.Fprintf(h, " %q", to)
		return err
	case !mode.IsRegular():
		return nil
	}
	f, err := s.root.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return err
	}
	n, err := io.Copy(h, f)
	fmt.Fprintf(h, " %d", n)
	return err
}
