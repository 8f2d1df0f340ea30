package sqlite

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/cove-sandbox/cove"
)

// Schema is the version of the databases that this Cove knows.
const Schema = schema

// Part makes a copy that of the sandboxes which were copied beside it, which are stopped there.
func Part(ctx context.Context, path string, with []cove.SandboxID) error {
	ids, err := json.Marshal(append([]cove.SandboxID{}, with...))
	if err != nil {
		return err
	}
	db := connect(path, "")
	defer db.Close()
	_, err = db.ExecContext(ctx, `DELETE FROM sandboxes WHERE id NOT IN (SELECT value FROM json_each(?))`, string(ids))
	if err == nil {
		_, err = db.ExecContext(ctx, `UPDATE sandboxes SET state = ?, reason = ? WHERE state <> ?`,
			string(cove.StateStopped), "it ran when the backup was made", string(cove.StateStopped))
	}
	if err == nil {
		_, err = db.ExecContext(ctx, `PRAGMA journal_mode = WAL`) // which a copy does not keep
	}
	return errors.Join(err, db.Close())
}
