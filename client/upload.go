package client

import (
	"context"
	"io"
	"net/http"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
)

// Upload sends a folder of this machine, as a pack of git's, for one sandbox that is made next: its request has
// repository.upload. An error of reading the pack breaks the upload off, and leaves nothing.
func (c *Client) Upload(ctx context.Context, pack io.Reader) (api.Upload, error) {
	resp, err := c.send(ctx, http.MethodPost, at("/uploads"), "application/octet-stream", pack)
	if cove.ErrorCode(err) == cove.NotFound {
		return api.Upload{}, cove.Errorf(cove.Unsupported, "the server takes no folders of other machines").
			WithHint("upgrade Cove there, or push the folder and name the repository: OWNER/REPO or an address")
	}
	if err != nil {
		return api.Upload{}, err
	}
	defer resp.Body.Close()
	var u api.Upload
	return u, decode(resp.Body, &u)
}
