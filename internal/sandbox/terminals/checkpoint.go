package terminals

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cove-sandbox/cove/internal/engine/process"
	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/terminal"
)

const (
	// checkpointEvery is how much output, in bytes, a terminal reads between two
	// checkpoints: half of what the guest keeps.
	checkpointEvery = guest.Window / 2

	// checkpointTimeout is how long the guest may take to keep one.
	checkpointTimeout = 10 * time.Second

	// historyLines is how many lines a viewer can scroll back to.
	historyLines = 2000
)

// label describes a terminal to the guest, which keeps it from the start.
type label struct {
	Terminal string   `json:"terminal"`
	Created  int64    `json:"created"` // Unix seconds
	Args     []string `json:"args"`    // cut short if they are long
	Size     terminal.Size
}

// bytes is l's wire form, at most guest.MaxLabel bytes.
func (l label) bytes() []byte {
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

// checkpoint holds the state of a running terminal at Offset of its output. The guest keeps it, with the output after
// it, from which a fresh model is brought to the present state.
type checkpoint struct {
	Offset  uint64        `json:"offset"`
	Size    terminal.Size `json:"size"`
	History []byte        `json:"history,omitempty"`
	Screen  []byte        `json:"screen,omitempty"`
}

// bytes is c's wire form, at most guest.MaxNote bytes, without what does not fit.
func (c checkpoint) bytes() []byte {
	for {
		b, err := json.Marshal(c)
		switch {
		case err == nil && len(b) <= guest.MaxNote:
			return b
		case len(c.History) > 0:
			half := c.History[len(c.History)/2:]
			c.History = half[strings.IndexByte(string(half), '\n')+1:]
			if len(c.History) < 4<<10 {
				c.History = nil
			}
		case c.Screen != nil:
			c.Screen = nil
		default:
			return nil
		}
	}
}

// save has the guest keep a checkpoint, and lets go of the output there that is in
// it. Unless always, it does so when there is new output.
func (t *Terminal) save(always bool) {
	t.saving.Lock()
	defer t.saving.Unlock()
	t.mu.Lock()
	offset := max(t.saved, t.read-min(t.read, uint64(min(t.model.Unfinished(), checkpointEvery/2))))
	if offset == t.saved && !always || t.Ended() {
		t.mu.Unlock()
		return
	}
	c := checkpoint{
		Offset: offset, Size: t.model.Size(), History: t.model.History(historyLines),
		Screen: t.model.Redraw(t.model.Size(), true),
	}
	t.saved = offset
	t.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), checkpointTimeout)
	defer cancel()
	if err := t.process.Note(ctx, c.bytes()); err == nil || ctx.Err() == nil {
		t.process.Release(offset)
	}
}

// Is reports whether an earlier server has started a program in a terminal.
func Is(info guest.ProcessInfo) bool { return info.TTY && labelOf(info).Terminal != "" }

// labelOf returns the label of a terminal; the zero value of another program.
func labelOf(info guest.ProcessInfo) (l label) {
	if json.Unmarshal(info.Label, &l) != nil {
		return label{}
	}
	return l
}

// Adopt takes over a terminal of an earlier server, from its checkpoint on. release is as for Start. Errors: those of
// the guest.
func (s *Set) Adopt(ctx context.Context, info guest.ProcessInfo, release func()) error {
	l := labelOf(info)
	c, whole := s.restore(ctx, info, l)
	p, err := process.Adopt(ctx, s.o.Sandbox, s.o.Clock, info.ID, c.Offset, info.Stderr)
	if err != nil {
		return err
	}
	number := terminalNumber(l.Terminal)
	s.mu.Lock()
	s.last = max(s.last, number)
	s.mu.Unlock()
	model := terminal.New(c.Size)
	model.Write(c.History)
	model.Write(c.Screen)
	t := s.newTerminal(fmt.Sprintf("t%d", number), l.Args, time.Unix(l.Created, 0), p, model, release)
	t.read, t.saved, t.answered = c.Offset, c.Offset, info.StdoutEnd
	t.startRecording(true)
	if err := s.serve(t); err != nil {
		return err
	}
	if !whole { // what the screen shows is not known: have the program draw it
		size := model.Size()
		p.Resize(ctx, uint16(size.Rows+1), uint16(size.Columns))
		p.Resize(ctx, uint16(size.Rows), uint16(size.Columns))
	}
	return nil
}

// restore returns the checkpoint of a terminal; one without a screen, and not whole,
// where there is none that fits the output.
func (s *Set) restore(ctx context.Context, info guest.ProcessInfo, l label) (c checkpoint, whole bool) {
	c.Size = l.Size
	data, err := s.o.Sandbox.Guest().Noted(ctx, info.ID)
	if err == nil && len(data) > 0 {
		err = json.Unmarshal(data, &c)
	}
	if err == nil && c.Offset >= info.Stdout && c.Offset <= info.StdoutEnd {
		return c, true
	}
	return checkpoint{Size: c.Size, Offset: info.Stdout}, false
}

// terminalNumber is the number in an id, whatever the guest says.
func terminalNumber(id string) int {
	n, err := strconv.Atoi(strings.TrimPrefix(id, "t"))
	if err != nil || n < 0 || n > 1<<30 {
		return 0
	}
	return n
}
