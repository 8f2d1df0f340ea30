package cli

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/config"
)

// settings are the flags that stand for settings of the configuration.
type settings struct {
	path    string   // --config
	home    string   // --home
	runDir  string   // --run-dir
	set     []string // --set NAME=VALUE
	listen  string   // --listen of serve
	serving bool     // --listen was given
}

// source is where the configuration comes from.
func (a *app) source() (config.Source, error) {
	flags := map[string]string{}
	for name, value := range map[string]string{"home": a.settings.home, "run_dir": a.settings.runDir} {
		if value != "" {
			flags[name] = value
		}
	}
	if a.settings.serving {
		flags["listen"] = a.settings.listen
	}
	for _, s := range a.settings.set {
		name, value, ok := strings.Cut(s, "=")
		if !ok || name == "" {
			return config.Source{}, cove.Errorf(cove.InvalidArgument, "--set %s is not NAME=VALUE", s).
				WithHint("for example --set sandbox.max_concurrent=8; \"cove config show\" lists the names")
		}
		flags[name] = value
	}
	return config.Source{Path: a.settings.path, Getenv: a.getenv, Environ: os.Environ(), Flags: flags, UID: os.Geteuid()}, nil
}

// loadConfig reads the settings, once for each command.
func (a *app) loadConfig() (*config.Config, error) {
	s, err := a.source()
	if err != nil {
		return nil, err
	}
	return config.Load(s)
}

func (a *app) configCommand() *cobra.Command {
	return group(&cobra.Command{
		Use:   "config",
		Short: "See and check the configuration",
		Long: `Settings come from one YAML file (--config, COVE_CONFIG), then the environment
(COVE_... and PORT), then flags. "cove config show" lists all of them.`,
	}, a.configShow(), a.configCheck(), a.configNewKey())
}

func (a *app) configShow() *cobra.Command {
	return &cobra.Command{
		Use:     "show",
		Short:   "Print every setting in effect, and where it comes from",
		Example: "  cove config show --config cove.yaml",
		Args:    exactly(),
		RunE: func(*cobra.Command, []string) error {
			cfg, err := a.loadConfig()
			if err != nil {
				return err
			}
			a.warn(cfg)
			return cfg.Show(a.Out)
		},
	}
}

func (a *app) configCheck() *cobra.Command {
	return &cobra.Command{
		Use:     "check",
		Short:   "Say whether the configuration is right",
		Example: "  cove config check --config cove.yaml",
		Args:    exactly(),
		RunE: func(*cobra.Command, []string) error {
			cfg, err := a.loadConfig()
			if err != nil {
				return err
			}
			a.warn(cfg)
			return a.print("the configuration is right\n")
		},
	}
}

// warn says what is odd but not wrong.
func (a *app) warn(cfg *config.Config) {
	for _, w := range cfg.Warnings() {
		a.say.line("%s", w)
	}
}

func (a *app) configNewKey() *cobra.Command {
	return &cobra.Command{
		Use:   "new-key NAME",
		Short: "Make an API key, and the line for the configuration",
		Long: `Make an API key for NAME. The key is printed once and stored nowhere; the
configuration has its hash only.`,
		Example: "  cove config new-key ci",
		Args:    exactly("NAME"),
		RunE: func(_ *cobra.Command, args []string) error {
			key, hash := config.NewAPIKey()
			return a.print(fmt.Sprintf("key:  %s\n\nand for the configuration:\n\napi_keys:\n  - name: %q\n    hash: %s\n", key, args[0], hash))
		},
	}
}
