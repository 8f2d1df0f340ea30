//go:build linux

package forkserver

import (
	"errors"
	"syscall"
)

// Modes of the program of a fork server.
const (
	modeServe = "--fork" // forks executors
	modeCopy  = "--copy" // executes a copy of itself in the other mode
)

// Descriptors of the modes: the connection, and the program itself.
const (
	socketFD  = 3
	programFD = 4
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

// answer is that to a request with a Spec. The first one, to none, says that the fork server is ready, or why it is
// not. With it comes the descriptor of the program that it runs.
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
