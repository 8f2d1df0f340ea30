package terminals

import (
	"context"
	"errors"
	"runtime/debug"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine/process"
	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/terminal"
)

// Terminal is a program in a terminal. It runs on while no viewer is attached.
type Terminal struct {
	set     *Set
	id      string
	args    []string
	created time.Time
	process *process.Process
	input   chan []byte
	ended   chan struct{}
	release func() // gives the program's place back

	resizing sync.Mutex // keeps sizes in order
	saving   sync.Mutex // keeps checkpoints in order

	mu       sync.Mutex
	model    *terminal.Terminal
	read     uint64 // how much of the output is in the model
	saved    uint64 // how much of it is in the checkpoint
	answered uint64 // queries in the output before it were answered by an earlier server
	viewers  []*Viewer
	recorder Recorder // nil records nothing
	exit     int
	lost     error // why the exit is not known; set before ended is closed
}

func (s *Set) newTerminal(id string, args []string, created time.Time, p *process.Process,
	model *terminal.Terminal, release func()) *Terminal {
	p.Retain()
	return &Terminal{
		set: s, id: id, args: args, created: created, process: p, model: model, release: release,
		input: make(chan []byte, 16), ended: make(chan struct{}),
	}
}

// startRecording attaches a recorder to a terminal that is not served yet.
func (t *Terminal) startRecording(adopted bool) {
	if t.set.o.Recorders == nil {
		return
	}
	t.recorder = t.set.o.Recorders.RecordTerminal(Started{
		Sandbox: t.set.o.Sandbox.ID(), ID: t.id, Args: t.args, Size: t.model.Size(), Adopted: adopted,
	})
}

// ID is the terminal's: "t" and a number, in its sandbox.
func (t *Terminal) ID() string { return t.id }

// Args is the program, with its arguments.
func (t *Terminal) Args() []string { return t.args }

// Ended reports whether the program has ended.
func (t *Terminal) Ended() bool {
	select {
	case <-t.ended:
		return true
	default:
		return false
	}
}

// Info describes the terminal.
func (t *Terminal) Info() Info {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := Info{
		ID: t.id, Args: t.args, Title: t.model.Title(), Attached: len(t.viewers), Size: t.model.Size(), Created: t.created,
	}
	if t.Ended() {
		i.Exit = new(t.exit)
	}
	return i
}

// Text returns what the terminal shows and has shown, as plain text.
func (t *Terminal) Text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.model.Text()
}

// Kill ends the program: it is told that its terminal has gone, and killed after a
// while. Errors: those of the guest and of ctx.
func (t *Terminal) Kill(ctx context.Context) error {
	if err := t.process.End(ctx, process.Grace, syscall.SIGHUP, syscall.SIGTERM, syscall.SIGCONT); err != nil {
		return err
	}
	if !t.process.Ended() {
		return nil // it was killed
	}
	select {
	case <-t.ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// serveOutput reads the program's output to its end.
func (t *Terminal) serveOutput() {
	buf := make([]byte, 32<<10)
	clk := t.set.o.Clock
	for {
		n, err := t.process.Stdout().Read(buf)
		began := clk.Monotonic()
		if n > 0 && t.show(buf[:n]) {
			t.save(false)
		}
		if err != nil {
			break
		}
		if wait := t.set.pace.charge(clk.Since(began)); wait > 0 {
			<-clk.After(wait)
		}
	}
	t.end(t.process.Wait())
}

// show puts output into the model, and before viewers and recorder. It reports whether a checkpoint is due.
func (t *Terminal) show(p []byte) (due bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var reply []byte
	for len(p) > 0 {
		part := p
		if t.read < t.answered {
			part = p[:min(uint64(len(p)), t.answered-t.read)]
		}
		shown, answer := t.write(part)
		if t.recorder != nil && len(shown) > 0 {
			t.recorder.Output(shown)
		}
		for _, v := range t.viewers {
			v.queue(shown)
		}
		if t.read += uint64(len(part)); t.read > t.answered {
			reply = append(reply, answer...)
		}
		p = p[len(part):]
	}
	if len(reply) > 0 {
		select {
		case t.input <- reply:
		default: // it asks and does not read
		}
	}
	return t.read-t.saved >= checkpointEvery
}

// write writes into the model; one that fails is replaced. mu must be held.
func (t *Terminal) write(p []byte) (shown, answer []byte) {
	defer func() {
		if fault := recover(); fault != nil {
			t.set.o.Log.Error("the model of a terminal failed", "sandbox", t.set.o.Sandbox.ID(), "terminal", t.id,
				"panic", fault, "stack", string(debug.Stack()))
			t.model = terminal.New(t.model.Size())
			shown, answer = t.model.Redraw(t.model.Size(), true), nil
		}
	}()
	return t.model.Write(p)
}

// end notes how the program has ended, and tells viewers and recorder. Its place is free before they know.
func (t *Terminal) end(o process.Outcome) {
	t.release()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.exit = o.Code; o.Lost != nil {
		t.exit, t.lost = -1, t.set.lost(o.Lost)
	}
	close(t.ended)
	switch {
	case t.recorder == nil:
	case cove.ErrorCode(t.lost) == cove.Shutdown:
		t.recorder.Detached()
	default:
		t.recorder.Ended(t.exit)
	}
	for _, v := range t.viewers {
		v.notify()
	}
}

// serveInput passes on what is typed, at the pace at which the program reads.
func (t *Terminal) serveInput() {
	for {
		select {
		case p := <-t.input:
			if _, err := t.process.Stdin().Write(p); err != nil {
				return
			}
		case <-t.ended:
			return
		}
	}
}

// Attach attaches a viewer, which begins with the screen as it is; with history,
// with what has left the screen before it. Errors: Overloaded.
func (t *Terminal) Attach(size terminal.Size, history bool) (*Viewer, error) {
	v := &Viewer{terminal: t, news: make(chan struct{}, 1), size: size.Clamp(), history: history, redraw: true}
	v.notify()
	t.mu.Lock()
	if len(t.viewers) >= maxViewers {
		t.mu.Unlock()
		return nil, cove.Errorf(cove.Overloaded, "%d look at the terminal %s already", maxViewers, t.id)
	}
	t.viewers = append(t.viewers, v)
	t.mu.Unlock()
	t.resizeTo(v)
	return v, nil
}

// detach removes a viewer, which is told why.
func (t *Terminal) detach(v *Viewer, why error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.viewers = slices.DeleteFunc(t.viewers, func(o *Viewer) bool { return o == v })
	v.detach(why)
}

// detachAll removes every viewer.
func (t *Terminal) detachAll(why error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, v := range t.viewers {
		v.detach(why)
	}
	t.viewers = nil
}

// resizeTo gives the terminal the size of a viewer.
func (t *Terminal) resizeTo(v *Viewer) {
	t.mu.Lock()
	same := t.model.Size() == v.size || t.Ended()
	t.mu.Unlock()
	if same {
		return
	}
	t.resizing.Lock()
	defer t.resizing.Unlock()
	t.mu.Lock()
	size := v.size
	t.model.Resize(size)
	if t.recorder != nil {
		t.recorder.Resized(size)
	}
	for _, o := range t.viewers { // terminals differ in what they do with what they show
		o.redraw = true
		o.notify()
	}
	t.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), checkpointTimeout)
	defer cancel()
	if err := t.process.Resize(ctx, uint16(size.Rows), uint16(size.Columns)); err != nil &&
		!errors.Is(err, guest.ErrClosed) {
		t.set.o.Log.Debug("a terminal cannot be resized", "sandbox", t.set.o.Sandbox.ID(), "terminal", t.id, "error", err)
	}
	t.save(true) // the checkpoint has the size
}
