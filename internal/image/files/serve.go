package files

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove/internal/linux/unixconn"
)

// served are the operations of the process apart, by their names.
var served = map[string]func(context.Context, question, []*os.File) (any, *os.File, error){
	clone.name: clone.serve, flatten.name: flatten.serve, link.name: link.serve, take.name: take.serve,
	discard.name: discard.serve, seal.name: seal.serve, clamp.name: clamp.serve, diffID.name: diffID.serve,
	content.name: content.serve, makeDirectory.name: makeDirectory.serve, find.name: find.serve,
	resolve.name: resolve.serve, measure.name: measure.serve, whole.name: whole.serve,
	remove.name: remove.serve,
	give.name:   give.serve, copyInto.name: copyInto.serve, writing.name: writing.serve,
	openPlace.name: openPlace.serve,
}

// Serve is the process apart. It does not return before the program that it serves has ended, or needs it no more.
func Serve() {
	syscall.AllThreadsSyscall(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0)
	door, err := unixconn.New(3)
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s is for Cove itself\n", Command)
		os.Exit(2)
	}
	for one := make([]byte, 1); ; {
		if n, err := door.Read(one); err != nil || n == 0 {
			return
		}
		fds, err := door.TakeFDs(1)
		if err != nil {
			return
		}
		fd, err := unix.Dup(int(fds[0].Fd()))
		fds[0].Close()
		if err != nil {
			return
		}
		conn, err := unixconn.New(fd)
		if err != nil {
			return
		}
		go attend(conn)
	}
}

// attend answers the question of a conversation.
func attend(conn *unixconn.Conn) {
	defer conn.Close()
	c := &conversation{conn: conn, in: json.NewDecoder(conn)}
	var q question
	if c.receive(&q) != nil {
		return
	}
	files, err := conn.TakeFDs(q.Files)
	if err != nil {
		return
	}
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	steps := make(chan step)
	go func() {
		defer cancel() // the other one has said it, or is gone
		defer close(steps)
		for {
			var s step
			if c.receive(&s) != nil || s.Cancel {
				return
			}
			select {
			case steps <- s:
			case <-ctx.Done():
				return
			}
		}
	}()
	var a answer
	var result any
	var gives []*os.File
	if q.Name == unpacking {
		result, err = c.fill(ctx, q, files, steps)
	} else if run, ok := served[q.Name]; ok {
		var give *os.File
		if result, give, err = run(ctx, q, files); give != nil {
			defer give.Close()
			gives = append(gives, give)
		}
	} else {
		err = fmt.Errorf("there is no operation %.40q", q.Name)
	}
	if err == nil {
		a.Result, err = json.Marshal(result)
	}
	a.Failed = failed(err)
	_ = c.send(a, gives...) // or the other one is gone
}
