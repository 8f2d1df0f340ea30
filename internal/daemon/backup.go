package daemon

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/backup"
	"github.com/cove-sandbox/cove/internal/config"
	"github.com/cove-sandbox/cove/internal/filelock"
	"github.com/cove-sandbox/cove/internal/instance"
	"github.com/cove-sandbox/cove/internal/linux/disk"
	"github.com/cove-sandbox/cove/internal/sandbox"
	"github.com/cove-sandbox/cove/internal/store"
	"github.com/cove-sandbox/cove/internal/store/sqlite"
	"github.com/cove-sandbox/cove/internal/version"
)

// Names in a home.
const (
	workspacesDir = "workspaces"
	copyDir       = ".backup" // for the copy of the database
)

// notKept are names of a home that no backup has: what is fetched or made again, what belongs to a running server, and
// what belongs to directories of this machine. The database and the workspaces are there in another way.
var notKept = []string{"logs", "packages", "pushes", "reserved", "uploads", "applying", "server.lock", "images/tmp",
	"images/caches", "images/locks", "repos/.locks", workspacesDir, copyDir, backup.Staging}

// kept returns the names in a home that a backup has as they are. It is pure.
func kept(names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		return slices.Contains(notKept, name) || strings.HasPrefix(name, disk.Trial) ||
			strings.HasPrefix(name, backup.Database)
	})
}

// writeBackup writes a backup of the home. The database is copied first: what is done later is not in it.
func writeBackup(ctx context.Context, d *Daemon, file string) (made api.Backup, err error) {
	home := d.cfg.Home
	if !filepath.IsAbs(file) || strings.HasPrefix(file, home+"/") {
		return made, cove.Errorf(cove.InvalidArgument, "%s is no absolute path outside of %s", file, home).
			WithHint("name a file elsewhere, on another disk if there is one")
	}
	if !d.copying.TryLock() {
		return made, cove.Errorf(cove.Conflict, "another backup is being written").WithHint("wait for its end")
	}
	defer d.copying.Unlock()
	workspaces, err := names(filepath.Join(home, workspacesDir))
	if err != nil {
		return made, err
	}
	staging := filepath.Join(home, copyDir)
	if err := errors.Join(os.RemoveAll(staging), os.Mkdir(staging, 0o700)); err != nil {
		return made, cove.Errorf(cove.StorageFull, "the database cannot be copied: %w", err).WithHint("free some space")
	}
	defer os.RemoveAll(staging)
	database := filepath.Join(staging, backup.Database)
	if err := sqlite.Copy(ctx, d.store, database); err != nil {
		return made, err
	}
	w, err := backup.Create(file, backup.About{Cove: version.Version, Schema: sqlite.Schema,
		Made: time.Now().UTC().Truncate(time.Second)})
	if err != nil {
		return made, err
	}
	defer w.Discard()
	copied, err := backupWorkspaces(ctx, d, w, workspaces)
	if err == nil {
		err = backupRest(ctx, home, w)
	}
	if err == nil {
		err = sqlite.Part(ctx, database, copied)
	}
	if err == nil {
		err = w.Add(ctx, staging, []string{backup.Database}, nil, true)
	}
	if err == nil {
		made.File, made.Sandboxes = file, len(copied)
		made.Bytes, err = w.Finish()
	}
	return made, err
}

// backupWorkspaces copies workspaces, and returns the ids of the sandboxes whose files are copied. Each is still
// meanwhile, and not there if it has gone.
func backupWorkspaces(ctx context.Context, d *Daemon, w *backup.Writer, all []string) (copied []cove.SandboxID,
	err error) {
	records, err := d.vault.For(cove.System("")).Sandboxes(ctx)
	if err != nil {
		return nil, err
	}
	for _, name := range all {
		if strings.HasPrefix(name, ".") {
			continue // being made, or removed
		}
		dir := filepath.Join(workspacesDir, name)
		var failed error
		add := func() error {
			failed = w.Add(ctx, d.cfg.Home, []string{dir}, nil, true) // not into what is mounted there
			return failed
		}
		i := slices.IndexFunc(records, func(r store.Sandbox) bool { return string(r.ID) == name })
		if i >= 0 { // one that has to be read again is in the backup again, whose last entries count
			err = sandbox.ChangesOf(d.sandboxes).Still(ctx, records[i].ID, add)
		} else { // a checkout within another one, or work that was kept
			err = add()
		}
		switch {
		case failed != nil:
			return nil, failed
		case err == nil && i >= 0:
			copied = append(copied, records[i].ID)
		case err != nil && cove.ErrorCode(err) != cove.NotFound:
			return nil, cove.Errorf(cove.ErrorCode(err), "the sandbox %s cannot be copied: %s", records[i].Name,
				cove.ErrorMessage(err)).
				WithHint("%s", cmp.Or(cove.ErrorHint(err), "stop or destroy it first"))
		}
	}
	return copied, nil
}

// backupRest copies everything else of the home. No image and no mirror changes meanwhile: their locks are held.
func backupRest(ctx context.Context, home string, w *backup.Writer) error {
	for _, locks := range []string{"images/locks", "repos/.locks"} {
		all, err := names(filepath.Join(home, locks))
		if err != nil {
			return err
		}
		for _, name := range all {
			l, err := filelock.OpenWaiting(ctx, filepath.Join(home, locks, name), filelock.Shared)
			if err != nil {
				return err
			}
			defer l.Close()
		}
	}
	all, err := names(home)
	if all = kept(all); err != nil || len(all) == 0 {
		return err
	}
	return w.Add(ctx, home, all, notKept, false)
}

func names(dir string) (all []string, err error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all, err
}

// Restore makes the home of a configuration, which must be empty, of a backup. Errors: Conflict, and those of
// backup.Restore.
func Restore(ctx context.Context, cfg *config.Config, file string) (about backup.About, err error) {
	if err := os.MkdirAll(cfg.Home, 0o700); err != nil {
		return about, err
	}
	lock, err := instance.LockHome(cfg.Home)
	if err != nil {
		return about, err
	}
	defer lock.Close()
	all, err := names(cfg.Home)
	for _, name := range all {
		if !slices.Contains([]string{"server.lock", "logs", "lost+found", backup.Staging}, name) {
			return about, cove.Errorf(cove.Conflict, "%s is not empty: it has %s", cfg.Home, name).
				WithHint("restore into an empty directory, with COVE_HOME; or move this one away: mv %[1]s %[1]s.old", cfg.Home)
		}
	}
	if err != nil {
		return about, err
	}
	return backup.Restore(ctx, file, cfg.Home, sqlite.Schema)
}
