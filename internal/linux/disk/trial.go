//go:build linux

package disk

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/filelock"
)

// Trial begins the names of what trials of "cove doctor" and of servers make. A process that is killed leaves it, until
// the next one sweeps.
const Trial = ".cove-doctor-"

// Try makes and mounts a small image below a directory, and removes it: it reports whether images are possible there.
// Errors: Unsupported.
func Try(ctx context.Context, below string) (err error) {
	if os.Geteuid() != 0 {
		return cove.Errorf(cove.Unsupported, "only root may mount a file system").
			WithHint("run Cove as root")
	}
	if err := Sweep(below); err != nil {
		return err
	}
	trying, err := lock(ctx, below, filelock.Shared) // keeps others from sweeping
	if err != nil {
		return failed("lock", below, err)
	}
	defer trying.Close()
	i, err := newTrial(below)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, i.dropTrial()) }()
	if err := i.Make(ctx, Size{1 << 20, 64}); err != nil {
		return err
	}
	return i.Mount(ctx)
}

// newTrial makes the directory of a trial.
func newTrial(below string) (Image, error) {
	dir, err := os.MkdirTemp(below, Trial+"*")
	if err != nil {
		return Image{}, failed("make a directory below", below, err)
	}
	return trialIn(dir), nil
}

func trialIn(dir string) Image {
	return Image{File: filepath.Join(dir, "image"), Dir: filepath.Join(dir, "disk")}
}

func (i Image) dropTrial() error { return errors.Join(i.Unmount(), os.RemoveAll(filepath.Dir(i.File))) }

// Sweep removes what trials of killed processes have left below a directory, with their mounts and devices. While a
// process tries, it removes nothing. What belongs to another account stays: its directories could lead anywhere.
func Sweep(below string) error {
	d, err := os.Open(below)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return failed("open", below, err)
	}
	defer d.Close()
	if err := filelock.Try(d, filelock.Exclusive); errors.Is(err, filelock.ErrHeld) {
		return nil
	} else if err != nil {
		return failed("lock", below, err)
	}
	entries, err := d.ReadDir(-1)
	if err != nil {
		return failed("read", below, err)
	}
	var errs []error
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), Trial) {
			continue
		}
		info, err := e.Info()
		if err != nil {
			continue // removed meanwhile
		}
		if st, ok := info.Sys().(*syscall.Stat_t); !ok || int(st.Uid) != os.Geteuid() {
			continue
		}
		path := filepath.Join(below, e.Name())
		if info.IsDir() {
			errs = append(errs, trialIn(path).dropTrial())
		} else {
			errs = append(errs, os.Remove(path))
		}
	}
	return errors.Join(errs...)
}
