package ui

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Result holds the output of a command.
type Result struct {
	Value any        // as --json prints it
	Text  string     // for people
	rows  [][]string // in place of Text: a table, its headings first, which fits the terminal
	Notes []string   // messages below the text, left out with --json
}

// AddJSON adds --json to a command.
func (t *Terminal) AddJSON(f *pflag.FlagSet, usage string) { f.BoolVar(&t.JSON, "json", false, usage) }

// Showing adds --json to a command, and prints the result that do returns.
func (t *Terminal) Showing(c *cobra.Command, do func(*cobra.Command, []string) (Result, error)) *cobra.Command {
	t.AddJSON(c.Flags(), "print one JSON object")
	c.RunE = func(cmd *cobra.Command, args []string) error { return t.Show(do(cmd, args)) }
	return c
}

// ShowingList is Showing for a list of things, with -q for their names alone.
func (t *Terminal) ShowingList(c *cobra.Command, do func(*cobra.Command, []string) (Result, error)) *cobra.Command {
	t.AddQuiet(c.Flags())
	return t.Showing(c, do)
}

// AddQuiet adds -q to a command that lists things.
func (t *Terminal) AddQuiet(f *pflag.FlagSet) {
	f.BoolVarP(&t.quiet, "quiet", "q", false, "print the names or ids alone")
}

// OldNames has flags taken by former names, too, which the help does not show. now has the name of today for each.
func OldNames(f *pflag.FlagSet, now map[string]string) {
	f.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if today, ok := now[name]; ok {
			name = today
		}
		return pflag.NormalizedName(name)
	})
}

// OldLetter has a flag taken by a former letter, too, which the help does not show: the letter is another flag's today.
func OldLetter(f *pflag.FlagSet, letter, name string) {
	today := f.Lookup(name)
	former := f.VarPF(today.Value, letter, letter, today.Usage)
	former.Hidden = true
}

// Show prints a result, unless there is an error instead.
func (t *Terminal) Show(r Result, err error) error {
	if err != nil {
		return err
	}
	if t.JSON {
		return t.PrintJSON(r.Value)
	}
	text := r.Text
	switch {
	case r.rows != nil && t.quiet:
		return t.Print(firstCells(r.rows))
	case r.rows != nil:
		text = fitted(r.rows, t.tableWidth())
	}
	if err := t.Print(text); err != nil {
		return err
	}
	t.Say.Lines(r.Notes...)
	return nil
}

// PrintText prints a part of a command's result, which --json prints as one object at the end.
func (t *Terminal) PrintText(text string) error {
	if t.JSON {
		return nil
	}
	return t.Print(text)
}

// Listing returns records as a table, and below key as JSON.
func Listing[T any](key string, all []T, headings []string, row func(T) []string) Result {
	rows := make([][]string, 0, len(all))
	for _, one := range all {
		rows = append(rows, row(one))
	}
	return TableOf(map[string][]T{key: append([]T{}, all...)}, headings, rows)
}

// TableOf returns a value with a table of it.
func TableOf(value any, headings []string, rows [][]string) Result {
	return Result{Value: value, rows: append([][]string{headings}, rows...)}
}

// Names returns records as Listing does, with one name on a line in place of the table.
func Names[T any](key string, all []T, name func(T) string) Result {
	r := Result{Value: map[string][]T{key: append([]T{}, all...)}}
	for _, one := range all {
		r.Text += name(one) + "\n"
	}
	return r
}

// ErrSkipped is the error by which a name of Each is left out without a word.
var ErrSkipped = errors.New("skipped")

// Each calls do with each name, prints those that it was done with, in JSON below key, and all errors but the last,
// which it returns. A closed pipe ends it.
func (t *Terminal) Each(key string, names []string, do func(name string) error) error {
	var failed error
	done := []string{}
	for _, name := range names {
		err := do(name)
		switch {
		case errors.Is(err, ErrSkipped):
			continue
		case err == nil && t.JSON:
			done = append(done, name)
			continue
		case err == nil:
			err = t.Print(name + "\n")
		}
		if err == nil {
			continue
		}
		if errors.Is(err, syscall.EPIPE) {
			return err
		}
		if failed != nil {
			t.Say.Fail(failed)
		}
		failed = err
	}
	if t.JSON {
		return cmp.Or(t.PrintJSON(map[string][]string{key: done}), failed)
	}
	return failed
}

// PrintJSON writes one indented object to standard output.
func (t *Terminal) PrintJSON(v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return t.Print(PlainJSON(string(b)) + "\n")
}

// PrintJSONLine writes one object on a line of standard output.
func (t *Terminal) PrintJSONLine(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return t.Print(PlainJSON(string(b)) + "\n")
}

// PlainJSON escapes what encoding/json leaves and a terminal may obey: C1 control characters and those that reorder
// text. They are within strings, where the escaped form means the same.
func PlainJSON(text string) string {
	if !strings.ContainsFunc(text, Obeyed) {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		switch {
		case !Obeyed(r):
			b.WriteRune(r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// Obeyed are the unsafe characters that JSON has in strings only.
func Obeyed(r rune) bool { return r != '\n' && unsafe(r) }

// Facts are names, each with a value.
type Facts [][2]string

// Add adds a name, unless it has no value.
func (f *Facts) Add(name, value string) {
	if value != "" {
		*f = append(*f, [2]string{name, value})
	}
}

// Text lays out names and values.
func (f Facts) Text() string {
	width := 0
	for _, r := range f {
		width = max(width, utf8.RuneCountInString(r[0]))
	}
	var b strings.Builder
	for _, r := range f {
		b.WriteString(r[0] + strings.Repeat(" ", width-utf8.RuneCountInString(r[0])+2) + Printable(r[1]) + "\n")
	}
	return b.String()
}

// SayFacts prints names and values below a message.
func (t *Terminal) SayFacts(rows Facts) {
	for line := range strings.Lines(rows.Text()) {
		fmt.Fprint(t.Err, "      "+line)
	}
}

func Brackets(text string) string {
	if text == "" {
		return ""
	}
	return "(" + text + ")"
}

func Counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
