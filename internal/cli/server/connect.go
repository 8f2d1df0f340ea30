package server

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/localsocket"
)

// serverConnect is the other end of --server ssh://HOST, so it is for programs.
func serverConnect(sess *session.Session) *cobra.Command {
	return &cobra.Command{
		Use:   "connect",
		Short: "Carry one connection to the server of this machine over standard input and output",
		Long: `Carry one connection to the server of this machine over standard input and
output, for --server ssh://HOST. One is started if none answers.`,
		Args:   cobra.NoArgs,
		Hidden: true,
		RunE:   func(cmd *cobra.Command, _ []string) error { return connect(cmd.Context(), sess) },
	}
}

func connect(ctx context.Context, sess *session.Session) error {
	if sess.ServerAddress() != "" {
		return elsewhere("connected to")
	}
	address, err := sess.Running(ctx)
	if err == nil && address == "" {
		address, err = sess.StartServer(ctx)
	}
	if err != nil {
		return err
	}
	conn, err := localsocket.Dial(ctx, strings.TrimPrefix(address, "unix:"))
	if err != nil {
		return cove.Errorf(cove.Unavailable, "the server does not answer: %w", err)
	}
	defer conn.Close()
	if err := sess.Print(api.ConnectedLine); err != nil {
		return err
	}
	go func() {
		io.Copy(conn, sess.In)
		conn.Close() // the client has gone: what it waits for is given up
	}()
	if _, err := io.Copy(sess.Out, conn); err != nil && !errors.Is(err, net.ErrClosed) {
		return cove.Errorf(cove.Unavailable, "the connection broke off: %w", err)
	}
	return nil
}

// elsewhere refuses what needs a server that this command line looks after.
func elsewhere(what string) error {
	return cove.Errorf(cove.InvalidArgument,
		"a server that is named with --server or COVE_SERVER is not %s by this command", what).
		WithHint("leave the name out, for the server of this machine")
}
