package sqlite

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/store"
)

// The audit log loses the oldest records of one owner, so what is left of the chain has gaps. audit_links has the hash
// of the last record of each gap, which the record after it is chained to. A record of the pruning, in the same
// transaction, says how many are left of each owner from which number on. Since the chain has all that were ever there,
// no other choice of records fits both: Verify tells a gap that pruning has made from one that was made by hand.

const (
	// auditStep is how many records give way at most to one that is added, and auditBatch how many a transaction of
	// pruning removes.
	auditStep  = 100
	auditBatch = 500
	// actionPrune is the action of records of prunings.
	actionPrune = "prune"
	// leftMark begins the digest in the detail of such a record.
	leftMark = "left sha256:"
)

// pruner is the owner of records of prunings, which give way as those of others.
var pruner = cove.System("audit").String()

// dated is a record's place in the chain and its time.
type dated struct {
	link
	time int64
}

// owner counts the records that the log has of one owner.
type owner struct {
	who     string
	records int64
	removed int64 // the number of the last record that was pruned
}

// auditBytes returns about how many bytes of the database the audit log takes.
func auditBytes(ctx context.Context, from querier) (bytes int64, err error) {
	err = from.QueryRowContext(ctx, `SELECT coalesce(sum(bytes), 0) FROM audit_owners`).Scan(&bytes)
	return bytes, err
}

// auditOver reports whether the audit log takes more than a bound, if there is one.
func auditOver(ctx context.Context, from querier, bound int64) (bool, error) {
	if bound == 0 {
		return false, nil
	}
	bytes, err := auditBytes(ctx, from)
	return bytes > bound, err
}

// boundAudit removes the oldest records of the owner with the most bytes, at most so many and never more than half, if
// the log takes more than its bound. It reports whether it has removed any.
func boundAudit(ctx context.Context, tx *tx, bound, most int64) (removed bool, err error) {
	if over, err := auditOver(ctx, tx, bound); err != nil || !over {
		return false, err
	}
	var who string
	var records int64
	err = tx.QueryRowContext(ctx, `SELECT who, records FROM audit_owners ORDER BY bytes DESC LIMIT 1`).
		Scan(&who, &records)
	if err != nil || records < 2 {
		return false, err
	}
	going, err := readDated(ctx, tx, `SELECT seq, hash, time FROM audit WHERE who = ? ORDER BY seq LIMIT ?`, who,
		min(most, records/2))
	if err != nil {
		return false, err
	}
	if err := removeRecords(ctx, tx, going); err != nil {
		return false, err
	}
	return true, recordPruning(ctx, tx, who, "audit.max_mb", going)
}

// removeRecords removes records of the audit log: the oldest of each of their owners.
func removeRecords(ctx context.Context, tx *tx, going []dated) error {
	var numbers []int64
	for _, r := range going {
		numbers = append(numbers, r.seq)
	}
	list, err := json.Marshal(numbers)
	if err != nil {
		return err
	}
	for _, statement := range []string{
		`UPDATE audit_owners SET removed = of.last FROM (SELECT who, max(seq) AS last FROM audit
			WHERE seq IN (SELECT value FROM json_each(?1)) GROUP BY who) AS of WHERE audit_owners.who = of.who`,
		`INSERT INTO audit_links SELECT seq, hash FROM audit WHERE seq IN (SELECT value FROM json_each(?1))
			AND seq + 1 NOT IN (SELECT value FROM json_each(?1))`,
		`DELETE FROM audit WHERE seq IN (SELECT value FROM json_each(?1))`,
		`DELETE FROM audit_links WHERE seq IN (SELECT value - 1 FROM json_each(?1))`,
	} {
		if _, err := tx.ExecContext(ctx, statement, string(list)); err != nil {
			return err
		}
	}
	_, err = tx.ExecContext(ctx, `DELETE FROM audit_owners WHERE records = 0`)
	return err
}

// recordPruning adds the record of a pruning: of which owner, or of all, and for which setting.
func recordPruning(ctx context.Context, tx *tx, who, setting string, gone []dated) error {
	owners, err := readOwners(ctx, tx)
	if err != nil {
		return err
	}
	return chain(ctx, tx, store.Record{Time: time.Now(), Who: pruner, Action: actionPrune, Object: who, Verdict: "ok",
		Detail: pruned(gone, setting) + leftMark + digest(owners)})
}

// pruned describes in words which records are gone. It is pure.
func pruned(gone []dated, setting string) string {
	byTime := func(a, b dated) int { return int(max(-1, min(1, a.time-b.time))) }
	at := func(r dated) string { return time.UnixMicro(r.time).UTC().Format(time.RFC3339) }
	return fmt.Sprintf("removed %d of the oldest records, from %s to %s, for %s; ", len(gone),
		at(slices.MinFunc(gone, byTime)), at(slices.MaxFunc(gone, byTime)), setting)
}

// digest returns a hash over what is left of each owner. It is pure.
func digest(owners []owner) string {
	var lines []string
	for _, o := range owners {
		lines = append(lines, fmt.Sprintf("%q %d %d\n", o.who, o.records, o.removed))
	}
	slices.Sort(lines)
	sum := sha256.Sum256([]byte(strings.Join(lines, "")))
	return hex.EncodeToString(sum[:])
}

func readOwners(ctx context.Context, tx *tx) (all []owner, err error) {
	rows, err := tx.QueryContext(ctx, `SELECT who, records, removed FROM audit_owners`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var o owner
		if err := rows.Scan(&o.who, &o.records, &o.removed); err != nil {
			return nil, err
		}
		all = append(all, o)
	}
	return all, rows.Err()
}

func readDated(ctx context.Context, tx *tx, query string, args ...any) (all []dated, err error) {
	rows, err := tx.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var d dated
		if err := rows.Scan(&d.seq, &d.hash, &d.time); err != nil {
			return nil, err
		}
		all = append(all, d)
	}
	return all, rows.Err()
}
