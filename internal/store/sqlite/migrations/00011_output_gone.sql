-- +goose Up
-- Why the output of an execution is not kept: store.OutputGone.
ALTER TABLE executions ADD COLUMN output_gone TEXT NOT NULL DEFAULT '';

PRAGMA user_version = 11;
