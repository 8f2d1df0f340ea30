package interact

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/cli/report"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
	"github.com/cove-sandbox/cove/internal/git/patch"
)

// Choose asks which of a sandbox's changes to take: file by file, and change by change where the user wants that, as
// "git add -p" does. The changes are with their patches. all reports that every one of them is chosen. When the input
// ends nothing is chosen.
func Choose(sess *session.Session, changes []api.WorkChange) (chosen []api.WorkChoice, all bool) {
	c := chooser{sess: sess, all: true}
	for i, change := range changes {
		c.file(change, fmt.Sprintf("(%d/%d) ", i+1, len(changes)))
		if c.ended {
			return nil, false
		}
	}
	return c.chosen, c.all
}

// chooser is a choice under way.
type chooser struct {
	sess   *session.Session
	chosen []api.WorkChoice
	all    bool
	rest   string // the answer for everything from here on; empty while there is none
	ended  bool   // the input has
}

// Answers, with what they are told to mean.
var (
	answersOfFile = [][2]string{{"y", "take this file"}, {"n", "leave it"}, {"s", "choose among its changes"},
		{"p", "print its changes"}, {"a", "take it and every file after it"}, {"d", "leave it and every file after it"},
		{"q", "the same as d"}, {"?", "print this"}}
	answersOfHunk = [][2]string{{"y", "take this change"}, {"n", "leave it"},
		{"a", "take it and the rest of the file"}, {"d", "leave it and the rest of the file"},
		{"q", "leave it and everything after it, in other files too"}, {"s", "split it into smaller ones"},
		{"?", "print this"}}
)

// ask asks until the answer is one of those that there are.
func (c *chooser) ask(question string, answers [][2]string, without string) string {
	var keys []string
	for _, a := range answers {
		if !strings.Contains(without, a[0]) {
			keys = append(keys, a[0])
		}
	}
	for {
		c.sess.Say.Ask(question+" ["+strings.Join(keys, ",")+"] ", ui.Columns(c.sess.Err))
		line, err := ui.TypedLine(c.sess.In)
		if err != nil {
			fmt.Fprintln(c.sess.Err)
			c.ended = true
			return "q"
		}
		line = strings.ToLower(strings.TrimSpace(line))
		if slices.Contains(keys, line) && line != "?" {
			return line
		}
		for _, a := range answers {
			if slices.Contains(keys, a[0]) {
				c.sess.Say.Line("%s: %s", a[0], a[1])
			}
		}
	}
}

func (c *chooser) print(text string) {
	w := &report.PatchWriter{To: c.sess.Err, Color: c.sess.Say.Color}
	io.WriteString(w, text)
	w.Close()
}

// file asks about a file.
func (c *chooser) file(of api.WorkChange, count string) {
	f, err := patch.Parse(of.Patch)
	without := ""
	if splits := err == nil && of.OldPath == "" && f.Parts() > 0; !splits {
		without = "s"
	}
	answer := c.rest
	for answer == "" {
		answer = c.ask(count+"take "+changeText(of)+"?", answersOfFile, without)
		switch answer {
		case "a":
			c.rest, answer = "y", "y"
		case "d", "q":
			c.rest, answer = "n", "n"
		case "p":
			c.print(of.Patch)
			answer = ""
		}
	}
	switch answer {
	case "y":
		c.take(of, nil)
	case "s":
		c.parts(of, f)
	default:
		c.all = false
	}
}

// take records the choice of a file, or of parts of it.
func (c *chooser) take(of api.WorkChange, parts []int) {
	if of.OldPath != "" {
		c.chosen = append(c.chosen, api.WorkChoice{Path: of.OldPath})
	}
	c.chosen = append(c.chosen, api.WorkChoice{Path: of.Path, NewID: of.NewID, Parts: parts})
}

// parts asks about the changes of a file.
func (c *chooser) parts(of api.WorkChange, f patch.File) {
	most, rest := f.Parts(), ""
	var taken []int
	ask := func(question, without string) string {
		if rest != "" {
			return rest
		}
		answer := c.ask(question, answersOfHunk, without)
		switch answer {
		case "a":
			rest, answer = "y", "y"
		case "q":
			c.rest = "n"
			fallthrough
		case "d":
			rest, answer = "n", "n"
		}
		return answer
	}
	name := ui.Printable(of.Path)
	if f.Modes != "" {
		most++
		if ask(fmt.Sprintf("take the mode %s of %s?", of.NewMode, name), "s") == "y" {
			taken = append(taken, patch.Mode)
		}
	}
	for todo := slices.Clone(f.Hunks); len(todo) > 0; {
		h := todo[0]
		todo = todo[1:]
		without := ""
		if h.First() == h.Last() {
			without = "s"
		}
		if rest == "" {
			c.print(h.String())
		}
		question := fmt.Sprintf("(%d/%d) take this change of %s?", h.First(), f.Parts(), name)
		switch ask(question, without) {
		case "y":
			for n := h.First(); n <= h.Last(); n++ {
				taken = append(taken, n)
			}
		case "s":
			todo = append(h.Split(), todo...)
		}
	}
	switch len(taken) {
	case 0:
		c.all = false
	case most:
		c.take(of, nil)
	default:
		c.all = false
		c.take(of, taken)
	}
}

// changeText describes a changed file in a line.
func changeText(of api.WorkChange) string {
	text := ui.Printable(of.Path) + ", " + of.Change
	if of.OldPath != "" {
		text += " from " + ui.Printable(of.OldPath)
	}
	switch {
	case report.Cache(of.Path):
		text += ", a cache"
	case of.Binary:
		text += ", binary"
	default:
		text += fmt.Sprintf(" +%d -%d", of.Added, of.Removed)
	}
	return text
}
