package sqlite

import (
	"context"

	"github.com/cove-sandbox/cove/internal/store"
)

// Append implements store.Store. It may use half of the reserve: a command that frees space needs its record first, and
// the other half is for ends.
func (s *Store) Append(ctx context.Context, r store.Record) error {
	return s.settleWith(ctx, reserveSize/2, func(tx *tx) error { return appendRecord(ctx, tx, s.bounds.Audit, r) })
}

// appendRecord adds a record within a transaction, and keeps the log within a bound of bytes.
func appendRecord(ctx context.Context, tx *tx, bound int64, r store.Record) error {
	if err := chain(ctx, tx, r); err != nil {
		return err
	}
	_, err := boundAudit(ctx, tx, bound, auditStep)
	return err
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
