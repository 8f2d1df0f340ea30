package command

import (
	"slices"
	"strings"
)

// bisectStart is [BAD [GOOD…]] [--] [FILE…]. The words for good and bad become names of refs.
func bisectStart(j *judge) error {
	for _, g := range j.s.options {
		if g.takes == text && (!refName(g.value) || strings.Contains(g.value, "/")) {
			return invalid("'%s' is not a valid term", g.value)
		}
	}
	return history(j)
}

// bisectTerm is a word for good or bad that "git bisect start" was given, and commits.
func bisectTerm(j *judge) error {
	if len(j.s.operands) == 0 {
		return invalid("need a command: git bisect start|good|bad|skip|next|reset|log|terms|run")
	}
	word := j.s.operands[0]
	if !slices.Contains(j.Terms, word) {
		err := forbidden("'git bisect %s' is not among the commands that this sandbox may use", word)
		switch word {
		case "visualize", "view":
			return err.WithHint("use \"git log --bisect\"")
		case "replay":
			return err.WithHint("give its lines as commands: git bisect good|bad|skip COMMIT")
		}
		return err.WithHint("\"git help\" lists them")
	}
	j.s.operands, j.words = j.s.operands[1:], []string{"bisect", word}
	return revisionsOnly(j)
}

// bisectReset is [COMMIT], to which HEAD goes.
func bisectReset(j *judge) error {
	if len(j.s.operands) > 1 || len(j.s.paths) > 0 {
		return invalid("usage: git bisect reset [<commit>]")
	}
	for _, word := range j.s.operands {
		if err := j.standing(word, false); err != nil {
			return err
		}
	}
	j.revs = j.s.operands
	return nil
}
