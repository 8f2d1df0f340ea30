package client

import (
	"context"
	"net/http"

	"github.com/cove-sandbox/cove/api"
)

// Backup has a server write a backup of everything to a file of its machine. It is for the machine's owner.
func Backup(ctx context.Context, c *Client, file string) (api.Backup, error) {
	return ask[api.Backup](ctx, c, http.MethodPost, at("/backup"), api.BackupRequest{File: file})
}
