package cli

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cove-sandbox/cove/internal/cli/flags"
	"github.com/cove-sandbox/cove/internal/cli/session"
)

// tree returns every command that help shows.
func tree() (all []*cobra.Command) {
	sess := session.New(Streams{Err: os.Stderr}, os.Getenv)
	root := rootCommand(sess, nil)
	flags.Complete(sess, root)
	for todo := root.Commands(); len(todo) > 0; {
		c := todo[0]
		todo = append(todo[1:], c.Commands()...)
		if !c.Hidden {
			all = append(all, c)
		}
	}
	return all
}

// verbs are the rows of the table of verbs in docs/cli.md: former and shorter names, and the flags that they have.
var verbs = map[string]struct{ also, flags []string }{
	"list":   {[]string{"ls"}, []string{"json", "quiet"}},
	"show":   {nil, []string{"json"}},
	"remove": {[]string{"rm", "delete"}, []string{"json"}},
}

// TestVerbs: what is kept under a name has the same verbs everywhere.
func TestVerbs(t *testing.T) {
	text, err := os.ReadFile("../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	for verb, v := range verbs {
		row := "| `" + verb + "` | "
		for i, other := range v.also {
			row += strings.Repeat(", ", min(i, 1)) + "`" + other + "`"
		}
		if !strings.Contains(string(text), row) {
			t.Errorf("docs/cli.md has no row %q", row)
		}
	}
	found := 0
	for _, c := range tree() {
		for verb, v := range verbs {
			if slices.Contains(v.also, c.Name()) {
				t.Errorf("%s: the verb is %s", c.CommandPath(), verb)
			}
			file := []string{"cove config show", "cove ca show"} // in a form of its own
			if c.Name() != verb || slices.Contains(file, c.CommandPath()) {
				continue
			}
			found++
			for _, other := range v.also {
				if !slices.Contains(c.Aliases, other) {
					t.Errorf("%s has no alias %s", c.CommandPath(), other)
				}
			}
			for _, f := range v.flags {
				if c.Flags().Lookup(f) == nil {
					t.Errorf("%s has no --%s", c.CommandPath(), f)
				}
			}
		}
	}
	if found < 15 {
		t.Errorf("only %d commands with a verb were found; the search is wrong", found)
	}
	groups := 0
	for _, c := range tree() {
		if !c.HasSubCommands() || !keepsNames(c) {
			continue
		}
		groups++
		for _, word := range append([]string{"list"}, verbs["list"].also...) {
			if below, _, err := c.Find([]string{word}); err != nil || below.Name() != "list" {
				t.Errorf("%s has no %s", c.CommandPath(), word)
			}
		}
	}
	if groups < 6 {
		t.Errorf("only %d groups that keep things under names were found; the search is wrong", groups)
	}
}

// keepsNames reports a group about things that have names: it lists them, or takes some away.
func keepsNames(group *cobra.Command) bool {
	return strings.HasPrefix(group.Long, "List ") || slices.ContainsFunc(group.Commands(), func(c *cobra.Command) bool {
		return c.Name() == "remove" || c.Name() == "revoke"
	})
}

// TestQuiet: every command that lists things prints their names or ids alone with -q.
func TestQuiet(t *testing.T) {
	found := 0
	for _, c := range tree() {
		if !c.Runnable() || !strings.HasPrefix(c.Short, "List ") && !strings.HasPrefix(c.Long, "List ") {
			continue
		}
		found++
		if f := c.Flags().Lookup("quiet"); f == nil || f.Shorthand != "q" {
			t.Errorf("%s has no -q", c.CommandPath())
		}
	}
	if found < 12 {
		t.Errorf("only %d commands that list were found; the search is wrong", found)
	}
}

// without lists the commands without --json, and why they have none.
var without = map[string]string{
	"cove logs":           "prints what a program wrote, as it is",
	"cove server logs":    "prints a log, as it is",
	"cove shell":          "is a program at the terminal",
	"cove serve":          "runs until it is stopped",
	"cove gateway attach": "runs until it is stopped",
	"cove runs export":    "writes an archive",
	"cove image save":     "writes an archive",
	"cove ca export":      "writes a certificate",
	"cove ca show":        "prints a certificate",
	"cove policy learn":   "prints a policy, which is a file of its own form",
	"cove config new-key": "prints a key, and the lines of the configuration for it",
	"cove profile use":    "has no result",
	"cove setup git":      "has no result",
	"cove pool drain":     "has no result",
}

// TestJSON: every command prints its result as JSON, or stands in the list of those that do not.
func TestJSON(t *testing.T) {
	found := 0
	for _, c := range tree() {
		if !c.Runnable() || c.HasSubCommands() {
			continue
		}
		found++
		_, excused := without[c.CommandPath()]
		if has := c.Flags().Lookup("json") != nil; has == excused {
			t.Errorf("%s has --json: %v, and stands in the list of those without: %v", c.CommandPath(), has, excused)
		}
	}
	if found < 60 {
		t.Errorf("only %d commands were found; the search is wrong", found)
	}
}

// TestFlags: a flag has one short form in all commands, that of docs/cli.md, and a short form one flag.
func TestFlags(t *testing.T) {
	text, err := os.ReadFile("../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	short := map[string]string{} // of a flag, as the document has it
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 || !strings.HasPrefix(strings.TrimSpace(cells[1]), "`--") {
			continue
		}
		name, _, _ := strings.Cut(strings.Trim(cells[1], " `-"), " ")
		short[name] = strings.Trim(cells[2], " `-")
	}
	if len(short) < 10 {
		t.Fatalf("only %d flags were found in docs/cli.md", len(short))
	}
	former := []string{"wd", "work-dir", "workdir"}
	of := map[string]string{} // the flag of a letter, in the commands until now
	for _, c := range tree() {
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if slices.Contains(former, f.Name) {
				t.Errorf("%s has --%s, whose name is --dir", c.CommandPath(), f.Name)
			}
			if f.Shorthand == "" || f.Hidden { // a former letter
				return
			}
			if c.CommandPath() == "cove image build" && slices.Contains([]string{"dockerfile", "output", "tag"}, f.Name) {
				return // as of docker build
			}
			if other, ok := of[f.Shorthand]; ok && other != f.Name {
				t.Errorf("%s: -%s is --%s, and --%s elsewhere", c.CommandPath(), f.Shorthand, f.Name, other)
			}
			of[f.Shorthand] = f.Name
			for name, letter := range short {
				if letter != "" && f.Shorthand == letter && f.Name != name {
					t.Errorf("%s: -%s is --%s, and --%s in docs/cli.md", c.CommandPath(), letter, f.Name, name)
				}
			}
		})
		for name, letter := range short {
			if f := c.Flags().Lookup(name); f != nil && f.Shorthand != letter && f.Shorthand != "" && !f.Hidden {
				t.Errorf("%s: --%s is -%s, and -%s in docs/cli.md", c.CommandPath(), name, f.Shorthand, letter)
			}
		}
	}
}

// TestOptionalValues: help shows a value that may be left out as --flag[=VALUE], in one column with all others.
func TestOptionalValues(t *testing.T) {
	found := 0
	for _, c := range tree() {
		help := c.UsageString()
		if strings.Contains(help, `[="`) {
			t.Errorf("%s shows a value as it is kept:\n%s", c.CommandPath(), help)
		}
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if f.NoOptDefVal == "" || f.Value.Type() == "bool" || f.Hidden {
				return
			}
			found++
			value, _ := pflag.UnquoteUsage(f)
			if want := "      --" + f.Name + "[=" + value + "]   "; !strings.Contains(help, want) {
				t.Errorf("%s does not show %q:\n%s", c.CommandPath(), want, help)
			}
		})
		column := -1
		for line := range strings.Lines(help) {
			m := flagLine.FindStringIndex(line)
			if column < 0 && m != nil {
				column = m[1]
			}
			if strings.HasPrefix(line, "Global") {
				column = -1
			}
			if m != nil && column != m[1] {
				t.Errorf("%s: out of line: %s", c.CommandPath(), line)
			}
		}
	}
	if found < 5 {
		t.Errorf("only %d flags with optional values were found; the search is wrong", found)
	}
}

var flagLine = regexp.MustCompile(`^  (-.,|   ) --\S+( \S+)? {3,}`)

// TestLast: every command about one run, or about a sandbox that need not be named, takes --last.
func TestLast(t *testing.T) {
	found := 0
	for _, c := range tree() {
		if !oneOfThem.MatchString(c.Use) {
			continue
		}
		found++
		if c.Flags().Lookup("last") == nil {
			t.Errorf("%s has no --last", c.CommandPath())
		}
	}
	if found < 15 {
		t.Errorf("only %d commands about a sandbox or a run were found; the search is wrong", found)
	}
}

// oneOfThem matches the usage line of a command about one run, or about a sandbox that need not be named.
var oneOfThem = regexp.MustCompile(`^\S+ (RUN|\[(ID\|)?(SANDBOX|RUN)\])( |$)`)

// TestFormerNames: command lines of yesterday are still understood.
func TestFormerNames(t *testing.T) {
	for _, line := range []string{
		"cove run python -c x --work-dir .", "cove exec brave-otter --wd src -- make", "cove shell brave-otter --wd src",
		"cove new . --wd src", "cove image ls", "cove image rm mine", "cove runs rm ru_x", "cove preset delete web",
		"cove server logs --lines 5", "cove logs brave-otter -t t2", "cove attach brave-otter -t t2",
		"cove pr brave-otter -t 'Say who is logged in'",
		"cove runs export ru_x --output x.tar",
	} {
		if err := parses(line); err != nil {
			t.Errorf("%s: %v", line, err)
		}
		args := words(line)[1:]
		c, _, err := rootCommand(session.New(Streams{Err: os.Stderr}, os.Getenv), nil).Find(args)
		if err != nil || !c.Runnable() || c.HasSubCommands() {
			t.Errorf("%s leads to %s, %v", line, c.CommandPath(), err)
		}
	}
}

// TestCompletion: a shell offers files only where a usage line has one, and values for each flag of a closed list.
func TestCompletion(t *testing.T) {
	file := regexp.MustCompile(`\b(FILE|SOURCE|LANGUAGE|COMMAND|PROMPT|DIR|PATH)\b`)
	listed := 0
	for _, c := range tree() {
		if c.Runnable() && c.ValidArgsFunction == nil && !file.MatchString(c.Use) {
			t.Errorf("%s offers files", c.CommandPath())
		}
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			switch f.Name {
			case "network", "engine", "isolation", "image", "credential", "model-provider", "agent", "profile", "preset",
				"sandbox", "scope", "if-exists", "permission-mode", "agent-config":
				listed++
				if _, ok := c.GetFlagCompletionFunc(f.Name); !ok {
					t.Errorf("%s --%s offers no values", c.CommandPath(), f.Name)
				}
			}
		})
	}
	if listed < 30 {
		t.Errorf("only %d flags with values were found; the search is wrong", listed)
	}
}

// TestRooms: a command line has the commands of the room that it leads into, and of all rooms where it leads nowhere.
func TestRooms(t *testing.T) {
	sess := session.New(Streams{Err: os.Stderr}, os.Getenv)
	for _, r := range rooms {
		var words []string
		for _, c := range r.commands(sess, nil) {
			words = append(append(words, c.Name()), c.Aliases...)
		}
		slices.Sort(words)
		named := strings.Fields(r.words)
		slices.Sort(named)
		if !slices.Equal(words, named) {
			t.Errorf("the commands of a room are %q, its words %q", words, named)
		}
		for _, word := range words {
			if in := entered([]string{word, "x"}); len(in) != 1 || in[0].words != r.words {
				t.Errorf("%s leads into %d rooms", word, len(in))
			}
		}
	}
	for _, line := range []string{"", "--server x ps", "nothing", "help run", "exit-codes", "__complete run ''"} {
		if in := entered(strings.Fields(line)); len(in) != len(rooms) {
			t.Errorf("cove %s leads into %d rooms", line, len(in))
		}
	}
}
