// Package session owns what the commands of one command line share: the terminal,
// the configuration, and the connection to a server or to a daemon in this process.
package session

import (
	"io"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/cli/ui"
	"github.com/cove-sandbox/cove/internal/config"
)

// Session is one run of the command line: its terminal, the flags that every
// command has, and the exit code that it ends with.
type Session struct {
	*ui.Terminal

	Address  string    // --server
	Settings Settings  // --config and the like
	LogTo    io.Writer // of the log, when it is not standard error
	Exit     int       // of a command that did its work but has a verdict to give
}

// New returns the session of a process with these streams.
func New(streams ui.Streams, getenv func(string) string) *Session {
	return &Session{Terminal: ui.NewTerminal(streams, getenv)}
}

// AddFlags defines the flags that every command has.
func (sess *Session) AddFlags(f *pflag.FlagSet) {
	f.StringVar(&sess.Settings.Path, "config", "", "configuration `FILE` (or COVE_CONFIG)")
	f.StringArrayVar(&sess.Settings.Set, "set", nil, "set one setting of the configuration: `NAME=VALUE` (repeatable)")
	f.StringVar(&sess.Settings.Home, "home", "", "`DIR` of state: database, images (or COVE_HOME)")
	f.StringVar(&sess.Settings.RunDir, "run-dir", "", "`DIR` of sockets and locks (or COVE_RUN_DIR)")
	f.StringVar(&sess.Address, "server", "",
		"talk to this server: `ADDRESS` http://host:port or unix:/path (or COVE_SERVER; its key in COVE_API_KEY)")
}

// Command is a command line of Cove's that reaches the same processes as this one.
func (sess *Session) Command(words ...string) string {
	for _, f := range []struct{ flag, value string }{
		{"--server", sess.Address},
		{"--config", sess.Settings.Path},
		{"--run-dir", sess.Settings.RunDir},
	} {
		if f.value != "" {
			words = append(words, f.flag, ui.ShellWord(f.value))
		}
	}
	return "cove " + strings.Join(words, " ")
}

func (sess *Session) ServerAddress() string {
	if sess.Address != "" {
		return sess.Address
	}
	return sess.Getenv("COVE_SERVER")
}

// Settings are the flags that stand for settings of the configuration.
type Settings struct {
	Path    string   // --config
	Home    string   // --home
	RunDir  string   // --run-dir
	Set     []string // --set NAME=VALUE
	Listen  string   // --listen of serve
	Serving bool     // --listen was given
}

// configSource returns the source of the configuration.
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
	return config.Source{
		Path:    sess.Settings.Path,
		Getenv:  sess.Getenv,
		Environ: os.Environ(),
		Flags:   flags,
		UID:     os.Geteuid(),
	}, nil
}

// Config reads the settings, once for each command.
func (sess *Session) Config() (*config.Config, error) {
	s, err := sess.configSource()
	if err != nil {
		return nil, err
	}
	return config.Load(s)
}

// Warn prints the configuration's warnings.
func (sess *Session) Warn(cfg *config.Config) {
	for _, w := range cfg.Warnings() {
		sess.Say.Line("%s", w)
	}
}
