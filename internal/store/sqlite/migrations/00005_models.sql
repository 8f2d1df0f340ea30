-- +goose Up
ALTER TABLE executions ADD COLUMN models TEXT NOT NULL DEFAULT '[]'; -- JSON array of api.ModelUsage

PRAGMA user_version = 5;
