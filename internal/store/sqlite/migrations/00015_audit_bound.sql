-- +goose Up
-- What a record takes of the database, about: its row, and its places in indexes.
ALTER TABLE audit ADD COLUMN bytes INTEGER GENERATED ALWAYS AS (150 + 4 * octet_length(who) + 2 * octet_length(action)
	+ 2 * octet_length(object) + 2 * octet_length(verdict) + octet_length(detail)) VIRTUAL;

-- What the log has of each owner of records. Those up to the number in removed have been pruned.
CREATE TABLE audit_owners (
	who     TEXT PRIMARY KEY,
	records INTEGER NOT NULL,
	bytes   INTEGER NOT NULL,
	removed INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO audit_owners SELECT who, count(*), sum(bytes), 0 FROM audit GROUP BY who;

-- The hashes of pruned records that a record which is left, or the next one, is chained to.
CREATE TABLE audit_links (
	seq  INTEGER PRIMARY KEY,
	hash TEXT NOT NULL
) STRICT;
INSERT INTO audit_links SELECT seq, hash FROM audit_anchor WHERE seq > 0;

DROP TRIGGER audit_no_delete;
DROP TABLE audit_anchor;

-- +goose StatementBegin
CREATE TRIGGER audit_counted AFTER INSERT ON audit BEGIN
	INSERT INTO audit_owners VALUES (NEW.who, 1, NEW.bytes, 0)
	ON CONFLICT (who) DO UPDATE SET records = records + 1, bytes = bytes + excluded.bytes;
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER audit_uncounted AFTER DELETE ON audit BEGIN
	UPDATE audit_owners SET records = records - 1, bytes = bytes - OLD.bytes WHERE who = OLD.who;
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER audit_no_delete BEFORE DELETE ON audit
WHEN OLD.seq > coalesce((SELECT removed FROM audit_owners WHERE who = OLD.who), 0) BEGIN
	SELECT RAISE(ABORT, 'the audit log is append-only');
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER audit_owners_forward BEFORE UPDATE OF who, removed ON audit_owners
WHEN NEW.who <> OLD.who OR NEW.removed < OLD.removed OR NOT EXISTS
	(SELECT 1 FROM audit WHERE seq = NEW.removed AND who = NEW.who) BEGIN
	SELECT RAISE(ABORT, 'the audit log is pruned from the oldest records of an owner on only');
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER audit_owners_stay BEFORE DELETE ON audit_owners
WHEN EXISTS (SELECT 1 FROM audit WHERE who = OLD.who) BEGIN
	SELECT RAISE(ABORT, 'the audit log is pruned from the oldest records of an owner on only');
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER audit_links_fit BEFORE INSERT ON audit_links
WHEN NOT EXISTS (SELECT 1 FROM audit WHERE seq = NEW.seq AND hash = NEW.hash) BEGIN
	SELECT RAISE(ABORT, 'the audit log is append-only');
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER audit_links_no_update BEFORE UPDATE ON audit_links BEGIN
	SELECT RAISE(ABORT, 'the audit log is append-only');
END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER audit_links_stay BEFORE DELETE ON audit_links
WHEN EXISTS (SELECT 1 FROM audit WHERE seq = OLD.seq + 1)
	OR OLD.seq = (SELECT seq FROM sqlite_sequence WHERE name = 'audit') BEGIN
	SELECT RAISE(ABORT, 'the audit log is append-only');
END;
-- +goose StatementEnd

PRAGMA user_version = 15;
