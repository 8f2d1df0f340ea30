-- +goose Up
-- The CPU time of executions and runs, by the minute in which they ended.
CREATE TABLE cpu_used (
	client TEXT NOT NULL,
	minute INTEGER NOT NULL, -- since 1970
	ns     INTEGER NOT NULL,
	PRIMARY KEY (client, minute)
) STRICT, WITHOUT ROWID;

PRAGMA user_version = 13;
