package command

import (
	"path"
	"slices"
	"strings"
)

// globals judges the options before the verb.
func (j *judge) globals() error {
	for _, g := range j.s.global {
		switch g.name() {
		case "-C":
			dir := g.value
			if dir == "" {
				continue
			}
			if !path.IsAbs(dir) {
				dir = j.Dir + "/" + dir
			}
			if dir = path.Clean(dir); !j.within(dir) {
				return forbidden("cannot change to '%s': it is not in the workspace", g.value)
			}
			j.Dir = dir
		case "-c":
			key, value, ok := strings.Cut(g.value, "=")
			if !ok {
				value = "true"
			}
			if !Harmless(key, value) {
				return forbidden("the setting '%s' is not allowed in this sandbox", key)
			}
			j.config = append(j.config, [2]string{key, value})
		}
	}
	if !j.within(j.Dir) {
		return forbidden("not a git repository (or any of the parent directories): .git")
	}
	return nil
}

func (j *judge) within(dir string) bool { return dir == j.Root || strings.HasPrefix(dir, j.Root+"/") }

// values judges the values of all options, and writes paths so that they are nothing else.
func (j *judge) values() error {
	for _, g := range j.s.options {
		if err := j.value(g); err != nil {
			return err
		}
		if g.with && g.value == "" && !strings.HasPrefix(g.name(), "--") {
			return invalid("switch `%s' requires a value", g.name()[1:])
		}
	}
	return nil
}

func (j *judge) value(g *given) error {
	if !g.with {
		return nil
	}
	switch g.takes {
	case number:
		if strings.Trim(strings.TrimSuffix(strings.TrimLeft(g.value, "+-"), "%"), "0123456789kKmMgG") != "" || g.value == "" {
			return invalid("option `%s' expects a numerical value", strings.TrimLeft(g.name(), "-"))
		}
	case enum:
		if !slices.Contains(g.values, g.value) {
			return forbidden("option `%s' takes %s here, not '%s'", strings.TrimLeft(g.name(), "-"),
				strings.Join(g.values, ", "), g.value)
		}
	case revision:
		return j.see(strings.TrimPrefix(strings.TrimPrefix(g.value, "amend:"), "reword:"))
	case input:
		j.input, g.value = g.value, "-"
	case noteRef:
		full := notesRef(g.value)
		if !refName(full) || full == "refs/notes/" {
			return forbidden("'%s' is not a name of notes", g.value)
		}
		g.value = full
	case place:
		checked, err := j.inside(g.value)
		if err != nil {
			return err
		}
		g.value = checked
	}
	return nil
}

// see judges a revision and keeps its ids.
func (j *judge) see(rev string) error {
	ids, err := j.revisions(rev)
	j.objects = append(j.objects, ids...)
	return err
}

// command writes what was understood.
func (j *judge) command() Command {
	v := j.s.verb
	c := Command{Verb: v.name, Dir: j.Dir, Effect: v.effect, Config: j.config, Objects: j.objects, Pager: j.s.pages(),
		Input: j.input}
	if j.effect != "" {
		c.Effect = j.effect
	}
	if v.patch {
		c.Input = j.s.input()
	}
	for _, g := range j.s.global {
		switch g.name() {
		case "-C", "-c", "--no-pager", "--paginate", "--no-advice":
		default:
			c.Args = append(c.Args, g.name())
		}
	}
	if len(j.words) == 0 {
		j.words = strings.Fields(v.name)
	}
	c.Args = append(c.Args, j.words...)
	if !v.query {
		for _, g := range j.s.options {
			if !slices.Contains(j.dropped, g.name()) {
				c.Args = append(c.Args, g.written())
			}
		}
	}
	c.Args = append(c.Args, j.revs...)
	if !j.bare && (len(j.paths) > 0 || j.s.dashes) {
		c.Args = append(append(c.Args, "--"), j.paths...)
	}
	c.Editor = v.editor != nil && !j.s.has(v.editor...)
	return c
}

// written is an option in its one spelling.
func (g *given) written() string {
	switch name := g.name(); {
	case !g.with:
		return name
	case strings.HasPrefix(name, "--"):
		return name + "=" + g.value
	default:
		return name + g.value
	}
}

// The judges that most commands have.

// nothing allows no operands.
func nothing(j *judge) error {
	if n := slices.Concat(j.s.operands, j.s.paths); len(n) > 0 {
		return invalid("'git %s' takes no argument '%s' in this sandbox", j.s.verb.name, n[0])
	}
	return nil
}

// files are pathspecs only.
func files(j *judge) error { return j.addPaths(slices.Concat(j.s.operands, j.s.paths)) }

func (j *judge) addPaths(names []string) error {
	for _, name := range names {
		checked, err := j.spec(name)
		if err != nil {
			return err
		}
		j.paths = append(j.paths, checked)
	}
	return nil
}

// history is revisions, and then paths. Without "--" git itself looks which of
// both a word is. It gets to choose only for what the sandbox may see: anything
// else is written so that it can only be a path.
func history(j *judge) error {
	for i, word := range j.s.operands {
		err := j.see(word)
		if err == nil {
			j.revs = append(j.revs, word)
			continue
		}
		if j.s.dashes || !couldBePath(word) {
			return err
		}
		for _, rest := range j.s.operands[i:] {
			checked, pathErr := j.spec(rest)
			if pathErr != nil {
				return pathErr
			}
			j.revs = append(j.revs, pathOnly(checked))
		}
		break
	}
	return j.addPaths(j.s.paths)
}

// couldBePath reports whether a word that is no revision the sandbox may see is
// to be read as a path.
func couldBePath(word string) bool {
	if strings.HasPrefix(word, "^") || strings.HasPrefix(word, ":/") || strings.Contains(word, "@{") {
		return false
	}
	for part := range strings.SplitSeq(word, "/") {
		if part != ".." && strings.Contains(part, "..") {
			return false // a range
		}
	}
	return true
}

// revisionsOnly are revisions.
func revisionsOnly(j *judge) error {
	if len(j.s.paths) > 0 {
		return invalid("'git %s' takes no paths", j.s.verb.name)
	}
	return j.addRevisions(j.s.operands)
}

func (j *judge) addRevisions(words []string) error {
	for _, word := range words {
		if err := j.see(word); err != nil {
			return err
		}
		j.revs = append(j.revs, word)
	}
	return nil
}
