package ui

import (
	"errors"
	"syscall"

	"github.com/spf13/cobra"
)

// Result holds the output of a command.
type Result struct {
	Value any      // as --json prints it
	Text  string   // for people
	Notes []string // messages below the text, left out with --json
}

// Showing adds --json to a command, and prints the result that do returns.
func (t *Terminal) Showing(c *cobra.Command, do func(*cobra.Command, []string) (Result, error)) *cobra.Command {
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

// Listing lays out records of one kind.
type Listing[T any] struct {
	Key      string // of the list, in the object that --json prints
	Headings []string
	Row      func(T) []string
}

// Result returns the table, and the list as JSON.
func (l Listing[T]) Result(all []T) Result {
	rows := make([][]string, 0, len(all))
	for _, one := range all {
		rows = append(rows, l.Row(one))
	}
	return Result{Value: map[string][]T{l.Key: append([]T{}, all...)}, Text: Table(l.Headings, rows)}
}

// Names returns the result of --quiet: one name on a line.
func (l Listing[T]) Names(all []T, name func(T) string) Result {
	names := make([]string, 0, len(all))
	for _, one := range all {
		names = append(names, name(one))
	}
	return Result{Value: l.Result(all).Value, Text: Lines("", names).Text}
}

// Lines returns a list of names: one on a line, and below key as JSON.
func Lines(key string, names []string) Result {
	r := Result{Value: map[string][]string{key: append([]string{}, names...)}}
	for _, name := range names {
		r.Text += name + "\n"
	}
	return r
}

// Each calls do with each name, and prints all errors but the last, which it returns. A closed pipe ends it.
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

// AtLeastOne accepts one argument or more, which name calls: "ID".
func AtLeastOne(name string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return UsageError(cmd, "%s is missing", name)
		}
		return nil
	}
}
