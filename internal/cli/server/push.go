package server

import (
	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove/internal/cli/session"
)

func imagePush(sess *session.Session, d Daemon) *cobra.Command {
	wanted := session.PushedImage{}
	c := &cobra.Command{
		Use:   "push IMAGE [NAME]",
		Short: "Send an image to a registry",
		Long: `Send an image to the registry that its name says, or NAME, with the
credentials that "docker login" left. An image that "cove image build" has made
has its layers and those of its base; any other has one. Layers that the registry
has already are not sent.`,
		Example: "  cove image push registry.example.com/team/app:1\n  cove image push mine localhost:5000/mine:test",
		RunE: func(cmd *cobra.Command, args []string) error {
			if wanted.Ref = args[0]; len(args) > 1 {
				wanted.As = args[1]
			}
			return d.Images().PushImage(cmd.Context(), sess, wanted)
		},
	}
	sess.AddJSON(c.Flags(), "print one JSON object")
	c.Flags().BoolVar(&wanted.Insecure, "insecure", false, "allow plain HTTP to a registry that is not on this machine")
	return session.OfDaemon(sess, c)
}
