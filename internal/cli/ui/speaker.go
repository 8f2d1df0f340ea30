package ui

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/cove-sandbox/cove"
)

// Speaker prints Cove's own messages on standard error: one line each, with nothing in it that a terminal would obey.
type Speaker struct {
	W     io.Writer
	Color bool
}

// Line prints one message.
func (s *Speaker) Line(format string, args ...any) {
	fmt.Fprintln(s.W, s.Paint(Dim, "cove:")+" "+Printable(fmt.Sprintf(format, args...)))
}

// Fail prints an error and what to do about it.
func (s *Speaker) Fail(err error) {
	if i := new(Interrupted); errors.As(err, &i) && i.Signal == syscall.SIGPIPE {
		return // the reader of the output has closed it
	}
	message, hint := err.Error(), cove.ErrorHint(err)
	message = strings.TrimSuffix(message, " ("+hint+")")
	fmt.Fprintln(s.W, s.Paint(Red, "cove:")+" "+Printable(message))
	if hint != "" {
		fmt.Fprintln(s.W, "      "+Printable(hint))
	}
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
