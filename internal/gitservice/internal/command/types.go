package command

import (
	"strings"

	"github.com/cove-sandbox/cove"
)

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

// Effect describes what a command does, as far as it concerns other sandboxes.
type Effect string

// Context holds what a command is judged in.
type Context struct {
	Dir    string   // where it is called, absolute, inside
	Root   string   // the workspace; empty is cove.Workspace
	Branch string   // the sandbox's own, without refs/heads/
	Shared []string // other branches that it may read, without refs/heads/
	Tags   []string // without refs/tags/
	Force  bool     // its own branch may be pushed with force
	Terms  []string // words for good and bad of a running bisection
}

const (
	Reads  Effect = "reads"  // the repository; it may refresh the index
	Writes Effect = "writes" // the repository or files of the workspace
	Remote Effect = "remote" // goes to the network, and may write
)

func invalid(format string, args ...any) error {
	return cove.Errorf(cove.InvalidArgument, format, args...)
}

func forbidden(format string, args ...any) *cove.Error {
	return cove.Errorf(cove.Forbidden, format, args...)
}

// printable reports whether an argument is text that can be handed to a program and shown in a log.
func printable(s string) bool { return strings.IndexByte(s, 0) < 0 }

// Needs describes what a command requires of the directory that it is called in.
type Needs struct {
	Input    string // as in Command
	Pager    bool
	Paginate bool // a pager was asked for
	NoPager  bool // or no pager
}

// judge is the judging of one command line.
type judge struct {
	Context
	s       *sentence
	objects []string
	config  [][2]string
	effect  Effect // instead of the verb's
	input   string // instead of the options'

	// The command line: after the options come operands, and after "--" paths.
	words   []string // instead of the verb
	dropped []string // options that mean nothing here
	revs    []string
	paths   []string
	bare    bool // never "--"
}

// option is one option of a command.
type option struct {
	names    []string // "-s", "--short"; the last is the one that is written
	takes    kind     // none, or what its value is
	values   []string // of an enumeration
	optional bool     // the value may be missing, and is attached if it is there
}

// kind names the form of a value.
type kind string

// verb is one command of the table.
type verb struct {
	name   string
	effect Effect
	// judge looks at the operands, and at options together.
	judge func(*judge) error
	pager bool
	// editor says when it asks for a text: unless one of these options is there; nil is never.
	editor []string
	count  bool // "-5" is "--max-count=5"
	patch  bool // its operand, or else its standard input, is a file that is read inside
	// query says that options are questions, answered in their order among the operands.
	query bool

	known map[string]*option
}

// given is an option as it was given.
type given struct {
	*option
	value string
	with  bool // a value
}

// sentence is a command line, taken apart.
type sentence struct {
	verb     *verb
	global   []*given
	options  []*given
	operands []string // before "--"
	paths    []string // after it
	dashes   bool     // "--" was there
	order    []item   // options and operands as they came, for queries
}

type item struct {
	option  *given
	operand string
}
