package session

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cove-sandbox/cove/internal/localsocket"
)

// serverSocket is the socket of "cove serve" below the run directory. instanceSockets
// matches the sockets of all processes of Cove that live.
const (
	serverSocket    = "cove.sock"
	instanceSockets = instanceDir + "/*.sock"
)

// liveSockets lists the sockets below the run directory that answer, the server's first.
func liveSockets(ctx context.Context, runDir string) []string {
	var live []string
	if path := filepath.Join(runDir, serverSocket); Answers(ctx, path) {
		live = append(live, path)
	}
	found, err := filepath.Glob(filepath.Join(escapeGlob(runDir), instanceSockets))
	if err != nil {
		return live
	}
	slices.Sort(found)
	for _, path := range found {
		if Answers(ctx, path) {
			live = append(live, path)
		}
	}
	return live
}

// escapeGlob keeps a directory's name from being read as a pattern.
func escapeGlob(dir string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(dir)
}

// Answers reports whether a process listens on a unix socket. A file that is
// there and refuses belongs to a process that was killed.
func Answers(ctx context.Context, path string) bool {
	if _, err := os.Stat(path); err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	conn, err := localsocket.Dial(ctx, path)
	if err != nil {
		return false
	}
	conn.Close()
	return true
}

// How long it takes to look for a gateway that has gone again, at first and at most.
const (
	SoonestRetry = 50 * time.Millisecond
	LatestRetry  = 2 * time.Second
)
