package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
)

// asker tells whoever runs a program what waits for an answer. At a terminal
// that the program does not read it asks for one, and answers; elsewhere it
// names the command that does.
type asker struct {
	a        *app
	client   *client.Client
	terminal *os.File
	screen   *screen

	asking sync.WaitGroup
	wake   *os.File // a byte in it, or its end, says that waiting has changed
	woken  *os.File // the other end of wake

	mu      sync.Mutex
	waiting []api.Hold
	dealt   map[string]bool // said, or asked about
	mute    bool            // there is nobody to ask
	over    bool
}

// newAsker begins; stop ends it.
func (a *app) newAsker(c *client.Client, terminal *os.File, s *screen) *asker {
	k := &asker{a: a, client: c, terminal: terminal, screen: s, dealt: map[string]bool{}, mute: terminal == nil}
	if !k.mute {
		var err error
		if k.woken, k.wake, err = os.Pipe(); err != nil {
			k.mute = true
		}
	}
	if !k.mute {
		k.asking.Go(k.ask)
	}
	return k
}

// take is client.Stream's Holds.
func (k *asker) take(all []api.Hold) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.waiting = all
	if k.mute {
		k.sayAll()
	} else {
		k.wake.Write([]byte{0})
	}
}

// sayAll says what has not been dealt with; k.mu is held.
func (k *asker) sayAll() {
	for _, h := range k.waiting {
		if !k.dealt[h.ID] {
			k.dealt[h.ID] = true
			k.say(h)
		}
	}
}

// say names the command that answers.
func (k *asker) say(h api.Hold) {
	k.screen.apart(func() {
		k.a.say.line("%s waits for an answer, %s left: %s (or --deny)", holdText(h), leftText(h, time.Now()), k.a.command("approve", h.ID))
	})
}

// stop ends a question that is open. What the program wrote meanwhile appears.
func (k *asker) stop() {
	k.mu.Lock()
	k.over = true
	k.mu.Unlock()
	if k.wake != nil {
		k.wake.Close()
		k.asking.Wait()
		k.woken.Close()
	}
}

// ask asks one question after the other until it is stopped, or nobody can be
// asked any more.
func (k *asker) ask() {
	for {
		h, ok := k.next()
		if !ok {
			return
		}
		answer, err := k.question(h)
		if err == nil {
			ctx, cancel := context.WithTimeout(context.Background(), answerTimeout)
			err = k.client.AnswerHold(ctx, h.ID, answer)
			cancel()
			if err != nil && cove.ErrorCode(err) != cove.NotFound {
				k.screen.apart(func() { k.a.say.fail(err) })
			}
			continue
		}
		if !errors.Is(err, errGone) { // the terminal has
			k.mu.Lock()
			k.mute, k.dealt[h.ID] = true, false
			k.sayAll()
			k.mu.Unlock()
			return
		}
	}
}

// answerTimeout is how long the gateway may take to hear an answer.
const answerTimeout = 10 * time.Second

// next waits for something that nobody has been asked about.
func (k *asker) next() (api.Hold, bool) {
	for {
		k.mu.Lock()
		over := k.over
		for _, h := range k.waiting {
			if !over && !k.dealt[h.ID] {
				k.dealt[h.ID] = true
				k.mu.Unlock()
				return h, true
			}
		}
		k.mu.Unlock()
		if over {
			return api.Hold{}, false
		}
		k.woken.Read(make([]byte, 64))
	}
}

// waits reports whether h still does.
func (k *asker) waits(h api.Hold) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, w := range k.waiting {
		if w.ID == h.ID {
			return !k.over
		}
	}
	return false
}

// errGone: what was asked about does not wait any more.
var errGone = errors.New("it does not wait any more")

// question asks about h. What the program writes appears after it, so that it
// can neither cover the question nor answer in the terminal's name: what a
// terminal reports when a program asks it to is no answer by itself, and what
// was typed before is none.
func (k *asker) question(h api.Hold) (api.HoldAnswer, error) {
	k.screen.hold()
	defer k.screen.release()
	if k.a.getenv("TERM") != "dumb" {
		fmt.Fprint(k.a.Err, softReset)
	}
	k.a.say.line("%s", holdText(h))
	unix.IoctlSetInt(int(k.terminal.Fd()), unix.TCFLSH, unix.TCIFLUSH)
	for {
		fmt.Fprint(k.a.Err, "      allow it [o]nce, in this [s]andbox, for this [p]olicy, or [d]eny it? ")
		line, err := k.line(h)
		if err != nil {
			fmt.Fprintln(k.a.Err)
			if errors.Is(err, errGone) {
				k.a.say.line("%v", err)
			}
			return api.HoldAnswer{}, err
		}
		if answer, ok := typedAnswers[strings.ToLower(strings.TrimSpace(line))]; ok {
			return answer, nil
		}
	}
}

// softReset takes back what a program may have done to a terminal's letters,
// colours and margins (DECSTR).
const softReset = "\x1b[!p"

// typedAnswers are what may be typed.
var typedAnswers = map[string]api.HoldAnswer{
	"o": {Allow: true, Scope: "once"}, "once": {Allow: true, Scope: "once"},
	"s": {Allow: true, Scope: "sandbox"}, "sandbox": {Allow: true, Scope: "sandbox"},
	"p": {Allow: true, Scope: "policy"}, "policy": {Allow: true, Scope: "policy"},
	"d": {}, "deny": {},
}

// line reads what is typed, for as long as h waits.
func (k *asker) line(h api.Hold) (string, error) {
	var typed strings.Builder
	for k.waits(h) {
		fds := []unix.PollFd{{Fd: int32(k.terminal.Fd()), Events: unix.POLLIN}, {Fd: int32(k.woken.Fd()), Events: unix.POLLIN}}
		if _, err := unix.Poll(fds, -1); err != nil && err != unix.EINTR {
			return "", err
		}
		if fds[1].Revents != 0 {
			k.woken.Read(make([]byte, 64))
			continue
		}
		if fds[0].Revents == 0 {
			continue
		}
		if !foreground(k.terminal) { // to read would stop this process
			return "", io.EOF
		}
		b := make([]byte, 256)
		n, err := unix.Read(int(k.terminal.Fd()), b)
		if n <= 0 {
			if err == unix.EINTR || err == unix.EAGAIN {
				continue
			}
			return "", io.EOF
		}
		typed.Write(b[:n])
		if text, _, whole := strings.Cut(typed.String(), "\n"); whole {
			return text, nil
		}
	}
	return "", errGone
}

// foreground reports whether this process may read a terminal.
func foreground(f *os.File) bool {
	group, err := unix.IoctlGetInt(int(f.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

// askable is the terminal at which somebody can be asked, or nil: neither the
// program's input nor its code comes from it, and there is something to ask.
func (a *app) askable(req api.ExecuteRequest, file string, stdin io.Reader) *os.File {
	if req.Permissions == nil || stdin != nil || file == "-" || !isTerminal(a.In) || !isTerminal(a.Err) || !foreground(a.In) {
		return nil
	}
	return a.In
}
