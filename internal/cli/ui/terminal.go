// Package ui owns what the command line shows and asks, whatever it is about:
// messages, tables, JSON, sizes and times, prompts, colours, signals, exit codes.
package ui

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"
	"unicode"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"
	"golang.org/x/term"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/terminal"
)

// Streams are the process's own.
type Streams struct {
	In       *os.File
	Out, Err *os.File
}

// Terminal holds the standard streams of a command, for its input, its results
// and its messages. They need not be a terminal.
type Terminal struct {
	Streams
	Say    *Speaker
	Getenv func(string) string
	JSON   bool // --json was given
	Raw    bool // --raw was given: programs' output goes to terminals as it is
	quiet  bool // --quiet was given to a list
	wrote  bool // something is on standard output
}

// Wrote reports whether a command has printed some of its result.
func (t *Terminal) Wrote() bool { return t.wrote }

// NewTerminal returns the terminal of a process with these streams.
func NewTerminal(s Streams, getenv func(string) string) *Terminal {
	obey(s.Out, s.Err)
	return &Terminal{Streams: s, Say: &Speaker{W: s.Err, Color: Colorful(s.Err, getenv)}, Getenv: getenv}
}

// Print writes to standard output and keeps the error, so that a closed pipe or a full disk shows. A terminal obeys
// nothing in the text but colours.
func (t *Terminal) Print(text string) error {
	t.wrote = t.wrote || text != ""
	if !t.Raw && IsTerminal(t.Out) {
		var l terminal.Lines
		text = string(l.Write([]byte(text)))
		text += string(l.Calm())
	}
	_, err := io.WriteString(t.Out, text)
	return err
}

// Confirm asks at the terminal, and is an error unless the answer is one of yes. A signal ends the command meanwhile.
func (t *Terminal) Confirm(question string, yes ...string) error {
	t.Say.Ask(question, Columns(t.Err))
	answer, err := TypedLine(t.In)
	if err != nil {
		fmt.Fprintln(t.Err)
	}
	if !slices.Contains(yes, strings.ToLower(strings.TrimSpace(answer))) {
		return cove.Errorf(cove.Canceled, "nothing was done")
	}
	return nil
}

// TypedLine reads a line, and not a byte more: the rest is for the next reader.
func TypedLine(r io.Reader) (string, error) {
	line, err := bufio.NewReaderSize(r, 16).ReadString('\n') // a terminal gives a line at a time
	if errors.Is(err, io.EOF) && line != "" {
		err = nil
	}
	return line, err
}

// Speaker prints Cove's own messages on standard error: one line each, with nothing in it that a terminal would obey.
type Speaker struct {
	W     io.Writer
	Color bool
}

// Line prints one message.
func (s *Speaker) Line(format string, args ...any) {
	fmt.Fprintln(s.W, s.Paint(Dim, "cove:")+" "+Printable(fmt.Sprintf(format, args...)))
}

// Ask prints a question, broken between words where it is wider than the terminal. The answer is typed behind it.
func (s *Speaker) Ask(question string, columns int) {
	const prefix, indent = "cove: ", "      "
	text := ansi.Wordwrap(strings.TrimRight(Printable(question), " "), max(columns-len(prefix)-1, 20), "")
	fmt.Fprint(s.W, s.Paint(Dim, "cove:")+" "+strings.ReplaceAll(text, "\n", "\n"+indent)+" ")
}

// Lines prints those messages that are not empty.
func (s *Speaker) Lines(messages ...string) {
	for _, m := range messages {
		if m != "" {
			s.Line("%s", m)
		}
	}
}

// Fail prints an error and what to do about it.
func (s *Speaker) Fail(err error) {
	if i := new(Interrupted); errors.As(err, &i) && i.Signal == syscall.SIGPIPE {
		return // the reader of the output has closed it
	}
	fmt.Fprintln(s.W, s.Paint(Red, "cove:")+" "+Printable(Message(err)))
	if hint := cove.ErrorHint(err); hint != "" {
		fmt.Fprintln(s.W, "      "+Printable(hint))
	}
}

// Message returns the text of an error without its hint.
func Message(err error) string {
	return strings.TrimSuffix(err.Error(), " ("+cove.ErrorHint(err)+")")
}

// Colours of a terminal.
const (
	Red    = "31"
	Green  = "32"
	Yellow = "33"
	Cyan   = "36"
	Dim    = "2"
	Bold   = "1"
)

func (s *Speaker) Paint(color, text string) string { return Paint(s.Color, color, text) }

func Paint(on bool, color, text string) string {
	if !on {
		return text
	}
	return "\x1b[" + color + "m" + text + "\x1b[0m"
}

// Colorful reports whether f is a terminal that may be coloured (no-color.org).
func Colorful(f *os.File, getenv func(string) string) bool {
	return getenv("NO_COLOR") == "" && getenv("TERM") != "dumb" && IsTerminal(f)
}

// Columns is how wide a terminal is now.
func Columns(f *os.File) int {
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil || width <= 0 {
		return 80
	}
	return width
}

func IsTerminal(f *os.File) bool { return f != nil && term.IsTerminal(int(f.Fd())) }

// IsNull reports whether f can give nothing: it is closed, or /dev/null.
func IsNull(f *os.File) bool {
	if f == nil {
		return true
	}
	info, err := f.Stat()
	if err != nil {
		return true // closed by who started this process
	}
	null, err := os.Stat(os.DevNull)
	return err == nil && os.SameFile(info, null)
}

// Printable makes text safe for a terminal: whatever could move the cursor, change colours, set the title or the
// clipboard, or reorder what is seen is spelled out.
func Printable(text string) string {
	if !strings.ContainsFunc(text, unsafe) && utf8.ValidString(text) {
		return text
	}
	var b strings.Builder
	for len(text) > 0 {
		r, n := utf8.DecodeRuneInString(text)
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, text[0])
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteByte(' ')
		case unsafe(r) && r < 0x100:
			fmt.Fprintf(&b, `\x%02x`, r)
		case unsafe(r):
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
		text = text[n:]
	}
	return b.String()
}

// unsafe are control characters (C0, DEL, C1), line and paragraph separators,
// and format characters, among them those that reorder text.
func unsafe(r rune) bool {
	return unicode.Is(unicode.Cc, r) || unicode.Is(unicode.Cf, r) || unicode.Is(unicode.Zl, r) || unicode.Is(unicode.Zp, r)
}

// ShellWord quotes s for a shell, if that is needed.
func ShellWord(s string) string {
	if s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:@%+=,") == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// Cause is an error of a file without its name, which the message has.
func Cause(err error) error {
	if e := new(fs.PathError); errors.As(err, &e) {
		return e.Err
	}
	return err
}
