package session

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/cli/ui"
	"github.com/cove-sandbox/cove/internal/config"
	"github.com/cove-sandbox/cove/internal/daemon"
)

// StartTimeout is how long a server may take until it answers, and another one
// until it has ended. It takes over sandboxes and sweeps up before.
const StartTimeout = time.Minute

// startPoll is the time between two looks for a server that starts.
const startPoll = 10 * time.Millisecond

// ServerLogPath returns the path of the log of a server in the background.
func ServerLogPath(cfg *config.Config) string { return filepath.Join(cfg.Home, "logs", "server.log") }

// StartServer starts a server in the background and waits until it answers.
// Of several who do so at once one starts it, and the others find it.
func (sess *Session) StartServer(ctx context.Context, cfg *config.Config) error {
	sess.Warn(cfg)
	path := ServerLogPath(cfg)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return cove.Errorf(cove.StorageFull, "cannot make a place for the server's log: %w", err).
			WithHint("set another home with COVE_HOME")
	}
	waiting, cancel := context.WithTimeout(ctx, StartTimeout)
	defer cancel()
	turn, err := awaitTurn(waiting, cfg)
	if err != nil || turn == nil {
		return err
	}
	defer turn.Close()
	log, err := OpenServerLog(path, MaxServerLog)
	if err != nil {
		return err
	}
	defer log.Close()
	begin := log.size
	server, err := sess.launch(cfg, log)
	if err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() { server.Wait(); close(ended) }()
	for !Answers(waiting, cfg.Socket()) {
		select {
		case <-ended:
			return didNotStart(path, begin)
		case <-waiting.Done():
			if ctx.Err() != nil {
				return cove.Errorf(cove.Canceled, "the server was starting, and goes on by itself")
			}
			server.Process.Kill()
			<-ended
			return cove.Errorf(cove.Unavailable, "the server does not answer after %v", StartTimeout).WithHint("see %s", path)
		case <-time.After(startPoll):
		}
	}
	if ui.IsTerminal(sess.Err) {
		sess.Say.Line("started a server in the background (process %d); \"cove server status\" shows it", server.Process.Pid)
	}
	return nil
}

// awaitTurn waits until no other process starts a server and the home is free, and
// returns what keeps the others waiting; nil when a server answers.
func awaitTurn(ctx context.Context, cfg *config.Config) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(cfg.Home, "logs", "server.starting"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, cove.Errorf(cove.StorageFull, "cannot start a server: %w", err).
			WithHint("set another home with COVE_HOME")
	}
	ours := false
	for {
		if Answers(ctx, cfg.Socket()) {
			f.Close()
			return nil, nil
		}
		if !ours {
			ours = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil
		}
		if ours && !daemon.Serves(cfg.Home) {
			return f, nil
		}
		select {
		case <-ctx.Done():
			f.Close()
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return nil, cove.Errorf(cove.Unavailable,
					"another server uses %s, and does not answer at %s", cfg.Home, cfg.Socket()).
					WithHint("end it, or say where it listens with COVE_RUN_DIR")
			}
			return nil, cove.Errorf(cove.Canceled, "no server was started")
		case <-time.After(startPoll):
		}
	}
}

// launch starts "cove serve" in a session of its own. It stays in the directory
// of this command: files that the configuration names may be relative to it.
func (sess *Session) launch(cfg *config.Config, log *serverLog) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	args := []string{"serve", "--home", cfg.Home, "--run-dir", cfg.RunDir, "--log-file", log.path}
	if sess.Settings.Path != "" {
		args = append(args, "--config", sess.Settings.Path)
	}
	for _, s := range sess.Settings.Set {
		args = append(args, "--set", s)
	}
	if cfg.Origin("listen") == "default" {
		args = append(args, "--listen", "") // a port is reached by all users of the machine, so it is opened only on request
	}
	c := exec.Command(self, args...)
	c.Args[0] = "cove" // its name in lists of processes
	c.Stdout, c.Stderr = log.f, log.f
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := c.Start(); err != nil {
		return nil, cove.Errorf(cove.Unavailable, "cannot start a server: %w", err)
	}
	return c, nil
}

// didNotStart returns the error of a server that ended, with the last error in its log.
func didNotStart(path string, begin int64) error {
	e := cove.Errorf(cove.Unavailable, "the server in the background has ended at once").WithHint("see %s", path)
	f, err := os.Open(path)
	if err != nil {
		return e
	}
	defer f.Close()
	const most = 4096
	if end, err := f.Seek(0, 2); err == nil {
		begin = max(begin, end-most)
	}
	text := make([]byte, most)
	n, _ := f.ReadAt(text, begin)
	lines := strings.Split(strings.TrimRight(string(text[:n]), "\n"), "\n")
	for i := len(lines) - 1; i >= 0; i-- {
		message, ok := strings.CutPrefix(lines[i], "cove: ")
		if !ok {
			continue
		}
		e.Message = "the server does not start: " + message
		if i+1 < len(lines) {
			e.Hint = strings.TrimSpace(lines[i+1])
		}
		break
	}
	return e
}
