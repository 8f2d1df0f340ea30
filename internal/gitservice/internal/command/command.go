// Package command owns the decision which git commands a sandbox may have run for it, where its repository is not
// inside: the git API's table. It is pure.
//
// Nothing is allowed that is not in the table (table.go), which lists commands, their options, and what kinds of values
// those take. Options are written out as they are there, without abbreviations; what is not known is refused, so that
// an option of a newer git is no hole.
//
// What was judged is what is run: [Parse] answers with arguments written anew from what it understood, in one spelling:
// each option by itself with its value attached, then revisions, then paths. A path that could be read as something
// else begins with "./"; a name that is not a branch or tag that the sandbox may see is never left where git would look
// for one.
//
// Two things are left to the runner of the command, because they need the repository: that the ids in [Command.Objects]
// belong to commits that the sandbox may see, and that git is shown no branches beside those of the [Context]. Listings
// are filtered by that.
package command

import (
	"cmp"
	"path"
	"slices"
	"strings"

	"github.com/cove-sandbox/cove"
)

const (
	maxArgs  = 4096
	maxBytes = 1 << 20 // of all arguments
)

// Parse judges arguments of git (without "git" itself). Errors: InvalidArgument where git would say so itself,
// Forbidden for what this sandbox may not do. Their texts read as git's do after "fatal: ".
func Parse(argv []string, c Context) (Command, error) {
	c.Root = cmp.Or(c.Root, cove.Workspace)
	c.Dir = path.Clean(c.Dir)
	s, err := split(argv)
	if err != nil {
		return Command{}, err
	}
	j := &judge{Context: c, s: s}
	if err := j.globals(); err != nil {
		return Command{}, err
	}
	if err := j.values(); err != nil {
		return Command{}, err
	}
	if err := s.verb.judge(j); err != nil {
		return Command{}, err
	}
	return j.command(), nil
}

// Describe says what arguments want, without judging values. It is for the sandbox's side.
func Describe(argv []string) (Needs, error) {
	s, err := split(argv)
	if err != nil {
		return Needs{}, err
	}
	return Needs{Input: s.input(), Pager: s.pages(), Paginate: s.has("--paginate"), NoPager: s.has("--no-pager")}, nil
}

// Verbs are the names of all commands of the table, sorted.
func Verbs() []string {
	var names []string
	for _, v := range verbs() {
		names = append(names, v.name)
	}
	slices.Sort(names)
	return names
}

// Options returns the options of a command of the table, as they are written.
func Options(name string) (all []string, ok bool) {
	v := verbs().find(name)
	if v == nil {
		return nil, false
	}
	seen := map[*option]bool{}
	for _, o := range v.known {
		if seen[o] {
			continue
		}
		seen[o] = true
		s := strings.Join(o.names, ", ")
		value := "<" + string(o.takes) + ">"
		if o.takes == enum {
			value = strings.Join(o.values, "|")
		}
		switch {
		case o.takes == none:
		case o.optional:
			s += "[=" + value + "]"
		default:
			s += "=" + value
		}
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b string) int {
		return strings.Compare(strings.TrimLeft(a, "-"),
			strings.TrimLeft(b, "-"))
	})
	return all, true
}

// split takes a command line apart, as git's parse-options does.
func split(argv []string) (*sentence, error) {
	total := 0
	for _, a := range argv {
		if total += len(a); !printable(a) {
			return nil, invalid("an argument has a NUL byte")
		}
	}
	if len(argv) > maxArgs || total > maxBytes {
		return nil, invalid("too many arguments: at most %d, of %d bytes together", maxArgs, maxBytes)
	}
	s := &sentence{}
	rest, err := s.globalOptions(argv)
	if err != nil {
		return nil, err
	}
	if len(rest) == 0 {
		return nil, invalid("no command is given")
	}
	if rest = notesFirst(rest); len(rest) > 1 {
		if s.verb = verbs().find(rest[0] + " " + rest[1]); s.verb != nil {
			return s, s.arguments(rest[2:])
		}
	}
	if s.verb = verbs().find(rest[0]); s.verb == nil {
		return nil, unknownVerb(rest[0])
	}
	return s, s.arguments(rest[1:])
}

// unknownVerb says why a command is not in the table, where there is more to say than that.
func unknownVerb(name string) error {
	why := map[string]string{
		"clone": "clone outside the workspace, with a git of its own",
		"init":  "make repositories outside the workspace, with a git of its own",
		"submodule": "the repository is not inside, and so are those of its submodules not; \"git submodule status\" " +
			"lists them",
		"gc": "the repository is looked after outside", "maintenance": "the repository is looked after outside",
		"worktree": "this sandbox has one, which is the workspace",
		"difftool": "use \"git diff\"", "mergetool": "edit the files, and add them",
		"filter-branch": "", "update-ref": "use \"git reset\"",
	}[name]
	err := forbidden("'git %s' is not among the commands that this sandbox may use", name)
	if why != "" {
		return err.WithHint("%s", why)
	}
	return err.WithHint("\"git help\" lists them")
}
