package command

import "strings"

// unbounded is as many objects as there are.
const unbounded = -1

// notes is from so many objects to so many; most may be unbounded.
func notes(least, most int) func(*judge) error {
	return func(j *judge) error {
		if n := len(j.s.operands); n < least || most != unbounded && n > most {
			return invalid("wrong number of objects for 'git %s': %d", j.s.verb.name, n)
		}
		j.ofNotes()
		return revisionsOnly(j)
	}
}

// ofNotes writes the name of the notes where git takes it, before the subcommand.
func (j *judge) ofNotes() {
	j.words = []string{"notes"}
	for _, g := range j.s.options {
		if g.name() == "--ref" {
			j.words = append(j.words, g.written())
		}
	}
	j.words = append(j.words, strings.Fields(j.s.verb.name)[1:]...)
	j.dropped = []string{"--ref"}
}

// notesList is [OBJECT], after "list".
func notesList(j *judge) error {
	if j.s.verb.name == "notes" && len(j.s.operands) > 0 {
		return forbidden("'git notes %s' is not among the commands that this sandbox may use", j.s.operands[0]).
			WithHint("\"git help\" lists them")
	}
	return notes(0, 1)(j)
}
