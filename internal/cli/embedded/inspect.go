package embedded

import (
	"context"
	"errors"

	"github.com/cove-sandbox/cove/internal/build"
	"github.com/cove-sandbox/cove/internal/cli/interact"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
	"github.com/cove-sandbox/cove/internal/daemon"
	"github.com/cove-sandbox/cove/internal/sandbox/terminals"
	"github.com/cove-sandbox/cove/internal/terminal"
)

// inspect shows the shell in the state before a command of a build that has failed.
func inspect(ctx context.Context, sess *session.Session, f build.Failed, open daemon.OpenShell) error {
	sess.Say.Line("a shell in the state before it; exit ends the build. What failed: %s", f.Text)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	_, err := interact.ShowLink(ctx, sess, func(rows, columns int) (interact.Link, error) {
		v, err := open(terminal.Size{Rows: rows, Columns: columns}, "TERM=xterm-256color")
		if err != nil {
			return nil, err
		}
		return shell{
			Viewer: v,
			next:   func() ([]byte, error) { return v.Next(ctx) },
			write:  func(p []byte) error { return v.Type(ctx, p) },
			close:  func() { v.Close(); cancel() },
		}, nil
	})
	if i := new(ui.Interrupted); errors.As(err, &i) {
		return nil // the build ends in any case
	}
	return err
}

// shell is an interact.Link to a shell of this process's.
type shell struct {
	*terminals.Viewer
	next  func() ([]byte, error)
	write func([]byte) error
	close func()
}

func (s shell) Next() ([]byte, error) { return s.next() }

func (s shell) Write(p []byte) (int, error) { return len(p), s.write(p) }

func (s shell) Resize(rows, columns int) error {
	s.Viewer.Resize(terminal.Size{Rows: rows, Columns: columns})
	return nil
}

func (s shell) Close() error {
	s.close()
	return nil
}
