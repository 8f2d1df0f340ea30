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

// answer is that to a request with a Spec. The first one, to none, says that the fork server is ready.
type answer struct {
	ID    uint64        `json:"id"`
	PID   int           `json:"pid,omitempty"`
	Op    Op            `json:"op,omitempty"` // that failed
	Errno syscall.Errno `json:"errno,omitempty"`
	Text  string        `json:"text,omitempty"`
}

// server forks executors.
type server struct {
	conn    *unixconn.Conn
	lean    *lean
	writing sync.Mutex

	mu       sync.Mutex
	children map[int]Process // until they are collected; guarded by mu
}

// Serve is a fork server: it forks executors from the process that calls it, until the connection ends. Those in a new
// mount namespace get the mounts of this process; without is a directory that they do without if it is a mount, and
// without what is mounted below, or "".
func Serve(conn *unixconn.Conn, without string) error {
	s := &server{conn: conn, lean: newLean(without), children: map[int]Process{}}
	s.answer(answer{})
	for requests := json.NewDecoder(conn); ; {
		var r request
		err := requests.Decode(&r)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = s.serve(r)
		}
		if err != nil {
			return err
		}
	}
}

func (s *server) serve(r request) error {
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
		return answer{ID: r.ID, Op: failure.Op, Errno: failure.Errno, Text: failure.Unwrap().Error()}
	}
	s.mu.Lock()
	s.children[p.PID()] = p
	s.mu.Unlock()
	return answer{ID: r.ID, PID: p.PID()}
}

// answer writes an answer. A connection that takes none has ended, which Serve sees.
func (s *server) answer(a answer) {
	s.writing.Lock()
	defer s.writing.Unlock()
	json.NewEncoder(s.conn).Encode(a)
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
