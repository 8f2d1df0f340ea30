//go:build linux

// Command liar is a cove-guest that lies to its host. What it lies about, and which lie it tells, is OPERATION=LIE of
// package lie: at the end of its own file, after the line "LIE=", or in the variable LIE of a program that it is to
// start, from which on it waits for the operation. Until then it is the guest.
// As a fork server it starts executors that lie.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/guest/pid1"
	"github.com/cove-sandbox/cove/internal/linux/unixconn"
	"github.com/cove-sandbox/cove/test/hostile/lie"
)

// Descriptors at which the native engine puts the end of the socket, and the program of a fork server.
const (
	socketFD  = 3
	programFD = 4
)

func main() {
	runtime.LockOSThread() // the main thread still: see package pid1
	l := &liar{}
	l.prepare(os.Getenv("LIE"))
	l.prepare(atEnd())
	var conn guest.Conn
	var err error
	switch mode := append(os.Args, "")[1]; mode {
	case "--keeper":
		unix.CloseRange(socketFD, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC)
		conn, err = unixconn.New(socketFD)
	case "--call":
		conn, err = unixconn.Dial(os.Args[2])
	case "--stdio":
		conn = stdio{}
	case "--fork":
		serveForks()
		return
	default: // "--wait", which holds a user namespace
		io.Copy(io.Discard, os.Stdin)
		return
	}
	if err != nil {
		os.Exit(125)
	}
	signal.Notify(make(chan os.Signal, 1))
	l.Conn = conn
	if os.Args[1] == "--keeper" {
		uid, _ := strconv.Atoi(os.Args[2])
		gid, _ := strconv.Atoi(os.Args[3])
		pid1.Keep(l, os.NewFile(socketFD+1, "door"), socketFD+2, guest.Seal{UserUID: uid, UserGID: gid})
	}
	pid1.Run(l)
}

// atEnd returns what follows "LIE=" at the end of the program's file.
func atEnd() string {
	program, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return ""
	}
	_, order, _ := bytes.Cut(program[max(0, len(program)-200):], []byte("\nLIE="))
	return string(order)
}

type stdio struct{}

func (stdio) Read(p []byte) (int, error)  { return os.Stdin.Read(p) }
func (stdio) Write(p []byte) (int, error) { return os.Stdout.Write(p) }
func (stdio) Close() error                { os.Stdin.Close(); return os.Stdout.Close() }

// liar is the guest's end of a connection, on which lies are told.
type liar struct {
	guest.Conn
	unread []byte // of a frame of the host's

	mu   sync.Mutex
	op   string // that the next lie is about
	lie  lie.Lie
	mute bool

	started   *lie.Lie // that is told once the start with the id has been answered
	startedID uint32
}

// prepare prepares a lie.
func (l *liar) prepare(order string) {
	op, name, _ := strings.Cut(order, "=")
	if about, found := lie.Find(op, name); found {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.op, l.lie = op, about
	}
}

// take returns the lie about an operation, once.
func (l *liar) take(op string) (lie.Lie, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.op != op {
		return lie.Lie{}, false
	}
	l.op = ""
	return l.lie, true
}

// Read takes frames of the host's, and answers those that it lies about.
func (l *liar) Read(p []byte) (int, error) {
	for len(l.unread) == 0 {
		f, err := guest.ReadFrame(l.Conn)
		if err != nil {
			return 0, err
		}
		if l.answered(f) {
			continue
		}
		if l.unread, err = guest.AppendFrame(nil, f); err != nil {
			return 0, err
		}
	}
	n := copy(p, l.unread)
	l.unread = l.unread[n:]
	return n, nil
}

// answered reports whether a frame has been answered with a lie.
func (l *liar) answered(f guest.Frame) bool {
	if f.Type != guest.FrameRequest {
		return false
	}
	var q guest.Request
	b, err := guest.ParseBody(f.Payload)
	if err != nil || json.Unmarshal(b.JSON, &q) != nil {
		return false
	}
	var spec guest.ProcessSpec
	if q.Op == guest.OpStart && json.Unmarshal(q.Params, &spec) == nil {
		if at := slices.IndexFunc(spec.Env, func(v string) bool { return strings.HasPrefix(v, "LIE=") }); at >= 0 {
			l.prepare(strings.TrimPrefix(spec.Env[at], "LIE="))
		}
		if about, found := l.take("stream"); found {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.started, l.startedID = &about, f.ID // the truth about the start comes first
			return false
		}
	}
	about, found := l.take(string(q.Op))
	if found {
		go l.tell(about, f.ID)
	}
	return found
}

func (l *liar) tell(about lie.Lie, id uint32) {
	if about.Mute {
		l.mu.Lock()
		l.mute = true
		l.mu.Unlock()
	}
	about.Say(mouth{l.Conn}, id)
}

// mouth is the connection itself.
type mouth struct{ guest.Conn }

func (m mouth) WriteFDs(p []byte, fds []int) error {
	if c, ok := m.Conn.(guest.FDConn); ok {
		return c.WriteFDs(p, fds)
	}
	return errors.ErrUnsupported
}

// Write passes on what the guest says, unless it is to be silent.
func (l *liar) Write(p []byte) (int, error) {
	if about, found := l.take(string(lie.Hello)); found {
		about.Say(mouth{l.Conn}, 0)
		return len(p), nil
	}
	l.mu.Lock()
	mute, about := l.mute, l.started
	told := about != nil && answers(p, l.startedID)
	if told {
		l.started = nil
	}
	l.mu.Unlock()
	if mute {
		return len(p), nil
	}
	n, err := l.Conn.Write(p)
	if told {
		go l.tell(*about, l.startedID)
	}
	return n, err
}

// answers reports whether a frame is the answer to a request.
func answers(frame []byte, id uint32) bool {
	f, err := guest.ReadFrame(bytes.NewReader(frame))
	return err == nil && f.Type == guest.FrameReply && f.ID == id
}

func (l *liar) WriteFDs(p []byte, fds []int) error { return mouth{l.Conn}.WriteFDs(p, fds) }

func (l *liar) TakeFDs(n int) ([]*os.File, error) {
	if c, ok := l.Conn.(guest.FDConn); ok {
		return c.TakeFDs(n)
	}
	return nil, errors.ErrUnsupported
}
