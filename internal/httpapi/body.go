package httpapi

import (
	"io"
	"net/http"
	"time"
)

const (
	maxStdin = 8 << 20  // bytes of the field stdin; more can be streamed
	maxBody  = 32 << 20 // bytes of a JSON body: files, base64, and escapes
)

// jsonRoutes take a JSON body. The others take none, except the input of an execution, which its handler reads at the
// pace of the program, and uploads.
var jsonRoutes = map[string]bool{"POST /execute": true, "POST /execute/stream": true,
	"POST /executions/{id}/network": true, "POST /network/holds/{id}": true,
	"POST /sandboxes": true, "POST /sandboxes/check": true, "POST /runs/check": true,
	"PATCH /sandboxes/{sandbox}": true, "POST /sandboxes/{sandbox}/network": true,
	"POST /sandboxes/{sandbox}/exec": true, "POST /sandboxes/{sandbox}/exec/{id}/signal": true,
	"POST /sandboxes/{sandbox}/commit": true,
	"POST /sandboxes/{sandbox}/apply":  true, "POST /sandboxes/{sandbox}/push": true,
	"POST /sandboxes/{sandbox}/pull": true, "POST /repositories": true, "POST /repositories/collect": true,
	"POST /runs": true, "POST /runs/{run}/interrupt": true, "POST /generate": true, "POST /agents/{agent}/install": true,
	"PUT /credentials/environment": true, "POST /clients": true, "POST /clients/{name}/network": true}

// pacedBody gives up on a body of which nothing comes for a while: a large one takes the time that it needs.
type pacedBody struct {
	io.ReadCloser
	control *http.ResponseController
	pause   time.Duration
}

func (b *pacedBody) Read(p []byte) (int, error) {
	b.control.SetReadDeadline(time.Now().Add(b.pause))
	return b.ReadCloser.Read(p)
}
