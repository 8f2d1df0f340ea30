// Package session owns what the commands of one command line share: the terminal,
// the configuration, and the connection to a server or to a daemon in this process.
package session

import (
	"io"
	"strings"

	"github.com/spf13/pflag"

	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/cli/ui"
	"github.com/cove-sandbox/cove/internal/version"
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
	f.StringVar(&sess.Address, "server", "", "talk to this server: `ADDRESS` http://host:port or unix:/path (or COVE_SERVER; its key in COVE_API_KEY)")
}

// Command is a command line of Cove's that reaches the same processes as this
// one.
func (sess *Session) Command(words ...string) string {
	for _, f := range []struct{ flag, value string }{{"--server", sess.Address}, {"--config", sess.Settings.Path}, {"--run-dir", sess.Settings.RunDir}} {
		if f.value != "" {
			words = append(words, f.flag, ui.ShellWord(f.value))
		}
	}
	return "cove " + strings.Join(words, " ")
}

// checkVersion says when a server is of another version than this command.
func (sess *Session) checkVersion(h api.Health) {
	switch {
	case h.Version == "" || h.Version == version.Version:
	case sess.ServerAddress() != "":
		sess.Say.Line("the server is of version %s, this command of %s", h.Version, version.Version)
	default:
		sess.Say.Line("the server is of version %s, this command of %s: \"cove server stop\" ends it, and the next command starts one of its own; sandboxes stay", h.Version, version.Version)
	}
}
