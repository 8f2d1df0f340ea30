package gittest

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// Kill ends the server in the middle of whatever it does: every git that works for it gets SIGKILL, and connections
// break. What comes until Revive has no answer.
func (s *Server) Kill() {
	s.mu.Lock()
	s.dead = true
	s.mu.Unlock()
	for s.killGits(); s.busy(); s.killGits() { // what was about to be started
		s.http.CloseClientConnections()
		time.Sleep(time.Millisecond)
	}
	s.http.CloseClientConnections()
}

// Revive starts a server again that was killed.
func (s *Server) Revive() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dead = false
}

// begin notes that a request is served, unless the server is dead.
func (s *Server) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.dead {
		s.active++
	}
	return !s.dead
}

func (s *Server) finish() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.active--
}

func (s *Server) busy() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.active > 0
}

// killGits kills the processes that have the server's environment: it is theirs alone, and handed down.
func (s *Server) killGits() {
	mark := []byte("\x00GIT_PROJECT_ROOT=" + s.Root + "\x00")
	all, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		s.t.Error(err)
	}
	for _, file := range all {
		environ, err := os.ReadFile(file)
		if err != nil || !bytes.Contains(append([]byte{0}, environ...), mark) {
			continue // it has ended, or is somebody else's
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil {
			syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}
