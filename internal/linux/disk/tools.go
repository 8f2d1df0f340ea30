//go:build linux

package disk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
)

// change runs a program that changes a file system in place. Nothing ends it before it is done, since half a change is
// damage.
func (i Image) change(o *opened, name string, args ...string) error {
	return i.tool(context.Background(), o.lock, name, args...)
}

// tool runs a program of e2fsprogs, or cp. It holds the lock, if there is one, for as long as it runs, whatever becomes
// of this process.
func (i Image) tool(ctx context.Context, lock *os.File, name string, args ...string) error {
	path, err := find(name)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = []string{"PATH=/usr/sbin:/sbin:/usr/bin:/bin", "LC_ALL=C", "MKE2FS_CONFIG=/dev/null"}
	if lock != nil {
		cmd.ExtraFiles = []*os.File{lock}
	}
	var out head
	cmd.Stdout, cmd.Stderr = &out, &out
	err = cmd.Run()
	return explain(ctx, outcome{name, err, cmd.ProcessState.ExitCode(), strings.TrimSpace(string(out))}, i.File)
}

// head keeps the beginning of what a program says, which may be a line for each of many files.
type head []byte

func (h *head) Write(p []byte) (int, error) {
	*h = append(*h, p[:min(len(p), 2000-len(*h))]...)
	return len(p), nil
}

// outcome is how a program ended.
type outcome struct {
	name string
	err  error
	code int // -1 if it did not exit by itself
	said string
}

// explain returns the error of a program that worked on an image; nil if it succeeded. It is pure.
func explain(ctx context.Context, o outcome, file string) error {
	const corrected, uncorrected, operational = 1 | 2, 4, 8 // bits of e2fsck's code
	check := o.name == "e2fsck"
	// e2fsck calls a superblock that it cannot find, and cannot replace by a copy, an operational error.
	lost := strings.Contains(o.said, "Bad magic number in super-block")
	switch {
	case o.err == nil, check && o.code > 0 && o.code&^corrected == 0:
		return nil
	case ctx.Err() != nil:
		return cove.Errorf(cove.Canceled, "%s was ended: %w", o.name, ctx.Err())
	case strings.Contains(o.said, "No space left"):
		return cove.Errorf(cove.StorageFull, "%s: %s", o.name, o.said).WithHint("free some space")
	case o.name == "resize2fs" && strings.Contains(o.said, "Permission denied"): // CAP_SYS_RESOURCE, of the machine's root
		return cove.Errorf(cove.Conflict, "a disk that is in use cannot grow, as Cove lacks CAP_SYS_RESOURCE here").
			WithHint("stop the sandbox first")
	case check && o.code > 0 && (o.code&uncorrected != 0 && o.code&operational == 0 || lost):
		return cove.Errorf(cove.Corrupt, "the file system in %s is damaged, and e2fsck -p cannot repair it: %s", file,
			o.said).WithHint("it stays as it is: repair a copy of the file with e2fsck, and put that in its place, " +
			"or destroy the sandbox")
	case check:
		return cove.Errorf(cove.Unavailable, "the file system in %s cannot be checked: e2fsck: %w: %s", file, o.err, o.said).
			WithHint("try again; the file stays as it is")
	}
	return cove.Errorf(cove.Internal, "%s: %w: %s", o.name, o.err, o.said)
}

// find returns the path of a program, which need not be in the user's PATH.
func find(name string) (string, error) {
	for _, dir := range []string{"/usr/sbin", "/sbin", "/usr/bin", "/bin", "/usr/local/sbin"} {
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil && info.Mode()&0o111 != 0 {
			return path, nil
		}
	}
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	return "", cove.Errorf(cove.RuntimeMissing, "the program %s is not there", name).
		WithHint("install e2fsprogs")
}

func failed(doing, what string, err error) error {
	switch {
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return cove.Errorf(cove.StorageFull, "cannot %s %s: %w", doing, what, err).WithHint("free some space")
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return cove.Errorf(cove.Unsupported, "cannot %s %s: %w", doing, what, err).WithHint("run Cove as root")
	case cove.ErrorCode(err) != cove.Internal:
		return err
	}
	return fmt.Errorf("%s %s: %w", doing, what, err)
}
