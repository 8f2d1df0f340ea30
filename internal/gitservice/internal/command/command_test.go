package command

import (
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/cove-sandbox/cove"
)

var where = Context{Dir: "/workspace/src", Branch: "own", Shared: []string{"main", "develop"}, Tags: []string{"v1.0"},
	Terms: []string{"fast", "slow"}}

// fields takes a line of testdata apart as a shell does: '…' and "…" are one word.
func fields(line string) (words []string) {
	for line = strings.TrimSpace(line); line != ""; line = strings.TrimLeft(line, " ") {
		word, rest := "", line
		for rest != "" && rest[0] != ' ' {
			if q := rest[0]; q == '\'' || q == '"' {
				end := strings.IndexByte(rest[1:], q)
				word, rest = word+rest[1:1+end], rest[end+2:]
				continue
			}
			word, rest = word+rest[:1], rest[1:]
		}
		words, line = append(words, word), rest
	}
	return words
}

// lines reads a file of testdata without its comments.
func lines(t testing.TB, name string) (all []string) {
	t.Helper()
	data, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			all = append(all, line)
		}
	}
	return all
}

func TestAllowed(t *testing.T) {
	seen := map[string]bool{}
	for _, line := range lines(t, "allowed.txt") {
		asked, want, ok := strings.Cut(line, " => ")
		if !ok {
			t.Fatalf("%q has no answer", line)
		}
		c, err := Parse(fields(asked), where)
		if err != nil {
			t.Errorf("git %s: %v", asked, err)
			continue
		}
		if got := strings.Join(c.Args, " "); got != want {
			t.Errorf("git %s is run as\n  %s, want\n  %s", asked, got, want)
		}
		seen[c.Verb] = true
		again, err := Parse(c.Args, Context{Dir: c.Dir, Branch: where.Branch, Shared: where.Shared, Tags: where.Tags,
			Terms: where.Terms})
		if err != nil || !slices.Equal(again.Args, c.Args) {
			t.Errorf("git %s is not what it becomes when it is judged again: %q, %v", want, again.Args, err)
		}
	}
	for _, v := range Verbs() {
		if !seen[v] {
			t.Errorf("no line allows 'git %s'", v)
		}
	}
}

func TestRefused(t *testing.T) {
	all := lines(t, "refused.txt")
	if len(all) < 150 {
		t.Errorf("%d lines, want at least 150", len(all))
	}
	for _, line := range all {
		c, err := Parse(fields(line), where)
		if err == nil {
			t.Errorf("git %s is allowed, as %q", line, c.Args)
			continue
		}
		if code := cove.ErrorCode(err); code != cove.Forbidden && code != cove.InvalidArgument {
			t.Errorf("git %s: %v has the code %s", line, err, code)
		}
		if strings.HasSuffix(err.Error(), ".") || strings.ContainsRune(err.Error(), '\n') {
			t.Errorf("git %s: %q does not read as an error of git", line, err)
		}
	}
}

// TestEveryOption: each option of the table is taken in each of its spellings,
// and is written so that git takes it for the same.
func TestEveryOption(t *testing.T) {
	for _, v := range verbs() {
		for name, o := range v.known {
			forms := [][]string{}
			value := "1"
			switch o.takes {
			case enum:
				value = o.values[0]
			case revision:
				value = "HEAD"
			case input:
				value = "-"
			case noteRef:
				value = "refs/notes/x"
			}
			if v.name == "push" && strings.HasPrefix(name, "--force-with") {
				value = "own"
			}
			if strings.Contains(strings.Join(o.names, " "), "create") || name == "-b" && v.name == "checkout" || name == "-B" &&
				v.name == "checkout" {
				value = "own"
			}
			long := strings.HasPrefix(name, "--")
			if o.takes == none || o.optional {
				forms = append(forms, []string{name})
			}
			if o.takes != none && long {
				forms = append(forms, []string{name + "=" + value})
			}
			if o.takes != none && !long {
				forms = append(forms, []string{name + value})
			}
			if o.takes != none && !o.optional {
				forms = append(forms, []string{name, value})
			}
			for _, form := range forms {
				s, err := split(append(strings.Fields(v.name), form...))
				if err != nil {
					t.Errorf("git %s %q: %v", v.name, form, err)
					continue
				}
				j := &judge{Context: where, s: s}
				j.Root = cove.Workspace
				if err := j.values(); err != nil {
					t.Errorf("git %s %q: %v", v.name, form, err)
					continue
				}
				want := o.name()
				if len(form) == 2 || form[0] != name {
					if want += "=" + value; !strings.HasPrefix(o.name(), "--") {
						want = o.name() + value
					}
				}
				if got := s.options[0].written(); len(s.options) != 1 || got != want {
					t.Errorf("git %s %q is written %q, want %q", v.name, form, got, want)
				}
			}
			for n := 3; long && n < len(name); n++ {
				short := name[:n]
				if _, is := v.known[short]; is || o.takes != none {
					continue
				}
				if _, err := split(append(strings.Fields(v.name), short)); err == nil {
					t.Errorf("git %s %s: an abbreviation is taken", v.name, short)
				}
			}
		}
	}
}

// dangerous are options that must never reach git, whatever they are called in the table's commands.
var dangerous = []string{"--exec", "--upload-pack", "--receive-pack", "--output", "--ext-diff", "--textconv",
	"--open-files-in-pager", "--git-dir", "--work-tree",
	"--template", "--separate-git-dir", "--no-index", "--interactive", "--edit-todo", "--gpg-sign", "--show-signature",
	"--recurse-submodules", "--config-env",
	"--exec-path", "--namespace", "--batch", "--stdin", "--pathspec-from-file", "--contents", "--ignore-revs-file",
	"--push-option", "--mirror", "--delete", "--super-prefix"}

func TestNothingDangerousIsInTheTable(t *testing.T) {
	for _, v := range verbs() {
		for name := range v.known {
			if slices.Contains(dangerous, name) && !v.query { // which answers questions about them
				t.Errorf("git %s %s is in the table", v.name, name)
			}
		}
	}
	for _, key := range []string{"core.editor", "core.pager", "core.fsmonitor", "core.hookspath", "diff.external",
		"credential.helper", "include.path", "alias.x",
		"filter.x.clean", "diff.x.textconv", "merge.x.driver", "gpg.program", "core.sshcommand", "core.attributesfile",
		"url.x.insteadof", "http.proxy", "color.x.y.z"} {
		if Harmless(key, "true") {
			t.Errorf("%s is harmless", key)
		}
	}
}

// TestARefusedOptionStaysRefused: whatever allowed arguments stand around it, an option that is not in the table is
// refused, unless it stands where git takes it for a value or a path.
func TestARefusedOptionStaysRefused(t *testing.T) {
	allowed := lines(t, "allowed.txt")
	rapid.Check(t, func(t *rapid.T) {
		asked, _, _ := strings.Cut(rapid.SampledFrom(allowed).Draw(t, "line"), " => ")
		words := fields(asked)
		bad := rapid.SampledFrom(dangerous).Draw(t, "option") + rapid.SampledFrom([]string{"", "=x", "=/etc/passwd"}).
			Draw(t, "value")
		at := rapid.IntRange(0, len(words)).Draw(t, "at")
		c, err := Parse(slices.Insert(slices.Clone(words), at, bad), where)
		if err != nil {
			return
		}
		checkArgs(t, c)
	})
}

// checkArgs fails when arguments that were allowed hold what git could take for an option that is not in the table.
func checkArgs(t interface{ Errorf(string, ...any) }, c Command) {
	v := verbs().find(c.Verb)
	if v == nil {
		t.Errorf("%q: unknown verb %q", c.Args, c.Verb)
		return
	}
	args := c.Args
	for len(args) > 0 && strings.HasPrefix(args[0], "-") {
		if o := globalOptions()[args[0]]; o == nil || o.takes != none {
			t.Errorf("%q: %s before the command", c.Args, args[0])
		}
		args = args[1:]
	}
	for i, a := range args {
		if a == "--" {
			for _, p := range args[i+1:] {
				if strings.HasPrefix(p, "-") {
					t.Errorf("%q: the path %q could be an option", c.Args, p)
				}
			}
			break
		}
		if !strings.HasPrefix(a, "-") || a == "-" {
			continue
		}
		if strings.HasPrefix(a, "--") {
			name, _, _ := strings.Cut(a, "=")
			if v.known[name] == nil {
				t.Errorf("%q: %q is not in the table", c.Args, name)
			}
		} else if v.known[a[:2]] == nil {
			t.Errorf("%q: %q is not in the table", c.Args, a)
		}
	}
	if c.Dir != cove.Workspace && !strings.HasPrefix(path.Clean(c.Dir), cove.Workspace+"/") {
		t.Errorf("%q runs in %s", c.Args, c.Dir)
	}
	for _, kv := range c.Config {
		if !Harmless(kv[0], kv[1]) {
			t.Errorf("%q has the setting %q", c.Args, kv)
		}
	}
	for _, id := range c.Objects {
		if !isHex(id) {
			t.Errorf("%q names the object %q", c.Args, id)
		}
	}
}

// TestOnlyWhatIsSeen: a name that is neither the sandbox's branch, nor shared,
// nor a tag, is left where git looks for revisions by no command.
func TestOnlyWhatIsSeen(t *testing.T) {
	suffixes := []string{"", "^", "~2", "^{commit}", "^{/x}", "^!", "^@", ":a.go", "@{1}", "@{u}", "..HEAD",
		"...main", "^2~3"}
	prefixes := []string{"", "refs/heads/", "heads/", "origin/", "refs/remotes/origin/", "remotes/origin/", "refs/",
		"HEAD..", "main...", "^", "refs/tags/", "tags/", "refs/notes/", "+"}
	for _, v := range verbs() {
		for _, p := range prefixes {
			for _, s := range suffixes {
				word := p + "secret" + s
				c, err := Parse(append(strings.Fields(v.name), word), where)
				if err != nil {
					continue
				}
				for _, a := range c.Args {
					switch v.name {
					case "for-each-ref", "show-ref", "check-ref-format": // choose among what there is, or only look at the text
						continue
					case "grep", "check-attr": // a text
						continue
					}
					if strings.Contains(a, "secret") && !strings.HasPrefix(a, "./") &&
						!slices.Contains(c.Args[:slices.Index(c.Args, a)], "--") {
						t.Errorf("git %s %s is run as %q", v.name, word, c.Args)
					}
				}
			}
		}
	}
}

func TestObjects(t *testing.T) {
	for line, want := range map[string]string{
		"log deadbeef..CAFEbabe~2":    "deadbeef cafebabe",
		"show v1.0-3-gdeadbeef":       "deadbeef",
		"diff deadbeef:a.go HEAD:b":   "deadbeef",
		"cherry-pick ^deadbeef HEAD":  "deadbeef",
		"commit --fixup=amend:abcdef": "abcdef",
		"log main..HEAD":              "",
		"tag --contains abcd":         "abcd",
		"cat-file -p abcd^{tree}":     "abcd",
	} {
		c, err := Parse(fields(line), where)
		if err != nil {
			t.Errorf("git %s: %v", line, err)
		} else if got := strings.Join(c.Objects, " "); got != want {
			t.Errorf("git %s names %q, want %q", line, got, want)
		}
	}
}

func TestNeeds(t *testing.T) {
	for _, c := range []struct {
		line   string
		want   Needs
		editor bool
		effect Effect
	}{
		{"log", Needs{Pager: true}, false, Reads},
		{"--no-pager log", Needs{Pager: true, NoPager: true}, false, Reads},
		{"-p status", Needs{Paginate: true}, false, Reads},
		{"branch", Needs{Pager: true}, false, Reads},
		{"branch --show-current", Needs{Pager: true}, false, Reads},
		{"commit", Needs{}, true, Writes},
		{"commit -m x", Needs{}, false, Writes},
		{"commit -F ../m", Needs{Input: "../m"}, false, Writes},
		{"apply x.patch", Needs{Input: "x.patch"}, false, Writes},
		{"apply", Needs{Input: "-"}, false, Writes},
		{"merge main", Needs{}, true, Writes},
		{"stash list", Needs{Pager: true}, false, Reads},
		{"push", Needs{}, false, Remote},
		{"fetch", Needs{}, false, Remote},
	} {
		got, err := Describe(fields(c.line))
		if err != nil || got != c.want {
			t.Errorf("git %s needs %+v, %v, want %+v", c.line, got, err, c.want)
		}
		cmd, err := Parse(fields(c.line), where)
		if err != nil || cmd.Editor != c.editor || cmd.Effect != c.effect || cmd.Input != c.want.Input {
			t.Errorf("git %s is %+v, %v", c.line, cmd, err)
		}
	}
}

func TestOutsideTheWorkspace(t *testing.T) {
	for _, dir := range []string{"/", "/tmp", "/workspace2", "/workspace/..", "", "src"} {
		if c, err := Parse([]string{"status"}, Context{Dir: dir, Branch: "own"}); err == nil {
			t.Errorf("in %q it runs in %q", dir, c.Dir)
		}
		if c, err := Parse([]string{"-C", "/workspace/src", "status"}, Context{Dir: dir, Branch: "own"}); err != nil ||
			c.Dir != "/workspace/src" {
			t.Errorf("from %q it runs in %q: %v", dir, c.Dir, err)
		}
	}
}

func TestForce(t *testing.T) {
	forced := where
	forced.Force = true
	for line, want := range map[string]string{
		"push -f":                                 "push --force",
		"push origin +own":                        "push origin +own:refs/heads/own",
		"push --force-with-lease":                 "push --force-with-lease",
		"push --force-with-lease=own:deadbeef":    "push --force-with-lease=own:deadbeef",
		"push --force-if-includes -f origin HEAD": "push --force-if-includes --force origin HEAD",
	} {
		if _, err := Parse(fields(line), where); err == nil {
			t.Errorf("git %s is allowed without", line)
		}
		c, err := Parse(fields(line), forced)
		if got := strings.Join(c.Args, " "); err != nil || got != want {
			t.Errorf("git %s is run as %q, %v, want %q", line, got, err, want)
		}
	}
	for _, line := range []string{"push -f origin main", "push origin +own:main", "push --force-with-lease=main",
		"push -f origin :own"} {
		if c, err := Parse(fields(line), forced); err == nil {
			t.Errorf("git %s is allowed as %q", line, c.Args)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, name := range []string{"allowed.txt", "refused.txt"} {
		for _, line := range lines(f, name) {
			asked, _, _ := strings.Cut(line, " => ")
			f.Add(strings.Join(fields(asked), "\x1f"), "/workspace/src")
		}
	}
	f.Fuzz(func(t *testing.T, line, dir string) {
		at := where
		at.Dir = dir
		c, err := Parse(strings.Split(line, "\x1f"), at)
		if err != nil {
			return
		}
		checkArgs(t, c)
		at.Dir = c.Dir
		again, err := Parse(c.Args, at)
		if err != nil {
			if !slices.Contains(c.Args, "") {
				t.Errorf("%q becomes %q, which is refused: %v", line, c.Args, err)
			}
		} else if !slices.Equal(again.Args, c.Args) {
			t.Errorf("%q becomes %q, and that %q", line, c.Args, again.Args)
		}
	})
}

// TestOptionsBelongToCommands: a misspelt name in options.txt would leave a command without its options.
func TestOptionsBelongToCommands(t *testing.T) {
	for name, options := range readOptions(optionsTable) {
		if verbs().find(name) == nil && (name[0] != '@' || strings.Count(optionsTable, name) < 2) {
			t.Errorf("%s is neither a command nor options that one shares", name)
		}
		if strings.Contains(options, "@") {
			t.Errorf("%s shares options that are not there:\n%s", name, options)
		}
	}
}
