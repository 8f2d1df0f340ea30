package provision

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/guest"
)

// File is a file to place below a directory of a sandbox.
type File struct {
	Path string // relative, clean
	Mode uint32 // permission bits; 0 is 0644
	Data []byte
}

const (
	// MaxFiles is the most files of one request, and MaxFileBytes the most bytes in all of them.
	MaxFiles     = 256
	MaxFileBytes = 16 << 20
	// MaxHomeFiles is the most files for a home.
	MaxHomeFiles = 1024
)

// CheckFiles refuses more than most files, too large ones, and paths that lead out of the directory.
func CheckFiles(files []File, most int) error {
	if len(files) > most {
		return cove.Errorf(cove.TooLarge, "%d files, at most %d are allowed", len(files), most)
	}
	total := 0
	for _, f := range files {
		if total += len(f.Data); !cleanPath(f.Path) {
			return cove.Errorf(cove.InvalidArgument,
				"the file path %q must be relative and clean, without \"..\", of names of at most %d bytes", f.Path, maxName)
		}
	}
	if total > MaxFileBytes {
		return cove.Errorf(cove.TooLarge, "the files have %d bytes, at most %d are allowed", total, MaxFileBytes).
			WithHint("mount a directory instead")
	}
	return nil
}

// maxName is NAME_MAX, the most bytes of one name in a path.
const maxName = 255

func cleanPath(p string) bool {
	for name := range strings.SplitSeq(p, "/") {
		if len(name) > maxName {
			return false
		}
	}
	return path.Clean(p) == p && !path.IsAbs(p) && p != ".." && !strings.HasPrefix(p, "../") && p != "." &&
		strings.IndexByte(p, 0) < 0 && len(p) < 1024
}

// Deliver writes files below a directory of a sandbox. Errors: TooLarge when they do not fit.
func Deliver(ctx context.Context, g *guest.Client, dir string, files []File) error {
	for _, f := range files {
		err := g.WriteFile(ctx, dir+"/"+f.Path, cmp.Or(f.Mode, 0o644), f.Data)
		if failure, ok := errors.AsType[*guest.Failure](err); ok && failure.Kind == guest.FailNoSpace {
			return cove.Errorf(cove.TooLarge, "the files do not fit into the sandbox's disk").
				WithHint("raise the disk limit (--disk, limits.disk_mb)")
		}
		if err != nil {
			return fmt.Errorf("deliver %s: %w", f.Path, err)
		}
	}
	return nil
}
