// Package portstream carries a TCP connection over a WebSocket, each direction with an end of its own: binary messages
// are what a side sends, and the text message {"type":"end"} says that no more comes from it.
package portstream

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"sync"

	"github.com/coder/websocket"

	"github.com/cove-sandbox/cove/api"
)

// MaxMessage is the longest message, in bytes.
const MaxMessage = 64 << 10

// Carry moves what both sides send until both have ended, one has gone, or ctx ends, and closes both. Its error is why
// it ended before both had.
func Carry(ctx context.Context, ws *websocket.Conn, c net.Conn) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer ws.CloseNow()
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })() // Read of c would wait on
	ws.SetReadLimit(MaxMessage)
	heard := make(chan struct{}) // closed when the other side's end has come
	var failure error
	var reading sync.WaitGroup
	reading.Go(func() {
		defer cancel()
		if failure = receive(ctx, c, ws); failure == nil {
			close(heard)
			discard(ctx, ws)
		}
	})
	err := send(ctx, ws, c)
	if err == nil {
		select {
		case <-heard:
			ws.Close(websocket.StatusNormalClosure, "")
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	cancel()
	reading.Wait()
	return errors.Join(failure, err)
}

// send sends what c reads, and its end.
func send(ctx context.Context, ws *websocket.Conn, c net.Conn) error {
	p := make([]byte, MaxMessage)
	for {
		n, err := c.Read(p)
		if n > 0 {
			if err := ws.Write(ctx, websocket.MessageBinary, p[:n]); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			end, err := json.Marshal(api.PortMessage{Type: api.PortEnd})
			if err != nil {
				return err
			}
			return ws.Write(ctx, websocket.MessageText, end)
		}
		if err != nil {
			return err
		}
	}
}

// receive writes what comes to c, until its end.
func receive(ctx context.Context, c net.Conn, ws *websocket.Conn) error {
	for {
		kind, p, err := ws.Read(ctx)
		if err != nil {
			return err
		}
		if kind == websocket.MessageBinary {
			if _, err := c.Write(p); err != nil {
				return err
			}
			continue
		}
		var m api.PortMessage
		if err := json.Unmarshal(p, &m); err != nil {
			return err
		}
		if m.Type != api.PortEnd { // of a later version
			continue
		}
		if half, ok := c.(interface{ CloseWrite() error }); ok {
			half.CloseWrite() // an error means that the peer has gone, which Read of c tells, too
		}
		return nil
	}
}

// discard reads until the other side closes the WebSocket or has gone.
func discard(ctx context.Context, ws *websocket.Conn) {
	for {
		if _, _, err := ws.Read(ctx); err != nil {
			return
		}
	}
}
