//go:build linux

package forkserver

import (
	"encoding/json"
	"errors"
	"io"
	"os"
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

// server forks executors, one after another, from one thread.
type server struct {
	conn     *unixconn.Conn
	lean     *lean
	children map[int]*os.Process // until they are collected
}

// Serve is a fork server, of a program that its client is given: it forks executors from the process that calls it,
// until the connection ends. Those in a new mount namespace get the mounts of this process; without is a directory that
// they do without if it is a mount, and without what is mounted below, or "".
func Serve(conn *unixconn.Conn, program *os.File, without string) error {
	s := &server{conn: conn, lean: newLean(without), children: map[int]*os.Process{}}
	err := s.answer(answer{}, program)
	program.Close() // no executor has it
	if err != nil {
		return err
	}
	ended := make(chan error)
	go OnOwnThread(func() { ended <- s.run() })
	return <-ended
}

func (s *server) run() error {
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
	defer func() {
		for _, f := range fds {
			f.Close()
		}
	}()
	door := cgroup.Door{Tasks: fds[:first]}
	if r.Dir {
		door = cgroup.Door{Dir: fds[0], Tasks: fds[1:first]}
	}
	return s.start(r, door, fds[first:])
}

// start forks an executor. The error is one after which this thread is of no use.
func (s *server) start(r request, door cgroup.Door, files []*os.File) (err error) {
	if r.Spec.Namespaces&unix.CLONE_NEWNS != 0 && s.lean.enter() {
		defer func() { err = errors.Join(err, s.lean.leave()) }()
	}
	p, failure, lost := fork(*r.Spec, door, files)
	if failure != nil {
		s.answer(refusal(r.ID, failure))
		return lost
	}
	s.children[p.Pid] = p
	s.answer(answer{ID: r.ID, PID: p.Pid})
	return lost
}

// answer writes an answer, with files. A connection that takes none has ended, which run sees.
func (s *server) answer(a answer, files ...*os.File) error {
	text, err := json.Marshal(a)
	if err != nil {
		return err
	}
	var fds []int
	for _, f := range files {
		fds = append(fds, int(f.Fd()))
	}
	return s.conn.WriteFDs(text, fds)
}

// collect lets go of the id of a process that has ended.
func (s *server) collect(pid int) {
	if p := s.children[pid]; p != nil {
		delete(s.children, pid)
		go p.Wait()
	}
}
