package cli

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

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
	commands := []*cobra.Command{rootCommand(session.New(Streams{Err: os.Stderr}, os.Getenv), nil)}
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
	root := rootCommand(session.New(Streams{Err: os.Stderr}, func(string) string { return "" }), nil)
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

// ofOthers are flags of other programs that documents name, by the program.
var ofOthers = map[string][]string{
	"an agent": {"dangerously-bypass-hook-trust", "yolo", "output-format", "no-sandbox", "mode", "not", "mcp", "session",
		"system", "tools", "trust-hooks", "version"},
	"cove-worker":  {"base-url", "context-window", "cwd", "key-env", "max-output", "provider-kind"},
	"curl":         {"data-binary", "unix-socket"},
	"a Dockerfile": {"checksum", "chmod", "chown", "device", "exclude", "parents", "security", "ssh", "unpack"},
	"docker":       {"env-file", "format", "volume"},
	"git": {"bisect", "filter", "git", "global", "init", "onel", "ref", "reference", "revs", "shared",
		"staged", "stdout", "unshallow"},
	"install.sh":      {"prefix", "release"},
	"start-docker.sh": {"stop"},
	"modelserver":     {"key", "record", "script", "tls-cert", "tls-key"},
	"systemd":         {"now", "user"},
	"cove, formerly":  {"lines", "wd", "work-dir"},
}

// TestDocumentedFlagsExist: a flag that a document names is one of some command.
func TestDocumentedFlagsExist(t *testing.T) {
	known := map[string]bool{"help": true}
	add := func(f *pflag.Flag) { known[f.Name] = true }
	todo := []*cobra.Command{rootCommand(session.New(Streams{Err: os.Stderr}, func(string) string { return "" }), nil)}
	for len(todo) > 0 {
		c := todo[0]
		todo = append(todo[1:], c.Commands()...)
		c.Flags().VisitAll(add)
		c.PersistentFlags().VisitAll(add)
	}
	unused := map[string]bool{}
	for _, all := range ofOthers {
		for _, name := range all {
			known[name], unused[name] = true, true
		}
	}
	more, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, file := range append(more, "../../README.md", "../../SECURITY.md") {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(string(data), "\n") {
			for _, m := range flagIn.FindAllStringSubmatch(line, -1) {
				found++
				delete(unused, m[1])
				if !known[m[1]] {
					t.Errorf("%s:%d: no command has --%s", filepath.Base(file), i+1, m[1])
				}
			}
		}
	}
	if len(unused) > 0 {
		t.Errorf("no document names these flags of other programs: %v", slices.Sorted(maps.Keys(unused)))
	}
	if found < 300 {
		t.Errorf("only %d flags were found; the search is wrong", found)
	}
}

// flagIn finds flags in a line: none in a word, an address or a comment of HTML.
var flagIn = regexp.MustCompile("(?:^|[\\s`(\"'|\\[])--([a-z][a-z0-9-]*)")
