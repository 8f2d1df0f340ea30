package sandbox

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/terminal"
)

const (
	// mostTerminals bounds those of one sandbox that run, mostViewers who looks
	// at one, and keptTerminals those that have ended and can still be looked at.
	mostTerminals = 32
	mostViewers   = 16
	keptTerminals = 4

	// maxBehind is how much output is kept for somebody who looks slowly, in
	// bytes. Beyond it, they are shown the screen anew when they come.
	maxBehind = 256 << 10

	// noteEvery is how much output a terminal takes, in bytes, before the guest
	// is told what has become of it: half of what the guest keeps.
	noteEvery = guest.Window / 2

	// frameEvery is how often somebody is shown the screen whose terminal has
	// another size.
	frameEvery = 50 * time.Millisecond

	// noteTimeout is how long the guest may take to keep a note.
	noteTimeout = 10 * time.Second

	// busy is how long the model may take over what was read at once before it
	// rests for as long: what a sandbox writes costs the host at most half of a
	// processor for each of its terminals.
	busy = 5 * time.Millisecond

	// historyLines are how many lines somebody gets to scroll back to.
	historyLines = 2000
)

// terminals are those of one sandbox that runs here.
type terminals struct {
	manager *Manager
	sandbox engine.Sandbox

	mu   sync.Mutex
	last int    // number of the newest
	all  []*tty // the oldest first
	left error  // why there are none any more here
}

// tty is a program in a terminal. It goes on while nobody looks.
type tty struct {
	of      *terminals
	id      string
	args    []string
	created time.Time
	process *guest.RemoteProcess
	input   chan []byte
	ended   chan struct{}

	steering sync.Mutex // keeps sizes in order; acquired before mu
	noting   sync.Mutex // keeps notes in order; acquired before mu

	mu      sync.Mutex
	model   *terminal.Terminal
	read    uint64 // how much of the output is in the model
	noted   uint64 // how much of it the guest's note has
	quiet   uint64 // what comes before it was answered by an earlier server
	viewers []*Viewer
	record  Recorder // nil where nobody keeps what it shows
	exit    int
	err     error // why the exit is not known; set before ended is closed
}

// TerminalBegun is a terminal that begins, or goes on here.
type TerminalBegun struct {
	Sandbox cove.SandboxID
	ID      string
	Args    []string // may be cut short in one that goes on
	Size    terminal.Size
	TakenUp bool // an earlier server has begun it
}

// Recorder keeps what a terminal shows, as it may reach a real one. It is called
// by one at a time.
type Recorder interface {
	Shown(p []byte)
	Resized(size terminal.Size)
	// Ended or Left is the last call: the program has ended, with an exit code or -1
	// where that is not known, or this server lets go of it and it goes on.
	Ended(exit int)
	Left()
}

// ttyLabel is what the guest keeps of a terminal from its start.
type ttyLabel struct {
	Terminal string   `json:"terminal"`
	Created  int64    `json:"created"` // Unix seconds
	Args     []string `json:"args"`    // cut short if they are long
	Size     terminal.Size
}

// ttyNote is what the guest keeps of one that runs, beside the output after
// Offset: what makes a fresh terminal what it was there.
type ttyNote struct {
	Offset  uint64        `json:"offset"`
	Size    terminal.Size `json:"size"`
	History []byte        `json:"history,omitempty"`
	Screen  []byte        `json:"screen,omitempty"`
}

// label is l's wire form, at most guest.MaxLabel bytes.
func (l ttyLabel) label() []byte {
	for {
		b, err := json.Marshal(l)
		if err == nil && len(b) <= guest.MaxLabel {
			return b
		}
		n := len(l.Args) - 1
		if l.Args = slices.Clone(l.Args); n > 0 && l.Args[n] == "…" {
			l.Args = append(l.Args[:n-1], "…")
		} else if n > 0 {
			l.Args[n] = "…"
		} else {
			l.Args = []string{"…"}
		}
	}
}

// start starts a program in a new terminal.
func (ts *terminals) start(ctx context.Context, spec guest.ProcessSpec, size terminal.Size) (*tty, error) {
	ts.mu.Lock()
	running := 0
	for _, t := range ts.all {
		if !t.over() {
			running++
		}
	}
	ts.last++
	id, left := fmt.Sprintf("t%d", ts.last), ts.left
	ts.mu.Unlock()
	switch {
	case left != nil:
		return nil, left
	case running >= mostTerminals:
		return nil, cove.Errorf(cove.Overloaded, "the sandbox has %d terminals", running).WithHint("end one with \"exit\", or attach to one that runs")
	}
	now := ts.manager.o.Clock.Now()
	size = size.Clamp()
	spec.TTY, spec.Stdin, spec.Rows, spec.Cols = true, true, uint16(size.Rows), uint16(size.Columns)
	spec.Label = ttyLabel{Terminal: id, Created: now.Unix(), Args: spec.Args, Size: size}.label()
	p, err := ts.sandbox.Guest().Start(ctx, spec)
	if err != nil {
		return nil, err
	}
	t := ts.newTTY(id, spec.Args, now, p, terminal.New(size))
	t.recorded(false)
	if err := ts.add(t); err != nil {
		p.Signal(context.WithoutCancel(ctx), int(syscall.SIGKILL))
		return nil, err
	}
	return t, nil
}

func (ts *terminals) newTTY(id string, args []string, created time.Time, p *guest.RemoteProcess, model *terminal.Terminal) *tty {
	p.Retain()
	return &tty{of: ts, id: id, args: args, created: created, process: p, model: model, input: make(chan []byte, 16), ended: make(chan struct{})}
}

// recorded asks who keeps what a terminal shows that nobody has yet.
func (t *tty) recorded(takenUp bool) {
	with := t.of.manager.lasting
	if with == nil || with.Record == nil {
		return
	}
	t.record = with.Record(TerminalBegun{Sandbox: t.of.sandbox.ID(), ID: t.id, Args: t.args, Size: t.model.Size(), TakenUp: takenUp})
}

// add begins to serve a terminal.
func (ts *terminals) add(t *tty) error {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	ts.all = append(ts.all, t)
	ts.prune()
	ts.manager.serving.Go(t.serve)
	ts.manager.serving.Go(t.keyboard)
	return ts.left
}

// prune forgets the oldest of those that have ended.
func (ts *terminals) prune() {
	over := 0
	for i := len(ts.all) - 1; i >= 0; i-- {
		if ts.all[i].over() {
			if over++; over > keptTerminals {
				ts.all = slices.Delete(ts.all, i, i+1)
			}
		}
	}
}

// find returns the terminal of an id; of none, the oldest that runs. Errors:
// NotFound.
func (ts *terminals) find(id string) (*tty, error) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	for _, t := range ts.all {
		if t.id == id || id == "" && !t.over() {
			return t, nil
		}
	}
	if id == "" {
		return nil, cove.Errorf(cove.NotFound, "the sandbox has no terminal that runs")
	}
	return nil, cove.Errorf(cove.NotFound, "the sandbox has no terminal %.20q", id).WithHint("\"cove info\" shows those that it has")
}

func (ts *terminals) list() []*tty {
	if ts == nil {
		return nil
	}
	ts.mu.Lock()
	defer ts.mu.Unlock()
	return slices.Clone(ts.all)
}

// leave lets go of all terminals, which go on: whoever looks is told why. The
// guest has their notes, and all output since.
func (ts *terminals) leave(why error) {
	ts.mu.Lock()
	ts.left = why
	all := slices.Clone(ts.all)
	ts.mu.Unlock()
	for _, t := range all {
		t.mu.Lock()
		for _, v := range t.viewers {
			v.leave(why)
		}
		t.viewers = nil
		t.mu.Unlock()
	}
}

// adopt takes up the terminals that an earlier server has left, and ends what
// else it has left, which nobody waits for any more.
func (ts *terminals) adopt(ctx context.Context) error {
	processes, err := ts.sandbox.Guest().Listed(ctx)
	if err != nil {
		return fmt.Errorf("list the processes: %w", err)
	}
	for _, info := range processes {
		var l ttyLabel
		err := json.Unmarshal(info.Label, &l)
		switch name := processName(info.Label); {
		case err == nil && l.Terminal != "" && info.TTY:
			err = ts.takeUp(ctx, info, l)
		case name != "" && !info.TTY:
			err = ts.leaveProcess(ctx, info, name)
		default:
			err = ts.endLeft(ctx, info)
		}
		if err != nil {
			ts.manager.o.Log.Warn("a process of a sandbox cannot be taken up", "sandbox", ts.sandbox.ID(), "process", info.ID, "error", err)
		}
	}
	return nil
}

// takeUp takes up a terminal: what its note says, and the output since then.
func (ts *terminals) takeUp(ctx context.Context, info guest.ProcessInfo, l ttyLabel) error {
	guest := ts.sandbox.Guest()
	note := ttyNote{Size: l.Size}
	data, err := guest.Noted(ctx, info.ID)
	if err == nil && len(data) > 0 {
		err = json.Unmarshal(data, &note)
	}
	whole := err == nil && note.Offset >= info.Stdout && note.Offset <= info.StdoutEnd
	if !whole {
		note = ttyNote{Size: note.Size, Offset: info.Stdout}
	}
	p, err := guest.Attach(ctx, info.ID, note.Offset, info.Stderr)
	if err != nil {
		return err
	}
	number := terminalNumber(l.Terminal)
	ts.mu.Lock()
	ts.last = max(ts.last, number)
	ts.mu.Unlock()
	model := terminal.New(note.Size)
	model.Write(note.History)
	model.Write(note.Screen)
	t := ts.newTTY(fmt.Sprintf("t%d", number), l.Args, time.Unix(l.Created, 0), p, model)
	t.read, t.noted, t.quiet = note.Offset, note.Offset, info.StdoutEnd
	t.recorded(true)
	if err := ts.add(t); err != nil {
		return err
	}
	if !whole { // what the screen shows is not known: have the program draw it
		s := model.Size()
		p.Resize(ctx, uint16(s.Rows+1), uint16(s.Columns))
		p.Resize(ctx, uint16(s.Rows), uint16(s.Columns))
	}
	return nil
}

// terminalNumber is the number in an id, whatever the guest says.
func terminalNumber(id string) int {
	n, err := strconv.Atoi(strings.TrimPrefix(id, "t"))
	if err != nil || n < 0 || n > 1<<30 {
		return 0
	}
	return n
}

// endLeft kills a process that an earlier server has left, or lets one go on
// that was started to go on; its output is for nobody.
func (ts *terminals) endLeft(ctx context.Context, info guest.ProcessInfo) error {
	p, err := ts.sandbox.Guest().Attach(ctx, info.ID, info.Stdout, info.Stderr)
	if err != nil {
		return err
	}
	ts.manager.serving.Go(func() { io.Copy(io.Discard, p.Stdout()) })
	ts.manager.serving.Go(func() { io.Copy(io.Discard, p.Stderr()) })
	if string(info.Label) == detachedLabel {
		return nil
	}
	return p.Signal(ctx, int(syscall.SIGKILL))
}

// over reports whether the program has ended.
func (t *tty) over() bool {
	select {
	case <-t.ended:
		return true
	default:
		return false
	}
}

// API is the terminal as the API shows it.
func (t *tty) API() api.Terminal {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.model.Size()
	a := api.Terminal{ID: t.id, Args: t.args, Title: t.model.Title(), Attached: len(t.viewers), Rows: s.Rows, Columns: s.Columns, CreatedAt: t.created.UTC()}
	if t.over() {
		a.ExitCode = new(t.exit)
	}
	return a
}

// serve reads the program's output to its end.
func (t *tty) serve() {
	buf := make([]byte, 32<<10)
	clk := t.of.manager.o.Clock
	for {
		n, err := t.process.Stdout().Read(buf)
		began := clk.Monotonic()
		if n > 0 && t.took(buf[:n]) {
			t.note(false)
		}
		if err != nil {
			break
		}
		if took := clk.Since(began); took > busy {
			<-clk.After(min(took, time.Second))
		}
	}
	exit, err := t.process.Wait(context.Background())
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.exit = exit.Code; err != nil {
		t.exit, t.err = -1, t.of.reason(err)
	}
	close(t.ended)
	switch {
	case t.record == nil:
	case cove.ErrorCode(t.err) == cove.Unavailable:
		t.record.Left()
	default:
		t.record.Ended(t.exit)
	}
	for _, v := range t.viewers {
		v.wake()
	}
}

// reason says why the exit of a program is not known.
func (ts *terminals) reason(err error) error {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if ts.left != nil {
		return ts.left
	}
	return cove.Errorf(cove.Conflict, "the sandbox does not run any more: %w", err).WithHint("start it with \"cove start\"")
}

// took puts output into the model and before those who look, and reports
// whether it is time for a note.
func (t *tty) took(p []byte) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	var answer []byte
	for len(p) > 0 {
		part := p
		if t.read < t.quiet { // an earlier server may have answered what is in it
			part = p[:min(uint64(len(p)), t.quiet-t.read)]
		}
		show, asked := t.write(part)
		if t.record != nil && len(show) > 0 {
			t.record.Shown(show)
		}
		for _, v := range t.viewers {
			v.put(show)
		}
		if t.read += uint64(len(part)); t.read > t.quiet {
			answer = append(answer, asked...)
		}
		p = p[len(part):]
	}
	if len(answer) > 0 {
		select {
		case t.input <- answer:
		default: // it asks and does not read
		}
	}
	return t.read-t.noted >= noteEvery
}

// write writes into the model; one that fails is replaced.
func (t *tty) write(p []byte) (show, answer []byte) {
	defer func() {
		if fault := recover(); fault != nil {
			t.of.manager.o.Log.Error("the model of a terminal failed", "sandbox", t.of.sandbox.ID(), "terminal", t.id, "panic", fault, "stack", string(debug.Stack()))
			t.model = terminal.New(t.model.Size())
			show, answer = t.model.Redraw(t.model.Size(), true), nil
		}
	}()
	return t.model.Write(p)
}

// note tells the guest what has become of the output so far, and lets go of it
// there. Unless always, it does so when there is something new.
func (t *tty) note(always bool) {
	t.noting.Lock()
	defer t.noting.Unlock()
	t.mu.Lock()
	offset := max(t.noted, t.read-min(t.read, uint64(min(t.model.Unfinished(), noteEvery/2))))
	if offset == t.noted && !always || t.over() {
		t.mu.Unlock()
		return
	}
	n := ttyNote{Offset: offset, Size: t.model.Size(), History: t.model.History(historyLines), Screen: t.model.Redraw(t.model.Size(), true)}
	t.noted = offset
	t.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), noteTimeout)
	defer cancel()
	if err := t.process.Note(ctx, n.bytes()); err == nil || ctx.Err() == nil {
		t.process.Release(offset)
	}
}

// bytes is n's wire form, without what does not fit.
func (n ttyNote) bytes() []byte {
	for {
		b, err := json.Marshal(n)
		switch {
		case err == nil && len(b) <= guest.MaxNote:
			return b
		case len(n.History) > 0:
			half := n.History[len(n.History)/2:]
			n.History = half[strings.IndexByte(string(half), '\n')+1:]
			if len(n.History) < 4<<10 {
				n.History = nil
			}
		case n.Screen != nil:
			n.Screen = nil
		default:
			return nil
		}
	}
}

// keyboard passes on what is typed, at the pace at which the program reads.
func (t *tty) keyboard() {
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

// kill ends the program: it is told that its terminal has gone, and after a
// while killed.
func (t *tty) kill(ctx context.Context) error {
	for _, s := range []syscall.Signal{syscall.SIGHUP, syscall.SIGTERM, syscall.SIGCONT} {
		var gone *guest.Failure
		if err := t.process.Signal(ctx, int(s)); err != nil && !(errors.As(err, &gone) && gone.Kind == guest.FailNotFound) {
			return err
		}
	}
	select {
	case <-t.ended:
		return nil
	case <-t.of.manager.o.Clock.After(killGrace):
		return t.process.Signal(ctx, int(syscall.SIGKILL))
	case <-ctx.Done():
		return ctx.Err()
	}
}

// text is what the terminal shows and has shown.
func (t *tty) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.model.Text()
}

// Viewer is somebody who looks at a terminal and types. As in tmux, a terminal
// has the size of who did something last.
type Viewer struct {
	tty  *tty
	news chan struct{} // holds one value when there is something for Next

	// What follows is guarded by tty.mu.
	size    terminal.Size
	history bool   // the history is to be shown first
	again   bool   // everything is to be shown anew
	changed bool   // the screen has changed since it was shown; for other sizes
	alt     bool   // the screen that was shown is the alternate one
	buf     []byte // what is to be shown, of the terminal's own size
	shown   clock.Instant
	gone    error
}

// attach lets somebody look, beginning with the screen as it is.
func (t *tty) attach(size terminal.Size, history bool) (*Viewer, error) {
	t.mu.Lock()
	if len(t.viewers) >= mostViewers {
		t.mu.Unlock()
		return nil, cove.Errorf(cove.Overloaded, "%d look at the terminal %s already", mostViewers, t.id)
	}
	v := &Viewer{tty: t, news: make(chan struct{}, 1), size: size.Clamp(), history: history, again: true}
	v.wake()
	t.viewers = append(t.viewers, v)
	t.mu.Unlock()
	v.lead()
	return v, nil
}

// ID is the terminal's.
func (v *Viewer) ID() string { return v.tty.id }

// Close ends looking. The program goes on.
func (v *Viewer) Close() {
	v.tty.mu.Lock()
	defer v.tty.mu.Unlock()
	v.tty.viewers = slices.DeleteFunc(v.tty.viewers, func(o *Viewer) bool { return o == v })
	v.leave(cove.Errorf(cove.Canceled, "detached"))
}

// leave, wake and put are called with tty.mu held.
func (v *Viewer) leave(why error) {
	v.gone = cmp.Or(v.gone, why)
	v.wake()
}

func (v *Viewer) wake() {
	select {
	case v.news <- struct{}{}:
	default:
	}
}

func (v *Viewer) put(show []byte) {
	switch {
	case len(show) == 0:
		return
	case v.again:
	case v.size != v.tty.model.Size():
		v.changed = true
	case len(v.buf)+len(show) > maxBehind:
		v.again, v.buf = true, nil
	default:
		v.buf = append(v.buf, show...)
	}
	v.wake()
}

// take is what to show next; nothing, with how long that stays so at most.
func (v *Viewer) take() (p []byte, wait time.Duration) {
	t := v.tty
	clk := t.of.manager.o.Clock
	switch {
	case v.again:
	case v.changed:
		if wait = frameEvery - clk.Since(v.shown); wait > 0 && !t.over() {
			return nil, wait
		}
	default:
		p, v.buf = v.buf, nil
		return p, 0
	}
	whole := v.again || v.alt != t.model.Alternate()
	if v.history && !t.model.Alternate() && v.size == t.model.Size() {
		p = t.model.History(historyLines)
	}
	p = append(p, t.model.Redraw(v.size, whole)...)
	v.history, v.again, v.changed, v.buf = false, false, false, nil
	v.alt, v.shown = t.model.Alternate(), clk.Monotonic()
	return p, 0
}

// Next waits for what is to be shown next. It returns io.EOF when the program
// has ended and everything has been shown, and otherwise why nothing is shown
// any more: Canceled after Close and with ctx, Unavailable when this server lets
// go, Conflict when the sandbox does not run any more.
func (v *Viewer) Next(ctx context.Context) ([]byte, error) {
	t := v.tty
	for {
		t.mu.Lock()
		p, wait := v.take()
		over, why := t.over(), t.err
		why = cmp.Or(v.gone, why)
		t.mu.Unlock()
		switch {
		case len(p) > 0:
			return p, nil
		case why != nil:
			return nil, why
		case over:
			return nil, io.EOF
		}
		var later <-chan time.Time
		if wait > 0 {
			later = t.of.manager.o.Clock.After(wait)
		}
		select {
		case <-v.news:
		case <-later:
		case <-ctx.Done():
			return nil, cove.Errorf(cove.Canceled, "nobody looks any more: %w", ctx.Err())
		}
	}
}

// ExitCode is how the program has ended, after Next has returned io.EOF.
func (v *Viewer) ExitCode() int {
	v.tty.mu.Lock()
	defer v.tty.mu.Unlock()
	return v.tty.exit
}

// Type sends what was typed. It waits while the program does not read.
func (v *Viewer) Type(ctx context.Context, p []byte) error {
	v.lead()
	select {
	case v.tty.input <- slices.Clone(p):
		return nil
	case <-v.tty.ended:
		return nil // Next says so
	case <-ctx.Done():
		return cove.Errorf(cove.Canceled, "nobody types any more: %w", ctx.Err())
	}
}

// Resize says that the viewer's terminal has another size.
func (v *Viewer) Resize(size terminal.Size) {
	v.tty.mu.Lock()
	if size = size.Clamp(); v.size != size {
		v.size, v.again = size, true
		v.wake()
	}
	v.tty.mu.Unlock()
	v.lead()
}

// Colors says what colors the viewer's terminal has, as in
// "rgb:0000/0000/0000", for programs that ask.
func (v *Viewer) Colors(foreground, background string) {
	v.tty.mu.Lock()
	defer v.tty.mu.Unlock()
	for _, c := range []struct {
		to   *string
		from string
	}{{&v.tty.model.Foreground, foreground}, {&v.tty.model.Background, background}} {
		if isColor(c.from) {
			*c.to = c.from
		}
	}
}

// isColor accepts rgb:H/H/H, of one to four hexadecimal digits each.
func isColor(s string) bool {
	s, ok := strings.CutPrefix(s, "rgb:")
	parts := strings.Split(s, "/")
	for _, p := range parts {
		ok = ok && p != "" && len(p) <= 4 && strings.Trim(p, "0123456789abcdefABCDEF") == ""
	}
	return ok && len(parts) == 3
}

// lead gives the terminal the viewer's size.
func (v *Viewer) lead() {
	t := v.tty
	t.mu.Lock()
	same := t.model.Size() == v.size || t.over()
	t.mu.Unlock()
	if same {
		return
	}
	t.steering.Lock()
	defer t.steering.Unlock()
	t.mu.Lock()
	size := v.size
	t.model.Resize(size)
	if t.record != nil {
		t.record.Resized(size)
	}
	for _, o := range t.viewers { // who looks draws anew: terminals differ in what they do with what they show
		o.again = true
		o.wake()
	}
	t.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), noteTimeout)
	defer cancel()
	if err := t.process.Resize(ctx, uint16(size.Rows), uint16(size.Columns)); err != nil && !errors.Is(err, guest.ErrClosed) {
		t.of.manager.o.Log.Debug("a terminal cannot be resized", "sandbox", t.of.sandbox.ID(), "terminal", t.id, "error", err)
	}
	t.note(true) // it has the size
}
