package network

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/internal/atomicfile"
	"github.com/cove-sandbox/cove/internal/cli/flags"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
)

func caCommand(sess *session.Session) *cobra.Command {
	c := ui.Group(&cobra.Command{
		Use:   "ca",
		Short: "Show the certificate authorities of sandboxes",
		Long: `TLS that leaves a sandbox is intercepted with a certificate authority of the
sandbox's own. Its trust stores have the certificate; the key is with the
gateway and is never shown. A client of "cove gateway" has one, too.`,
	}, caShow(sess), caExport(sess))
	addSocket(c.PersistentFlags())
	return c
}

// authorityCommand makes a command about the authority of one sandbox, execution or client, which do gets as PEM.
func authorityCommand(sess *session.Session, c *cobra.Command, do func(certificate string) error) *cobra.Command {
	c.Use += " SANDBOX|EXECUTION|CLIENT"
	c.Args = ui.Arguments("SANDBOX, EXECUTION or CLIENT")
	c.ValidArgsFunction = flags.CompleteSandbox(sess)
	c.RunE = func(cmd *cobra.Command, args []string) error {
		certificate, err := authorityOf(sess, cmd, args[0])
		if err != nil {
			return err
		}
		return do(certificate)
	}
	return c
}

func caShow(sess *session.Session) *cobra.Command {
	return authorityCommand(sess, &cobra.Command{
		Use:     "show",
		Short:   "Show an authority's subject, fingerprint and validity",
		Example: "  cove ca show brave-otter\n  cove ca show $(cove ps -q)",
	}, func(certificate string) error {
		text, err := authorityText(certificate)
		return sess.Show(ui.Result{Text: text}, err)
	})
}

func caExport(sess *session.Session) *cobra.Command {
	var out string
	c := authorityCommand(sess, &cobra.Command{
		Use:     "export",
		Short:   "Write an authority's certificate as PEM",
		Long:    "Write an authority's certificate as PEM. The key stays where it is.",
		Example: "  cove ca export brave-otter --out sandbox.pem",
	}, func(certificate string) error {
		if out == "" || out == "-" {
			return sess.Print(certificate)
		}
		if err := atomicfile.Write(out, []byte(certificate), 0o644); err != nil {
			return cove.Errorf(cove.StorageFull, "cannot write %s: %w", out, ui.Cause(err)).
				WithHint("choose another file with --out")
		}
		return nil
	})
	c.Flags().StringVarP(&out, "out", "o", "", "write to `FILE` instead of standard output")
	return c
}

// authorityOf is the authority of an execution, a sandbox, or a gateway's client, as PEM.
func authorityOf(sess *session.Session, cmd *cobra.Command, name string) (certificate string, err error) {
	of := func(find func(*client.Client, context.Context, string) (api.Authority, error)) func(*client.Client) error {
		return func(c *client.Client) error {
			found, err := find(c, cmd.Context(), name)
			certificate = found.Certificate
			return err
		}
	}
	err = aboutNetwork(sess, cmd, name, theirNetwork{
		execution: of((*client.Client).Authority), sandbox: of((*client.Client).SandboxAuthority),
		gateway: of((*client.Client).GatewayAuthority),
	})
	return certificate, err
}

func authorityText(certificate string) (string, error) {
	block, _ := pem.Decode([]byte(certificate))
	if block == nil {
		return "", cove.Errorf(cove.Unavailable, "the server sent no certificate")
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return "", cove.Errorf(cove.Unavailable, "the server sent no certificate: %w", err)
	}
	hex := strings.ReplaceAll(fmt.Sprintf("% X", sha256.Sum256(c.Raw)), " ", ":")
	from, to := c.NotBefore.UTC().Format(time.DateTime), c.NotAfter.UTC().Format(time.DateTime)
	return fmt.Sprintf("subject      %s\nfingerprint  SHA-256 %s\nvalid        %s to %s\n",
		ui.Printable(c.Subject.String()), hex, from, to), nil
}
