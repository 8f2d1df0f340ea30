-- +goose Up
CREATE INDEX audit_time ON audit (time);

-- What became of attempts to leave sandboxes. AUTOINCREMENT: a follower has seen
-- all up to a number, which must not be given again.
CREATE TABLE decisions (
	seq       INTEGER PRIMARY KEY AUTOINCREMENT,
	time      INTEGER NOT NULL,
	execution TEXT NOT NULL,
	sandbox   TEXT NOT NULL,
	client    TEXT NOT NULL,
	entry     TEXT NOT NULL,
	protocol  TEXT NOT NULL,
	host      TEXT NOT NULL,
	port      INTEGER NOT NULL,
	method    TEXT NOT NULL,
	path      TEXT NOT NULL,
	verdict   TEXT NOT NULL,
	stage     TEXT NOT NULL,
	rule      TEXT NOT NULL,
	reason    TEXT NOT NULL,
	remedy    TEXT NOT NULL,
	status    INTEGER NOT NULL,
	sent      INTEGER NOT NULL,
	received  INTEGER NOT NULL,
	duration  REAL NOT NULL,
	count     INTEGER NOT NULL
) STRICT;
CREATE INDEX decisions_execution ON decisions (execution, seq);
CREATE INDEX decisions_time ON decisions (time);

PRAGMA user_version = 2;
