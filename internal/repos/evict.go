package repos

import (
	"context"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/filelock"
	"github.com/cove-sandbox/cove/internal/hostdisk"
)

// The mirrors have a bound together (Options.MaxMirrors), and leave the floor of the machine's disk. A mirror is in use
// while a workspace borrows from it, also one that was kept, or while a process holds its lock. Others can be fetched
// again, and make room: those that were used the longest ago go first.

// bounded runs a fetch into the mirror that writes at most a number of bytes. One that ends there runs again with more:
// the size of a fetch is unknown, and so half of what the disk has left is reserved for it at first, then all, and at
// last what mirrors without use leave. The caller must hold the lock.
func (m *mirror) bounded(ctx context.Context, run func(most int64) error) error {
	part, evicted := int64(2), false
	for {
		reserved, most, over, err := m.reserve(ctx, part)
		if err == nil {
			err = run(most)
			reserved.End()
			if err == nil {
				return nil
			}
			if !m.filled(most) {
				return err
			}
			if e := cleanRepository(m.dir); e != nil {
				return errors.Join(err, e)
			}
		} else if over = err; cove.ErrorCode(err) != cove.StorageFull {
			return err
		} else {
			part = 1
		}
		if part > 1 {
			part = 1
			continue
		}
		if evicted {
			return over
		}
		evicted = true
		if gone, err := m.s.evictMirrors(ctx, m.key, func() bool { return false }); err != nil || !gone {
			return errors.Join(over, err)
		}
	}
}

// reserve reserves a part of what the disk has left for a fetch, within the bound of all mirrors, and returns it with
// the error of a fetch that needs more.
func (m *mirror) reserve(ctx context.Context, part int64) (r *hostdisk.Reservation, most int64, over, err error) {
	total, err := m.s.mirrorsLeft(ctx, m.key)
	if err != nil {
		return nil, 0, nil, err
	}
	r, err = hostdisk.At(m.s.o.Home, m.dir).Reserve(func(room hostdisk.Room) (int64, error) {
		if err := room.CheckShort(); err != nil {
			return 0, err
		}
		over = cove.Errorf(cove.StorageFull, "the repository does not fit on the disk of this machine, which has %d MiB "+
			"left, of which Cove leaves %d alone", room.Free>>20, room.Floor()>>20).
			WithHint("free some space; \"cove prune\" shows sandboxes that can go")
		if most = room.Left() / part; most > total {
			most, over = total, m.s.tooManyMirrors()
		}
		if most <= 0 {
			return 0, over
		}
		return most, nil
	})
	return r, most, over, err
}

func (s *Store) tooManyMirrors() error {
	return cove.Errorf(cove.StorageFull, "the repositories of the store, as far as sandboxes use them, would take more "+
		"than %d MiB (disk.repositories_mb)", s.o.MaxMirrors>>20).
		WithHint("destroy sandboxes of one that you do not need (\"cove repo list\"), or raise it in the configuration")
}

// mirrorsLeft returns the bytes that a fetch into one mirror may add. Mirrors that nothing uses do not count: they can
// go.
func (s *Store) mirrorsLeft(ctx context.Context, key string) (int64, error) {
	if s.o.MaxMirrors == 0 {
		return math.MaxInt64, nil
	}
	all, err := s.described()
	if err != nil {
		return 0, err
	}
	records, err := s.records()
	if err != nil {
		return 0, err
	}
	left := s.o.MaxMirrors
	for _, other := range all {
		used := slices.ContainsFunc(records, func(r record) bool { return r.Mirror == other.Key })
		if !used && other.Key != key {
			continue
		}
		size, _, err := hostdisk.Tree(ctx, s.mirror(other.Key).dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return 0, storageFull("measure the store", err)
		}
		left -= size
	}
	return left, nil
}

// filled reports whether git has written as much into one file of the mirror as it was allowed. It says so in many
// ways.
func (m *mirror) filled(most int64) (is bool) {
	const near = 1 << 20
	filepath.WalkDir(filepath.Join(m.dir, "objects"), func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil
		}
		if info, err := d.Info(); err == nil && info.Size() >= most-near {
			is = true
		}
		return nil
	})
	room, err := hostdisk.Of(m.dir)
	return is || err == nil && room.Left() < near
}

// trimMirrors removes mirrors that nothing uses, but one, until all are within their bound.
func (s *Store) trimMirrors(ctx context.Context, but string) {
	if s.o.MaxMirrors == 0 {
		return
	}
	within := func() bool {
		sum, err := s.mirrorsSize(ctx)
		return err != nil || sum <= s.o.MaxMirrors
	}
	if within() {
		return
	}
	if _, err := s.evictMirrors(ctx, but, within); err != nil {
		s.o.Log.Warn("mirrors beyond their bound cannot be removed", "error", err)
	}
}

func (s *Store) mirrorsSize(ctx context.Context) (sum int64, err error) {
	all, err := s.described()
	for _, other := range all {
		size, _, e := hostdisk.Tree(ctx, s.mirror(other.Key).dir)
		if e != nil && !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, e)
		}
		sum += size
	}
	return sum, err
}

// evictMirrors removes mirrors that nothing uses, but one, until enough: those first that were used the longest ago.
func (s *Store) evictMirrors(ctx context.Context, but string, enough func() bool) (gone bool, err error) {
	all, err := s.described()
	if err != nil {
		return false, err
	}
	slices.SortStableFunc(all, func(a, b Mirror) int { return a.UsedAt.Compare(b.UsedAt) })
	for _, found := range all {
		if enough() || ctx.Err() != nil {
			break
		}
		if found.Key == but {
			continue
		}
		m := s.mirror(found.Key)
		l, err := tryLock(m.lockFile(), filelock.Exclusive)
		if err != nil {
			return gone, err
		}
		if l == nil {
			continue // in use
		}
		ids, err := s.borrowers(m.key)
		if err == nil && len(ids) == 0 && m.there() {
			s.o.Log.Info("mirror removed, to make room", "repository", found.Address, "used", found.UsedAt)
			err, gone = m.remove(), true
		}
		l.Close()
		if err != nil {
			return gone, err
		}
	}
	return gone, nil
}

// sweepMirrors removes incomplete mirrors, of processes that were killed while they made or removed them.
func (s *Store) sweepMirrors() error {
	var errs []error
	err := filepath.WalkDir(s.repos, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() || !strings.HasSuffix(d.Name(), ".git") {
			return unlessGone(err)
		}
		rel, err := filepath.Rel(s.repos, path)
		if err != nil {
			return err
		}
		m := s.mirror(strings.TrimSuffix(filepath.ToSlash(rel), ".git"))
		if m.there() {
			return fs.SkipDir
		}
		l, err := tryLock(m.lockFile(), filelock.Exclusive)
		if l == nil {
			errs = append(errs, err)
			return fs.SkipDir // it is being made
		}
		defer l.Close()
		if !m.there() {
			s.o.Log.Info("incomplete mirror swept", "repository", m.key)
			errs = append(errs, unlessGone(os.RemoveAll(m.dir)))
		}
		return fs.SkipDir
	})
	if err = errors.Join(append(errs, err)...); err != nil {
		return storageFull("sweep the store", err)
	}
	return nil
}

func unlessGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
