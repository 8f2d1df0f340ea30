package server

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove/internal/cli/flags"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
	"github.com/cove-sandbox/cove/internal/daemon"
	"github.com/cove-sandbox/cove/internal/image"
)

func imageCommand(sess *session.Session) *cobra.Command {
	return ui.Group(&cobra.Command{
		Use:   "image",
		Short: "Get and remove root filesystems",
		Long: `Images are root filesystems in Cove's own store, unpacked once, without a
container engine. "cove run --image NAME" runs in one.`,
		Example: "  cove image pull python:3.13-slim\n  cove run python -c 'print(1)' --image python:3.13-slim",
	}, imagePull(sess), imageImport(sess), imageList(sess), imageRemove(sess), imagePrune(sess))
}

func imagePull(sess *session.Session) *cobra.Command {
	var o image.PullOptions
	c := &cobra.Command{
		Use:     "pull REFERENCE",
		Short:   "Get an image from a registry",
		Long:    "Get an image from a registry and unpack it. Every digest is verified.",
		Example: "  cove image pull debian:stable-slim",
		Args:    ui.Exactly("REFERENCE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return addImage(sess, &o.Progress, func(s *image.Store) (image.Image, error) {
				return s.Pull(cmd.Context(), args[0], o)
			})
		},
	}
	c.Flags().BoolVar(&o.Insecure, "insecure", false, "allow plain HTTP to a registry that is not on this machine")
	c.Flags().StringVar(&o.Platform, "platform", "",
		"of an image for several: `OS/ARCH`, like linux/arm64; this machine's when not given")
	return c
}

func imageImport(sess *session.Session) *cobra.Command {
	var o image.ImportOptions
	var name string
	c := &cobra.Command{
		Use:   "import SOURCE",
		Short: "Take an image from a file or directory",
		Long: `Take an image from an archive of a root filesystem, an OCI layout, a
"docker save" archive or a directory. What SOURCE is is found by looking, or
said: tar:PATH, oci:PATH[:TAG], docker-archive:PATH[:TAG], dir:PATH.`,
		Example: "  cove image import rootfs.tar.gz --name mine\n  cove image import oci:./layout:latest --name mine:2",
		Args:    ui.Exactly("SOURCE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			source, err := absoluteSource(args[0])
			if err != nil {
				return err
			}
			return addImage(sess, &o.Progress, func(s *image.Store) (image.Image, error) {
				return s.Import(cmd.Context(), source, name, o)
			})
		},
	}
	c.Flags().StringVar(&name, "name", "", "what it will be called: `NAME[:TAG]`")
	c.Flags().StringVar(&o.Platform, "platform", "", "of a layout for several: `OS/ARCH`; this machine's when not given")
	return c
}

// addImage shows the progress of what adds an image to the store, and then the image.
func addImage(sess *session.Session, progress *image.Progress, add func(*image.Store) (image.Image, error)) error {
	s, err := openImages(sess)
	if err != nil {
		return err
	}
	p := newProgress(sess)
	*progress = p.take
	img, err := add(s)
	p.end()
	if err != nil {
		return err
	}
	return sess.Print(imageTable([]image.Image{img}, time.Now()))
}

// absoluteSource does the same for a source, which may be a bare path.
func absoluteSource(s string) (string, error) {
	if _, err := os.Lstat(s); err == nil {
		return filepath.Abs(s)
	}
	return flags.AbsoluteImage(s)
}

func imageList(sess *session.Session) *cobra.Command {
	return sess.Showing(&cobra.Command{
		Use:   "ls",
		Short: "List the images in the store",
		Args:  ui.Exactly(),
	}, func(cmd *cobra.Command, _ []string) (ui.Result, error) {
		s, err := openImages(sess)
		if err != nil {
			return ui.Result{}, err
		}
		all, err := s.List(cmd.Context())
		return ui.Result{
			Value: map[string]any{"images": append([]image.Image{}, all...)},
			Text:  imageTable(all, time.Now()),
		}, err
	})
}

func imageTable(all []image.Image, now time.Time) string {
	var rows [][]string
	for _, img := range all {
		names := img.Names
		if len(names) == 0 {
			names = []string{"-"}
		}
		for _, name := range names {
			rows = append(rows,
				[]string{name, shortDigest(img.Digest), img.Platform, ui.SizeText(img.Size), ui.Ago(now.Sub(img.Added))})
		}
	}
	return ui.Table([]string{"NAME", "DIGEST", "PLATFORM", "SIZE", "ADDED"}, rows)
}

// shortDigest returns the shortest prefix of a digest that "cove run --image" accepts.
func shortDigest(digest string) string {
	hex, ok := strings.CutPrefix(digest, "sha256:")
	if !ok {
		return digest
	}
	return "sha256:" + hex[:min(12, len(hex))]
}

func imageRemove(sess *session.Session) *cobra.Command {
	return &cobra.Command{
		Use:   "rm IMAGE...",
		Short: "Remove images",
		Long:  "Take names away, and with its last name an image; a digest takes all of its names.",
		Args:  ui.AtLeastOne("IMAGE"),
		RunE:  func(cmd *cobra.Command, args []string) error { return removeImages(cmd.Context(), sess, args) },
	}
}

func removeImages(ctx context.Context, sess *session.Session, refs []string) error {
	s, err := openImages(sess)
	if err != nil {
		return err
	}
	for _, ref := range refs {
		ref, err := flags.AbsoluteImage(ref)
		if err != nil {
			return err
		}
		removed, err := s.Remove(ctx, ref)
		if err != nil {
			return err
		}
		if err := sess.Print(removedText(removed)); err != nil {
			return err
		}
	}
	return nil
}

func removedText(r image.Removed) string {
	var b strings.Builder
	for _, name := range r.Names {
		b.WriteString("untagged " + ui.Printable(name) + "\n")
	}
	for _, img := range r.Images {
		b.WriteString("removed " + ui.Printable(img.Digest) + "\n")
	}
	return b.String()
}

func imagePrune(sess *session.Session) *cobra.Command {
	return &cobra.Command{
		Use:   "prune",
		Short: "Remove images without a name, and what a crash left",
		Args:  ui.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := openImages(sess)
			if err != nil {
				return err
			}
			removed, err := s.Prune(cmd.Context(), nil)
			if err != nil {
				return err
			}
			return sess.Print(removedText(removed) + "freed " + ui.SizeText(removed.Freed) + "\n")
		},
	}
}

func openImages(sess *session.Session) (*image.Store, error) {
	cfg, err := sess.Config()
	if err != nil {
		return nil, err
	}
	return daemon.OpenImages(cfg, sess.QuietLogger(cfg))
}
