package server

import (
	"slices"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/cli/session"
)

func imageSave(sess *session.Session, d Daemon) *cobra.Command {
	wanted := session.SavedImage{}
	c := &cobra.Command{
		Use:   "save NAME",
		Short: "Write an image as an archive",
		Long: `Write an image as an archive, which "docker load", "podman load" and
"cove image import docker-archive:FILE" read, to a file or to standard output.
An image that "cove image build" has made has its layers and those of its base;
any other has one.`,
		Example: "  cove image save mine -o mine.tar\n  cove image save mine | docker load",
		RunE: func(cmd *cobra.Command, args []string) error {
			wanted.Ref = args[0]
			if !slices.Contains([]string{"docker", "oci"}, wanted.Format) {
				return cove.Errorf(cove.InvalidArgument, "there is no format %.40q", wanted.Format).
					WithHint("docker or oci")
			}
			return d.Images().SaveImage(cmd.Context(), sess, wanted)
		},
	}
	c.Flags().StringVarP(&wanted.To, "out", "o", "", "write to `FILE`")
	c.Flags().StringVar(&wanted.Format, "format", "docker", "`FORMAT`: docker, or oci for an image layout alone")
	return session.OfDaemon(sess, c)
}
