package credential

import (
	"context"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/cove-sandbox/cove"
)

// Host holds the credentials of a machine, and the environment of this process, from which their values are read.
type Host struct {
	// Own returns the credentials that the machine's owner describes, read anew at each call.
	Own    func() ([]Credential, error)
	Values *Values // the cache of the values
	// TakesVariables says that the variables of the owner's commands replace those of this process, which a command has
	// started for itself. A server that an administrator has started keeps what it was given.
	TakesVariables bool
}

// State is a credential, and what is known of its value.
type State struct {
	Name      string
	Sources   []string // where the value is looked for, in this order
	Variables []string // of sandboxes, which hold a placeholder
	From      string   // the source that has a value; empty: none, or not tried
	Tried     bool     // From and Problem are known
	Problem   error    // why there is no value
}

// All returns the state of every credential that can be named, by name. It runs the programs that give values only with
// try. Errors: those of Own.
func (h Host) All(ctx context.Context, try bool) ([]State, error) {
	all, err := h.credentials()
	if err != nil {
		return nil, err
	}
	states := make([]State, len(all))
	for i, c := range all {
		states[i] = h.state(ctx, &c, try)
	}
	return states, nil
}

// credentials returns the owner's credentials and those of the presets that they do not replace, by name.
func (h Host) credentials() ([]Credential, error) {
	own, err := h.Own()
	if err != nil {
		return nil, err
	}
	presets, err := Presets()
	if err != nil {
		return nil, err
	}
	all := slices.Concat(own, presets)
	slices.SortStableFunc(all, func(a, b Credential) int { return strings.Compare(a.Name, b.Name) })
	return slices.CompactFunc(all, func(a, b Credential) bool { return a.Name == b.Name }), nil
}

func (h Host) state(ctx context.Context, c *Credential, try bool) State {
	s := State{Name: c.Name}
	programs := false
	for _, w := range c.ways() {
		s.Sources = append(s.Sources, w.Source.String())
		for _, v := range w.Variables {
			s.Variables = appendMissing(s.Variables, v)
		}
		programs = programs || w.Source.program()
	}
	if s.Tried = try || !programs; s.Tried {
		s.From, s.Problem = h.ready(ctx, c)
	}
	return s
}

func appendMissing(list []string, s string) []string {
	if slices.Contains(list, s) {
		return list
	}
	return append(list, s)
}

// Reads returns the variables of this process that hold values of credentials, or lead to them.
func (h Host) Reads() ([]string, error) {
	all, err := h.credentials()
	if err != nil {
		return nil, err
	}
	names := map[string]bool{"CLAUDE_CONFIG_DIR": true} // of Claude Code's login
	for _, list := range tokens {
		for _, name := range list {
			names[name] = true
		}
	}
	for i := range all {
		for _, w := range all[i].ways() {
			switch w.Source.kind {
			case fromEnv:
				names[w.Source.name] = true
			case fromAWS:
				for _, name := range append(awsVariables, "AWS_PROFILE", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE") {
					names[name] = true
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(names)), nil
}

// Taken says what became of variables.
type Taken struct {
	Changed []string // are used from now on
	Kept    []string // differ from those of this process, which it goes on using
}

// Take compares the variables of one of the owner's commands with those of this process, and uses them where
// TakesVariables says so. Values are never told. Errors: InvalidArgument for a variable that no credential reads, when
// nothing has changed.
func (h Host) Take(given map[string]string) (Taken, error) {
	var t Taken
	reads, err := h.Reads()
	if err != nil {
		return t, err
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if !slices.Contains(reads, name) {
			return t, cove.Errorf(cove.InvalidArgument, "no credential reads the variable %.80q", name).
				WithHint("it reads %s", strings.Join(reads, ", "))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		switch {
		case os.Getenv(name) == given[name]:
		case !h.TakesVariables:
			t.Kept = append(t.Kept, name)
		default:
			if err := os.Setenv(name, given[name]); err != nil {
				return t, cove.Errorf(cove.InvalidArgument, "the variable %s cannot be used: %w", name, err)
			}
			t.Changed = append(t.Changed, name)
		}
	}
	if session := awsVariables[2]; slices.Contains(t.Changed, awsVariables[0]) && given[session] == "" {
		os.Unsetenv(session) // of the keys before
	}
	if t.Changed != nil {
		h.Values.renew()
	}
	return t, nil
}

// tryTimeout bounds how long the sources of one credential may take to say whether they have a value.
const tryTimeout = 10 * time.Second

// Ready returns the source from which the value of a credential would be read now. Errors: NotFound for a name that
// there is not, Unavailable with what to do.
func (h Host) Ready(ctx context.Context, name string) (from string, err error) {
	own, err := h.Own()
	if err != nil {
		return "", err
	}
	chosen, err := Choose(own, name)
	if err != nil {
		return "", err
	}
	return h.ready(ctx, &chosen[0])
}

func (h Host) ready(ctx context.Context, c *Credential) (from string, err error) {
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	return c.ready(ctx, h.Values)
}
