package session

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/cli/ui"
	"github.com/cove-sandbox/cove/internal/config"
	"github.com/cove-sandbox/cove/internal/filelock"
	"github.com/cove-sandbox/cove/internal/instance"
)

const startPoll = 10 * time.Millisecond

// StartServer starts a server in the background, waits until it answers, and returns its address. Of several who do so
// at once one starts it, and the others find it.
func (sess *Session) StartServer(ctx context.Context) (address string, err error) {
	cfg, err := sess.Config()
	if err != nil {
		return "", err
	}
	sess.Warn(cfg)
	address = "unix:" + cfg.Socket()
	path := ServerLogPath(cfg)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", cove.Errorf(cove.StorageFull, "cannot make a place for the server's log: %w", err).
			WithHint("set another home with COVE_HOME")
	}
	waiting, cancel := context.WithTimeout(ctx, StartTimeout)
	defer cancel()
	waited := sess.Waits("waiting for the server (its log is %s), which takes over sandboxes before it answers", path)
	defer waited()
	turn, err := awaitTurn(waiting, cfg)
	if err != nil || turn == nil {
		return address, err
	}
	defer turn.Close()
	log, err := OpenServerLog(path, MaxServerLog)
	if err != nil {
		return "", err
	}
	defer log.Close()
	begin := log.size
	server, err := sess.launch(cfg, log)
	if err != nil {
		return "", err
	}
	ended := make(chan struct{})
	go func() { server.Wait(); close(ended) }()
	for !Answers(waiting, cfg.Socket()) {
		select {
		case <-ended:
			return "", didNotStart(path, begin)
		case <-waiting.Done():
			if ctx.Err() != nil {
				return "", cove.Errorf(cove.Canceled, "the server was starting, and goes on by itself")
			}
			server.Process.Kill()
			<-ended
			return "", cove.Errorf(cove.Unavailable, "the server does not answer after %v", StartTimeout).
				WithHint("see %s", path)
		case <-time.After(startPoll):
		}
	}
	waited()
	if ui.IsTerminal(sess.Err) {
		sess.Say.Line("started a server in the background (process %d); \"cove server status\" shows it", server.Process.Pid)
	}
	return address, nil
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
			ours = filelock.Try(f, filelock.Exclusive) == nil
		}
		if ours && !instance.Serves(cfg.Home, cfg.RunDir) {
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
	program, err := daemonProgram()
	if err != nil {
		return nil, err
	}
	args := append([]string{"serve", "--background", "--log-file", log.path}, flagsOf(sess, cfg)...)
	if cfg.Origin("listen") == "default" {
		args = append(args, "--listen", "") // a port is reached by all users of the machine, so it is opened only on request
	}
	c := exec.Command(program, args...)
	c.Args[0] = title
	c.Env = callerEnvironment()
	c.Stdout, c.Stderr = log.f, log.f
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := c.Start(); err != nil {
		return nil, noProgram(err)
	}
	return c, nil
}

// flagsOf returns the flags with which a program has the settings of this command.
func flagsOf(sess *Session, cfg *config.Config) []string {
	args := []string{"--home", cfg.Home, "--run-dir", cfg.RunDir}
	if sess.Settings.Path != "" {
		args = append(args, "--config", sess.Settings.Path)
	}
	for _, s := range sess.Settings.Set {
		args = append(args, "--set", s)
	}
	return args
}

// StopServer stops the server of this machine, waits until it has ended, and returns its process; 0 where there is
// none.
func StopServer(ctx context.Context, sess *Session) (pid int, err error) {
	cfg, err := Places(sess)
	if err != nil {
		return 0, err
	}
	p, pid, err := listener(cfg.Socket())
	if err != nil || pid == 0 {
		return 0, err
	}
	defer p.Close()
	if err := p.Terminate(); err != nil {
		return 0, err
	}
	defer sess.Waits("waiting for the server (process %d) to end; what runs may go on for %v", pid,
		cfg.ShutdownGrace.Std())()
	p.Wait(ctx)
	if ctx.Err() != nil {
		return pid, cove.Errorf(cove.Canceled, "the server is told to stop, and has not ended yet")
	}
	return pid, nil
}

// listener returns the process that listens on a unix socket of this machine, and its id. The id is 0 without one.
func listener(path string) (Process, int, error) {
	pid, err := listenerPID(path)
	if pid == 0 || err != nil {
		return Process{}, 0, err
	}
	p, err := WatchProcess(pid)
	if err != nil {
		return p, 0, err
	}
	// it has ended meanwhile, and the number may be another's
	if again, err := listenerPID(path); again != pid || err != nil {
		p.Close()
		return Process{}, 0, err
	}
	return p, pid, nil
}

func listenerPID(path string) (int, error) {
	conn, err := net.Dial("unix", path)
	if err != nil {
		return 0, nil
	}
	defer conn.Close()
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0, err
	}
	var peer *unix.Ucred
	var failed error
	ask := func(fd uintptr) { peer, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }
	if err := raw.Control(ask); err != nil {
		return 0, err
	}
	if failed != nil {
		return 0, failed
	}
	if peer.Pid == 0 {
		return 0, cove.Errorf(cove.Unsupported, "the server at %s runs where its process has no number here", path).
			WithHint("stop it there: it is in another container")
	}
	return int(peer.Pid), nil
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

// MaxServerLog is how large the log of a server in the background becomes, in
// bytes, before it begins anew. The one before is kept beside it, as .1.
const MaxServerLog = 16 << 20

// serverLog is the file a server in the background logs to.
type serverLog struct {
	path string
	max  int64

	mu       sync.Mutex
	f        *os.File
	size     int64
	standard bool // it is this process's standard output, too
}

// OpenServerLog opens the log to write at its end.
func OpenServerLog(path string, max int64) (*serverLog, error) {
	l := &serverLog{path: path, max: max}
	if err := l.open(); err != nil {
		return nil, cove.Errorf(cove.StorageFull, "cannot write the server's log: %w", err).
			WithHint("set another home with COVE_HOME")
	}
	if l.size >= l.max {
		if err := l.rotate(); err != nil {
			l.Close()
			return nil, cove.Errorf(cove.StorageFull, "cannot begin the server's log anew: %w", err)
		}
	}
	return l, nil
}

func (l *serverLog) open() error {
	f, err := os.OpenFile(l.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return err
	}
	l.f, l.size = f, info.Size()
	return nil
}

// Redirect makes the log this process's standard output and error output: what
// the runtime says when it gives up goes there as well.
func (l *serverLog) Redirect() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.standard = true
	return l.duplicate()
}

func (l *serverLog) duplicate() error {
	return errors.Join(unix.Dup3(int(l.f.Fd()), 1, 0), unix.Dup3(int(l.f.Fd()), 2, 0))
}

// Write implements io.Writer.
func (l *serverLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.size > 0 && l.size+int64(len(p)) > l.max {
		if err := l.rotate(); err != nil {
			l.size = 0 // it goes on where it is, and tries again as late
		}
	}
	n, err := l.f.Write(p)
	l.size += int64(n)
	return n, err
}

// rotate begins a new file. l.mu is held, unless l is not shared yet.
func (l *serverLog) rotate() error {
	if err := os.Rename(l.path, l.path+".1"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	old := l.f
	if err := l.open(); err != nil {
		return err
	}
	old.Close()
	if l.standard {
		return l.duplicate()
	}
	return nil
}

func (l *serverLog) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.f.Close()
}
