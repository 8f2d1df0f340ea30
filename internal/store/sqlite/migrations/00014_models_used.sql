-- +goose Up
-- What callers of the API have used of the models of the machine's owner.
CREATE TABLE models_used (
	client      TEXT NOT NULL,
	provider    TEXT NOT NULL,
	requests    INTEGER NOT NULL,
	input       INTEGER NOT NULL, -- tokens
	output      INTEGER NOT NULL,
	cache_read  INTEGER NOT NULL,
	cache_write INTEGER NOT NULL,
	cost        REAL NOT NULL, -- dollars
	estimated   INTEGER NOT NULL, -- requests
	PRIMARY KEY (client, provider)
) STRICT, WITHOUT ROWID;

PRAGMA user_version = 14;
