package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/cove-sandbox/cove/internal/store"
)

// Append implements store.Store. It may use half of the reserve: a command that frees space needs its record first, and
// the other half is for ends.
func (s *Store) Append(ctx context.Context, r store.Record) error {
	return s.settleWith(ctx, reserveSize/2, func(tx *sql.Tx) error { return appendRecord(ctx, tx, r) })
}

// appendRecord adds a record within a transaction. That holds the write lock, so no other process appends in between.
func appendRecord(ctx context.Context, tx *sql.Tx, r store.Record) error {
	r = r.Normal()
	last, err := head(ctx, tx)
	if err != nil {
		return err
	}
	r.Seq = last.seq + 1
	r.Hash = store.Chain(last.hash, r)
	_, err = tx.ExecContext(ctx,
		`INSERT INTO audit (seq, time, who, action, object, verdict, detail, hash) VALUES (?,?,?,?,?,?,?,?)`,
		r.Seq, r.Time.UnixMicro(), r.Who, r.Action, r.Object, r.Verdict, r.Detail, r.Hash)
	return err
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

func scanRecord(rows row) (store.Record, error) {
	var r store.Record
	var at int64
	err := rows.Scan(&r.Seq, &at, &r.Who, &r.Action, &r.Object, &r.Verdict, &r.Detail, &r.Hash)
	r.Time = time.UnixMicro(at).UTC()
	return r, err
}

// Audit implements store.Store.
func (s *Store) Audit(ctx context.Context, q store.AuditQuery) (page store.AuditPage, err error) {
	page.Records, page.Next, err = readPage(ctx, s, ofAudit, q.Limit, q.Cursor, recordsOf(q),
		func(r row, at *place) (store.Record, error) {
			record, err := scanRecord(r)
			*at = place{record.Seq, record.Time.UnixMicro()}
			return record, err
		}, selectRecords)
	return page, err
}

const selectRecords = `SELECT ` + auditColumns + ` FROM audit`

func recordsOf(q store.AuditQuery) (c clause) {
	c.between("time", q.Since, q.Until)
	c.addText("who = ?", q.Who)
	c.filter("action = ?", q.Action)
	c.addText("object = ?", q.Object) // of which there are few
	c.filter("verdict = ?", q.Verdict)
	return c
}

// Verify implements store.Store. Besides changed records it finds missing ones, those cut off the end included.
func (s *Store) Verify(ctx context.Context) (store.Verification, error) {
	tx, err := s.read.BeginTx(ctx, &sql.TxOptions{ReadOnly: true}) // one snapshot
	if err != nil {
		return store.Verification{}, s.fault("read", err)
	}
	defer tx.Rollback()
	v, err := verify(ctx, tx)
	return v, s.fault("read", err)
}

func verify(ctx context.Context, tx *sql.Tx) (v store.Verification, err error) {
	at, err := anchor(ctx, tx)
	if err != nil && !errors.Is(err, sql.ErrNoRows) { // without one the chain must begin at 1
		return v, err
	}
	v.Head = at.hash
	rows, err := tx.QueryContext(ctx, `SELECT `+auditColumns+` FROM audit ORDER BY seq`)
	if err != nil {
		return v, err
	}
	defer rows.Close()
	for rows.Next() {
		r, err := scanRecord(rows)
		if err != nil {
			return v, err
		}
		if r.Seq != at.seq+1 || r.Hash != store.Chain(at.hash, r) {
			v.Broken = at.seq + 1
			return v, nil
		}
		at = link{r.Seq, r.Hash}
		v.Records, v.Head = v.Records+1, at.hash
	}
	if err := rows.Err(); err != nil {
		return v, err
	}
	var given int64 // the highest number ever given
	err = tx.QueryRowContext(ctx, `SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'audit'`).Scan(&given)
	if err == nil && given > at.seq {
		v.Broken = at.seq + 1
	}
	return v, err
}
