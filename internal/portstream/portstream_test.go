package portstream

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/coder/websocket"
)

// carried is one end of a WebSocket whose other end Carry joins with a TCP connection; inside is that connection's
// other end, and ended receives Carry's error.
func carried(t *testing.T) (ws *websocket.Conn, inside *net.TCPConn, ended <-chan error) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	to, err := net.Dial("tcp", ln.Addr().String()) // done before anything closes the other end
	if err != nil {
		t.Fatal(err)
	}
	c, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	result := make(chan error, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		accepted, err := websocket.Accept(w, r, nil)
		if err == nil {
			err = Carry(context.Background(), accepted, to)
		}
		result <- err
	}))
	t.Cleanup(server.Close)
	ws, _, err = websocket.Dial(t.Context(), server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ws.CloseNow() })
	return ws, c.(*net.TCPConn), result
}

const end = `{"type":"end"}`

// TestEachDirectionEnds: the end of one direction leaves the other open, whichever ends first.
func TestEachDirectionEnds(t *testing.T) {
	for _, first := range []string{"outside", "inside"} {
		ws, inside, ended := carried(t)
		outsideEnds := func() {
			ws.Write(t.Context(), websocket.MessageBinary, []byte("question"))
			ws.Write(t.Context(), websocket.MessageText, []byte(`{"type":"later"}`)) // which is left alone
			ws.Write(t.Context(), websocket.MessageText, []byte(end))
			if got, err := io.ReadAll(inside); string(got) != "question" || err != nil {
				t.Errorf("%s first: inside %q, %v", first, got, err)
			}
		}
		insideEnds := func() {
			inside.Write([]byte("answer"))
			inside.CloseWrite()
			text := ""
			for kind := websocket.MessageBinary; kind != websocket.MessageText; {
				var p []byte
				var err error
				if kind, p, err = ws.Read(t.Context()); err != nil {
					t.Fatal(err)
				}
				text += string(p)
			}
			if text != "answer"+end {
				t.Errorf("%s first: outside %q", first, text)
			}
		}
		if first == "outside" {
			outsideEnds()
			insideEnds()
		} else {
			insideEnds()
			outsideEnds()
		}
		if _, _, err := ws.Read(t.Context()); websocket.CloseStatus(err) != websocket.StatusNormalClosure {
			t.Errorf("%s first: %v", first, err)
		}
		if err := <-ended; err != nil {
			t.Errorf("%s first: %v", first, err)
		}
	}
}

// TestOneSideGone: where one side goes or sends what is no message, the other's connection is closed, also when its
// direction has ended before.
func TestOneSideGone(t *testing.T) {
	for name, goes := range map[string]func(*websocket.Conn, *net.TCPConn){
		"outside": func(ws *websocket.Conn, _ *net.TCPConn) { ws.CloseNow() },
		"outside, after its end": func(ws *websocket.Conn, inside *net.TCPConn) {
			ws.Write(t.Context(), websocket.MessageText, []byte(end))
			io.ReadAll(inside)
			ws.CloseNow()
		},
		"outside, with a message that is too long": func(ws *websocket.Conn, _ *net.TCPConn) {
			go ws.Write(t.Context(), websocket.MessageBinary, make([]byte, 4*MaxMessage))
		},
		"outside, with no message": func(ws *websocket.Conn, _ *net.TCPConn) {
			ws.Write(t.Context(), websocket.MessageText, []byte(strings.Repeat("[", 100)))
		},
		"inside": func(_ *websocket.Conn, inside *net.TCPConn) { inside.SetLinger(0); inside.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			ws, inside, ended := carried(t)
			goes(ws, inside)
			if err := <-ended; err == nil {
				t.Error("no error")
			}
			if name == "inside" {
				if _, _, err := ws.Read(t.Context()); err == nil {
					t.Error("the WebSocket stays open")
				}
				return
			}
			if _, err := io.Copy(io.Discard, inside); err != nil && !strings.Contains(err.Error(), "reset") {
				t.Error(err)
			}
		})
	}
}
