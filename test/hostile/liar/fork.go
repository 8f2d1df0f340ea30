//go:build linux

package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"io"
	"math"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove/internal/linux/forkserver"
	"github.com/cove-sandbox/cove/internal/linux/unixconn"
	"github.com/cove-sandbox/cove/test/hostile/lie"
)

// request is one to a fork server (package forkserver).
type request struct {
	ID      uint64           `json:"id,omitempty"`
	Spec    *forkserver.Spec `json:"spec,omitempty"`
	Dir     bool             `json:"dir,omitempty"`
	Tasks   int              `json:"tasks,omitempty"`
	Files   int              `json:"files,omitempty"`
	Collect int              `json:"collect,omitempty"`
}

// forks is a fork server whose executors lie.
func forks(host *unixconn.Conn) error {
	server, file, err := unixconn.Pair()
	if err != nil {
		return err
	}
	fd, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return err
	}
	conn, err := unixconn.New(fd)
	if err != nil {
		return err
	}
	go forkserver.Serve(conn, os.NewFile(programFD, "program"), "")
	go passAnswers(host, server)
	for requests := json.NewDecoder(host); ; {
		var r request
		if err := requests.Decode(&r); err != nil {
			return err
		}
		if err := pass(host, server, r); err != nil {
			return err
		}
	}
}

// passAnswers passes on what a fork server answers.
func passAnswers(host, server *unixconn.Conn) {
	for text := make([]byte, 4096); ; {
		n, err := server.Read(text)
		if err != nil {
			return
		}
		files, err := server.TakeFDs(server.Untaken())
		if err != nil {
			return
		}
		var fds []int
		for _, f := range files {
			fds = append(fds, int(f.Fd()))
		}
		host.WriteFDs(text[:n], fds)
		for _, f := range files {
			f.Close()
		}
	}
}

// pass passes a request on, with a connection of the liar's own for an executor.
func pass(host, server *unixconn.Conn, r request) error {
	n := r.Tasks + r.Files
	if r.Dir {
		n++
	}
	files, err := host.TakeFDs(n)
	if err != nil {
		return err
	}
	var fds []int
	for _, f := range files {
		defer f.Close()
		fds = append(fds, int(f.Fd()))
	}
	if r.Spec != nil {
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(pair[1])
		hosts, err := unix.FcntlInt(uintptr(fds[n-1]), unix.F_DUPFD_CLOEXEC, 3)
		if err != nil {
			return err
		}
		fds[n-1] = pair[1]
		go newRelay(hosts, pair[0]).run()
	}
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return server.WriteFDs(text, fds)
}

// relay stands between the host and an executor.
type relay struct {
	host, executor int

	saying sync.Mutex // guards what is written to the host

	mu      sync.Mutex
	scripts int             // that have been passed on
	answers int             // of them
	at      int             // the script whose answer is lied about; 0 is none
	files   bool            // or else the first answer with descriptors
	keeper  bool            // or else the one about a keeper
	lie     lie.Executor    // to tell then
	forged  map[uint32]bool // processes whose end has been told
	mute    bool
}

// newRelay has the order at the end of the file carried out from the beginning: executor=LIE for the first answer,
// descriptors=LIE for the first one with descriptors, keeper=LIE for that which says that a keeper has been started.
func newRelay(host, executor int) *relay {
	r := &relay{host: host, executor: executor, forged: map[uint32]bool{}}
	op, name, _ := strings.Cut(atEnd(), "=")
	if about, found := lie.FindExecutor(name); found {
		r.lie = about
		switch op {
		case "executor":
			r.at = 1
		case "descriptors":
			r.files = true
		case "keeper":
			r.keeper = true
		}
	}
	return r
}

func (r *relay) run() {
	var all sync.WaitGroup
	all.Go(func() {
		for r.script() {
		}
		r.Close()
	})
	all.Go(func() {
		for r.message() {
		}
		r.Close()
	})
	all.Wait()
	unix.Close(r.host)
	unix.Close(r.executor)
}

// script passes a script on.
func (r *relay) script() bool {
	head := make([]byte, 20)
	files, ok := receive(r.host, head)
	body := make([]byte, binary.NativeEndian.Uint32(head))
	if ok {
		_, ok = receive(r.host, body)
	}
	if !ok {
		return false
	}
	r.mu.Lock()
	r.scripts++
	if _, order, found := bytes.Cut(body, []byte("LIE=executor=")); found {
		name, _, _ := bytes.Cut(order, []byte{0})
		if about, known := lie.FindExecutor(string(name)); known {
			r.lie, r.at = about, r.scripts
		}
	}
	if r.keeper && bytes.Contains(body, []byte("\x00--keeper\x00")) {
		r.keeper, r.at = false, r.scripts
	}
	r.mu.Unlock()
	defer closeAll(files)
	return send(r.executor, append(head, body...), files)
}

// message passes a message on, or has a lie told in its place.
func (r *relay) message() bool {
	head := make([]byte, 16)
	files, ok := receive(r.executor, head)
	if !ok {
		return false
	}
	defer closeAll(files)
	number := func(i int) uint32 { return binary.NativeEndian.Uint32(head[4*i:]) }
	m := lie.Message{Kind: number(0), PID: number(1), Status: number(2), Size: number(3), Files: files}
	m.Data = make([]byte, m.Size)
	if _, ok := receive(r.executor, m.Data); !ok {
		return false
	}
	r.mu.Lock()
	tell := false
	if m.Kind == lie.Answer {
		r.answers++
		tell = r.at > 0 && r.answers == r.at || r.files && len(files) > 0
		if tell {
			r.at, r.files = 0, false
			r.forged[m.Started()] = r.lie.Want == lie.Fails // it was not started, and does not end
		}
	}
	quiet := r.mute || m.Kind == lie.Exit && r.forged[m.PID]
	about := r.lie
	r.mu.Unlock()
	switch {
	case tell:
		about.Say(r, m)
		r.mu.Lock()
		r.mute = about.Mute
		r.mu.Unlock()
	case !quiet:
		return r.tell(m) == nil
	}
	return true
}

// Tell implements lie.ExecutorMouth.
func (r *relay) Tell(m lie.Message) error {
	if m.Kind == lie.Exit {
		r.mu.Lock()
		r.forged[m.PID] = true
		r.mu.Unlock()
	}
	return r.tell(m)
}

func (r *relay) tell(m lie.Message) error {
	r.saying.Lock()
	defer r.saying.Unlock()
	if !send(r.host, append(m.Head(), m.Data...), m.Files) {
		return os.ErrClosed
	}
	return nil
}

// Write implements lie.ExecutorMouth.
func (r *relay) Write(p []byte) (int, error) {
	if !send(r.host, p, nil) {
		return 0, os.ErrClosed
	}
	return len(p), nil
}

// Close ends both connections.
func (r *relay) Close() error {
	unix.Shutdown(r.host, unix.SHUT_RDWR)
	return unix.Shutdown(r.executor, unix.SHUT_RDWR)
}

// receive fills a buffer, and returns the descriptors that come with it.
func receive(fd int, p []byte) (files []int, ok bool) {
	oob := make([]byte, unix.CmsgSpace(4*256))
	for len(p) > 0 {
		n, oobn, _, _, err := unix.Recvmsg(fd, p, oob, unix.MSG_CMSG_CLOEXEC)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n == 0 {
			closeAll(files)
			return nil, false
		}
		p = p[n:]
		messages, _ := unix.ParseSocketControlMessage(oob[:oobn])
		for _, m := range messages {
			came, _ := unix.ParseUnixRights(&m)
			files = append(files, came...)
		}
	}
	return files, true
}

// send sends all of it, the descriptors with the first byte.
func send(fd int, p []byte, files []int) bool {
	var oob []byte
	if len(files) > 0 {
		oob = unix.UnixRights(files...)
	}
	for len(p) > 0 {
		n, err := unix.SendmsgN(fd, p, oob, nil, unix.MSG_NOSIGNAL)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return false
		}
		p, oob = p[n:], nil
	}
	return true
}

func closeAll(files []int) {
	for _, fd := range files {
		unix.Close(fd)
	}
}

// serveForks is the mode "--fork".
func serveForks() {
	unix.CloseRange(socketFD+1, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC)
	host, err := unixconn.New(socketFD)
	if err == nil {
		err = forks(host)
	}
	if err != nil && err != io.EOF {
		os.Stderr.WriteString("liar: the fork server: " + err.Error() + "\n")
		os.Exit(125)
	}
}
