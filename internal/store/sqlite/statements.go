package sqlite

import (
	"context"
	"database/sql"
	"sync"
)

// tx is a transaction that writes. Statements that come again and again are parsed once.
type tx struct {
	*sql.Tx
	kept *statements
}

// statements holds those of the connection that writes, by their texts.
type statements struct {
	mu   sync.Mutex
	all  map[string]*sql.Stmt
	seen map[string]int // how often those without one were executed
}

func newStatements() *statements {
	return &statements{all: map[string]*sql.Stmt{}, seen: map[string]int{}}
}

const (
	// maxStatements bounds those that are kept: some texts are made, and do not come again.
	maxStatements = 100
	// often is from when on a text is worth a statement.
	often = 3
)

// find returns a statement that is kept, or nil.
func (k *statements) find(query string) *sql.Stmt {
	k.mu.Lock()
	defer k.mu.Unlock()
	if s := k.all[query]; s != nil {
		return s
	}
	if len(k.seen) < 2*maxStatements || k.seen[query] > 0 {
		k.seen[query]++
	}
	return nil
}

// learn makes statements of the texts that have come often, on a connection that no transaction has.
func (k *statements) learn(ctx context.Context, db *sql.DB) {
	for _, query := range k.worth() {
		s, err := db.PrepareContext(ctx, query)
		if err != nil {
			return // the text is executed as it is
		}
		k.mu.Lock()
		k.all[query] = s
		k.mu.Unlock()
	}
}

func (k *statements) worth() (queries []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for query, n := range k.seen {
		if n >= often && len(k.all)+len(queries) < maxStatements {
			queries = append(queries, query)
			delete(k.seen, query)
		}
	}
	return queries
}

func (t *tx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	if s := t.kept.find(query); s != nil {
		return t.StmtContext(ctx, s).ExecContext(ctx, args...)
	}
	return t.Tx.ExecContext(ctx, query, args...)
}

func (t *tx) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	if s := t.kept.find(query); s != nil {
		return t.StmtContext(ctx, s).QueryRowContext(ctx, args...)
	}
	return t.Tx.QueryRowContext(ctx, query, args...)
}
