package session

import (
	"io"
	"log"
	"log/slog"

	"github.com/cove-sandbox/cove/internal/config"
)

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
