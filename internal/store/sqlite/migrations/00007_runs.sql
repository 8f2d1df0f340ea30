-- +goose Up
-- What agents were given to do.
CREATE TABLE runs (
	seq        INTEGER PRIMARY KEY AUTOINCREMENT,
	id         TEXT NOT NULL UNIQUE,
	agent      TEXT NOT NULL,
	status     TEXT NOT NULL,
	sandbox    TEXT NOT NULL,
	client     TEXT NOT NULL,
	started_at INTEGER NOT NULL,
	ended_at   INTEGER,
	record     TEXT NOT NULL -- JSON of store.Run
) STRICT;

CREATE INDEX runs_by_sandbox ON runs (sandbox);
CREATE INDEX runs_by_end ON runs (ended_at);

PRAGMA user_version = 7;
