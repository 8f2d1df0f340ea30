//go:build linux

package forkserver

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove/internal/linux/cgroup"
	"github.com/cove-sandbox/cove/internal/linux/unixconn"
)

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
