package sqlite

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/cove-sandbox/cove/internal/store"
	"github.com/cove-sandbox/cove/test/await"
)

// TestAnswersWhileIndexesAreMade: while the late indexes of a long history are made, what is asked is answered, and
// what is to be recorded is, after the index under way at most.
func TestAnswersWhileIndexesAreMade(t *testing.T) {
	s := openAt(t, filepath.Join(t.TempDir(), "cove.db"))
	for name := range lateIndexes {
		if _, err := s.write.Exec("DROP INDEX " + name); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.write.Exec(`WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000)
		INSERT INTO audit (time, who, action, object, verdict, detail, hash)
		SELECT i, 'key:' || (i % 3), 'execute', 'ex_' || i, 'ok', '', '' FROM n`); err != nil {
		t.Fatal(err)
	}
	made := make(chan error, 1)
	go func() { made <- s.index(t.Context()) }()
	await.That(t, "an index is being made", func() bool { return s.write.Stats().InUse > 0 || len(made) > 0 })
	recorded := make(chan error, 1)
	go func() { recorded <- s.Append(t.Context(), store.Record{Time: time.Now(), Action: "execute"}) }()
	answered := 0
	for len(made) == 0 {
		page, err := s.Audit(t.Context(), store.AuditQuery{Limit: 10})
		if err != nil || len(page.Records) != 10 {
			t.Fatalf("%d records, %v", len(page.Records), err)
		}
		if len(made) == 0 {
			answered++
		}
	}
	if answered == 0 {
		t.Error("nothing was answered before the indexes were made")
	}
	select {
	case err := <-recorded:
		if err != nil {
			t.Error(err)
		}
	default:
		t.Error("nothing was recorded before the indexes were made")
	}
	if err := <-made; err != nil {
		t.Error(err)
	}
	t.Logf("%d answers meanwhile", answered)
}
