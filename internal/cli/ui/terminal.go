// Package ui owns what the command line shows and asks, whatever it is about:
// messages, tables, JSON, sizes and times, prompts, colours, signals, exit codes.
package ui

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/cove-sandbox/cove"
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
}

// NewTerminal returns the terminal of a process with these streams.
func NewTerminal(s Streams, getenv func(string) string) *Terminal {
	return &Terminal{Streams: s, Say: &Speaker{W: s.Err, Color: Colorful(s.Err, getenv)}, Getenv: getenv}
}

// Print writes to standard output and keeps the error, so that a closed pipe or a full disk shows.
func (t *Terminal) Print(text string) error {
	_, err := io.WriteString(t.Out, text)
	return err
}

// Confirm asks at the terminal, and is an error unless the answer is one of yes. A signal ends the command meanwhile.
func (t *Terminal) Confirm(question string, yes ...string) error {
	fmt.Fprint(t.Err, t.Say.Paint(Dim, "cove:")+" "+question)
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

// SayFacts prints names and values below a message.
func (t *Terminal) SayFacts(rows [][2]string) {
	for line := range strings.Lines(Facts(rows)) {
		fmt.Fprint(t.Err, "      "+line)
	}
}
