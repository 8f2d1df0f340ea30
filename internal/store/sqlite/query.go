package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/store"
)

// row is a *sql.Row or *sql.Rows.
type row interface{ Scan(...any) error }

// querier is a database or a transaction.
type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// readAll reads the rows of a query.
func readAll[T any](ctx context.Context, s *Store, scan func(row) (T, error), query string, args ...any) ([]T, error) {
	rows, err := s.read.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, s.fault("read", err)
	}
	defer rows.Close()
	var all []T
	for rows.Next() {
		v, err := scan(rows)
		if err != nil {
			return nil, s.fault("read", err)
		}
		all = append(all, v)
	}
	return all, s.fault("read", rows.Err())
}

// readPage reads a page of a list, from the highest number down, and returns the cursor of the next page, if there is
// one. A list of which c bounds the time goes from the latest time down, so that an index finds the page. scan also
// reads the place of a row. query is a SELECT without conditions, of which c has those of the caller.
func readPage[T any](ctx context.Context, s *Store, of list, limit int, cursor string, c clause,
	scan func(r row, at *place) (T, error), query string) (page []T, next string, err error) {
	if err := checkLimit(limit); err != nil {
		return nil, "", err
	}
	if c.timed != "" {
		of |= byTime
	}
	if cursor != "" {
		last, err := decodeCursor(of, cursor)
		if err != nil {
			return nil, "", err
		}
		c.after(last)
	}
	var places []place
	page, err = readAll(ctx, s, func(r row) (T, error) {
		var at place
		v, err := scan(r, &at)
		places = append(places, at)
		return v, err
	}, query+" "+c.where()+" "+c.order()+` LIMIT ?`, append(c.args, limit+1)...)
	if len(page) > limit { // the one too many only says that there is more
		page, next = page[:limit], encodeCursor(of, places[limit-1])
	}
	return page, next, err
}

// affected returns an error of a statement, or none when it changed no row.
func affected(r sql.Result, err, none error) error {
	if err != nil {
		return err
	}
	if n, err := r.RowsAffected(); err != nil || n > 0 {
		return err
	}
	return none
}

// clause is a WHERE clause in the making, of terms that must all hold, and the order of the rows.
type clause struct {
	terms []string
	args  []any
	timed string // the column of the time, if that is bounded
}

func (c *clause) add(term string, args ...any) {
	c.terms, c.args = append(c.terms, term), append(c.args, args...)
}

func (c *clause) addText(term, text string) {
	if text != "" {
		c.add(term, text)
	}
}

// between bounds the time.
func (c *clause) between(column string, since, until time.Time) {
	if !since.IsZero() {
		c.add(column+" >= ?", since.UnixMicro())
	}
	if !until.IsZero() {
		c.add(column+" < ?", until.UnixMicro())
	}
	if !since.IsZero() || !until.IsZero() {
		c.timed = column
	}
}

// filter adds a condition that only picks from what is read. Where the time is bounded, the + keeps SQLite from reading
// every row of the condition and sorting them; so filters come after between.
func (c *clause) filter(term, text string) {
	if c.timed != "" {
		term = "+" + term
	}
	c.addText(term, text)
}

// few adds a condition that few rows meet, so that the terms before it only pick from them.
func (c *clause) few(term string, args ...any) {
	for i, t := range c.terms {
		c.terms[i] = "+" + strings.TrimPrefix(t, "+")
	}
	c.add(term, args...)
}

// after leaves what comes after a place in the order.
func (c *clause) after(p place) {
	if c.timed != "" {
		c.add("("+c.timed+", seq) < (?, ?)", p.time, p.seq)
	} else {
		c.add("seq < ?", p.seq)
	}
}

func (c *clause) where() string {
	if len(c.terms) == 0 {
		return ""
	}
	return "WHERE " + strings.Join(c.terms, " AND ")
}

func (c *clause) order() string {
	if c.timed != "" {
		return "ORDER BY " + c.timed + " DESC, seq DESC"
	}
	return "ORDER BY seq DESC"
}

func checkLimit(n int) error {
	if n < 1 || n > store.MaxPage {
		return cove.Errorf(cove.InvalidArgument, "limit %d is not from 1 to %d", n, store.MaxPage)
	}
	return nil
}

// change runs f in a transaction that holds the write lock from its start.
func (s *Store) change(ctx context.Context, f func(*tx) error) error {
	if err := s.present(); err != nil {
		return err
	}
	err := s.fault("write", s.transact(ctx, f))
	s.note(err)
	return err
}

func (s *Store) transact(ctx context.Context, f func(*tx) error) error {
	begun, err := s.write.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer begun.Rollback() // no effect after Commit
	if err := f(&tx{begun, s.kept}); err != nil {
		return err
	}
	if err := begun.Commit(); err != nil {
		return err
	}
	s.kept.learn(ctx, s.write)
	return nil
}

// settle is change for what has to be recorded on a full disk, too: it ends something, or frees space. It may use the
// reserve, and f may be called again then.
func (s *Store) settle(ctx context.Context, f func(*tx) error) error {
	return s.settleWith(ctx, 0, f)
}

// settleWith is settle that leaves so many bytes of the reserve.
func (s *Store) settleWith(ctx context.Context, left int64, f func(*tx) error) error {
	for {
		err := s.change(ctx, f)
		if !errors.Is(err, errFull) || !s.reserve.spend(left) {
			return err
		}
	}
}
