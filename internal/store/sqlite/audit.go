package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"time"

	"github.com/cove-sandbox/cove/internal/store"
)

// Append implements store.Store.
func (s *Store) Append(ctx context.Context, r store.Record) error {
	r = r.Normal()
	return s.change(ctx, "write", func(tx *sql.Tx) error {
		// The write lock is held, so no other process appends in between.
		last, err := head(ctx, tx)
		if err != nil {
			return err
		}
		r.Seq = last.seq + 1
		r.Hash = store.Chain(last.hash, r)
		_, err = tx.ExecContext(ctx, `INSERT INTO audit (seq, time, who, action, object, verdict, detail, hash) VALUES (?,?,?,?,?,?,?,?)`,
			r.Seq, r.Time.UnixMicro(), r.Who, r.Action, r.Object, r.Verdict, r.Detail, r.Hash)
		return err
	})
}

// link is one place in the chain.
type link struct {
	seq  int64
	hash string
}

// head is the newest record, or what pruning left in its place.
func head(ctx context.Context, tx *sql.Tx) (link, error) {
	var l link
	err := tx.QueryRowContext(ctx, `SELECT seq, hash FROM audit ORDER BY seq DESC LIMIT 1`).Scan(&l.seq, &l.hash)
	if errors.Is(err, sql.ErrNoRows) {
		return anchor(ctx, tx)
	}
	return l, err
}

func anchor(ctx context.Context, tx *sql.Tx) (link, error) {
	var l link
	err := tx.QueryRowContext(ctx, `SELECT seq, hash FROM audit_anchor`).Scan(&l.seq, &l.hash)
	return l, err
}

const auditColumns = `seq, time, who, action, object, verdict, detail, hash`

func scanRecord(rows *sql.Rows) (store.Record, error) {
	var r store.Record
	var at int64
	err := rows.Scan(&r.Seq, &at, &r.Who, &r.Action, &r.Object, &r.Verdict, &r.Detail, &r.Hash)
	r.Time = time.UnixMicro(at).UTC()
	return r, err
}

// Audit implements store.Store.
func (s *Store) Audit(ctx context.Context, q store.AuditQuery) ([]store.Record, error) {
	if err := checkLimit(q.Limit); err != nil {
		return nil, err
	}
	terms, args := []string{"1"}, []any{}
	add := func(term string, arg any) { terms, args = append(terms, term), append(args, arg) }
	if q.Action != "" {
		add("action = ?", q.Action)
	}
	if q.Object != "" {
		add("object = ?", q.Object)
	}
	if !q.Since.IsZero() {
		add("time >= ?", q.Since.UnixMicro())
	}
	if q.Before != 0 {
		add("seq < ?", q.Before)
	}
	rows, err := s.read.QueryContext(ctx, `SELECT `+auditColumns+` FROM audit WHERE `+strings.Join(terms, " AND ")+
		` ORDER BY seq DESC LIMIT ?`, append(args, q.Limit)...)
	if err != nil {
		return nil, s.fault("read", err)
	}
	defer rows.Close()
	var records []store.Record
	for rows.Next() {
		r, err := scanRecord(rows)
		if err != nil {
			return nil, s.fault("read", err)
		}
		records = append(records, r)
	}
	return records, s.fault("read", rows.Err())
}

// Verify implements store.Store. Besides changed records it finds missing
// ones, those cut off the end included.
func (s *Store) Verify(ctx context.Context) (int64, error) {
	tx, err := s.read.BeginTx(ctx, &sql.TxOptions{ReadOnly: true}) // one snapshot
	if err != nil {
		return 0, s.fault("read", err)
	}
	defer tx.Rollback()
	broken, err := verify(ctx, tx)
	return broken, s.fault("read", err)
}

func verify(ctx context.Context, tx *sql.Tx) (int64, error) {
	at, err := anchor(ctx, tx)
	if err != nil {
		return 0, err
	}
	rows, err := tx.QueryContext(ctx, `SELECT `+auditColumns+` FROM audit ORDER BY seq`)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	for rows.Next() {
		r, err := scanRecord(rows)
		if err != nil {
			return 0, err
		}
		if r.Seq != at.seq+1 || r.Hash != store.Chain(at.hash, r) {
			return at.seq + 1, nil
		}
		at = link{r.Seq, r.Hash}
	}
	if err := rows.Err(); err != nil {
		return 0, err
	}
	var given int64 // the highest number ever given
	err = tx.QueryRowContext(ctx, `SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'audit'`).Scan(&given)
	if err == nil && given > at.seq {
		return at.seq + 1, nil
	}
	return 0, err
}
