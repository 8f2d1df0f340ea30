package ui

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/term"

	"github.com/cove-sandbox/cove"
)

// Question is asked on one line.
type Question struct {
	Name, About string
	Value       *string            // the default, and then the answer without blanks around it
	Choices     []Choice           // an answer is one of them; none is any text
	Suggestions []string           // that tab completes
	Check       func(string) error // refuses an answer, which is then asked for again; nil takes all
}

// Choice is one answer of several.
type Choice struct{ Value, About string }

// Ask asks questions, one after the other. At a terminal an answer is edited as in a shell; TERM=dumb and input that is
// no terminal are read line by line. Errors: Canceled by ctrl-c and at the end of the input, or the signal that came.
func (t *Terminal) Ask(ctx context.Context, questions ...Question) error {
	ctx, interrupts := CoverSignals(ctx)
	defer interrupts.Stop()
	p, err := t.openPrompt(ctx)
	if err != nil {
		return err
	}
	defer p.close()
	for _, q := range questions {
		if err := p.ask(q); err != nil {
			p.print("\n")
			return interrupts.Explain(err)
		}
	}
	return nil
}

type prompt struct {
	terminal *Terminal
	in       *CancelReader
	lines    *bufio.Reader  // of a terminal that is not drawn on
	editor   *term.Terminal // of one that is
	before   *term.State    // of that terminal

	suggestions []string // for the question that is open
	matches     []string // of them, for what was typed before tab
	shown       int      // the one of matches that tab has shown last
}

func (t *Terminal) openPrompt(ctx context.Context) (*prompt, error) {
	in, err := NewCancelReader(ctx, t.In)
	if err != nil {
		return nil, err
	}
	p := &prompt{terminal: t, in: in}
	if !IsTerminal(t.In) || !IsTerminal(t.Err) || t.Getenv("TERM") == "dumb" {
		p.lines = bufio.NewReader(in)
		return p, nil
	}
	if p.before, err = term.MakeRaw(int(t.In.Fd())); err != nil {
		in.Close()
		return nil, cove.Errorf(cove.InvalidArgument, "this terminal cannot be asked: %w", err)
	}
	p.editor = term.NewTerminal(struct {
		io.Reader
		io.Writer
	}{in, t.Err}, "")
	p.editor.SetSize(Columns(t.Err), 1)
	p.editor.AutoCompleteCallback = p.complete
	return p, nil
}

func (p *prompt) close() {
	if p.before != nil {
		term.Restore(int(p.terminal.In.Fd()), p.before)
	}
	p.in.Close()
}

func (p *prompt) print(text string) {
	if p.editor != nil {
		io.WriteString(p.editor, text)
	} else {
		io.WriteString(p.terminal.Err, text)
	}
}

// ask asks until there is an answer that may be taken.
func (p *prompt) ask(q Question) error {
	p.suggestions, p.matches = q.Suggestions, nil
	preset := *q.Value
	for i, c := range q.Choices {
		p.print(fmt.Sprintf("  %d  %s\n", i+1, c.About))
		if c.Value == *q.Value {
			preset = strconv.Itoa(i + 1)
		}
	}
	text := p.terminal.Say.Paint(Bold, q.Name)
	if q.About != "" {
		text += " (" + q.About + ")"
	}
	if preset != "" {
		text += " [" + Printable(preset) + "]"
	}
	for {
		line, err := p.line(text + ": ")
		if errors.Is(err, io.EOF) {
			return cove.Errorf(cove.Canceled, "there was no answer")
		}
		if err != nil {
			return err
		}
		answer, err := q.read(strings.TrimSpace(line))
		if err == nil {
			*q.Value = answer
			return nil
		}
		p.print("  " + Printable(sentence(err)) + "\n")
	}
}

// line reads one line below what was written.
func (p *prompt) line(question string) (string, error) {
	if p.editor != nil {
		p.editor.SetPrompt(question)
		return p.editor.ReadLine()
	}
	p.print(question)
	line, err := p.lines.ReadString('\n')
	if line != "" && errors.Is(err, io.EOF) {
		err = nil
	}
	return line, err
}

func (q Question) read(line string) (string, error) {
	kept := line == ""
	if kept {
		line = strings.TrimSpace(*q.Value)
	}
	if len(q.Choices) > 0 && !kept {
		if n, err := strconv.Atoi(line); err == nil && n >= 1 && n <= len(q.Choices) {
			return q.Choices[n-1].Value, nil
		}
		if !slices.ContainsFunc(q.Choices, func(c Choice) bool { return c.Value == line }) {
			return "", cove.Errorf(cove.InvalidArgument, "%.80q is none of the choices", line).
				WithHint("write a number from 1 to %d", len(q.Choices))
		}
	}
	if q.Check != nil {
		return line, q.Check(line)
	}
	return line, nil
}

// sentence is an error with its hint, on one line.
func sentence(err error) string {
	hint := cove.ErrorHint(err)
	if hint == "" {
		return err.Error()
	}
	return strings.TrimSuffix(err.Error(), " ("+hint+")") + "; " + hint
}

// complete shows one suggestion after the other that begins with what was typed.
func (p *prompt) complete(line string, at int, key rune) (string, int, bool) {
	if key != '\t' {
		p.matches = nil
		return "", 0, false
	}
	if p.matches == nil {
		p.shown = -1
		for _, s := range p.suggestions {
			if strings.HasPrefix(s, line) {
				p.matches = append(p.matches, s)
			}
		}
	}
	if len(p.matches) == 0 {
		return line, at, true
	}
	p.shown = (p.shown + 1) % len(p.matches)
	return p.matches[p.shown], len(p.matches[p.shown]), true
}
