//go:build linux

// Command liar is a cove-guest that lies to its host, once a program that it is to start has the variable LIE. Until
// then it is the guest.
package main

import (
	"bytes"
	"encoding/binary"
	"math"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/guest/pid1"
	"github.com/cove-sandbox/cove/internal/linux/unixconn"
)

// Descriptors at which the native engine puts the guest's end of the socket, and the program that it has started.
const (
	socketFD  = 3
	programFD = 4
)

func main() {
	runtime.LockOSThread() // the main thread still: see package pid1
	unix.Close(programFD)
	signal.Notify(make(chan os.Signal, 1))
	unix.CloseRange(socketFD+1, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC)
	conn, err := unixconn.New(socketFD)
	if err != nil {
		os.Exit(125)
	}
	pid1.Run(&liar{FDConn: conn}, false)
}

// liar is the guest's end of a connection, on which lies are told.
type liar struct {
	guest.FDConn
	mu  sync.Mutex
	lie string // empty: not yet
	id  uint32 // of the program
}

// Read takes what the host says, and notices the order to lie.
func (l *liar) Read(p []byte) (int, error) {
	n, err := l.FDConn.Read(p)
	if _, after, found := bytes.Cut(p[:n], []byte(`"LIE=`)); found && bytes.Contains(p[:n], []byte(`"op":"start"`)) {
		lie, _, _ := bytes.Cut(after, []byte(`"`))
		l.mu.Lock()
		l.lie = string(lie)
		if l.id = 1; n >= 9 {
			l.id = binary.BigEndian.Uint32(p[5:9])
		}
		l.mu.Unlock()
		go l.tell(l.lie)
	}
	return n, err
}

// Write passes on what the guest says, unless the lie is to say nothing.
func (l *liar) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch l.lie {
	case "", "flood", "gap", "hello", "stranger", "another exit", "descriptors", "acknowledgement":
		return l.FDConn.Write(p)
	}
	return len(p), nil
}

// tell tells a lie.
func (l *liar) tell(lie string) {
	send := func(f guest.Frame) error {
		b, err := guest.AppendFrame(nil, f)
		if err == nil {
			_, err = l.FDConn.Write(b)
		}
		return err
	}
	time.Sleep(20 * time.Millisecond) // the truth about the start comes first, where the lie lets it through
	far := guest.Chunk{Offset: 1 << 40, Data: []byte("x")}
	switch lie {
	case "silence":
	case "death":
		os.Exit(0)
	case "half a frame":
		l.FDConn.Write([]byte{0, 0, 3})
	case "four gigabytes":
		l.FDConn.Write([]byte{255, 255, 255, 255, byte(guest.FrameReply), 0, 0, 0, 1})
	case "garbage":
		l.FDConn.Write([]byte(strings.Repeat("\xffgarbage", 1000)))
	case "flood":
		c := guest.Chunk{Data: make([]byte, guest.MaxChunk)}
		for send(guest.Frame{Type: guest.FrameStdout, ID: l.id, Payload: c.Payload()}) == nil {
			c.Offset += guest.MaxChunk
		}
	case "gap":
		send(guest.Frame{Type: guest.FrameStdout, ID: l.id, Payload: far.Payload()})
	case "acknowledgement":
		send(guest.Frame{Type: guest.FrameAck, ID: l.id, Payload: guest.Ack{Stream: guest.Stdin, Offset: 1 << 60}.Payload()})
	case "hello":
		send(guest.Frame{Type: guest.FrameHello, Payload: []byte(`{"version":1}`)})
	case "stranger":
		send(guest.Frame{Type: guest.FrameReply, ID: 123456, Payload: guest.Body{JSON: []byte("{}")}.Payload()})
	case "another exit":
		for range 2 {
			send(guest.Frame{Type: guest.FrameExit, ID: l.id, Payload: []byte(`{"code":-7,"stats":{"disk_used":-1}}`)})
		}
	case "long failure":
		send(guest.Frame{Type: guest.FrameFailure, ID: l.id,
			Payload: []byte(`{"kind":"other","message":"` + strings.Repeat("x", 900<<10) + `"}`)})
	case "no JSON":
		send(guest.Frame{Type: guest.FrameReply, ID: l.id, Payload: guest.Body{JSON: []byte("{{{")}.Payload()})
	case "descriptors":
		f, _ := guest.AppendFrame(nil, guest.Frame{Type: guest.FrameAck, ID: l.id, Payload: guest.Ack{}.Payload()})
		for l.FDConn.WriteFDs(f, []int{0, 1, 2, 0, 1, 2, 0, 1, 2}) == nil {
		}
	}
}
