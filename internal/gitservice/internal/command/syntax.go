package command

import (
	"slices"
	"strings"
	"sync"
)

func (o *option) name() string { return o.names[len(o.names)-1] }

const (
	none     kind = ""
	text     kind = "text"   // anything: it names nothing that git would open
	number   kind = "number" // a whole number, or a percentage
	enum     kind = "enum"   // one of a list
	revision kind = "rev"    // one commit or object
	input    kind = "input"  // a file that is read inside, or "-"
	place    kind = "path"   // a path in the workspace
	noteRef  kind = "notes"  // a name below refs/notes/
)

var kinds = []kind{text, number, revision, input, place, noteRef}

// compile reads options as they are written in options.txt: one on each line, or
// after a semicolon: its names, the last with what its value is.
//
//	-s --short              a flag
//	--[no-]renames          and its negation
//	-n --max-count=<number> with a value
//	--color[=always|never]  with a value that may be missing
func compile(options string) map[string]*option {
	known := map[string]*option{}
	for _, line := range strings.FieldsFunc(options, func(r rune) bool { return r == '\n' || r == ';' }) {
		names := strings.Fields(line)
		if len(names) == 0 {
			continue
		}
		o := &option{}
		last := len(names) - 1
		names[last] = o.value(names[last])
		for _, n := range names {
			if rest, ok := strings.CutPrefix(n, "--[no-]"); ok {
				off := &option{names: []string{"--no-" + rest}}
				known[off.name()] = off
				n = "--" + rest
			}
			o.names = append(o.names, n)
			known[n] = o
		}
	}
	return known
}

// value takes from the last name of an option what its value is.
func (o *option) value(name string) string {
	name, value, ok := strings.Cut(name, "=")
	if !ok {
		return name
	}
	if n, cut := strings.CutSuffix(name, "["); cut {
		name, value, o.optional = n, strings.TrimSuffix(value, "]"), true
	}
	if k := kind(strings.Trim(value, "<>")); slices.Contains(kinds, k) {
		o.takes = k
	} else {
		o.takes, o.values = enum, strings.Split(value, "|")
	}
	return name
}

func (s *sentence) globalOptions(argv []string) (rest []string, err error) {
	for len(argv) > 0 && strings.HasPrefix(argv[0], "-") {
		arg := argv[0]
		argv = argv[1:]
		switch arg {
		case "--version", "-v":
			return append([]string{"version"}, argv...), nil
		}
		name, value, with := strings.Cut(arg, "=")
		o := globalOptions()[name]
		if o == nil || with {
			return nil, forbidden("the option '%s' of git is not allowed in this sandbox", arg)
		}
		if o.takes != none {
			if len(argv) == 0 {
				return nil, invalid("no value given for '%s'", arg)
			}
			value, with, argv = argv[0], true, argv[1:]
		}
		s.global = append(s.global, &given{o, value, with})
	}
	return argv, nil
}

// notesFirst puts options between "notes" and its subcommand, where git wants them, behind the subcommand.
func notesFirst(words []string) []string {
	n := 1
	for n < len(words) && strings.HasPrefix(words[n], "--ref") {
		if n++; words[n-1] == "--ref" {
			n++
		}
	}
	if words[0] != "notes" || n == 1 || n >= len(words) {
		return words
	}
	return slices.Concat([]string{words[0], words[n]}, words[1:n], words[n+1:])
}

// arguments takes apart what follows the verb.
func (s *sentence) arguments(args []string) error {
	for len(args) > 0 {
		arg := args[0]
		args = args[1:]
		var err error
		switch {
		case arg == "--":
			s.dashes, s.paths = true, args
			return nil
		case arg == "--end-of-options":
			return forbidden("'--end-of-options' is not allowed in this sandbox").WithHint("use \"--\" before paths")
		case arg == "-" || !strings.HasPrefix(arg, "-"):
			s.operand(arg)
		case strings.HasPrefix(arg, "--"):
			args, err = s.long(arg, args)
		case s.verb.count && strings.Trim(arg[1:], "0123456789") == "":
			s.add(s.verb.known["--max-count"], arg[1:], true)
		default:
			args, err = s.short(arg[1:], args)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *sentence) operand(arg string) {
	s.operands = append(s.operands, arg)
	s.order = append(s.order, item{operand: arg})
}

func (s *sentence) add(o *option, value string, with bool) {
	g := &given{o, value, with}
	s.options = append(s.options, g)
	s.order = append(s.order, item{option: g})
}

func (s *sentence) long(arg string, args []string) ([]string, error) {
	name, value, with := strings.Cut(arg, "=")
	o := s.verb.known[name]
	switch {
	case o == nil:
		return nil, s.unknown(name)
	case with && o.takes == none:
		return nil, invalid("option `%s' takes no value", strings.TrimLeft(name, "-"))
	case !with && o.takes != none && !o.optional:
		if len(args) == 0 {
			return nil, invalid("option `%s' requires a value", strings.TrimLeft(name, "-"))
		}
		value, with, args = args[0], true, args[1:]
	}
	s.add(o, value, with)
	return args, nil
}

// short takes apart what follows a single hyphen: flags, of which the last may have a value.
func (s *sentence) short(letters string, args []string) ([]string, error) {
	for letters != "" {
		o := s.verb.known["-"+letters[:1]]
		if o == nil {
			return nil, s.unknown("-" + letters[:1])
		}
		letters = letters[1:]
		if o.takes == none {
			s.add(o, "", false)
			continue
		}
		value, with := letters, letters != ""
		if !with && !o.optional {
			if len(args) == 0 {
				return nil, invalid("switch `%s' requires a value", o.names[0][1:])
			}
			value, with, args = args[0], true, args[1:]
		}
		s.add(o, value, with)
		break
	}
	return args, nil
}

func (s *sentence) unknown(name string) error {
	var long []string
	for n := range s.verb.known {
		if strings.HasPrefix(name, "--") && len(name) > 2 && strings.HasPrefix(n, name) {
			long = append(long, n)
		}
	}
	slices.Sort(long)
	err := forbidden("the option '%s' of 'git %s' is not allowed in this sandbox", name, s.verb.name)
	if len(long) > 0 {
		return err.WithHint("options are not abbreviated here: %s", strings.Join(long, ", "))
	}
	return err
}

// has reports whether an option was given, by the name that is written.
func (s *sentence) has(names ...string) bool {
	_, ok := s.get(names...)
	return ok
}

func (s *sentence) get(names ...string) (*given, bool) {
	for _, list := range [][]*given{s.options, s.global} {
		for _, g := range list {
			if slices.Contains(names, g.name()) {
				return g, true
			}
		}
	}
	return nil, false
}

// amState are the options of "git am" about patches that it has read before.
var amState = []string{"--continue", "--skip", "--abort", "--quit", "--show-current-patch"}

// input returns the source of standard input.
func (s *sentence) input() string {
	for _, g := range s.options {
		if g.takes == input {
			return g.value
		}
	}
	if s.verb.patch && !s.has(amState...) {
		if names := slices.Concat(s.operands, s.paths); len(names) > 0 {
			return names[0]
		}
		return "-"
	}
	return ""
}

// pages reports whether the output is for reading: listings of branches and
// tags are, and nothing else of those commands.
func (s *sentence) pages() bool {
	switch s.verb.name {
	case "branch", "tag":
		return len(s.operands) == 0 || s.has("--list")
	}
	return s.verb.pager
}

// globalOptions are the options before the verb. Those of the pager concern the sandbox's side only.
var globalOptions = sync.OnceValue(func() map[string]*option {
	return compile(
		`-C=<text>; -c=<text>; --no-pager; -P --no-pager; -p --paginate; --no-optional-locks; --no-replace-objects
	--literal-pathspecs; --glob-pathspecs; --noglob-pathspecs; --icase-pathspecs; --no-advice`)
})
