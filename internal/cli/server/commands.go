// Package server owns the commands about this machine's Cove: the server, its
// configuration and audit log, images, what the doctor finds, and the version.
package server

import (
	"cmp"
	"fmt"
	goruntime "runtime"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
	"github.com/cove-sandbox/cove/internal/config"
	"github.com/cove-sandbox/cove/internal/prices"
	"github.com/cove-sandbox/cove/internal/version"
)

// Commands returns the commands of this room. d is nil in a program without a daemon.
func Commands(sess *session.Session, d Daemon) []*cobra.Command {
	all := ui.InGroup(ui.GroupExecutions, auditCommand(sess))
	all = append(all, ui.InGroup(ui.GroupMachine, statusCommand(sess), doctorCommand(sess, d), serveCommand(sess, d),
		serverCommand(sess), backupCommand(sess), restoreCommand(sess, d), poolCommand(sess),
		keysCommand(sess), configCommand(sess), modelsCommand(sess), imageCommand(sess, d))...)
	return append(all, versionCommand(sess), doctorProbeCommand(sess, d))
}

func configCommand(sess *session.Session) *cobra.Command {
	return ui.Group(&cobra.Command{
		Use:   "config",
		Short: "See and check the configuration",
		Long: `Settings come from one YAML file (--config, COVE_CONFIG or CONFIG_PATH), then the
environment (COVE_... and PORT), then flags. "cove config show" lists all of them.`,
	}, configShow(sess), configCheck(sess), configNewKey(sess))
}

// configured makes a command without arguments that reads the configuration and prints its warnings first.
func configured(sess *session.Session, c *cobra.Command, do func(*config.Config) (ui.Result, error)) *cobra.Command {
	return sess.Showing(c, func(*cobra.Command, []string) (ui.Result, error) {
		cfg, err := sess.Config()
		if err != nil {
			return ui.Result{}, err
		}
		sess.Warn(cfg)
		return do(cfg)
	})
}

func configShow(sess *session.Session) *cobra.Command {
	return configured(sess, &cobra.Command{
		Use:     "show",
		Short:   "Print every setting in effect, and where it comes from",
		Example: "  cove config show --config cove.yaml",
	}, func(cfg *config.Config) (ui.Result, error) {
		var text strings.Builder
		err := cfg.Show(&text)
		return ui.Result{Value: map[string][]config.InEffect{"settings": cfg.InEffect()}, Text: text.String()}, err
	})
}

func configCheck(sess *session.Session) *cobra.Command {
	return configured(sess, &cobra.Command{
		Use: "check", Short: "Say whether the configuration is right", Example: "  cove config check --config cove.yaml",
	}, func(cfg *config.Config) (ui.Result, error) {
		unjudged, err := config.Unjudged(cfg, cfg.APIKeys...)
		if err != nil {
			return ui.Result{}, err
		}
		sess.Say.Lines(unjudged...)
		value := map[string][]string{"warnings": append(append([]string{}, cfg.Warnings()...), unjudged...)}
		return ui.Result{Value: value, Text: "the configuration is right\n"}, nil
	})
}

func modelsCommand(sess *session.Session) *cobra.Command {
	return ui.Group(&cobra.Command{Use: "models", Short: "See what models cost"}, sess.ShowingList(&cobra.Command{
		Use: "prices", Short: "List the prices of models, by which budgets in dollars are judged",
		Long: `List the prices of models in dollars for a million tokens, by which budgets in
dollars are judged: those of gateway.providers in the configuration, and those that
come with Cove, with the page and the day of each. The first that matches counts.`,
	}, func(*cobra.Command, []string) (ui.Result, error) {
		cfg, err := sess.Config()
		if err != nil {
			return ui.Result{}, err
		}
		all, err := config.Prices(cfg)
		return ui.Listing("prices", all, []string{"PROVIDER", "MODELS", "ABOVE", "INPUT", "OUTPUT", "CACHE READ",
			"CACHE WRITE", "READ", "FROM"}, func(p prices.Price) []string {
			return []string{p.Provider, p.Models, fmt.Sprint(p.Above), fmt.Sprint(p.Input), fmt.Sprint(p.Output),
				fmt.Sprint(p.CacheRead), fmt.Sprint(p.CacheWrite), cmp.Or(p.Read, "-"), cmp.Or(p.Source, "the configuration")}
		}), err
	}))
}

func configNewKey(sess *session.Session) *cobra.Command {
	var k config.APIKey
	cmd := &cobra.Command{
		Use:   "new-key NAME",
		Short: "Make an API key, and the line for the configuration",
		Long: `Make an API key for NAME. The key is printed once and stored nowhere; the
configuration has its hash only.

A key may do everything with what it makes itself, until it is taken out of the
configuration. Scopes and quotas make that less. It uses your credentials for
models only with a budget.`,
		Example: `  cove config new-key ci
  cove config new-key ci --scope run,read --expires 2027-01-31
  cove config new-key bot --concurrent 4 --cpu-seconds hour=600,day=3600
  cove config new-key agent --model-budget cost=20`,
		RunE: func(_ *cobra.Command, args []string) error {
			var key string
			k.Name = args[0]
			key, k.Hash = config.NewAPIKey()
			if _, err := k.Grant(); err != nil {
				return err
			}
			if cfg, err := sess.Config(); err == nil { // its server may have another one
				unjudged, _ := config.Unjudged(cfg, k)
				sess.Say.Lines(unjudged...)
			}
			return sess.Print(fmt.Sprintf("key:  %s\n\nand for the configuration:\n\napi_keys:\n%s", key, k.Entry()))
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&k.Scopes, "scope", nil, "what it may do: run, sandboxes, agents, read, approve, metrics, admin")
	f.StringVar(&k.Expires, "expires", "", "the last `DAY` on which it is valid, like 2027-01-31")
	f.StringVar(&k.Concurrent, "concurrent", "", "`N` executions, runs, commands and terminals at once")
	f.StringVar(&k.Rate, "rate", "", "`N` requests a second")
	f.StringVar(&k.CPUSeconds, "cpu-seconds", "", "CPU time of all its work, `hour=N,day=N`")
	f.StringVar(&k.Sandboxes, "sandboxes", "", "`N` long-lived sandboxes")
	f.StringVar(&k.Models, "model-budget", "",
		"let it use your models, up to `requests=N,tokens=N,cost=DOLLARS` in all; otherwise it may not")
	f.StringVar(&k.DiskMB, "disk-mb", "", "the sum of their disk limits and of uploads, in `MB`")
	return cmd
}

// VersionLine is the version of this program and what it was built for.
func VersionLine() string {
	return fmt.Sprintf("cove %s (%s, %s/%s)", version.Version, goruntime.Version(), goruntime.GOOS, goruntime.GOARCH)
}

func versionCommand(sess *session.Session) *cobra.Command {
	return sess.Showing(&cobra.Command{
		Use: "version", Short: "Print the version",
	}, func(*cobra.Command, []string) (ui.Result, error) {
		value := map[string]string{
			"version": version.Version, "go": goruntime.Version(), "os": goruntime.GOOS, "arch": goruntime.GOARCH,
		}
		return ui.Result{Value: value, Text: VersionLine() + "\n"}, nil
	})
}
