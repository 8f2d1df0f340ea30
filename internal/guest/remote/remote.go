//go:build linux

// Package remote is a guest without a program inside: PID 1 of its sandbox is an executor, which executes scripts of
// system calls that this package writes on the host.
//
// What an executor can do is what its own kernel state permits: it has its own namespaces, and drops its privileges
// for good in Bind, as a guest that is a program does (package pid1). The same protocol serves it, in this process.
package remote

import (
	"cmp"
	"errors"
	"io"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/guest/build"
	"github.com/cove-sandbox/cove/internal/guest/guestd"
	"github.com/cove-sandbox/cove/internal/linux/executor"
	"github.com/cove-sandbox/cove/internal/linux/unixconn"
)

// num is executor.Number.
func num[T ~int | ~int64 | ~uint32 | ~uintptr | ~uint64 | ~uint](n T) executor.Value {
	return executor.Number(n)
}

// Slots: what an executor keeps between scripts.
const (
	slotStaging   = executor.FirstSlot + iota // O_PATH
	slotOOM                                   // its own /proc/self/oom_score_adj
	slotIO                                    // its own /proc/self/io
	slotScratch                               // the file system of everything writable
	slotPlace                                 // a directory that a call names by /proc/self/fd
	slotWalk                                  // the directory that a walk has come to
	slotParked                                // the named pipe that a reader waits at
	slotKeeper                                // a pidfd
	slotDoor                                  // the listening socket at which the next connection arrives
	slotHeld                                  // what Bind has it hold beside that
	slotListeners = slotHeld + maxHeld        // and those above
	maxHeld       = 4
)

const maxListeners = executor.LastSlot - slotListeners

// drop empties a slot.
func drop(b *build.Builder, slot int) { b.Keep(num(0), slot) }

// world implements guestd.World.
type world struct {
	executor *executor.Client

	// Set by Begin and Bind, which guestd calls in order, or by Resume.
	begun     guest.Begin
	limits    map[int]uint64 // hard ones, at the beginning
	ahead     map[guest.Listen]int
	seal      guest.Seal
	oomOwn    string
	lasts     bool // without its connection
	listeners []guest.Listen

	walking sync.Mutex // guards slotWalk

	left chan struct{} // closed when the executor has gone, and the host's connection with it

	mu       sync.Mutex
	children map[int]*child          // nil once the executor has gone
	starting int                     // calls of Start
	early    map[int]unix.WaitStatus // of children that Start does not know yet
	copied   *copied                 // that Bind has made
}

// Serve returns the host's end of a connection to a guest whose executor is at the end of conn. When either ends, so
// does the other.
func Serve(conn *unixconn.Conn) guest.FDConn { return serve(conn, &world{}) }

// Resume is Serve for an executor that another host has bound, and which has outlived its connections.
func Resume(conn *unixconn.Conn, e guest.Executor) guest.FDConn {
	return serve(conn, &world{begun: guest.Begin{UID: e.UID, GID: e.GID}, lasts: true, listeners: e.Listeners,
		seal: guest.Seal{UserUID: e.UserUID, UserGID: e.UserGID, UserGroups: e.Groups, OpenFiles: e.OpenFiles}})
}

// Known describes a bound executor, for the Resume of another host.
func Known(begun guest.Begin, bound guest.Bind) guest.Executor {
	return guest.Executor{Version: executor.Version, UID: begun.UID, GID: begun.GID, UserUID: bound.Seal.UserUID,
		UserGID: bound.Seal.UserGID, Groups: bound.Seal.UserGroups, OpenFiles: bound.Seal.OpenFiles,
		Listeners: bound.Listeners}
}

func serve(conn *unixconn.Conn, w *world) guest.FDConn {
	bound := w.lasts
	w.children, w.early, w.left = map[int]*child{}, map[int]unix.WaitStatus{}, make(chan struct{})
	w.executor = executor.NewClient(conn, w.ended)
	host, inside := pipe()
	go func() {
		<-w.executor.Done()
		if err := w.executor.Err(); err != nil {
			inside.theirs.end(&guest.ProtocolError{Reason: err.Error()})
		}
		inside.Close()
		close(w.left)
		w.abandon()
	}()
	go func() {
		server := guestd.NewBeside(guestd.World{Wall: w, Spawner: w, Files: files{w}, Holder: w}, bound)
		server.Serve(inside)
		w.executor.Close()
		server.End()
	}()
	return host
}

// end is one end of a connection within this process, which carries descriptors.
type end struct {
	net.Conn
	mine, theirs *descriptors
}

type descriptors struct {
	mu     sync.Mutex
	files  []*os.File
	closed bool  // nothing takes them
	why    error // the connection ends, unless it just does
}

func (d *descriptors) end(why error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.why = why
}

func pipe() (a, b end) {
	x, y := net.Pipe()
	toA, toB := new(descriptors), new(descriptors)
	return end{x, toA, toB}, end{y, toB, toA}
}

// Read returns why the connection has ended, if that is known.
func (e end) Read(p []byte) (int, error) {
	n, err := e.Conn.Read(p)
	if errors.Is(err, io.EOF) {
		e.mine.mu.Lock()
		defer e.mine.mu.Unlock()
		err = cmp.Or(e.mine.why, err)
	}
	return n, err
}

// WriteFDs implements guest.FDConn.
func (e end) WriteFDs(p []byte, fds []int) error {
	var copies []*os.File
	for _, fd := range fds {
		copied, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
		if err != nil {
			guestd.CloseAll(copies)
			return os.NewSyscallError("fcntl", err)
		}
		copies = append(copies, os.NewFile(uintptr(copied), "received"))
	}
	e.theirs.mu.Lock()
	if e.theirs.closed {
		guestd.CloseAll(copies)
	} else {
		e.theirs.files = append(e.theirs.files, copies...)
	}
	e.theirs.mu.Unlock()
	_, err := e.Write(p)
	return err
}

// TakeFDs implements guest.FDConn.
func (e end) TakeFDs(n int) ([]*os.File, error) {
	e.mine.mu.Lock()
	defer e.mine.mu.Unlock()
	if n < 0 || n > len(e.mine.files) {
		return nil, os.ErrInvalid
	}
	taken := e.mine.files[:n:n]
	e.mine.files = e.mine.files[n:]
	return taken, nil
}

// Close closes this end, and what it was sent and has not taken.
func (e end) Close() error {
	err := e.Conn.Close()
	e.mine.mu.Lock()
	defer e.mine.mu.Unlock()
	guestd.CloseAll(e.mine.files)
	e.mine.files, e.mine.closed = nil, true
	return err
}
