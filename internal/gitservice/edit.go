//go:build linux

package gitservice

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"net"
	"strconv"
	"sync"
	"time"

	"golang.org/x/net/netutil"

	"github.com/cove-sandbox/cove/internal/gitservice/internal/wire"
)

// editAddress leads the editor of a companion's git to Cove.
var editAddress = "127.0.0.1:" + strconv.Itoa(wire.EditPort)

// askPatience is how long an editor may take to say what it is for.
const askPatience = 10 * time.Second

type editFunc = func(ctx context.Context, name string, text []byte) ([]byte, error)

// editing is a command that may ask for a text.
type editing struct {
	ctx  context.Context
	edit editFunc
}

// edits holds the running edits, by their tokens.
type edits struct {
	mu      sync.Mutex
	waiting map[string]*editing
}

// expect makes a token for a command.
func (e *edits) expect(ctx context.Context, edit editFunc) (token string, done func()) {
	token = rand.Text()
	ctx, cancel := context.WithCancel(ctx)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.waiting[token] = &editing{ctx, edit}
	return token, func() {
		cancel()
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.waiting, token)
	}
}

// maxEditors is how many editors of a companion are listened to at a time.
const maxEditors = 32

// serve answers the editors of a companion until its listener is closed, and waits for those that it answers.
func (e *edits) serve(ln net.Listener) {
	var answering sync.WaitGroup
	defer answering.Wait()
	ln = netutil.LimitListener(ln, maxEditors)
	for {
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		answering.Go(func() { e.answer(conn) })
	}
}

// answer has one text edited by the caller of the command.
func (e *edits) answer(conn net.Conn) {
	defer conn.Close()
	conn.SetReadDeadline(time.Now().Add(askPatience))
	kind, payload, err := wire.ReadFrame(conn)
	var asked wire.Edit
	if err != nil || kind != wire.FrameEdit || json.Unmarshal(payload, &asked) != nil {
		return
	}
	e.mu.Lock()
	w := e.waiting[asked.ID]
	e.mu.Unlock()
	if w == nil {
		return
	}
	text, err := w.edit(w.ctx, asked.Name, asked.Text)
	wire.WriteJSON(conn, wire.FrameEdit, wire.Edited{ID: asked.ID, OK: err == nil, Text: text})
}
