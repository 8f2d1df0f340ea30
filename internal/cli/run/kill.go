package run

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
)

func killCommand(sess *session.Session) *cobra.Command {
	return &cobra.Command{
		Use:     "kill ID...",
		Short:   "End running executions",
		Long:    "End running executions at once, whichever process of Cove on this machine runs them.",
		Example: "  cove kill $(cove ps -q)",
		Args:    ui.AtLeastOne("ID"),
		RunE:    func(cmd *cobra.Command, args []string) error { return kill(cmd.Context(), sess, args) },
	}
}

func kill(ctx context.Context, sess *session.Session, ids []string) error {
	for _, id := range ids {
		if _, err := cove.ParseExecutionID(id); err != nil {
			return session.ExecutionIDError(id)
		}
	}
	peers, err := sess.Peers(ctx)
	if err != nil {
		return err
	}
	defer session.CloseAll(peers)
	return sess.Each(ids, func(id string) error {
		err := session.AskRunner(peers, id, func(p *session.Backend) error {
			_, err := p.Client.Kill(ctx, id)
			return err
		})
		if err != nil {
			return err
		}
		return sess.Print(id + "\n")
	})
}
