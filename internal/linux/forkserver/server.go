//go:build linux

package forkserver

import (
	"encoding/json"
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove/internal/linux/cgroup"
	"github.com/cove-sandbox/cove/internal/linux/unixconn"
)

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
