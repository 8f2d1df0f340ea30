package sqlite

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/store"
)

// TestPlans: a page within bounds of the time is found by an index, in a history of any length, with any filters.
func TestPlans(t *testing.T) {
	const rows = 4000
	s := openAt(t, filepath.Join(t.TempDir(), "cove.db"))
	for _, statement := range []string{
		`WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
		INSERT INTO executions (id, instance, client, code_hash, language, engine, status, exit_code, duration, limit_hit,
		cpu_time_ms, memory_peak_mb, pids_used, bytes_written, disk_used, truncated, events, error, created_at)
		SELECT 'ex_' || i, '', 'key:' || (i % 3), '', iif(i % 2, 'python', 'sh'), '', 'completed', 0, 0, '', 0, 0, 0, 0,
		0, 0, '[]', '', i FROM n`,
		`WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
		INSERT INTO audit (time, who, action, object, verdict, detail, hash)
		SELECT i, 'key:' || (i % 3), 'execute', 'ex_' || i, 'ok', '', '' FROM n`,
	} {
		if _, err := s.write.Exec(statement, rows); err != nil {
			t.Fatal(err)
		}
	}
	since, until := time.UnixMicro(rows/2), time.UnixMicro(rows/2+100)
	after := place{seq: rows / 2, time: rows / 2}
	for name, c := range map[string]struct {
		of     clause
		from   string
		search string
	}{
		"until": {executionsOf(store.Query{Until: until}), selectExecutions, "executions_created (created_at<?)"},
		"since": {executionsOf(store.Query{Since: since}), selectExecutions, "executions_created (created_at>?)"},
		"filters": {executionsOf(store.Query{Until: until, Status: cove.StatusCompleted, Language: "python"}),
			selectExecutions, "executions_created (created_at<?)"},
		"a caller's": {executionsOf(store.Query{Client: "key:1", Until: until, Language: "python"}), selectExecutions,
			"executions_client_created (client=? AND created_at<?)"},
		"records": {recordsOf(store.AuditQuery{Until: until}), selectRecords, "audit_time (time<?)"},
		"records since": {recordsOf(store.AuditQuery{Since: since, Action: "execute"}), selectRecords,
			"audit_time (time>?)"},
		"a caller's records": {recordsOf(store.AuditQuery{Who: "key:1", Until: until}), selectRecords,
			"audit_who_time (who=? AND time<?)"},
	} {
		for _, further := range []bool{false, true} {
			if further {
				c.of.after(after)
			}
			plan, err := readAll(t.Context(), s, func(r row) (detail string, err error) {
				var id, parent, unused int
				return detail, r.Scan(&id, &parent, &unused, &detail)
			}, "EXPLAIN QUERY PLAN "+c.from+" "+c.of.where()+" "+c.of.order()+" LIMIT 10", c.of.args...)
			text := strings.Join(plan, "; ")
			if err != nil || !strings.Contains(text, c.search) && !further || strings.Contains(text, "SCAN") ||
				strings.Contains(text, "TEMP B-TREE") {
				t.Errorf("%s, further %v: %s, %v", name, further, text, err)
			}
		}
	}
	begun := time.Now()
	page, err := s.List(t.Context(), store.Query{Until: time.UnixMicro(100), Limit: 50})
	if err != nil || len(page.Executions) != 50 || page.Executions[0].ID != "ex_99" || page.Next == "" {
		t.Errorf("%d executions, %v", len(page.Executions), err)
	}
	t.Logf("the first of %d rows: %v", rows, time.Since(begun))
}
