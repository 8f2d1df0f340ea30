-- +goose Up
-- Each caller lists its own.
CREATE INDEX executions_client ON executions (client, seq);
CREATE INDEX decisions_client ON decisions (client, seq);
CREATE INDEX audit_who ON audit (who, seq);
CREATE INDEX runs_by_client ON runs (client, seq);

PRAGMA user_version = 8;
