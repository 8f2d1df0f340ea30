-- +goose Up
ALTER TABLE executions ADD COLUMN spec TEXT NOT NULL DEFAULT '{}'; -- JSON of cove.Spec

PRAGMA user_version = 9;
