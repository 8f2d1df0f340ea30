package server

import (
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove/internal/cli/flags"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
)

func imageCommand(sess *session.Session, d Daemon) *cobra.Command {
	return session.OnLinux(ui.Group(&cobra.Command{
		Use:   "image",
		Short: "Build, get and remove root filesystems",
		Long: `Images are root filesystems in Cove's own store, unpacked once, without a
container engine. "cove run --image NAME" runs in one. All together have at most
disk.images_mb: those that come back by themselves, as the ones unpacked for
"cove run --image tar:PATH", make room; what you have built, pulled or imported
stays.`,
		Example: "  cove image pull python:3.13-slim\n  cove run python -c 'print(1)' --image python:3.13-slim",
	}, append(inDaemon(sess, d), imageBuild(sess, d), imagePull(sess, d), imageImport(sess, d), imageSave(sess, d),
		imagePush(sess, d), imageList(sess, d), imageRemove(sess, d), imagePrune(sess, d))...))
}

func imagePull(sess *session.Session, d Daemon) *cobra.Command {
	image := NewImage{Pull: true}
	c := &cobra.Command{
		Use:     "pull REFERENCE",
		Short:   "Get an image from a registry",
		Long:    "Get an image from a registry and unpack it. Every digest is verified.",
		Example: "  cove image pull debian:stable-slim",
		RunE: func(cmd *cobra.Command, args []string) error {
			image.From = args[0]
			return d.Images().AddImage(cmd.Context(), sess, image)
		},
	}
	sess.AddJSON(c.Flags(), "print one JSON object")
	c.Flags().BoolVar(&image.Insecure, "insecure", false, "allow plain HTTP to a registry that is not on this machine")
	c.Flags().StringVar(&image.Platform, "platform", "",
		"of an image for several: `OS/ARCH`, like linux/arm64; this machine's when not given")
	return session.OfDaemon(sess, c)
}

func imageImport(sess *session.Session, d Daemon) *cobra.Command {
	var image NewImage
	c := &cobra.Command{
		Use:   "import SOURCE",
		Short: "Take an image from a file or directory",
		Long: `Take an image from an archive of a root filesystem, an OCI layout, a
"docker save" archive or a directory. What SOURCE is is found by looking, or
said: tar:PATH, oci:PATH[:TAG], docker-archive:PATH[:TAG], dir:PATH.`,
		Example: "  cove image import rootfs.tar.gz --name mine\n  cove image import oci:./layout:latest --name mine:2",
		RunE: func(cmd *cobra.Command, args []string) error {
			absolute := flags.AbsoluteImage
			if flags.Exists(args[0]) { // a bare path
				absolute = filepath.Abs
			}
			var err error
			if image.From, err = absolute(args[0]); err != nil {
				return err
			}
			return d.Images().AddImage(cmd.Context(), sess, image)
		},
	}
	sess.AddJSON(c.Flags(), "print one JSON object")
	c.Flags().StringVar(&image.Name, "name", "", "what it will be called: `NAME[:TAG]`")
	c.Flags().StringVar(&image.Platform, "platform", "",
		"of a layout for several: `OS/ARCH`; this machine's when not given")
	return session.OfDaemon(sess, c)
}

func imageList(sess *session.Session, d Daemon) *cobra.Command {
	return session.OfDaemon(sess, sess.ShowingList(&cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the images in the store",
	}, func(cmd *cobra.Command, _ []string) (ui.Result, error) {
		return d.Images().ListImages(cmd.Context(), sess)
	}))
}

func imageRemove(sess *session.Session, d Daemon) *cobra.Command {
	return session.OfDaemon(sess, sess.Showing(&cobra.Command{
		Use:     "remove IMAGE...",
		Aliases: []string{"rm", "delete"},
		Short:   "Remove images",
		Long:    "Take names away, and with its last name an image; a digest takes all of its names.",
	}, func(cmd *cobra.Command, args []string) (ui.Result, error) {
		return d.Images().RemoveImages(cmd.Context(), sess, args)
	}))
}

func imagePrune(sess *session.Session, d Daemon) *cobra.Command {
	return session.OfDaemon(sess, sess.Showing(&cobra.Command{
		Use:   "prune",
		Short: "Remove images without a name, and what a crash left",
	}, func(cmd *cobra.Command, _ []string) (ui.Result, error) {
		return d.Images().PruneImages(cmd.Context(), sess)
	}))
}
