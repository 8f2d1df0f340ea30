-- +goose Up
-- The sandboxes that last.
CREATE TABLE sandboxes (
	seq          INTEGER PRIMARY KEY AUTOINCREMENT,
	id           TEXT NOT NULL UNIQUE,
	name         TEXT NOT NULL,
	client       TEXT NOT NULL,
	state        TEXT NOT NULL,
	reason       TEXT NOT NULL,
	spec         TEXT NOT NULL, -- JSON of store.SandboxSpec
	created_at   INTEGER NOT NULL,
	last_used_at INTEGER NOT NULL,
	UNIQUE (client, name)
) STRICT;

PRAGMA user_version = 6;
