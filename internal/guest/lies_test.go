package guest_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"math"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cove-sandbox/cove/internal/guest"
)

type (
	client  = guest.Client
	process = guest.RemoteProcess
)

// operations are the host's calls of every operation.
var operations = map[guest.Op]func(ctx context.Context, c *client, p *process) error{
	guest.OpHealth: func(ctx context.Context, c *client, _ *process) error {
		_, err := c.Health(ctx)
		return err
	},
	guest.OpBegin: func(ctx context.Context, c *client, _ *process) error {
		return c.Begin(ctx, guest.Begin{})
	},
	guest.OpSetup: func(ctx context.Context, c *client, _ *process) error {
		return c.Setup(ctx, guest.Setup{}, nil)
	},
	guest.OpBind: func(ctx context.Context, c *client, _ *process) error {
		_, err := c.Bind(ctx, guest.Bind{}, nil)
		return err
	},
	guest.OpStart: func(ctx context.Context, c *client, _ *process) error {
		p, err := c.Start(ctx, guest.ProcessSpec{Args: []string{"x"}})
		if err == nil {
			_, err = p.Wait(ctx)
		}
		return err
	},
	guest.OpAttach: func(ctx context.Context, c *client, _ *process) error {
		p, err := c.Attach(ctx, 77, math.MaxUint64, 1<<63)
		if err == nil {
			_, err = io.WriteString(p.Stdin(), "x")
		}
		return err
	},
	guest.OpSignal: func(ctx context.Context, _ *client, p *process) error { return p.Signal(ctx, 9) },
	guest.OpResize: func(ctx context.Context, _ *client, p *process) error { return p.Resize(ctx, 1, 1) },
	guest.OpWrite: func(ctx context.Context, c *client, _ *process) error {
		return c.WriteFile(ctx, "/x", 0o600, []byte("x"))
	},
	guest.OpRead: func(ctx context.Context, c *client, _ *process) error {
		_, err := c.ReadFile(ctx, "/x", 100)
		return err
	},
	guest.OpStat: func(ctx context.Context, c *client, _ *process) error {
		_, err := c.Stat(ctx, "/x")
		return err
	},
	guest.OpList: func(ctx context.Context, c *client, _ *process) error {
		_, err := c.List(ctx, "/x")
		return err
	},
	guest.OpMkdir: func(ctx context.Context, c *client, _ *process) error {
		return c.Mkdir(ctx, "/x", 0o700)
	},
	guest.OpRemove: func(ctx context.Context, c *client, _ *process) error { return c.Remove(ctx, "/x") },
	guest.OpPark:   func(ctx context.Context, c *client, _ *process) error { return guest.Park(ctx, c, "/x") },
	guest.OpZygote: func(ctx context.Context, _ *client, p *process) error {
		f, err := guest.MakeZygote(ctx, p, "/x")
		if err == nil {
			f.Close()
		}
		return err
	},
	guest.OpRelease: func(ctx context.Context, c *client, _ *process) error {
		return guest.Release(ctx, c, "/x", 0o600, []byte("x"))
	},
	guest.OpStats: func(ctx context.Context, c *client, _ *process) error {
		_, err := c.Stats(ctx)
		return err
	},
	guest.OpProcesses: func(ctx context.Context, c *client, _ *process) error {
		_, err := c.Listed(ctx)
		return err
	},
	guest.OpNote: func(ctx context.Context, _ *client, p *process) error {
		return p.Note(ctx, []byte("x"))
	},
	guest.OpNoted: func(ctx context.Context, c *client, p *process) error {
		_, err := c.Noted(ctx, p.ID())
		return err
	},
	guest.OpSocket: func(ctx context.Context, c *client, _ *process) error {
		f, err := guest.MakeSocket(ctx, c)
		if err == nil {
			f.Close()
		}
		return err
	},
	guest.OpListeners: func(ctx context.Context, c *client, _ *process) error {
		_, err := c.Listeners(ctx)
		return err
	},
}

func wire(frames ...guest.Frame) (b []byte) {
	for _, f := range frames {
		b, _ = guest.AppendFrame(b, f)
	}
	return b
}

// one returns one frame on the wire.
func one(kind guest.FrameType, id uint32, payload string) []byte {
	return wire(guest.Frame{Type: kind, ID: id, Payload: []byte(payload)})
}

func body(id uint32, text string, raw ...byte) guest.Frame {
	return guest.Frame{Type: guest.FrameReply, ID: id, Payload: guest.Body{JSON: []byte(text), Raw: raw}.Payload()}
}

// header returns the beginning of a frame that says its length.
func header(length uint32, kind guest.FrameType, id uint32) []byte {
	b := binary.BigEndian.AppendUint32(nil, length)
	return binary.BigEndian.AppendUint32(append(b, byte(kind)), id)
}

var zeroes = strings.Repeat("\x00", 9)

// lies are the answers to every operation, as bytes: what a guest could say about lengths, types, ids and contents.
var lies = map[string]func(id uint32) []byte{
	"silence":             func(uint32) []byte { return nil },
	"half a header":       func(id uint32) []byte { return header(10, guest.FrameReply, id)[:5] },
	"half a frame":        func(id uint32) []byte { return append(header(1000, guest.FrameReply, id), "x"...) },
	"four gigabytes":      func(id uint32) []byte { return header(math.MaxUint32, guest.FrameReply, id) },
	"a megabyte, unsent":  func(id uint32) []byte { return header(guest.MaxPayload, guest.FrameReply, id) },
	"no frame of a kind":  func(id uint32) []byte { return header(0, 0, id) },
	"a frame of no kind":  func(id uint32) []byte { return header(0, guest.FrameExit+1, id) },
	"another id":          func(id uint32) []byte { return wire(body(id+1, "{}")) },
	"the highest id":      func(uint32) []byte { return wire(body(math.MaxUint32, "{}")) },
	"twice":               func(id uint32) []byte { return wire(body(id, "{}"), body(id, "{}")) },
	"no body":             func(id uint32) []byte { return one(guest.FrameReply, id, "") },
	"more JSON than that": func(id uint32) []byte { return one(guest.FrameReply, id, "\xff\xff\xff\xff{}") },
	"no JSON":             func(id uint32) []byte { return wire(body(id, "\x00\xff")) },
	"null":                func(id uint32) []byte { return wire(body(id, "null")) },
	"a text":              func(id uint32) []byte { return wire(body(id, `"x"`)) },
	"a deep list":         func(id uint32) []byte { return wire(body(id, strings.Repeat("[", 500000))) },
	"a long list":         func(id uint32) []byte { return wire(body(id, "["+strings.Repeat("{},", 300000)+"{}]")) },
	"a megabyte of bytes": func(id uint32) []byte { return wire(body(id, "{}", make([]byte, guest.MaxPayload-6)...)) },
	"negative numbers": func(id uint32) []byte {
		return wire(body(id, `{"pid":-1,"count":-1,"stdin":-1,"size":-1,"disk_used":-9223372036854775808}`, 'x'))
	},
	"the largest numbers": func(id uint32) []byte {
		return wire(body(id, `{"pid":9223372036854775807,"count":9223372036854775807,"stdin":18446744073709551615,`+
			`"size":9223372036854775807,"mode":4294967295,"disk_used":9223372036854775807}`, 'x'))
	},
	"numbers beyond": func(id uint32) []byte {
		return wire(body(id, `{"pid":1e400,"count":1e30,"stdin":-1e400,"size":1e99}`))
	},
	"times and paths": func(id uint32) []byte {
		return wire(body(id, `{"name":"../../etc","target":"/proc/self/root","mode":65535,`+
			`"mod_time":"9999-12-31T23:59:59+23:59"}`, 'x'))
	},
	"a failure of no kind": func(id uint32) []byte {
		return one(guest.FrameFailure, id, `{"kind":"\u001b[31m","message":"`+strings.Repeat("long ", 200000)+`"}`)
	},
	"no failure":    func(id uint32) []byte { return one(guest.FrameFailure, id, "[") },
	"a hello":       func(id uint32) []byte { return one(guest.FrameHello, id, hello) },
	"a request":     func(id uint32) []byte { return one(guest.FrameRequest, id, "{}") },
	"an input":      func(id uint32) []byte { return one(guest.FrameStdin, id, zeroes[:8]) },
	"an output":     func(id uint32) []byte { return one(guest.FrameStdout, id, zeroes) },
	"errors":        func(id uint32) []byte { return one(guest.FrameStderr, id, zeroes) },
	"a short chunk": func(id uint32) []byte { return one(guest.FrameStdout, id, zeroes[:7]) },
	"an ack":        func(id uint32) []byte { return one(guest.FrameAck, id, zeroes[:8]) },
	"an exit":       func(id uint32) []byte { return one(guest.FrameExit, id, "{}") },
	"an exit of everything": func(id uint32) []byte {
		return append(wire(body(id, "{}")), one(guest.FrameExit, id, `{"code":-9223372036854775808,"signal":-1,`+
			`"stdout_dropped":18446744073709551615,"stats":{"bytes_written":-1,"disk_size":-1}}`)...)
	},
	"an exit first": func(id uint32) []byte {
		return append(one(guest.FrameExit, id, "{}"), wire(body(id, "{}"))...)
	},
}

// TestEveryLie: every lie about every operation ends the call in its time, without a panic, and with a short message.
// Afterwards the connection has ended, or serves calls as before.
func TestEveryLie(t *testing.T) {
	for op, call := range operations {
		t.Run(string(op), func(t *testing.T) {
			for name, lie := range lies {
				c, guestEnd := lyingGuest(t, op, lie)
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				var p *process
				var err error
				if op != guest.OpStart {
					if p, err = c.Start(ctx, guest.ProcessSpec{Args: []string{"another"}}); err != nil {
						t.Fatal(err)
					}
				}
				short, end := context.WithTimeout(ctx, 50*time.Millisecond)
				err = call(short, c, p)
				end()
				if ctx.Err() != nil {
					t.Errorf("%s: it hung", name)
				}
				if err != nil && len(err.Error()) > 8<<10 {
					t.Errorf("%s: an error of %d bytes", name, len(err.Error()))
				}
				cancel()
				guestEnd.Close()
				c.Close()
			}
		})
	}
}

// lyingGuest makes a client whose guest answers the first request of one operation with a lie, and every other request
// truthfully.
func lyingGuest(t *testing.T, of guest.Op, lie func(id uint32) []byte) (*guest.Client, io.Closer) {
	t.Helper()
	host, inside := net.Pipe()
	go func() {
		defer inside.Close()
		inside.Write(wire(guest.Frame{Type: guest.FrameHello, Payload: []byte(hello)}))
		for {
			f, err := guest.ReadFrame(inside)
			if err != nil {
				return
			}
			b, err := guest.ParseBody(f.Payload)
			var q guest.Request
			if f.Type != guest.FrameRequest || err != nil || json.Unmarshal(b.JSON, &q) != nil {
				continue
			}
			if q.Op == of {
				go inside.Write(lie(f.ID)) // while the host's frames are read
				continue
			}
			inside.Write(wire(body(f.ID, "{}")))
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	c, err := guest.NewClient(ctx, host)
	if err != nil {
		t.Fatal(err)
	}
	return c, inside
}

// TestEveryMessageIsLiedAbout: the tables of this file have every operation and every kind of frame of the protocol.
func TestEveryMessageIsLiedAbout(t *testing.T) {
	for _, op := range constants(t, "message.go", "Op") {
		name, err := strconv.Unquote(op)
		if err != nil || operations[guest.Op(name)] == nil {
			t.Errorf("no lie about the operation %s, %v", op, err)
		}
	}
	sent := map[byte]bool{}
	for _, lie := range lies {
		if b := lie(1); len(b) > 4 {
			sent[b[4]] = true
		}
	}
	for _, kind := range constants(t, "frame.go", "FrameType") {
		n, err := strconv.Atoi(kind)
		if err != nil || !sent[byte(n)] {
			t.Errorf("no lie is a frame of the kind %s, %v", kind, err)
		}
	}
}

// constants returns the values of the constants of a type, as its source has them.
func constants(t *testing.T, file, of string) (all []string) {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(parsed, func(n ast.Node) bool {
		if v, ok := n.(*ast.ValueSpec); ok {
			if id, ok := v.Type.(*ast.Ident); ok && id.Name == of {
				all = append(all, v.Values[0].(*ast.BasicLit).Value)
			}
		}
		return true
	})
	if len(all) == 0 {
		t.Fatalf("%s has no constants of type %s", file, of)
	}
	return all
}

// TestHelloLies: what a hello says about processes moves no id of the host's into another's place.
func TestHelloLies(t *testing.T) {
	c, err := liar(t, `{"version":1,"processes":[4294967295,4294967295,0]}`, func(id uint32) []guest.Frame {
		return []guest.Frame{reply(id, guest.Started{PID: 1})}
	})
	if err != nil {
		return // refused
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	p, err := c.Start(ctx, guest.ProcessSpec{Args: []string{"x"}})
	if v := new(guest.ProtocolError); err != nil && !errors.As(err, &v) {
		t.Fatal(err)
	}
	if err == nil && p.ID() == 0 {
		t.Error("a process has the id 0")
	}
}
