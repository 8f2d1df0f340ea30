// Package session owns what the commands of one command line share: the terminal,
// the configuration, and the connection to a server or to a daemon in this process.
package session

import (
	"cmp"
	"context"
	"io"
	"log"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/internal/atomicfile"
	"github.com/cove-sandbox/cove/internal/cli/ui"
	"github.com/cove-sandbox/cove/internal/config"
)

// Daemon carries out in this process what a server would do otherwise. Only cove-server links it: cove has none, and
// starts sooner for that.
type Daemon interface {
	// Open starts a daemon in this process. It is warm when something is about to run.
	Open(ctx context.Context, sess *Session, warm bool) (*Backend, error)
	// Profiles returns the profiles that the configuration describes.
	Profiles(sess *Session) ([]api.Profile, error)
	// ImageNames lists the names of the images in the store, for completion; none when it cannot be read.
	ImageNames(ctx context.Context, sess *Session) []string
}

// Backend is the server that this command uses: another process, or this one.
type Backend struct {
	Client  *client.Client
	Close   func() error
	address string // of another process
}

// Session is one run of the command line: its terminal, the flags that every
// command has, and the exit code that it ends with.
type Session struct {
	*ui.Terminal

	Args   []string // of the command line
	Daemon Daemon   // of this program; nil: another program has it

	Address  string    // --server
	Settings Settings  // --config and the like
	LogTo    io.Writer // of the log, when it is not standard error
	Exit     int       // of a command that did its work but has a verdict to give

	config  *config.Config // once it was read
	settled *Backend       // of the server that Settle has asked for its settings, with the connection
}

// New returns the session of a process with these streams.
func New(streams ui.Streams, getenv func(string) string) *Session {
	return &Session{Terminal: ui.NewTerminal(streams, getenv)}
}

// AddFlags defines the flags that every command has.
func (sess *Session) AddFlags(f *pflag.FlagSet) {
	f.StringVar(&sess.Settings.Path, "config", "", "configuration `FILE` (or COVE_CONFIG, CONFIG_PATH)")
	f.StringArrayVar(&sess.Settings.Set, "set", nil, "set one setting of the configuration: `NAME=VALUE` (repeatable)")
	f.StringVar(&sess.Settings.Home, "home", "", "`DIR` of state: database, images (or COVE_HOME)")
	f.StringVar(&sess.Settings.RunDir, "run-dir", "", "`DIR` of sockets and locks (or COVE_RUN_DIR)")
	f.StringVar(&sess.Address, "server", "",
		"talk to this server: `ADDRESS` http://host:port, unix:/path or ssh://host (or COVE_SERVER; "+
			"its key in COVE_API_KEY)")
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

func (sess *Session) ServerAddress() string { return cmp.Or(sess.Address, sess.Getenv("COVE_SERVER")) }

// Settings are the flags that stand for settings of the configuration.
type Settings struct {
	Path    string   // --config
	Home    string   // --home
	RunDir  string   // --run-dir
	Set     []string // --set NAME=VALUE
	Listen  string   // --listen of serve
	Serving bool     // --listen was given
}

func (sess *Session) configSource() (config.Source, error) {
	flags := map[string]string{}
	if sess.Settings.Home != "" {
		flags["home"] = sess.Settings.Home
	}
	if sess.Settings.RunDir != "" {
		flags["run_dir"] = sess.Settings.RunDir
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
		Path: sess.Settings.Path, Getenv: sess.Getenv, Environ: os.Environ(), Flags: flags, UID: os.Geteuid(),
	}, nil
}

// Config reads the settings, once for each command.
func (sess *Session) Config() (*config.Config, error) {
	if sess.config != nil {
		return sess.config, nil
	}
	s, err := sess.configSource()
	if err != nil {
		return nil, err
	}
	sess.config, err = config.Load(s)
	return sess.config, err
}

// InHome returns a path in the directory of Cove's state.
func (sess *Session) InHome(names ...string) (string, error) {
	cfg, err := sess.Config()
	if err != nil {
		return "", err
	}
	return filepath.Join(append([]string{cfg.Home}, names...)...), nil
}

// Keep writes a file of the user's state, whole or not at all, and makes its directory.
func Keep(file string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	return atomicfile.Write(file, data, 0o600)
}

// Warn prints the configuration's warnings.
func (sess *Session) Warn(cfg *config.Config) { sess.Say.Lines(cfg.Warnings()...) }

// QuietLogger returns the logger of commands, whose daemon shares the user's
// terminal. It logs errors only, unless the configuration sets a level.
func (sess *Session) QuietLogger(cfg *config.Config) *slog.Logger {
	if cfg.Origin("log.level") == "default" {
		return sess.loggerAt(cfg, slog.LevelError)
	}
	return sess.Logger(cfg)
}

// Logger is the server's log, on standard error.
func (sess *Session) Logger(cfg *config.Config) *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(cfg.Log.Level)); err != nil {
		level = slog.LevelInfo
	}
	return sess.loggerAt(cfg, level)
}

// loggerAt returns a logger of a level. The standard library's own messages, such
// as those of net/http about malformed requests, become debug messages of it.
func (sess *Session) loggerAt(cfg *config.Config, level slog.Level) *slog.Logger {
	var to io.Writer = sess.Err
	if sess.LogTo != nil {
		to = sess.LogTo
	}
	l := slog.New(handler(to, cfg.Log.Format, level))
	log.SetFlags(0)
	log.SetOutput(slog.NewLogLogger(l.Handler(), slog.LevelDebug).Writer())
	return l
}

func handler(w io.Writer, format string, level slog.Level) slog.Handler {
	o := &slog.HandlerOptions{Level: level}
	if format == "json" {
		return slog.NewJSONHandler(w, o)
	}
	return slog.NewTextHandler(w, o)
}

// ServerLogPath returns the path of the log of a server in the background.
func ServerLogPath(cfg *config.Config) string { return filepath.Join(cfg.Home, "logs", "server.log") }

// Places returns the settings, or where they cannot be read at least the directories: the server of a broken
// configuration can be found then.
func Places(sess *Session) (*config.Config, error) {
	cfg, err := sess.Config()
	if err == nil {
		return cfg, nil
	}
	cfg = new(config.Defaults(sess.Getenv, os.Geteuid()))
	for _, place := range []struct {
		to   *string
		from []string
	}{
		{&cfg.Home, []string{sess.Settings.Home, sess.Getenv("COVE_HOME")}},
		{&cfg.RunDir, []string{sess.Settings.RunDir, sess.Getenv("COVE_RUN_DIR")}},
	} {
		if i := slices.IndexFunc(place.from, func(dir string) bool { return dir != "" }); i >= 0 {
			*place.to = place.from[i]
		}
	}
	sess.config = cfg // it is said once
	sess.Say.Line("the configuration cannot be read (%s); the server is looked for in %s", cove.ErrorMessage(err),
		cfg.RunDir)
	return cfg, nil
}
