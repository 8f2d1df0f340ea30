-- A database as it was before records held a cove.Spec (schema 7), by "sqlite3 .dump".
PRAGMA foreign_keys=OFF;
BEGIN TRANSACTION;
CREATE TABLE goose_db_version (
		id INTEGER PRIMARY KEY AUTOINCREMENT,
		version_id INTEGER NOT NULL,
		is_applied INTEGER NOT NULL,
		tstamp TIMESTAMP DEFAULT (datetime('now'))
	);
INSERT INTO goose_db_version VALUES(1,0,1,'2026-11-22 22:04:08');
INSERT INTO goose_db_version VALUES(2,1,1,'2026-11-22 22:04:08');
INSERT INTO goose_db_version VALUES(3,2,1,'2026-11-22 22:04:08');
INSERT INTO goose_db_version VALUES(4,3,1,'2026-11-22 22:04:08');
INSERT INTO goose_db_version VALUES(5,4,1,'2026-11-22 22:04:08');
INSERT INTO goose_db_version VALUES(6,5,1,'2026-11-22 22:04:08');
INSERT INTO goose_db_version VALUES(7,6,1,'2026-11-22 22:04:08');
INSERT INTO goose_db_version VALUES(8,7,1,'2026-11-22 22:04:08');
CREATE TABLE executions (
	seq            INTEGER PRIMARY KEY AUTOINCREMENT,
	id             TEXT NOT NULL UNIQUE,
	instance       TEXT NOT NULL,
	client         TEXT NOT NULL,
	code_hash      TEXT NOT NULL,
	language       TEXT NOT NULL,
	engine         TEXT NOT NULL,
	status         TEXT NOT NULL,
	exit_code      INTEGER NOT NULL,
	duration       REAL NOT NULL,
	limit_hit      TEXT NOT NULL,
	cpu_time_ms    REAL NOT NULL,
	memory_peak_mb REAL NOT NULL,
	pids_used      INTEGER NOT NULL,
	bytes_written  INTEGER NOT NULL,
	disk_used      INTEGER NOT NULL,
	truncated      INTEGER NOT NULL,
	events         TEXT NOT NULL, -- JSON array of api.SecurityEvent
	error          TEXT NOT NULL,
	created_at     INTEGER NOT NULL,
	finished_at    INTEGER
, models TEXT NOT NULL DEFAULT '[]') STRICT;
INSERT INTO executions VALUES(1,'ex_0123456789abcdefghjkmnpqrs','in_0123456789abcdefghjkmnpqrs','local','ab','python','native','completed',0,0.0,'',0.0,0.0,0,0,0,0,'[]','',1795377600000000,1795377600000000,'[]');
CREATE TABLE outputs (
	seq    INTEGER PRIMARY KEY REFERENCES executions (seq) ON DELETE CASCADE,
	stdout TEXT NOT NULL,
	stderr TEXT NOT NULL
) STRICT;
INSERT INTO outputs VALUES(1,replace('42\n','\n',char(10)),'');
CREATE TABLE audit (
	seq     INTEGER PRIMARY KEY AUTOINCREMENT,
	time    INTEGER NOT NULL,
	who     TEXT NOT NULL,
	action  TEXT NOT NULL,
	object  TEXT NOT NULL,
	verdict TEXT NOT NULL,
	detail  TEXT NOT NULL,
	hash    TEXT NOT NULL
) STRICT;
CREATE TABLE audit_anchor (
	one  INTEGER PRIMARY KEY CHECK (one = 1),
	seq  INTEGER NOT NULL,
	hash TEXT NOT NULL
) STRICT;
INSERT INTO audit_anchor VALUES(1,0,'');
CREATE TABLE decisions (
	seq       INTEGER PRIMARY KEY AUTOINCREMENT,
	time      INTEGER NOT NULL,
	execution TEXT NOT NULL,
	sandbox   TEXT NOT NULL,
	client    TEXT NOT NULL,
	entry     TEXT NOT NULL,
	protocol  TEXT NOT NULL,
	host      TEXT NOT NULL,
	port      INTEGER NOT NULL,
	method    TEXT NOT NULL,
	path      TEXT NOT NULL,
	verdict   TEXT NOT NULL,
	stage     TEXT NOT NULL,
	rule      TEXT NOT NULL,
	reason    TEXT NOT NULL,
	remedy    TEXT NOT NULL,
	status    INTEGER NOT NULL,
	sent      INTEGER NOT NULL,
	received  INTEGER NOT NULL,
	duration  REAL NOT NULL,
	count     INTEGER NOT NULL
) STRICT;
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
CREATE TABLE gateway_clients (
	name         TEXT PRIMARY KEY,
	sandbox      TEXT NOT NULL UNIQUE,
	registration TEXT NOT NULL, -- JSON of api.GatewayRegistration
	created_at   INTEGER NOT NULL
) STRICT;
CREATE TABLE sandboxes (
	seq          INTEGER PRIMARY KEY AUTOINCREMENT,
	id           TEXT NOT NULL UNIQUE,
	name         TEXT NOT NULL,
	client       TEXT NOT NULL,
	state        TEXT NOT NULL,
	reason       TEXT NOT NULL,
	spec         TEXT NOT NULL, -- JSON of store.SandboxSpec
	created_at   INTEGER NOT NULL,
	last_used_at INTEGER NOT NULL,
	UNIQUE (client, name)
) STRICT;
INSERT INTO sandboxes VALUES(1,'sb_0123456789abcdefghjkmnpqrs','whole','key:ci','running','','{"Engine":"native","Image":"debian:stable","Digest":"sha256:1","ImageEnv":["LANG=C"],"Profile":"p","Agent":"a","Path":"/opt/a/bin","Screen":["a","--screen"],"Limits":{"Memory":1,"CPUs":0.5,"PIDs":3,"Disk":4,"Inodes":5,"OpenFiles":6,"Stdout":7,"Stderr":8,"Timeout":9},"Mode":"limited","Network":{"enabled":true,"policies":[{"source":"p.yaml","text":"rules: []"}],"mode":"limited","allow":["a.test"],"deny":["b.test"],"allow_pr":true,"credentials":["github"],"providers":["anthropic"],"budget":{"requests":3,"cost":0.5}},"Changes":[{"allow":["c.test"]}],"Repository":{"source":"o/r","remote":"https://git.example/o/r","branch":"cove/whole","from":"main","base":"1234","Shared":["main"]},"Directory":"/d","WorkDir":"/workspace/sub","Env":{"A":"b"},"Mounts":[{"Source":"/a","Target":"/b","ReadOnly":true,"NoExec":false,"NoFollow":false}],"AllowPR":true,"Local":true,"SSHAgent":"/s","Git":{"name":"Ada","email":"ada@example.com"},"Labels":{"k":"v"},"KeepWork":false,"Shared":"","Within":"","Place":""}',1795377600000000,1795377600000000);
INSERT INTO sandboxes VALUES(2,'sb_00000000000000000000000000','plain','local','stopped','','{"Engine":"docker","Image":"","Digest":"","ImageEnv":null,"Profile":"","Agent":"","Path":"","Screen":null,"Limits":{"Memory":0,"CPUs":0,"PIDs":0,"Disk":0,"Inodes":0,"OpenFiles":0,"Stdout":0,"Stderr":0,"Timeout":0},"Mode":"","Network":{"enabled":false},"Changes":null,"Repository":null,"Directory":"","WorkDir":"","Env":null,"Mounts":null,"AllowPR":false,"Local":false,"SSHAgent":"","Git":null,"Labels":null,"KeepWork":false,"Shared":"","Within":"","Place":""}',1795377600000000,1795377600000000);
CREATE TABLE runs (
	seq        INTEGER PRIMARY KEY AUTOINCREMENT,
	id         TEXT NOT NULL UNIQUE,
	agent      TEXT NOT NULL,
	status     TEXT NOT NULL,
	sandbox    TEXT NOT NULL,
	client     TEXT NOT NULL,
	started_at INTEGER NOT NULL,
	ended_at   INTEGER,
	record     TEXT NOT NULL -- JSON of store.Run
) STRICT;
DELETE FROM sqlite_sequence;
INSERT INTO sqlite_sequence VALUES('goose_db_version',8);
INSERT INTO sqlite_sequence VALUES('sandboxes',2);
INSERT INTO sqlite_sequence VALUES('executions',1);
CREATE INDEX executions_language ON executions (language, seq);
CREATE INDEX executions_status ON executions (status, seq);
CREATE INDEX executions_created ON executions (created_at);
CREATE INDEX executions_finished ON executions (finished_at) WHERE finished_at IS NOT NULL;
CREATE INDEX audit_action ON audit (action, seq);
CREATE INDEX audit_object ON audit (object, seq);
CREATE TRIGGER audit_no_update BEFORE UPDATE ON audit BEGIN
	SELECT RAISE(ABORT, 'the audit log is append-only');
END;
CREATE TRIGGER audit_no_delete BEFORE DELETE ON audit
WHEN OLD.seq > (SELECT seq FROM audit_anchor) BEGIN
	SELECT RAISE(ABORT, 'the audit log is append-only');
END;
CREATE TRIGGER audit_append_only BEFORE INSERT ON audit
WHEN NEW.seq IS NOT NULL AND NEW.seq > 0
	AND NEW.seq <= (SELECT coalesce(max(seq), 0) FROM audit) BEGIN
	SELECT RAISE(ABORT, 'the audit log is append-only');
END;
CREATE TRIGGER audit_anchor_forward BEFORE UPDATE ON audit_anchor
WHEN NEW.seq < OLD.seq OR NEW.one <> OLD.one OR NOT EXISTS
	(SELECT 1 FROM audit WHERE seq = NEW.seq AND hash = NEW.hash) BEGIN
	SELECT RAISE(ABORT, 'the audit log is pruned from its beginning only');
END;
CREATE TRIGGER audit_anchor_stays BEFORE DELETE ON audit_anchor BEGIN
	SELECT RAISE(ABORT, 'the audit log is pruned from its beginning only');
END;
CREATE INDEX audit_time ON audit (time);
CREATE INDEX decisions_execution ON decisions (execution, seq);
CREATE INDEX decisions_time ON decisions (time);
CREATE INDEX runs_by_sandbox ON runs (sandbox);
CREATE INDEX runs_by_end ON runs (ended_at);
COMMIT;
PRAGMA user_version = 7;
