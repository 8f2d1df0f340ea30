-- +goose Up
-- Each caller's own, within bounds of the time.
CREATE INDEX executions_client_created ON executions (client, created_at);
CREATE INDEX audit_who_time ON audit (who, time);

PRAGMA user_version = 12;
