package sqlite

import (
	"context"
	"database/sql"
	"strings"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/store"
)

// row is a *sql.Row or *sql.Rows.
type row interface{ Scan(...any) error }

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
// one. scan also reads the number of a row. query is a SELECT without conditions, of which c has those of the caller.
func readPage[T any](ctx context.Context, s *Store, of list, limit int, cursor string, c clause,
	scan func(r row, seq *int64) (T, error), query string) (page []T, next string, err error) {
	if err := checkLimit(limit); err != nil {
		return nil, "", err
	}
	if cursor != "" {
		seq, err := decodeCursor(of, cursor)
		if err != nil {
			return nil, "", err
		}
		c.add("seq < ?", seq)
	}
	var numbers []int64
	page, err = readAll(ctx, s, func(r row) (T, error) {
		var seq int64
		v, err := scan(r, &seq)
		numbers = append(numbers, seq)
		return v, err
	}, query+" "+c.where()+` ORDER BY seq DESC LIMIT ?`, append(c.args, limit+1)...)
	if len(page) > limit { // the one too many only says that there is more
		page, next = page[:limit], encodeCursor(of, numbers[limit-1])
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

// clause is a WHERE clause in the making: terms that must all hold.
type clause struct {
	terms []string
	args  []any
}

func (c *clause) add(term string, args ...any) {
	c.terms, c.args = append(c.terms, term), append(c.args, args...)
}

func (c *clause) addText(term, text string) {
	if text != "" {
		c.add(term, text)
	}
}

func (c *clause) addTime(term string, t time.Time) {
	if !t.IsZero() {
		c.add(term, t.UnixMicro())
	}
}

func (c *clause) where() string {
	if len(c.terms) == 0 {
		return ""
	}
	return "WHERE " + strings.Join(c.terms, " AND ")
}

func checkLimit(n int) error {
	if n < 1 || n > store.MaxPage {
		return cove.Errorf(cove.InvalidArgument, "limit %d is not from 1 to %d", n, store.MaxPage)
	}
	return nil
}
