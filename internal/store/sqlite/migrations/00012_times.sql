-- +goose Up
-- Indexes of each caller's own, within bounds of the time, which are made after the start: lateIndexes.
PRAGMA user_version = 12;
