package server

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
	"github.com/cove-sandbox/cove/internal/config"
)

func configCommand(sess *session.Session) *cobra.Command {
	return ui.Group(&cobra.Command{
		Use:   "config",
		Short: "See and check the configuration",
		Long: `Settings come from one YAML file (--config, COVE_CONFIG), then the environment
(COVE_... and PORT), then flags. "cove config show" lists all of them.`,
	}, configShow(sess), configCheck(sess), configNewKey(sess))
}

// configured makes a command without arguments that reads the configuration and prints its warnings first.
func configured(sess *session.Session, c *cobra.Command, do func(*config.Config) error) *cobra.Command {
	c.Args = ui.Exactly()
	c.RunE = func(*cobra.Command, []string) error {
		cfg, err := sess.Config()
		if err != nil {
			return err
		}
		sess.Warn(cfg)
		return do(cfg)
	}
	return c
}

func configShow(sess *session.Session) *cobra.Command {
	return configured(sess, &cobra.Command{
		Use:     "show",
		Short:   "Print every setting in effect, and where it comes from",
		Example: "  cove config show --config cove.yaml",
	}, func(cfg *config.Config) error { return cfg.Show(sess.Out) })
}

func configCheck(sess *session.Session) *cobra.Command {
	return configured(sess, &cobra.Command{
		Use:     "check",
		Short:   "Say whether the configuration is right",
		Example: "  cove config check --config cove.yaml",
	}, func(*config.Config) error { return sess.Print("the configuration is right\n") })
}

func configNewKey(sess *session.Session) *cobra.Command {
	return &cobra.Command{
		Use:   "new-key NAME",
		Short: "Make an API key, and the line for the configuration",
		Long: `Make an API key for NAME. The key is printed once and stored nowhere; the
configuration has its hash only.`,
		Example: "  cove config new-key ci",
		Args:    ui.Exactly("NAME"),
		RunE: func(_ *cobra.Command, args []string) error {
			key, hash := config.NewAPIKey()
			return sess.Print(fmt.Sprintf("key:  %s\n\nand for the configuration:\n\napi_keys:\n  - name: %q\n    hash: %s\n",
				key, args[0], hash))
		},
	}
}
