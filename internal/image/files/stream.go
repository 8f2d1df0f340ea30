package files

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/image/layer"
	"github.com/cove-sandbox/cove/internal/image/unpack"
)

// pipeSize is how many bytes a pipe holds, so that both of its ends have something to do.
const pipeSize = 1 << 20

func pipe() (r, w *os.File, err error) {
	if r, w, err = os.Pipe(); err == nil {
		_, _ = unix.FcntlInt(w.Fd(), unix.F_SETPIPE_SZ, pipeSize) // a smaller one does as well
	}
	return r, w, err
}

type written struct {
	Changes string
	to      *os.File
}

func (w *written) open() **os.File { return &w.to }

var writing = operation[written, none]{"write", func(ctx context.Context, a written) (none, error) {
	return none{}, layer.Write(ctx, a.to, a.Changes)
}}

// write copies what the process apart writes.
func (r *apart) write(ctx context.Context, w io.Writer, changes string) error {
	from, to, err := pipe()
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() {
		_, err := call(ctx, &Files{r}, writing, written{changes, to})
		to.Close()
		done <- err
	}()
	_, err = io.Copy(w, from)
	from.Close() // its writer ends, if it has not
	if e := <-done; err == nil {
		err = e
	}
	return err
}

// unpacking is the name of the operation that fills a tree with layers. Their bytes come through a pipe, in pieces: a
// length of four bytes, big endian, and so many bytes. The last piece of a layer has the length 0; broken says that the
// rest of it does not come.
const (
	unpacking = "unpack"
	broken    = 1<<32 - 1
	piece     = 256 << 10
)

type filling struct {
	Dir    string
	Limits unpack.Limits
	Ask    bool // for room
}

// step is a message while a tree is filled: to the process apart what is next, from it what it needs or has.
type step struct {
	Cancel bool

	Layer  *unpack.Kind // the bytes of a layer follow
	Finish bool

	Room []int64 // the bytes that the tree has, and those until it asks next; as an answer empty

	Done   string // a layer, by its diff id
	Stats  *unpack.Stats
	Failed *failure
}

// tree is a Tree in the process apart.
type tree struct {
	*conversation
	stop func() bool
	data *os.File
	room func(bytes, step int64) error
}

func (r *apart) unpack(ctx context.Context, dir string, limits unpack.Limits,
	room func(bytes, step int64) error) (Tree, error) {
	from, to, err := pipe()
	if err != nil {
		return nil, err
	}
	defer from.Close()
	c, err := r.begin(unpacking, filling{dir, limits, room != nil}, from)
	if err != nil {
		to.Close()
		return nil, err
	}
	return &tree{conversation: c, stop: context.AfterFunc(ctx, c.cancel), data: to, room: room}, nil
}

// Apply implements Tree.
func (t *tree) Apply(_ context.Context, r io.Reader, kind unpack.Kind) (string, error) {
	if err := t.send(step{Layer: &kind}); err != nil {
		return "", err
	}
	pumped := make(chan error, 1)
	go func() { pumped <- pump(t.data, r) }()
	s, err := t.wait()
	if err != nil {
		t.data.Close() // or the pump waits for a reader
		<-pumped
		return "", err
	}
	if err := <-pumped; err != nil {
		return "", err
	}
	return s.Done, s.Failed.error()
}

// wait answers questions for room, until there is something else.
func (t *tree) wait() (s step, err error) {
	for {
		s = step{}
		if err := t.receive(&s); err != nil {
			return s, err
		}
		if len(s.Room) != 2 {
			return s, nil
		}
		if err := t.send(step{Failed: failed(t.room(s.Room[0], s.Room[1]))}); err != nil {
			return s, err
		}
	}
}

// pump writes a layer in pieces. Where its reader fails the process apart is told so.
func pump(w io.Writer, r io.Reader) error {
	buf := make([]byte, 4+piece)
	for {
		n, err := r.Read(buf[4:])
		if n > 0 {
			binary.BigEndian.PutUint32(buf, uint32(n))
			if _, e := w.Write(buf[:4+n]); e != nil {
				return lost(e)
			}
		}
		if err == nil {
			continue
		}
		last := uint32(0)
		if err != io.EOF {
			last = broken
		}
		binary.BigEndian.PutUint32(buf, last)
		if _, e := w.Write(buf[:4]); e != nil {
			return lost(e)
		}
		if err == io.EOF {
			return nil
		}
		return err
	}
}

// Finish implements Tree.
func (t *tree) Finish() (stats unpack.Stats, err error) {
	if err := t.send(step{Finish: true}); err != nil {
		return stats, err
	}
	s, err := t.wait()
	if err == nil {
		err = s.Failed.error()
	}
	if err == nil && s.Stats != nil {
		stats = *s.Stats
	}
	return stats, err
}

// Close implements Tree. Nothing is written when it returns.
func (t *tree) Close() error {
	t.stop()
	t.cancel()
	t.data.Close()
	var a answer
	for t.in.Decode(&a) == nil && a.Result == nil && a.Failed == nil {
	}
	t.end()
	return nil
}

var errBroken = errors.New("the layer does not come to its end")

// fill fills a tree with what the other process sends.
func (c *conversation) fill(ctx context.Context, q question, given []*os.File, steps <-chan step) (_ any, err error) {
	var a filling
	if err := json.Unmarshal(q.Args, &a); err != nil {
		return nil, err
	}
	if len(given) != 1 {
		return nil, errors.New("the bytes of the layers are missing")
	}
	into, err := unpack.New(a.Dir, a.Limits)
	if err != nil {
		return nil, err
	}
	defer into.Close()
	if a.Ask {
		into.Room = func(bytes, more int64) error {
			if err := c.send(step{Room: []int64{bytes, more}}); err != nil {
				return err
			}
			s, ok := <-steps
			if !ok {
				return cove.Errorf(cove.Canceled, "unpacking was canceled")
			}
			return s.Failed.error()
		}
	}
	for s := range steps {
		var done step
		switch {
		case s.Layer != nil:
			r := &pieces{from: given[0]}
			done.Done, err = into.Apply(ctx, r, *s.Layer)
			if _, e := io.Copy(io.Discard, r); err == nil && e != nil {
				err = e
			}
			done.Failed = failed(err)
		case s.Finish:
			stats, err := into.Finish()
			done.Stats, done.Failed = &stats, failed(err)
		}
		if err := c.send(done); err != nil {
			return nil, err
		}
	}
	return none{}, nil
}

// pieces reads the pieces of one layer.
type pieces struct {
	from io.Reader
	left uint32 // of a piece
	end  error
}

func (p *pieces) Read(b []byte) (int, error) {
	if p.end != nil {
		return 0, p.end
	}
	if p.left == 0 {
		var head [4]byte
		if _, err := io.ReadFull(p.from, head[:]); err != nil {
			p.end = errBroken
			return 0, p.end
		}
		switch p.left = binary.BigEndian.Uint32(head[:]); p.left {
		case 0:
			p.end = io.EOF
			return 0, p.end
		case broken:
			p.end = errBroken
			return 0, p.end
		}
	}
	n, err := p.from.Read(b[:min(len(b), int(p.left))])
	p.left -= uint32(n)
	if err != nil {
		p.end = errBroken
		return n, p.end
	}
	return n, nil
}
