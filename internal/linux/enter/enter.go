//go:build linux

// Package enter does jobs in the namespaces of another process. Root does them by itself. For another user, the process
// is in a user namespace below one that this user has made, and a program does them that has entered that namespace, as
// only a process with one thread can.
package enter

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/linux/mounts"
	"github.com/cove-sandbox/cove/internal/linux/netjoin"
	"github.com/cove-sandbox/cove/internal/linux/netsetup"
	"github.com/cove-sandbox/cove/internal/linux/unixconn"
)

// Flag has the program do a job, which it reads from a unix socket on its standard input.
const Flag = "--enter"

// Job holds changes and questions, which are done in the order of the fields. None is made of a zero field.
type Job struct {
	PID        int               // of the process
	Groups     []string          // directories of control groups of version 1, which take the process
	Environ    bool              // read the environment that the process began with
	Sysctls    map[string]string // settings of the user namespace, by their paths below /proc/sys
	Attributes map[string]uint64 // to set of mounts, by their points (mounts.Harden)
	Changes    []mounts.Change
	Take       *Take
	Socket     bool // make a TCP socket in the network
}

// Take makes sockets the only way out of a network (netjoin.Take).
type Take struct {
	Messages netsetup.Messages
	Sockets  []netjoin.Socket
}

// Done has the results of a job.
type Done struct {
	Environ []byte // KEY=VALUE, each with a zero byte behind it
	Sockets []*os.File
}

// Ask has the program at the other end of a connection do a job. Errors: those of Do.
func Ask(conn *unixconn.Conn, j Job) (Done, error) {
	if err := json.NewEncoder(conn).Encode(j); err != nil {
		return Done{}, err
	}
	var a answer
	if err := json.NewDecoder(conn).Decode(&a); err != nil {
		return Done{}, err
	}
	if a.Message != "" {
		return Done{}, a.err()
	}
	sockets, err := conn.TakeFDs(a.Sockets)
	return Done{a.Environ, sockets}, err
}

// answer comes from the program at the end of a job, with the sockets beside it.
type answer struct {
	Environ []byte    `json:",omitempty"`
	Sockets int       `json:",omitempty"` // how many
	Code    cove.Code `json:",omitempty"`
	Message string    `json:",omitempty"`
	Hint    string    `json:",omitempty"`
}

func (a answer) err() error {
	if a.Code == cove.Internal { // of no kind
		return errors.New(a.Message)
	}
	return &cove.Error{Code: a.Code, Message: a.Message, Hint: a.Hint}
}

// Serve does the job that comes over a connection, and answers.
func Serve(conn *unixconn.Conn) error {
	var j Job
	if err := json.NewDecoder(conn).Decode(&j); err != nil {
		return err
	}
	done, err := j.Do()
	a := answer{Environ: done.Environ, Sockets: len(done.Sockets)}
	if err != nil {
		a = answer{Code: cove.ErrorCode(err), Message: err.Error()}
		if e, ok := errors.AsType[*cove.Error](err); ok && a.Message == e.Error() {
			a.Message, a.Hint = e.Message, e.Hint
		}
	}
	text, err := json.Marshal(a)
	if err != nil {
		return err
	}
	if len(done.Sockets) == 0 {
		_, err = conn.Write(text)
		return err
	}
	fds := make([]int, len(done.Sockets))
	for i, f := range done.Sockets {
		fds[i] = int(f.Fd())
	}
	return conn.WriteFDs(text, fds)
}

// Do does a job. Errors: those of packages mounts and netjoin.
func (j Job) Do() (done Done, err error) {
	for _, dir := range j.Groups {
		if err := set(filepath.Join(dir, "cgroup.procs"), strconv.Itoa(j.PID)); err != nil {
			return done, err
		}
	}
	if j.Environ {
		f, err := os.Open(fmt.Sprintf("/proc/%d/environ", j.PID))
		if err != nil {
			return done, err
		}
		defer f.Close()
		if done.Environ, err = io.ReadAll(f); err != nil {
			return done, err
		}
	}
	for name, value := range j.Sysctls {
		if err := set("/proc/sys/"+name, value); err != nil {
			return done, err
		}
	}
	if len(j.Attributes) > 0 {
		if err := mounts.Harden(j.PID, func(point string) uint64 { return j.Attributes[point] }); err != nil {
			return done, err
		}
	}
	if len(j.Changes) > 0 {
		if err := mounts.Reconfigure(j.PID, j.Changes...); err != nil {
			return done, err
		}
	}
	if j.Take != nil {
		if done.Sockets, err = netjoin.Take(j.PID, j.Take.Messages, j.Take.Sockets); err != nil {
			return done, err
		}
	}
	if !j.Socket {
		return done, nil
	}
	network, err := netjoin.Open(j.PID)
	if err != nil {
		return done, err
	}
	defer network.Close()
	f, err := netjoin.TCPSocket(network)
	if err == nil {
		done.Sockets = append(done.Sockets, f)
	}
	return done, err
}

// set writes a value to a file of the kernel's.
func set(name, value string) error {
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}
