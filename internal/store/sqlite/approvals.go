package sqlite

import (
	"context"
	"encoding/json"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress/approval"
	"github.com/cove-sandbox/cove/internal/share"
	"github.com/cove-sandbox/cove/internal/store"
)

// Approve implements store.Store.
func (s *Store) Approve(ctx context.Context, a approval.Approval) error {
	return s.change(ctx, func(tx *tx) error {
		if _, err := tx.ExecContext(ctx, `DELETE FROM approvals WHERE until <= ?`, a.Time.UnixMicro()); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx,
			`INSERT OR REPLACE INTO approvals (id, policy, host, port, method, path, address, rule, who, time, until) VALUES (?,?,?,?,?,?,?,?,?,?,?)`,
			string(a.ID), a.Policy, a.Subject.Host, int64(a.Subject.Port), a.Subject.Method, a.Subject.Path, a.Subject.Address,
			a.Rule, a.Who.String(), a.Time.UnixMicro(), a.Until.UnixMicro())
		if err != nil {
			return err
		}
		var all, own int64
		if err := tx.QueryRowContext(ctx, `SELECT count(*), count(*) FILTER (WHERE who = ?) FROM approvals`,
			a.Who.String()).Scan(&all, &own); err != nil {
			return err
		}
		if share.Room(store.MaxApprovals, all-1, own-1, a.Who.IsCaller()) < 1 {
			return cove.Errorf(cove.TooLarge, "%d approvals are remembered already, %d of them yours", all-1, own-1).
				WithHint("revoke some: cove approvals revoke ID")
		}
		return nil
	})
}

// Approved implements store.Store.
func (s *Store) Approved(ctx context.Context, policy string, about approval.Subject, who []cove.Principal,
	at time.Time) (found bool, err error) {
	var names []string
	for _, p := range who {
		names = append(names, p.String())
	}
	people, err := json.Marshal(names)
	if err != nil {
		return false, err
	}
	err = s.read.QueryRowContext(ctx,
		`SELECT EXISTS (SELECT 1 FROM approvals WHERE policy = ? AND host = ? AND port = ? AND method = ? AND path = ? AND address = ?
		AND who IN (SELECT value FROM json_each(?)) AND until > ?)`,
		policy, about.Host, int64(about.Port), about.Method, about.Path, about.Address, string(people),
		at.UnixMicro()).Scan(&found)
	return found, s.fault("read", err)
}

// Approvals implements store.Store.
func (s *Store) Approvals(ctx context.Context, who string, at time.Time) ([]approval.Approval, error) {
	var c clause
	c.addText("who = ?", who)
	c.add("until > ?", at.UnixMicro())
	return readAll(ctx, s, scanApproval,
		`SELECT id, policy, host, port, method, path, address, rule, who, time, until FROM approvals `+
			c.where()+` ORDER BY seq DESC`, c.args...)
}

func scanApproval(r row) (a approval.Approval, err error) {
	var who string
	var given, until int64
	err = r.Scan(&a.ID, &a.Policy, &a.Subject.Host, &a.Subject.Port, &a.Subject.Method, &a.Subject.Path,
		&a.Subject.Address, &a.Rule, &who, &given, &until)
	a.Who, a.Time, a.Until = cove.ParsePrincipal(who), time.UnixMicro(given).UTC(), time.UnixMicro(until).UTC()
	return a, err
}

// Revoke implements store.Store.
func (s *Store) Revoke(ctx context.Context, who string, id cove.ApprovalID) error {
	var c clause
	c.add("id = ?", string(id))
	c.addText("who = ?", who)
	return s.change(ctx, func(tx *tx) error {
		r, err := tx.ExecContext(ctx, `DELETE FROM approvals `+c.where(), c.args...)
		return affected(r, err, store.NoApproval(id))
	})
}
