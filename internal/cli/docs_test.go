package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove/internal/cli/session"
)

// TestDocumentedCommandsParse reads every command line of Cove's in the documents and in the help texts' examples: its
// command and its flags exist, and what must be an argument is one.
func TestDocumentedCommandsParse(t *testing.T) {
	files, err := filepath.Glob("../../*.md")
	if err != nil {
		t.Fatal(err)
	}
	more, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, file := range append(files, more...) {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range codeLines(string(data)) {
			found++
			if err := parses(line); err != nil {
				t.Errorf("%s: %q: %v", filepath.Base(file), line, err)
			}
		}
	}
	commands := []*cobra.Command{rootCommand(session.New(Streams{Err: os.Stderr}, os.Getenv))}
	for len(commands) > 0 {
		c := commands[0]
		commands = append(commands[1:], c.Commands()...)
		for line := range strings.Lines(c.Example) {
			if command, ok := commandIn(line); ok {
				found++
				if err := parses(command); err != nil {
					t.Errorf("help of %s: %q: %v", c.Name(), command, err)
				}
			}
		}
	}
	if found < 10 {
		t.Errorf("only %d command lines were found; the search is wrong", found)
	}
}

// codeLines are the command lines in a Markdown file's code blocks.
func codeLines(text string) []string {
	var all []string
	fenced := false
	for line := range strings.Lines(text) {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			fenced = !fenced
			continue
		}
		if !fenced && !strings.HasPrefix(line, "    ") {
			continue
		}
		if command, ok := commandIn(line); ok {
			all = append(all, command)
		}
	}
	return all
}

// commandIn finds a command of Cove's in a line of a shell.
func commandIn(line string) (string, bool) {
	line = strings.TrimSpace(line)
	line = strings.TrimPrefix(line, "$ ")
	if _, after, ok := strings.Cut(line, "| cove "); ok {
		line = "cove " + after
	}
	for _, prefix := range []string{"sudo ", "bin/"} {
		line = strings.TrimPrefix(line, prefix)
	}
	return line, strings.HasPrefix(line, "cove ")
}

// parses takes a command line apart as the shell and the command would.
func parses(line string) error {
	args := words(line)[1:]
	root := rootCommand(session.New(Streams{Err: os.Stderr}, func(string) string { return "" }))
	c, rest, err := root.Find(args)
	if err != nil {
		return err
	}
	c.InitDefaultHelpFlag()
	if err := c.ParseFlags(rest); err != nil {
		return err
	}
	if c.Args != nil {
		if help, err := c.Flags().GetBool("help"); err == nil && help {
			return nil
		}
		return c.Args(c, c.Flags().Args())
	}
	return nil
}

// words splits a line as a shell does, as far as documents need it, up to the
// end of its first command.
func words(line string) []string {
	var all []string
	var word strings.Builder
	quote, inWord := rune(0), false
	flush := func() {
		if inWord {
			all = append(all, word.String())
		}
		word.Reset()
		inWord = false
	}
	depth := 0
	for _, r := range line {
		switch {
		case quote != 0:
			if r == quote {
				quote = 0
			} else {
				word.WriteRune(r)
			}
		case depth > 0 || r == '(' && strings.HasSuffix(word.String(), "$"): // $(…) is one word
			if r == '(' {
				depth++
			} else if r == ')' {
				depth--
			}
			word.WriteRune(r)
		case r == '\'' || r == '"':
			quote, inWord = r, true
		case strings.ContainsRune("|<>;&#", r) && (r != '#' || !inWord):
			flush()
			return all
		case r == ' ':
			flush()
		default:
			word.WriteRune(r)
			inWord = true
		}
	}
	flush()
	return all
}

func TestWords(t *testing.T) {
	for line, want := range map[string]string{
		`cove run python -c 'print(6 * 7)'`:             `cove,run,python,-c,print(6 * 7)`,
		`cove ps -q | head`:                             `cove,ps,-q`,
		`cove kill $(cove ps -q) # all`:                 `cove,kill,$(cove ps -q)`,
		`cove run bash -c 'echo "$1"' -- hello > out`:   `cove,run,bash,-c,echo "$1",--,hello`,
		`cove serve &`:                                  `cove,serve`,
		`cove run node -c 'a > b' --timeout 2s --json;`: `cove,run,node,-c,a > b,--timeout,2s,--json`,
	} {
		if got := strings.Join(words(line), ","); got != want {
			t.Errorf("words(%q) = %q, want %q", line, got, want)
		}
	}
}
