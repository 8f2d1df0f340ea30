package repos

import (
	"bytes"
	"context"
	"slices"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/git/patch"
	"github.com/cove-sandbox/cove/internal/hostgit"
)

// choosesParts reports whether parts of a file are chosen.
func choosesParts(choice map[string]Choice) bool {
	for _, c := range choice {
		if c.Parts != nil {
			return true
		}
	}
	return false
}

// chosen returns the changes of the chosen paths. Errors: Conflict when one is not as the caller has seen it.
func chosen(changes []Change, choice map[string]Choice) ([]Change, error) {
	if choice == nil {
		return changes, nil
	}
	var all []Change
	for _, c := range changes {
		want, ok := choice[c.Path]
		if !ok {
			continue // below a chosen path
		}
		if want.ID != "" && want.ID != c.New.ID {
			return nil, cove.Errorf(cove.Conflict, "%q has changed in the sandbox since it was looked at", c.Path).
				WithHint("look at it again, and choose anew")
		}
		all = append(all, c)
	}
	if len(all) < len(choice) {
		return nil, cove.Errorf(cove.NotFound, "the sandbox has not changed %d of the chosen files", len(choice)-len(all)).
			WithHint("\"cove diff\" shows what it has changed")
	}
	return all, nil
}

// part returns a change with the chosen parts of its patch alone. Its content is stored with the imported work. Errors:
// InvalidArgument when there are no such parts.
func part(ctx context.Context, s *Store, dir string, c Change, parts []int) (Change, error) {
	f, err := patch.Parse(c.Patch)
	if err != nil {
		return c, err
	}
	most := f.Parts()
	if f.Modes == "" && slices.Contains(parts, patch.Mode) || !isFile(c.Old) || !isFile(c.New) ||
		slices.ContainsFunc(parts, func(n int) bool { return n < 0 || n > most }) {
		return c, cove.Errorf(cove.InvalidArgument, "%q has no such changes: there are %d to choose from", c.Path, most).
			WithHint("number them as its patch has them, or take the file whole")
	}
	is := func(n int) bool { return slices.Contains(parts, n) }
	old, err := s.contents(ctx, dir, []string{c.Old.ID}, maxApplied)
	if err != nil {
		return c, err
	}
	text, err := f.Apply(old[c.Old.ID], is)
	if err != nil {
		return c, err
	}
	c.New.ID, err = s.line(ctx, nil, hostgit.Run{Dir: dir, Command: []string{"hash-object"},
		Flags: []string{"-w", "--stdin"}, Stdin: bytes.NewReader(text)})
	if f.Modes != "" && !is(patch.Mode) {
		c.New.Mode = c.Old.Mode
	}
	c.Added, c.Removed = f.Lines(is)
	return c, err
}
