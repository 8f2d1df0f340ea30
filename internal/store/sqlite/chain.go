package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/cove-sandbox/cove/internal/store"
)

// chain adds a record to the chain. The transaction holds the write lock, so no other process appends in between.
func chain(ctx context.Context, tx *tx, r store.Record) error {
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

// head returns the newest record, or what pruning left in its place.
func head(ctx context.Context, tx *tx) (l link, err error) {
	for _, table := range []string{"audit", "audit_links"} {
		err = tx.QueryRowContext(ctx, `SELECT seq, hash FROM `+table+` ORDER BY seq DESC LIMIT 1`).Scan(&l.seq, &l.hash)
		if !errors.Is(err, sql.ErrNoRows) {
			return l, err
		}
	}
	return l, nil
}

const auditColumns = `seq, time, who, action, object, verdict, detail, hash`

// scanRecord reads auditColumns and then what follows them in the query.
func scanRecord(rows row, more ...any) (store.Record, error) {
	var r store.Record
	var at int64
	err := rows.Scan(append([]any{&r.Seq, &at, &r.Who, &r.Action, &r.Object, &r.Verdict, &r.Detail, &r.Hash}, more...)...)
	r.Time = time.UnixMicro(at).UTC()
	return r, err
}
