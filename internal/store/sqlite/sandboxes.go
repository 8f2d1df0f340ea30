package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/store"
)

// unrecorded holds the properties that earlier versions did not record, which all their sandboxes had.
var unrecorded = cove.Spec{Shape: cove.Shape{
	Isolation: cove.IsolationContainer, User: cove.AgentUser, Lifetime: cove.LifetimeDetached,
}}

const sandboxColumns = `id, name, client, state, reason, spec, created_at, last_used_at`

// AddSandbox implements store.Store.
func (s *Store) AddSandbox(ctx context.Context, b store.Sandbox, room store.Room) error {
	spec, err := json.Marshal(b.Spec)
	if err != nil {
		return err
	}
	reason, _ := store.Cut(b.Reason, store.MaxDetail)
	if err := s.reserve.keep(); err != nil {
		return unwritable(s.path, err)
	}
	return s.change(ctx, func(tx *tx) error {
		var known, own int
		err := tx.QueryRowContext(ctx, `SELECT count(*), count(*) FILTER (WHERE client = ?) FROM
			(SELECT client FROM sandboxes UNION ALL SELECT client FROM checkouts)`, b.Owner.String()).
			Scan(&known, &own)
		if err != nil {
			return err
		}
		if err := room.Admits(b.Owner, known, own); err != nil {
			return err
		}
		if room.Own > 0 || room.Disk > 0 {
			if err := ownRoom(ctx, s, tx, b, room); err != nil {
				return err
			}
		}
		if err := freeNames(ctx, tx, b, nil); err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, `INSERT INTO sandboxes (`+sandboxColumns+`) VALUES (?,?,?,?,?,?,?,?)`,
			string(b.ID), b.Name, b.Owner.String(), string(b.State), reason, string(spec), b.CreatedAt.UnixMicro(),
			b.LastUsedAt.UnixMicro())
		return taken(err, b)
	})
}

// ownRoom returns an error if a sandbox is more than its owner may have.
func ownRoom(ctx context.Context, s *Store, tx *tx, b store.Sandbox, room store.Room) error {
	rows, err := tx.QueryContext(ctx, `SELECT `+sandboxColumns+` FROM sandboxes WHERE client = ?`, b.Owner.String())
	if err != nil {
		return err
	}
	defer rows.Close()
	known, disk := 0, int64(0)
	for rows.Next() {
		other, err := s.scanSandbox(rows)
		if err != nil {
			return err
		}
		known += 1 + len(other.Spec.Checkouts)
		disk += other.Spec.Limits.Disk
	}
	switch {
	case rows.Err() != nil:
		return rows.Err()
	case room.Own > 0 && known >= room.Own:
		return store.TooManyOwn(known)
	}
	return room.Fits(disk, b.Spec.Limits.Disk)
}

// freeNames returns an error if another sandbox of the same owner, or a checkout in one, has a name of b or its
// checkouts. It skips the names that they have already.
func freeNames(ctx context.Context, tx *tx, b store.Sandbox, already map[cove.SandboxID]string) error {
	free := func(id cove.SandboxID, name string) error {
		if already[id] == name {
			return nil
		}
		var other bool
		err := tx.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM sandboxes WHERE client = ?1 AND name = ?2 AND id <> ?3)
			OR EXISTS (SELECT 1 FROM checkouts WHERE client = ?1 AND name = ?2 AND id <> ?3)`,
			b.Owner.String(), name, string(id)).Scan(&other)
		if err == nil && other {
			err = nameTaken(id, name)
		}
		return err
	}
	for id, name := range namesOf(b) {
		if err := free(id, name); err != nil {
			return err
		}
	}
	return nil
}

// namesOf returns the names of a sandbox and its checkouts.
func namesOf(b store.Sandbox) map[cove.SandboxID]string {
	names := map[cove.SandboxID]string{b.ID: b.Name}
	for _, c := range b.Spec.Checkouts {
		names[c.ID] = c.Name
	}
	return names
}

func nameTaken(id cove.SandboxID, name string) error {
	return cove.Errorf(cove.Conflict, "there is a sandbox %q already, or one of the id %s", name, id).
		WithHint("choose another name")
}

// taken says what a violated UNIQUE constraint means.
func taken(err error, b store.Sandbox) error {
	if isUnique(err) {
		return nameTaken(b.ID, b.Name)
	}
	return err
}

// Sandbox implements store.Store.
func (s *Store) Sandbox(ctx context.Context, id cove.SandboxID) (store.Sandbox, error) {
	b, err := s.sandbox(ctx, s.read, id)
	return b, s.fault("read", err)
}

// sandbox reads a sandbox from the database, or within a transaction.
func (s *Store) sandbox(ctx context.Context, from querier, id cove.SandboxID) (store.Sandbox, error) {
	b, err := s.scanSandbox(from.QueryRowContext(ctx, `SELECT `+sandboxColumns+` FROM sandboxes WHERE id = ?`, string(id)))
	if errors.Is(err, sql.ErrNoRows) {
		err = store.NoSandbox(id)
	}
	return b, err
}

// Sandboxes implements store.Store.
func (s *Store) Sandboxes(ctx context.Context) ([]store.Sandbox, error) {
	return readAll(ctx, s, s.scanSandbox, `SELECT `+sandboxColumns+` FROM sandboxes ORDER BY seq DESC`)
}

func (s *Store) scanSandbox(row row) (store.Sandbox, error) {
	var b store.Sandbox
	var client, spec string
	var created, used int64
	if err := row.Scan(&b.ID, &b.Name, &client, &b.State, &b.Reason, &spec, &created, &used); err != nil {
		return b, err
	}
	b.Owner, b.CreatedAt, b.LastUsedAt = cove.ParsePrincipal(client), time.UnixMicro(created).
		UTC(), time.UnixMicro(used).UTC()
	if err := json.Unmarshal([]byte(spec), &b.Spec); err != nil {
		return b, cove.Errorf(cove.Corrupt, "the sandbox %s cannot be read from %s: %w", b.ID, s.path, err)
	}
	b.Spec.Spec = b.Spec.Over(unrecorded)
	return b, nil
}

// MoveSandbox implements store.Store.
func (s *Store) MoveSandbox(ctx context.Context, id cove.SandboxID, from, to cove.State, reason string) error {
	if !from.CanBecome(to) {
		return cove.Errorf(cove.Conflict, "a sandbox that is %s cannot become %s", from, to)
	}
	reason, _ = store.Cut(reason, store.MaxDetail)
	write := s.change
	if to == cove.StateStopped || to == cove.StateDestroying || to == cove.StateFailed {
		write = s.settle
	}
	return write(ctx, func(tx *tx) error {
		r, err := tx.ExecContext(ctx, `UPDATE sandboxes SET state = ?, reason = ? WHERE id = ? AND state = ?`, string(to),
			reason, string(id), string(from))
		if err != nil {
			return err
		}
		if n, err := r.RowsAffected(); err != nil || n > 0 {
			return err
		}
		is, err := sandboxState(ctx, tx, id)
		if err != nil {
			return err
		}
		return cove.Errorf(cove.Conflict, "sandbox %s is %s, not %s", id, is, from)
	})
}

func sandboxState(ctx context.Context, tx *tx, id cove.SandboxID) (state cove.State, err error) {
	err = tx.QueryRowContext(ctx, `SELECT state FROM sandboxes WHERE id = ?`, string(id)).Scan(&state)
	if errors.Is(err, sql.ErrNoRows) {
		err = store.NoSandbox(id)
	}
	return state, err
}

// ChangeSandbox implements store.Store.
func (s *Store) ChangeSandbox(ctx context.Context, id cove.SandboxID, change func(*store.Sandbox) error) error {
	return s.change(ctx, func(tx *tx) error {
		b, err := s.sandbox(ctx, tx, id)
		if err != nil {
			return err
		}
		owner, already := b.Owner, namesOf(b)
		if err := change(&b); err != nil {
			return err
		}
		b.Owner = owner
		if err := freeNames(ctx, tx, b, already); err != nil {
			return err
		}
		spec, err := json.Marshal(b.Spec)
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, `UPDATE sandboxes SET name = ?, spec = ? WHERE id = ?`, b.Name, string(spec), string(id))
		return taken(err, b)
	})
}

// TouchSandbox implements store.Store.
func (s *Store) TouchSandbox(ctx context.Context, id cove.SandboxID, at time.Time) error {
	return s.change(ctx, func(tx *tx) error {
		r, err := tx.ExecContext(ctx, `UPDATE sandboxes SET last_used_at = max(last_used_at, ?) WHERE id = ?`,
			at.UnixMicro(), string(id))
		return affected(r, err, store.NoSandbox(id))
	})
}

// RemoveSandbox implements store.Store.
func (s *Store) RemoveSandbox(ctx context.Context, id cove.SandboxID) error {
	return s.settle(ctx, func(tx *tx) error {
		state, err := sandboxState(ctx, tx, id)
		if err != nil {
			return err
		}
		if state != cove.StateDestroying {
			return cove.Errorf(cove.Conflict, "sandbox %s is %s, and not being destroyed", id, state)
		}
		_, err = tx.ExecContext(ctx, `DELETE FROM sandboxes WHERE id = ?`, string(id))
		return err
	})
}
