package guest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cove-sandbox/cove/internal/guest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// liar starts a hostile guest: it sends hello, reads the host's frames and answers the first request with the frames of
// say.
func liar(t *testing.T, hello string, say func(id uint32) []guest.Frame) (*guest.Client, error) {
	t.Helper()
	host, inside := net.Pipe()
	t.Cleanup(func() { inside.Close() })
	send := func(f guest.Frame) {
		b, _ := guest.AppendFrame(nil, f)
		inside.Write(b)
	}
	done := make(chan struct{})
	t.Cleanup(func() { inside.Close(); <-done })
	go func() {
		defer close(done)
		send(guest.Frame{Type: guest.FrameHello, Payload: []byte(hello)})
		answered := false
		for {
			f, err := guest.ReadFrame(inside)
			if err != nil {
				return
			}
			if f.Type == guest.FrameRequest && !answered && say != nil {
				answered = true
				for _, out := range say(f.ID) {
					send(out)
				}
			}
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	return guest.NewClient(ctx, host)
}

const hello = `{"version":1}`

func reply(id uint32, v any) guest.Frame {
	j, _ := json.Marshal(v)
	return guest.Frame{Type: guest.FrameReply, ID: id, Payload: guest.Body{JSON: j}.Payload()}
}

func TestBadHello(t *testing.T) {
	for name, text := range map[string]string{"another version": `{"version":99}`, "not JSON": "{", "empty": ""} {
		t.Run(name, func(t *testing.T) {
			if c, err := liar(t, text, nil); err == nil {
				c.Close()
				t.Error("it was believed")
			}
		})
	}
}

func TestSilentGuest(t *testing.T) {
	host, inside := net.Pipe()
	defer inside.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := guest.NewClient(ctx, host); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

// TestHostileGuest: each lie ends the connection, and nothing hangs or grows.
func TestHostileGuest(t *testing.T) {
	out := func(id uint32, offset uint64, n int) guest.Frame {
		return guest.Frame{Type: guest.FrameStdout, ID: id,
			Payload: guest.Chunk{Offset: offset, Data: make([]byte, n)}.Payload()}
	}
	tests := map[string]func(id uint32) []guest.Frame{
		"answer to nobody": func(id uint32) []guest.Frame { return []guest.Frame{reply(id+1000, guest.Started{})} },
		"output of nobody": func(id uint32) []guest.Frame { return []guest.Frame{out(id+1000, 0, 1)} },
		"a second hello": func(uint32) []guest.Frame {
			return []guest.Frame{{Type: guest.FrameHello, Payload: []byte(hello)}}
		},
		"a request": func(id uint32) []guest.Frame { return []guest.Frame{{Type: guest.FrameRequest, ID: id}} },
		"broken JSON": func(id uint32) []guest.Frame {
			return []guest.Frame{{Type: guest.FrameFailure, ID: id, Payload: []byte("{")}}
		},
		"a body that is cut": func(id uint32) []guest.Frame {
			return []guest.Frame{{Type: guest.FrameReply, ID: id, Payload: []byte{0, 0, 1, 0}}}
		},
		"a gap in the output": func(id uint32) []guest.Frame {
			return []guest.Frame{reply(id, guest.Started{}), out(id, 5, 1)}
		},
		"output beyond a window": func(id uint32) []guest.Frame { return flood(id, reply(id, guest.Started{}), out) },
		"an oversized chunk": func(id uint32) []guest.Frame {
			return []guest.Frame{reply(id, guest.Started{}),
				{Type: guest.FrameStdout, ID: id, Payload: make([]byte, 9+guest.MaxChunk)}}
		},
		"an ack of what was not sent": func(id uint32) []guest.Frame {
			return []guest.Frame{reply(id, guest.Started{}),
				{Type: guest.FrameAck, ID: id, Payload: guest.Ack{Offset: 1}.Payload()}}
		},
		"an ack of output": func(id uint32) []guest.Frame {
			return []guest.Frame{reply(id, guest.Started{}),
				{Type: guest.FrameAck, ID: id, Payload: guest.Ack{Stream: guest.Stdout}.Payload()}}
		},
		"an exit twice": func(id uint32) []guest.Frame {
			exit := guest.Frame{Type: guest.FrameExit, ID: id, Payload: []byte("{}")}
			return []guest.Frame{reply(id, guest.Started{}), exit, exit}
		},
	}
	for name, say := range tests {
		t.Run(name, func(t *testing.T) {
			c, err := liar(t, hello, say)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			p, err := c.Start(ctx, guest.ProcessSpec{Args: []string{"x"}})
			select {
			case <-c.Done():
			case <-ctx.Done():
				t.Fatal("the connection went on")
			}
			if err == nil {
				if n, err := io.Copy(io.Discard, p.Stdout()); n > guest.Window {
					t.Errorf("%d bytes were kept, %v", n, err)
				}
			}
			var v *guest.ProtocolError
			if _, err := c.Health(ctx); !errors.As(err, &v) {
				t.Errorf("afterwards: %v", err)
			}
		})
	}
}

// flood sends more than a window of output that the host does not read.
func flood(id uint32, first guest.Frame, out func(uint32, uint64, int) guest.Frame) []guest.Frame {
	frames := []guest.Frame{first}
	for offset := uint64(0); offset <= guest.Window; offset += guest.MaxChunk {
		frames = append(frames, out(id, offset, guest.MaxChunk))
	}
	return frames
}

func TestRequestThatIsTooLargeIsRefusedHere(t *testing.T) {
	c, err := liar(t, hello, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, err = c.Start(t.Context(), guest.ProcessSpec{Args: []string{strings.Repeat("x", guest.MaxPayload)}})
	if err == nil {
		t.Error("it was sent")
	}
	select {
	case <-c.Done():
		t.Error("the connection ended")
	case <-time.After(20 * time.Millisecond):
	}
}

// FuzzClient: the client neither panics nor hangs, for any bytes of a guest.
func FuzzClient(f *testing.F) {
	h, _ := guest.AppendFrame(nil, guest.Frame{Type: guest.FrameHello, Payload: []byte(hello)})
	started, _ := guest.AppendFrame(bytes.Clone(h), reply(1, guest.Started{PID: 2}))
	listed, _ := guest.AppendFrame(bytes.Clone(started), reply(2, []guest.ProcessInfo{{ID: 1, Stdout: 1 << 63}}))
	f.Add(h)
	f.Add(started)
	f.Add(listed)
	f.Fuzz(func(t *testing.T, wire []byte) {
		host, inside := net.Pipe()
		go io.Copy(io.Discard, inside)
		go func() {
			inside.SetWriteDeadline(time.Now().Add(time.Second))
			inside.Write(wire)
			inside.Close()
		}()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		c, err := guest.NewClient(ctx, host)
		if err != nil {
			return
		}
		if p, err := c.Start(ctx, guest.ProcessSpec{Args: []string{"x"}}); err == nil {
			if all, err := c.Listed(ctx); err == nil && len(all) > 0 {
				c.Attach(ctx, all[0].ID, all[0].Stdout, all[0].Stderr)
			}
			c.Noted(ctx, p.ID())
			io.Copy(io.Discard, p.Stdout())
			p.Wait(ctx)
		}
		c.Close()
		if ctx.Err() != nil {
			t.Fatal("it hung")
		}
	})
}
