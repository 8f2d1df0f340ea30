//go:build linux

package forkserver

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove/internal/linux/cgroup"
	"github.com/cove-sandbox/cove/internal/linux/unixconn"
)

// request asks a fork server for a process, or, with Collect, to let go of one that has ended. With Spec come
// descriptors: the door's, then Files files.
type request struct {
	ID      uint64 `json:"id,omitempty"`
	Spec    *Spec  `json:"spec,omitempty"`
	Dir     bool   `json:"dir,omitempty"` // the door is a directory
	Tasks   int    `json:"tasks,omitempty"`
	Files   int    `json:"files,omitempty"`
	Collect int    `json:"collect,omitempty"`
}

// answer is that to a request with a Spec. The first one, to none, says that the fork server is ready, or why it is not;
// with it comes the descriptor of the program that it runs.
type answer struct {
	ID    uint64        `json:"id"`
	PID   int           `json:"pid,omitempty"`
	Op    Op            `json:"op,omitempty"` // that failed
	Errno syscall.Errno `json:"errno,omitempty"`
	Text  string        `json:"text,omitempty"`
}

// refusal is the answer to a request that has failed.
func refusal(id uint64, e *Error) answer { return answer{id, 0, e.Op, e.Errno, e.Unwrap().Error()} }

// err returns what has failed; nil if nothing has.
func (a answer) err() error {
	if a.Op == "" {
		return nil
	}
	return &Error{Op: a.Op, Errno: a.Errno, Cause: errors.New(a.Text)}
}

// server forks executors.
type server struct {
	conn    *unixconn.Conn
	lean    *lean
	writing sync.Mutex

	mu       sync.Mutex
	children map[int]Process // until they are collected; guarded by mu
}

// Serve is a fork server, of a program that its client is given: it forks executors from the process that calls it,
// until the connection ends. Those in a new mount namespace get the mounts of this process; without is a directory that
// they do without if it is a mount, and without what is mounted below, or "".
func Serve(conn *unixconn.Conn, program *os.File, without string) error {
	s := &server{conn: conn, lean: newLean(without), children: map[int]Process{}}
	err := s.answer(answer{}, program)
	program.Close() // no executor has it
	if err != nil {
		return err
	}
	for requests := json.NewDecoder(s.conn); ; {
		var r request
		err := requests.Decode(&r)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = s.request(r)
		}
		if err != nil {
			return err
		}
	}
}

func (s *server) request(r request) error {
	if r.Spec == nil {
		s.collect(r.Collect)
		return nil
	}
	first := r.Tasks
	if r.Dir {
		first++
	}
	fds, err := s.conn.TakeFDs(first + r.Files)
	if err != nil {
		return err
	}
	door := cgroup.Door{Tasks: fds[:first]}
	if r.Dir {
		door = cgroup.Door{Dir: fds[0], Tasks: fds[1:first]}
	}
	go func() {
		defer door.Close()
		s.answer(s.start(r, door, fds[first:]))
	}()
	return nil
}

func (s *server) start(r request, door cgroup.Door, files []*os.File) answer {
	var mounts *os.File
	if r.Spec.Namespaces&unix.CLONE_NEWNS != 0 {
		mounts = s.lean.open()
	}
	p, err := spawn(*r.Spec, door, files, mounts)
	if mounts != nil {
		files = append(files, mounts)
	}
	for _, f := range files {
		f.Close()
	}
	if failure, ok := errors.AsType[*Error](err); ok {
		return refusal(r.ID, failure)
	}
	s.mu.Lock()
	s.children[p.PID()] = p
	s.mu.Unlock()
	return answer{ID: r.ID, PID: p.PID()}
}

// answer writes an answer, with files. A connection that takes none has ended, which Serve sees.
func (s *server) answer(a answer, files ...*os.File) error {
	text, err := json.Marshal(a)
	if err != nil {
		return err
	}
	var fds []int
	for _, f := range files {
		fds = append(fds, int(f.Fd()))
	}
	s.writing.Lock()
	defer s.writing.Unlock()
	return s.conn.WriteFDs(text, fds)
}

// collect lets go of the id of a process that has ended.
func (s *server) collect(pid int) {
	s.mu.Lock()
	p := s.children[pid]
	delete(s.children, pid)
	s.mu.Unlock()
	if p != nil {
		go p.Wait()
	}
}
