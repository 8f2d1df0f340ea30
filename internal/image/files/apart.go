package files

import (
	"encoding/json"
	"os"
	"sync"
	"time"

	"github.com/cove-sandbox/cove/internal/engine/local"
	"github.com/cove-sandbox/cove/internal/linux/unixconn"
)

// Command is the argument with which a program is the process apart: it calls Serve then.
const Command = "image-files"

// idle is how long the process apart stays without anything to do.
const idle = 10 * time.Second

// New returns the work on files for a user with some ids. program is this program, which calls Serve where its argument
// is Command.
func New(ids local.IDs, program string) *Files {
	m, ok := ids.Apart()
	if !ok {
		return nil
	}
	return &Files{&apart{ids: m, program: program}}
}

// apart starts the process apart when there is something to do.
type apart struct {
	ids     local.IDMap
	program string

	mu    sync.Mutex
	conn  *unixconn.Conn // to the process; nil: there is none
	using int            // conversations
	rest  *time.Timer    // that ends the process
}

// begin begins an operation; the caller ends the conversation.
func (r *apart) begin(name string, args any, files ...*os.File) (*conversation, error) {
	ours, theirs, err := unixconn.Pair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	if err := r.hand(theirs); err != nil {
		ours.Close()
		return nil, err
	}
	c := &conversation{apart: r, conn: ours, in: json.NewDecoder(ours)}
	if err := c.ask(name, args, files); err != nil {
		c.end()
		return nil, err
	}
	return c, nil
}

// hand gives the process one end of a conversation, and starts the process if there is none.
func (r *apart) hand(theirs *os.File) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.rest != nil {
		r.rest.Stop()
	}
	if r.conn == nil || r.conn.WriteFDs([]byte{0}, []int{int(theirs.Fd())}) != nil {
		if r.conn != nil { // it has ended
			r.conn.Close()
		}
		var err error
		if r.conn, err = r.start(); err != nil {
			return err
		}
		if err := r.conn.WriteFDs([]byte{0}, []int{int(theirs.Fd())}); err != nil {
			return lost(err)
		}
	}
	r.using++
	return nil
}

// release ends a conversation. After the last one the process may rest.
func (r *apart) release() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.using--; r.using == 0 {
		r.rest = time.AfterFunc(idle, r.stop)
	}
}

func (r *apart) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.using == 0 && r.conn != nil {
		r.conn.Close()
		r.conn = nil
	}
}

// start starts the process, which ends when its connection does.
func (r *apart) start() (*unixconn.Conn, error) {
	ours, theirs, err := unixconn.Pair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	if err := r.ids.Start(r.program, Command, theirs); err != nil {
		ours.Close()
		return nil, err
	}
	return ours, nil
}
