package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/detect"
	"github.com/cove-sandbox/cove/internal/egress/model"
	"github.com/cove-sandbox/cove/internal/store"
)

// columns lists the columns of a store.Execution in the order of scan. Their units are those of the API: seconds,
// milliseconds of CPU time, MiB.
const columns = `e.id, e.instance, e.client, e.code_hash, e.language, e.engine, e.status, e.exit_code, e.duration,
	e.limit_hit, e.cpu_time_ms, e.memory_peak_mb, e.pids_used, e.bytes_written, e.disk_used, e.truncated, e.events, e.models,
	e.error, e.output_gone, e.spec, e.created_at, e.finished_at`

// Begin implements store.Store.
func (s *Store) Begin(ctx context.Context, e store.Execution) error {
	if e.Status == "" {
		e.Status = cove.StatusRunning
	}
	row, stdout, stderr, err := outcome(e)
	if err != nil {
		return err
	}
	spec, err := json.Marshal(e.Spec)
	if err != nil {
		return err
	}
	if err := s.reserve.keep(); err != nil {
		return unwritable(s.path, err)
	}
	removed := 0
	err = s.change(ctx, func(tx *tx) (err error) {
		var gone store.OutputGone
		need := rowSize + len(spec) + len(stdout) + len(stderr)
		if removed, gone, err = s.makeRoom(ctx, tx, int64(need)); err != nil {
			return err
		}
		if gone == store.GoneStorageFull {
			return belowFloor(s.path, s.bounds.Free)
		}
		args := append([]any{string(e.ID), string(e.Instance), e.Owner.String(), e.CodeHash, e.Language, string(spec),
			e.CreatedAt.UnixMicro()}, row...)
		r, err := tx.ExecContext(ctx, `INSERT INTO executions (id, instance, client, code_hash, language, spec, created_at,
			engine, status, exit_code, duration, limit_hit, cpu_time_ms, memory_peak_mb, pids_used, bytes_written,
			disk_used, truncated, events, models, error, output_gone, finished_at)
			VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)`, args...)
		if isUnique(err) {
			return cove.Errorf(cove.Conflict, "execution %s exists already", e.ID)
		}
		if err != nil {
			return err
		}
		seq, err := r.LastInsertId()
		if err != nil {
			return err
		}
		return insertOutput(ctx, tx, seq, stdout, stderr)
	})
	if err == nil {
		s.tellRemoved(removed)
	}
	return err
}

// rowSize is about what an execution takes in the database beside its texts, in bytes.
const rowSize = 1 << 10

// belowFloor refuses an execution for which the disk has too little space.
func belowFloor(path string, free int64) error {
	return cove.Errorf(cove.StorageFull, "less than %d MiB are free on the disk of the database %s, and nothing of the "+
		"history can give way", free>>20, path).WithHint("free space there, or lower history.min_free_mb")
}

// Finish implements store.Store. On a full disk the output is given up first, and then the reserve.
func (s *Store) Finish(ctx context.Context, e store.Execution, r store.Record) error {
	removed := 0
	err := s.change(ctx, func(tx *tx) (err error) {
		kept := e
		if need := len(e.Output) + len(e.Stderr); need > 0 {
			var gone store.OutputGone
			if removed, gone, err = s.makeRoom(ctx, tx, int64(need)); err != nil {
				return err
			}
			if gone != "" {
				kept = withoutOutput(e, gone)
			}
		}
		return finish(ctx, tx, s.bounds.Audit, kept, r)
	})
	if err == nil {
		s.tellRemoved(removed)
	}
	if !errors.Is(err, errFull) {
		return err
	}
	e = withoutOutput(e, store.GoneStorageFull)
	return s.settle(ctx, func(tx *tx) error { return finish(ctx, tx, s.bounds.Audit, e, r) })
}

// withoutOutput returns e without its output, if it has any, and with the reason.
func withoutOutput(e store.Execution, why store.OutputGone) store.Execution {
	if e.Output != "" || e.Stderr != "" {
		e.Output, e.Stderr, e.OutputGone = "", "", why
	}
	return e
}

// finish records an end within a transaction, and keeps the audit log within a bound of bytes.
func finish(ctx context.Context, tx *tx, bound int64, e store.Execution, r store.Record) error {
	row, stdout, stderr, err := outcome(e)
	if err != nil {
		return err
	}
	var seq int64
	var status cove.Status
	var client string
	err = tx.QueryRowContext(ctx, `SELECT seq, status, client FROM executions WHERE id = ?`, string(e.ID)).
		Scan(&seq, &status, &client)
	if errors.Is(err, sql.ErrNoRows) {
		return store.NoExecution(e.ID)
	}
	if err != nil {
		return err
	}
	if status != cove.StatusRunning {
		return cove.Errorf(cove.Conflict, "execution %s has finished already", e.ID)
	}
	_, err = tx.ExecContext(ctx, `UPDATE executions SET engine = ?, status = ?, exit_code = ?, duration = ?,
		limit_hit = ?, cpu_time_ms = ?, memory_peak_mb = ?, pids_used = ?, bytes_written = ?, disk_used = ?,
		truncated = ?, events = ?, models = ?, error = ?, output_gone = ?, finished_at = ? WHERE seq = ?`,
		append(row, seq)...)
	if err != nil {
		return err
	}
	if err := insertOutput(ctx, tx, seq, stdout, stderr); err != nil {
		return err
	}
	if err := addCPUOf(ctx, tx, client, e); err != nil {
		return err
	}
	return appendRecord(ctx, tx, bound, r)
}

// addCPUOf adds the CPU time of an execution that has finished. That of one which was an agent's run is the sandbox's,
// which AddCPU adds.
func addCPUOf(ctx context.Context, tx *tx, client string, e store.Execution) error {
	if e.FinishedAt == nil {
		return nil
	}
	var run bool
	err := tx.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM runs WHERE id = ?)`, string(e.ID.Run())).Scan(&run)
	if err != nil || run {
		return err
	}
	return addCPU(ctx, tx, client, *e.FinishedAt, e.Usage.CPUTime)
}

// outcome returns the columns that Begin and Finish write, in their order.
func outcome(e store.Execution) (row []any, stdout, stderr string, err error) {
	var cut1, cut2 bool
	stdout, cut1 = store.Cut(e.Output, store.MaxOutput)
	stderr, cut2 = store.Cut(e.Stderr, store.MaxOutput)
	list, err := json.Marshal(append([]detect.Event{}, e.Events...))
	if err != nil {
		return nil, "", "", err
	}
	var finished any
	if e.FinishedAt != nil {
		finished = e.FinishedAt.UnixMicro()
	}
	reason, _ := store.Cut(e.Error, store.MaxDetail)
	models, err := json.Marshal(append([]model.ProviderUsage{}, e.Models...))
	if err != nil {
		return nil, "", "", err
	}
	return []any{
		e.Engine, string(e.Status), e.ExitCode, e.Duration.Seconds(), string(e.Limit),
		float64(e.Usage.CPUTime.Microseconds()) / 1000, float64(e.Usage.MemoryPeak) / (1 << 20), e.Usage.PIDsPeak,
		e.Usage.BytesWritten, e.Usage.DiskUsed, e.Truncated || cut1 || cut2, string(list), string(models), reason,
		string(e.OutputGone), finished,
	}, stdout, stderr, nil
}

func insertOutput(ctx context.Context, tx *tx, seq int64, stdout, stderr string) error {
	if stdout == "" && stderr == "" {
		return nil
	}
	_, err := tx.ExecContext(ctx, `INSERT OR REPLACE INTO outputs (seq, stdout, stderr) VALUES (?, ?, ?)`, seq,
		stdout, stderr)
	return err
}

// Get implements store.Store.
func (s *Store) Get(ctx context.Context, id cove.ExecutionID) (store.Execution, error) {
	row := s.read.QueryRowContext(ctx, `SELECT `+columns+`, coalesce(o.stdout, ''), coalesce(o.stderr, '')
		FROM executions e LEFT JOIN outputs o USING (seq) WHERE e.id = ?`, string(id))
	var e store.Execution
	err := scan(row, &e, &e.Output, &e.Stderr)
	if errors.Is(err, sql.ErrNoRows) {
		return e, store.NoExecution(id)
	}
	return e, s.fault("read", err)
}

// List implements store.Store.
func (s *Store) List(ctx context.Context, q store.Query) (page store.Page, err error) {
	page.Executions, page.Next, err = readPage(ctx, s, ofExecutions, q.Limit, q.Cursor, executionsOf(q),
		func(r row, at *place) (e store.Execution, err error) {
			err = scan(r, &e, &at.seq)
			at.time = e.CreatedAt.UnixMicro()
			return e, err
		}, selectExecutions)
	return page, err
}

const selectExecutions = `SELECT ` + columns + `, seq FROM executions e`

func executionsOf(q store.Query) (c clause) {
	c.between("created_at", q.Since, q.Until)
	c.addText("client = ?", q.Client)
	c.filter("language = ?", q.Language)
	if q.Status == cove.StatusRunning {
		c.few("status = ?", string(q.Status))
	} else {
		c.filter("status = ?", string(q.Status))
	}
	if len(q.Labels) > 0 {
		c.add(labeled)
	}
	for k, v := range q.Labels {
		c.add("EXISTS (SELECT 1 FROM json_each(e.spec, '$.Labels') WHERE key = ? AND value = ?)", k, v)
	}
	return c
}

// scan reads columns and then what follows them in the query.
func scan(row row, e *store.Execution, more ...any) error {
	var client, events, models, spec string
	var seconds, milliseconds, mebibytes float64
	var created int64
	var finished sql.NullInt64
	err := row.Scan(append([]any{&e.ID, &e.Instance, &client, &e.CodeHash, &e.Language, &e.Engine, &e.Status, &e.ExitCode,
		&seconds, &e.Limit, &milliseconds, &mebibytes, &e.Usage.PIDsPeak, &e.Usage.BytesWritten,
		&e.Usage.DiskUsed, &e.Truncated, &events, &models, &e.Error, &e.OutputGone, &spec, &created, &finished}, more...)...)
	if err != nil {
		return err
	}
	e.Duration = time.Duration(math.Round(seconds * float64(time.Second)))
	e.Usage.CPUTime = time.Duration(math.Round(milliseconds * float64(time.Millisecond)))
	e.Usage.MemoryPeak = int64(math.Round(mebibytes * (1 << 20)))
	e.Owner, e.CreatedAt = cove.ParsePrincipal(client), time.UnixMicro(created).UTC()
	if finished.Valid {
		t := time.UnixMicro(finished.Int64).UTC()
		e.FinishedAt = &t
	}
	if err := json.Unmarshal([]byte(events), &e.Events); err != nil {
		return cove.Errorf(cove.Corrupt, "the stored security events of execution %.64q cannot be read: %w", e.ID, err)
	}
	if err := json.Unmarshal([]byte(models), &e.Models); err != nil {
		return cove.Errorf(cove.Corrupt, "what execution %.64q has used of models cannot be read: %w", e.ID, err)
	}
	if err := json.Unmarshal([]byte(spec), &e.Spec); err != nil {
		return cove.Errorf(cove.Corrupt, "what the sandbox of execution %.64q was cannot be read: %w", e.ID, err)
	}
	if len(e.Models) == 0 {
		e.Models = nil
	}
	return nil
}

// Abandon implements store.Store.
func (s *Store) Abandon(ctx context.Context, r store.Record, dead func(cove.InstanceID) bool) (n int, err error) {
	running, err := s.runners(ctx)
	if err != nil {
		return 0, err
	}
	gone := slices.DeleteFunc(running, func(id cove.InstanceID) bool { return !dead(id) })
	if len(gone) == 0 {
		return 0, nil // without the write lock
	}
	list, err := json.Marshal(gone)
	if err != nil {
		return 0, err
	}
	err = s.settle(ctx, func(tx *tx) error {
		lines, err := abandon(ctx, tx, r, string(list))
		for _, line := range lines {
			err = errors.Join(err, appendRecord(ctx, tx, s.bounds.Audit, line))
		}
		n = len(lines)
		return err
	})
	return n, err
}

// abandon marks the running executions of some instances, a JSON array, as failed, and returns r for each of them.
func abandon(ctx context.Context, tx *tx, r store.Record, instances string) (lines []store.Record, err error) {
	rows, err := tx.QueryContext(ctx, `UPDATE executions SET status = ?, exit_code = -1, error = ?
		WHERE status = ? AND instance IN (SELECT value FROM json_each(?)) RETURNING id, client`,
		string(cove.StatusFailed), r.Detail, string(cove.StatusRunning), instances)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		if err := rows.Scan(&r.Object, &r.Who); err != nil {
			return nil, err
		}
		lines = append(lines, r)
	}
	return lines, rows.Err()
}

// runners returns the instances that have running executions.
func (s *Store) runners(ctx context.Context) ([]cove.InstanceID, error) {
	return readAll(ctx, s, func(r row) (id cove.InstanceID, err error) { return id, r.Scan(&id) },
		`SELECT DISTINCT instance FROM executions WHERE status = ?`, string(cove.StatusRunning))
}
