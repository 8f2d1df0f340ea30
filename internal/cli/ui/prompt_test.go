package ui

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/terminal/terminaltest"
)

// threeQuestions are a text, a choice and a text that must be short.
func threeQuestions() (values []string, questions []Question) {
	values = []string{"preset", "b", ""}
	return values, []Question{
		{Name: "First", About: "any text", Value: &values[0], Suggestions: []string{"other", "prefix-one", "prefix-two"}},
		{Name: "Second", Value: &values[1], Choices: []Choice{{"a", "the a"}, {"b", "the b"}}},
		{Name: "Third", Value: &values[2], Check: func(s string) error {
			if len(s) > 3 {
				return cove.Errorf(cove.InvalidArgument, "%s is too long", s).WithHint("write less")
			}
			return nil
		}},
	}
}

func noEnvironment(string) string { return "" }

// TestAskOverAPipe: each line is an answer, an empty one takes the default, a
// wrong one is asked for again, and the end of the input is no answer.
func TestAskOverAPipe(t *testing.T) {
	for _, c := range []struct {
		name, typed string
		want        []string // nil: canceled
		says        string
	}{
		{"defaults", "\n\n\n", []string{"preset", "b", ""}, "First (any text) [preset]: "},
		{"answers", " x \n1\nabc\n", []string{"x", "a", "abc"}, "  2  the b\nSecond [2]: "},
		{"by name", "\na\n\n", []string{"preset", "a", ""}, ""},
		{"again", "\n3\nb\nlong\nok\n", []string{"preset", "b", "ok"}, "long is too long; write less"},
		{"the last line has no end", "\n\nabc", []string{"preset", "b", "abc"}, ""},
		{"the end", "x\n", nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			in, typing, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer in.Close()
			typing.WriteString(c.typed)
			typing.Close()
			said, err := os.Create(t.TempDir() + "/said")
			if err != nil {
				t.Fatal(err)
			}
			defer said.Close()
			values, questions := threeQuestions()
			err = NewTerminal(Streams{In: in, Err: said}, noEnvironment).Ask(t.Context(), questions...)
			if c.want == nil {
				if cove.ErrorCode(err) != cove.Canceled {
					t.Errorf("%v", err)
				}
				return
			}
			if err != nil || !slices.Equal(values, c.want) {
				t.Errorf("%q, %v; want %q", values, err, c.want)
			}
			if text, err := os.ReadFile(said.Name()); err != nil || !strings.Contains(string(text), c.says) {
				t.Errorf("%q, %v; want %q in it", text, err, c.says)
			}
		})
	}
}

// TestAskAtATerminal: tab completes, ctrl-c and the end of the context leave, and the terminal is as it was.
func TestAskAtATerminal(t *testing.T) {
	for _, c := range []struct {
		name, typed string
		end         bool // the context ends
		want        string
	}{
		{"completed", "pre\t\t\r\r\r", false, "prefix-two"},
		{"edited", "wrong\x15right\r\r\r", false, "right"},
		{"ctrl-c", "x\x03", false, ""},
		{"ended", "x", true, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			master, terminal := terminaltest.Open(t)
			before, err := unix.IoctlGetTermios(int(terminal.Fd()), unix.TCGETS)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			values, questions := threeQuestions()
			done := make(chan error)
			go func() {
				done <- NewTerminal(Streams{In: terminal, Out: terminal, Err: terminal}, noEnvironment).Ask(ctx, questions...)
			}()
			shown := ""
			b := make([]byte, 4096)
			for !strings.Contains(shown, "First") {
				n, err := master.Read(b)
				if err != nil {
					t.Fatal(err)
				}
				shown += string(b[:n])
			}
			master.WriteString(c.typed)
			if c.end {
				cancel()
			}
			go func() { // what is shown is read by somebody
				for {
					if _, err := master.Read(b); err != nil {
						return
					}
				}
			}()
			select {
			case err = <-done:
			case <-time.After(20 * time.Second):
				err = errors.New("it goes on")
			}
			if c.want == "" && cove.ErrorCode(err) != cove.Canceled || c.want != "" && (err != nil || values[0] != c.want) {
				t.Errorf("%q, %v; want %q", values[0], err, c.want)
			}
			after, err := unix.IoctlGetTermios(int(terminal.Fd()), unix.TCGETS)
			if err != nil || *after != *before {
				t.Errorf("the terminal is not as it was: %v, %+v; want %+v", err, after, before)
			}
		})
	}
}
