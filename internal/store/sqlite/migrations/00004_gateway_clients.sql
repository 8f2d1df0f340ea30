-- +goose Up
-- Who goes out through a gateway of its own ("cove gateway").
CREATE TABLE gateway_clients (
	name         TEXT PRIMARY KEY,
	sandbox      TEXT NOT NULL UNIQUE,
	registration TEXT NOT NULL, -- JSON of api.GatewayRegistration
	created_at   INTEGER NOT NULL
) STRICT;

PRAGMA user_version = 4;
