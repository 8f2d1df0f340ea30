package sqlite

import (
	"fmt"
	"path/filepath"
	"testing"
)

// TestStatements: texts that come again are statements from then on, as many as are kept at most, and do what the texts
// do.
func TestStatements(t *testing.T) {
	s := openAt(t, filepath.Join(t.TempDir(), "cove.db"))
	execute := func(query string, args ...any) {
		t.Helper()
		err := s.change(t.Context(), func(tx *tx) error {
			_, err := tx.ExecContext(t.Context(), query, args...)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	execute(`CREATE TABLE numbers (n INTEGER)`)
	const insert = `INSERT INTO numbers VALUES (?)`
	for n := range 2 * often {
		if has := s.kept.all[insert] != nil; has != (n >= often) {
			t.Errorf("after %d times, there is a statement: %v", n, has)
		}
		execute(insert, n)
	}
	execute(`ALTER TABLE numbers ADD COLUMN m INTEGER DEFAULT 7`) // as a migration may
	execute(`DROP TABLE numbers`)
	execute(`CREATE TABLE numbers (n INTEGER)`)
	execute(insert, 40)
	var sum int
	err := s.change(t.Context(), func(tx *tx) error {
		return tx.QueryRowContext(t.Context(), `SELECT sum(n) FROM numbers`).Scan(&sum)
	})
	if err != nil || sum != 40 {
		t.Errorf("%d, %v", sum, err)
	}
	for i := range 3 * maxStatements {
		for range often {
			execute(fmt.Sprintf(`INSERT INTO numbers VALUES (%d)`, i))
		}
	}
	if n, m := len(s.kept.all), len(s.kept.seen); n > maxStatements || m > 2*maxStatements {
		t.Errorf("%d statements are kept, and %d texts", n, m)
	}
}
