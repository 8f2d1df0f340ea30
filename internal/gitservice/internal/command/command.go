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

// Effect describes what a command does, as far as it concerns other sandboxes.
type Effect string

const (
	Reads  Effect = "reads"  // the repository; it may refresh the index
	Writes Effect = "writes" // the repository or files of the workspace
	Remote Effect = "remote" // goes to the network, and may write
)

// Context holds what a command is judged in.
type Context struct {
	Dir    string   // where it is called, absolute, inside
	Root   string   // the workspace; empty is cove.Workspace
	Branch string   // the sandbox's own, without refs/heads/
	Shared []string // other branches that it may read, without refs/heads/
	Tags   []string // without refs/tags/
	Force  bool     // its own branch may be pushed with force
}

// Command is a command that is allowed, and what it is.
type Command struct {
	Verb string
	// Args holds the arguments of git: global options, the verb, its arguments.
	Args []string
	Dir  string // where it runs, below the workspace
	Effect
	// Config are settings for this command only, key and value, of the harmless ones (Harmless).
	Config [][2]string
	// Input names the source of its standard input inside: a path, "-" for its
	// own, or empty for nothing. Args say "-" in either case.
	Input string
	// Objects are ids, or beginnings of them, that it names: hex. What they name
	// has to be reachable from what the sandbox may see.
	Objects []string
	Editor  bool // it may ask for a text
	Pager   bool // its output is for reading
}

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

// Needs describes what a command requires of the directory that it is called in.
type Needs struct {
	Input    string // as in Command
	Pager    bool
	Paginate bool // a pager was asked for
	NoPager  bool // or no pager
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

func invalid(format string, args ...any) error {
	return cove.Errorf(cove.InvalidArgument, format, args...)
}

func forbidden(format string, args ...any) *cove.Error {
	return cove.Errorf(cove.Forbidden, format, args...)
}

// printable reports whether an argument is text that can be handed to a program and shown in a log.
func printable(s string) bool { return strings.IndexByte(s, 0) < 0 }

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
