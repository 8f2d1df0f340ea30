package ui

import (
	"errors"
	"syscall"

	"github.com/spf13/cobra"
)

// Result is what a command has found or made.
type Result struct {
	Value any      // as --json prints it
	Text  string   // for people
	Notes []string // said beside the text, and not with --json
}

// Showing gives a command --json, and prints what do returns.
func (t *Terminal) Showing(c *cobra.Command, do func(cmd *cobra.Command, args []string) (Result, error)) *cobra.Command {
	asJSON := false
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		r, err := do(cmd, args)
		if err != nil {
			return err
		}
		return t.Show(r, asJSON)
	}
	return c
}

// Show prints a result.
func (t *Terminal) Show(r Result, asJSON bool) error {
	if asJSON {
		return t.PrintJSON(r.Value)
	}
	if err := t.Print(r.Text); err != nil {
		return err
	}
	for _, note := range r.Notes {
		t.Say.Line("%s", note)
	}
	return nil
}

// Listing is how things of one kind are listed.
type Listing[T any] struct {
	Key      string // of the list, in the object that --json prints
	Headings []string
	Row      func(T) []string
}

// Result is a table, and the list as JSON.
func (l Listing[T]) Result(all []T) Result {
	rows := make([][]string, 0, len(all))
	for _, one := range all {
		rows = append(rows, l.Row(one))
	}
	return Result{Value: map[string][]T{l.Key: append([]T{}, all...)}, Text: Table(l.Headings, rows)}
}

// Names is the result of --quiet: one name on a line.
func (l Listing[T]) Names(all []T, name func(T) string) Result {
	names := make([]string, 0, len(all))
	for _, one := range all {
		names = append(names, name(one))
	}
	return Result{Value: l.Result(all).Value, Text: Lines("", names).Text}
}

// Lines is a list of names: one on a line, and below key as JSON.
func Lines(key string, names []string) Result {
	r := Result{Value: map[string][]string{key: append([]string{}, names...)}}
	for _, name := range names {
		r.Text += name + "\n"
	}
	return r
}

// Each does something with each name. Of several errors all but the last, which is
// returned, are said. Nothing follows when nobody reads what is printed.
func (t *Terminal) Each(names []string, do func(name string) error) error {
	var failed error
	for _, name := range names {
		err := do(name)
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
	return failed
}

// AtLeastOne takes one argument or more: "ID".
func AtLeastOne(name string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return UsageError(cmd, "%s is missing", name)
		}
		return nil
	}
}
