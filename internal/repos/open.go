package repos

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/filelock"
	"github.com/cove-sandbox/cove/internal/hostdisk"
	"github.com/cove-sandbox/cove/internal/linux/disk"
)

// Open opens the store, and removes incomplete work of killed processes. No directory needs to exist.
func Open(o Options) (*Store, error) {
	if !filepath.IsAbs(o.Home) {
		return nil, cove.Errorf(cove.Internal, "Cove's home %q is not absolute", o.Home)
	}
	if o.MaxImport == 0 {
		o.MaxImport = defaultImport
	}
	if o.MaxCheckout == 0 {
		o.MaxCheckout = defaultCheckout
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	in := catalog{Disks(o.Home)}
	up := &uploads{dir: uploadsIn(o.Home), coming: map[cove.UploadID]arriving{}}
	s := &Store{o: o, repos: filepath.Join(o.Home, "repos"), catalog: in, uploads: up,
		disks: &disks{catalog: in, uploads: up, room: hostdisk.At(o.Home, in.workspaces), log: o.Log,
			tree: o.Tree}}
	for _, dir := range []string{s.repos, s.mirrorLocks(), s.workspaces, s.journals()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, storageFull("make "+dir, err)
		}
		if err := os.Chmod(dir, 0o700); err != nil { // files in workspaces may have any mode
			return nil, storageFull("close "+dir+" to others", err)
		}
	}
	DropUploads(o.Home, time.Now())
	return s, errors.Join(disk.Sweep(o.Home), disk.Sweep(s.workspaces), s.sweep(), s.sweepMirrors(),
		s.disks.finishKeeping(), s.takeBack(""), disk.DropBase(s.workspaces))
}

// Disks returns the directory below which the disks of workspaces are mounted.
func Disks(home string) string { return filepath.Join(home, "workspaces") }

// sweep removes workspaces that are incomplete or partly removed, unless a process is making one.
func (s *Store) sweep() error {
	l, err := tryLock(s.creating(), filelock.Exclusive)
	if l == nil {
		return err
	}
	defer l.Close()
	entries, err := os.ReadDir(s.workspaces)
	if err != nil {
		return storageFull("read "+s.workspaces, err)
	}
	var errs []error
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), coming) || strings.HasPrefix(e.Name(), going) {
			dir := filepath.Join(s.workspaces, e.Name())
			if r, err := readRecord(dir); err == nil && strings.HasPrefix(e.Name(), coming) {
				errs = append(errs, s.abandonWorktree(context.Background(), r))
			}
			s.o.Log.Info("workspace swept", "name", e.Name())
			errs = append(errs, removeWorkspace(dir))
		}
	}
	return errors.Join(errs...)
}
