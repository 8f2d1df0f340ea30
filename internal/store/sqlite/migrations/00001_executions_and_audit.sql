-- +goose Up
-- Times are microseconds since 1970 in UTC, durations nanoseconds.

-- seq is the order of arrival: pages follow it, so that a wall clock that jumps
-- neither hides nor repeats an execution.
CREATE TABLE executions (
	seq            INTEGER PRIMARY KEY AUTOINCREMENT,
	id             TEXT NOT NULL UNIQUE,
	instance       TEXT NOT NULL,
	client         TEXT NOT NULL,
	code_hash      TEXT NOT NULL,
	language       TEXT NOT NULL,
	engine         TEXT NOT NULL,
	status         TEXT NOT NULL,
	exit_code      INTEGER NOT NULL,
	duration       REAL NOT NULL,
	limit_hit      TEXT NOT NULL,
	cpu_time_ms    REAL NOT NULL,
	memory_peak_mb REAL NOT NULL,
	pids_used      INTEGER NOT NULL,
	bytes_written  INTEGER NOT NULL,
	disk_used      INTEGER NOT NULL,
	truncated      INTEGER NOT NULL,
	events         TEXT NOT NULL, -- JSON array of api.SecurityEvent
	error          TEXT NOT NULL,
	created_at     INTEGER NOT NULL,
	finished_at    INTEGER
) STRICT;
CREATE INDEX executions_language ON executions (language, seq);
CREATE INDEX executions_status ON executions (status, seq);
CREATE INDEX executions_created ON executions (created_at);
CREATE INDEX executions_finished ON executions (finished_at) WHERE finished_at IS NOT NULL;

-- Output is apart, so that listing does not read it.
CREATE TABLE outputs (
	seq    INTEGER PRIMARY KEY REFERENCES executions (seq) ON DELETE CASCADE,
	stdout TEXT NOT NULL,
	stderr TEXT NOT NULL
) STRICT;

-- AUTOINCREMENT remembers the highest number ever given, so that records cut
-- off the end are missed.
CREATE TABLE audit (
	seq     INTEGER PRIMARY KEY AUTOINCREMENT,
	time    INTEGER NOT NULL,
	who     TEXT NOT NULL,
	action  TEXT NOT NULL,
	object  TEXT NOT NULL,
	verdict TEXT NOT NULL,
	detail  TEXT NOT NULL,
	hash    TEXT NOT NULL
) STRICT;
CREATE INDEX audit_action ON audit (action, seq);
CREATE INDEX audit_object ON audit (object, seq);

-- The last record that pruning removed: what the chain that is left hangs on.
CREATE TABLE audit_anchor (
	one  INTEGER PRIMARY KEY CHECK (one = 1),
	seq  INTEGER NOT NULL,
	hash TEXT NOT NULL
) STRICT;
INSERT INTO audit_anchor VALUES (1, 0, '');

-- +goose StatementBegin
CREATE TRIGGER audit_no_update BEFORE UPDATE ON audit BEGIN
	SELECT RAISE(ABORT, 'the audit log is append-only');
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER audit_no_delete BEFORE DELETE ON audit
WHEN OLD.seq > (SELECT seq FROM audit_anchor) BEGIN
	SELECT RAISE(ABORT, 'the audit log is append-only');
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER audit_append_only BEFORE INSERT ON audit
WHEN NEW.seq IS NOT NULL AND NEW.seq > 0
	AND NEW.seq <= (SELECT coalesce(max(seq), 0) FROM audit) BEGIN
	SELECT RAISE(ABORT, 'the audit log is append-only');
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER audit_anchor_forward BEFORE UPDATE ON audit_anchor
WHEN NEW.seq < OLD.seq OR NEW.one <> OLD.one OR NOT EXISTS
	(SELECT 1 FROM audit WHERE seq = NEW.seq AND hash = NEW.hash) BEGIN
	SELECT RAISE(ABORT, 'the audit log is pruned from its beginning only');
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER audit_anchor_stays BEFORE DELETE ON audit_anchor BEGIN
	SELECT RAISE(ABORT, 'the audit log is pruned from its beginning only');
END;
-- +goose StatementEnd

PRAGMA user_version = 1;
