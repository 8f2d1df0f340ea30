-- +goose Up
CREATE TABLE approvals (
	seq     INTEGER PRIMARY KEY AUTOINCREMENT,
	id      TEXT NOT NULL UNIQUE,
	policy  TEXT NOT NULL,
	host    TEXT NOT NULL,
	port    INTEGER NOT NULL,
	method  TEXT NOT NULL,
	path    TEXT NOT NULL,
	address TEXT NOT NULL,
	rule    TEXT NOT NULL,
	who     TEXT NOT NULL,
	time    INTEGER NOT NULL,
	until   INTEGER NOT NULL,
	UNIQUE (policy, host, port, method, path, address, who)
) STRICT;

PRAGMA user_version = 3;
