package httpapi

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
)

// backupRoutes serve the backup of a server's home.
type backupRoutes struct{ *edge }

func (s backupRoutes) add() {
	route(s, huma.Operation{OperationID: "make-backup", Method: http.MethodPost, Path: "/backup", Tags: []string{"system"},
		Summary: "Write a backup of everything to a file",
		Description: "Of the records, the disks of sandboxes, images and repositories. Each running sandbox is frozen " +
			"while its disk is read. The answer comes when the file is whole; where that fails, a file of that name stays " +
			"as it was. \"cove restore\" makes a home of it.",
	}, []cove.Code{cove.InvalidArgument, cove.StorageFull, cove.Conflict, cove.Unavailable, cove.Unsupported,
		cove.Corrupt}, s.make)
}

type backupInput struct{ Body api.BackupRequest }

// make is POST /backup.
func (s backupRoutes) make(ctx context.Context, in *backupInput) (*answer[api.Backup], error) {
	made, err := s.Backup(ctx, in.Body.File)
	return &answer[api.Backup]{made}, err
}
