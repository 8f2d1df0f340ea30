package session

import (
	"os"
	"strings"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/config"
)

// Settings are the flags that stand for settings of the configuration.
type Settings struct {
	Path    string   // --config
	Home    string   // --home
	RunDir  string   // --run-dir
	Set     []string // --set NAME=VALUE
	Listen  string   // --listen of serve
	Serving bool     // --listen was given
}

// configSource is where the configuration comes from.
func (sess *Session) configSource() (config.Source, error) {
	flags := map[string]string{}
	for name, value := range map[string]string{"home": sess.Settings.Home, "run_dir": sess.Settings.RunDir} {
		if value != "" {
			flags[name] = value
		}
	}
	if sess.Settings.Serving {
		flags["listen"] = sess.Settings.Listen
	}
	for _, s := range sess.Settings.Set {
		name, value, ok := strings.Cut(s, "=")
		if !ok || name == "" {
			return config.Source{}, cove.Errorf(cove.InvalidArgument, "--set %s is not NAME=VALUE", s).
				WithHint("for example --set sandbox.max_concurrent=8; \"cove config show\" lists the names")
		}
		flags[name] = value
	}
	return config.Source{Path: sess.Settings.Path, Getenv: sess.Getenv, Environ: os.Environ(), Flags: flags, UID: os.Geteuid()}, nil
}

// Config reads the settings, once for each command.
func (sess *Session) Config() (*config.Config, error) {
	s, err := sess.configSource()
	if err != nil {
		return nil, err
	}
	return config.Load(s)
}

// Warn says what is odd but not wrong.
func (sess *Session) Warn(cfg *config.Config) {
	for _, w := range cfg.Warnings() {
		sess.Say.Line("%s", w)
	}
}
