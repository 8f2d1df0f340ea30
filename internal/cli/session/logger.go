package session

import (
	"io"
	"log"
	"log/slog"

	"github.com/cove-sandbox/cove/internal/config"
)

// QuietLogger is for commands, whose daemon has nobody to tell but the person
// at the terminal: what went wrong, unless the configuration asks for more.
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

// loggerAt is a logger, and where the standard library's own messages go: what
// strangers do to net/http, which is worth a word when somebody looks for it.
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
