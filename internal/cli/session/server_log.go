package session

import (
	"errors"
	"io/fs"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
)

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
