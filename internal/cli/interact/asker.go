package interact

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/internal/cli/report"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
)

// Asker tells the user of a program which requests wait for an answer. At a terminal that the program does not read
// it asks for the answer; elsewhere it names the command that gives one.
type Asker struct {
	sess     *session.Session
	client   *client.Client
	terminal *os.File
	screen   *ui.Screen

	asking sync.WaitGroup
	waker  *ui.Waker // woken when waiting has changed

	mu      sync.Mutex
	waiting []api.Hold
	dealt   map[string]bool // said, or asked about
	mute    bool            // the terminal has gone: requests are only named
	over    bool
}

// Take is client.Stream's Holds.
func (k *Asker) Take(all []api.Hold) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.waiting = all
	if k.mute {
		k.sayAll()
	} else {
		k.waker.Wake()
	}
}

// sayAll prints the requests that were neither shown nor answered. k.mu is held.
func (k *Asker) sayAll() {
	for _, h := range k.waiting {
		if !k.dealt[h.ID] {
			k.dealt[h.ID] = true
			k.say(h)
		}
	}
}

// say names the command that answers.
func (k *Asker) say(h api.Hold) {
	k.screen.Apart(func() {
		k.sess.Say.Line("%s waits for an answer, %s left: %s (or --deny)",
			report.HoldText(h), report.LeftText(h, time.Now()), k.sess.Command("approve", h.ID))
	})
}

// Stop ends a question that is open. What the program wrote meanwhile appears.
func (k *Asker) Stop() {
	k.mu.Lock()
	k.over = true
	k.mu.Unlock()
	if k.waker != nil {
		k.waker.Wake()
		k.asking.Wait()
		k.waker.Close()
	}
}

// ask asks one question after the other until it is stopped or the terminal has gone.
func (k *Asker) ask() {
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
				k.screen.Apart(func() { k.sess.Say.Fail(err) })
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

// next waits for a request about which the user was not asked yet.
func (k *Asker) next() (api.Hold, bool) {
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
		k.waker.Wait()
	}
}

func (k *Asker) waits(h api.Hold) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return !k.over && slices.ContainsFunc(k.waiting, func(w api.Hold) bool { return w.ID == h.ID })
}

// question asks about h. What the program writes appears after it, so that it can neither cover the question nor answer
// in the terminal's name: what a terminal reports when a program asks it to is no answer by itself, and what was typed
// before is none.
func (k *Asker) question(h api.Hold) (api.HoldAnswer, error) {
	k.screen.Hold()
	defer k.screen.Release()
	if k.sess.Getenv("TERM") != "dumb" {
		fmt.Fprint(k.sess.Err, softReset)
	}
	k.sess.Say.Line("%s", report.HoldText(h))
	ui.DropInput(k.terminal)
	for {
		fmt.Fprint(k.sess.Err, "      allow it [o]nce, in this [s]andbox, for this [p]olicy, or [d]eny it? ")
		line, err := k.line(h)
		if err != nil {
			fmt.Fprintln(k.sess.Err)
			if errors.Is(err, errGone) {
				k.sess.Say.Line("%v", err)
			}
			return api.HoldAnswer{}, err
		}
		line = strings.TrimSpace(line)
		if answer, ok := typedAnswers[strings.ToLower(line)]; ok {
			return answer, nil
		}
		fmt.Fprintf(k.sess.Err, "      %.40q is none of o, s, p and d\n", line)
	}
}

func (k *Asker) line(h api.Hold) (string, error) {
	var typed strings.Builder
	for k.waits(h) {
		ready, err := k.waker.Input(k.terminal)
		if err != nil {
			return "", err
		}
		if !ready {
			k.waker.Wait()
			continue
		}
		if !ui.Foreground(k.terminal) { // to read would stop this process
			return "", io.EOF
		}
		b := make([]byte, 256)
		n, err := k.terminal.Read(b)
		if errors.Is(err, syscall.EAGAIN) {
			continue
		}
		if n <= 0 {
			return "", io.EOF
		}
		typed.Write(b[:n])
		if text, _, whole := strings.Cut(typed.String(), "\n"); whole {
			return text, nil
		}
	}
	return "", errGone
}

// NewAsker begins; stop ends it.
func NewAsker(sess *session.Session, c *client.Client, terminal *os.File, s *ui.Screen) *Asker {
	k := &Asker{sess: sess, client: c, terminal: terminal, screen: s, dealt: map[string]bool{}, mute: true}
	if terminal == nil {
		return k
	}
	var err error
	if k.waker, err = ui.NewWaker(); err == nil {
		k.mute = false
		k.asking.Go(k.ask)
	}
	return k
}

// answerTimeout is how long the gateway may take to hear an answer.
const answerTimeout = 10 * time.Second

var errGone = errors.New("it does not wait any more")

// softReset takes back what a program may have done to a terminal's letters, colours and margins (DECSTR).
const softReset = "\x1b[!p"

var typedAnswers = map[string]api.HoldAnswer{
	"o": {Allow: true, Scope: "once"}, "once": {Allow: true, Scope: "once"},
	"s": {Allow: true, Scope: "sandbox"}, "sandbox": {Allow: true, Scope: "sandbox"},
	"p": {Allow: true, Scope: "policy"}, "policy": {Allow: true, Scope: "policy"},
	"d": {}, "deny": {},
	"y": {Allow: true, Scope: "once"}, "yes": {Allow: true, Scope: "once"}, "n": {}, "no": {},
}

// AskTerminal returns the terminal at which the user can be asked, or nil.
func AskTerminal(sess *session.Session) *os.File {
	if !ui.IsTerminal(sess.In) || !ui.IsTerminal(sess.Err) || !ui.Foreground(sess.In) {
		return nil
	}
	return sess.In
}
