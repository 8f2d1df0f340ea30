package session

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/cli/ui"
	"github.com/cove-sandbox/cove/internal/profile"
)

// ChosenProfileFile keeps the name of the profile that is used where none is given.
func (sess *Session) ChosenProfileFile() (string, error) { return sess.InHome("profile") }

// ChosenProfile returns the name of the profile that "cove profile use" has chosen, or nothing. With --server it is
// nothing: the choice is this machine's.
func (sess *Session) ChosenProfile() (string, error) {
	if sess.ServerAddress() != "" {
		return "", nil
	}
	file, err := sess.ChosenProfileFile()
	if err != nil {
		return "", err
	}
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", cove.Errorf(cove.Forbidden, "cannot read which profile is chosen, in %s: %w", file, ui.Cause(err)).
			WithHint("run as the user whose directory it is, or choose another one with COVE_HOME or --home")
	}
	return strings.TrimSpace(string(data)), nil
}

// ResolveProfile is the profile of a command line: the one that it names, or the chosen one.
func (sess *Session) ResolveProfile(named string) (string, error) {
	switch named {
	case profile.Default:
		return "", nil
	case "":
		return sess.ChosenProfile()
	}
	return named, nil
}

// Profiles returns the profiles of the server that the command uses.
func (sess *Session) Profiles(ctx context.Context) (all []api.Profile, err error) {
	b, err := sess.Connect(ctx, false)
	if err != nil {
		return nil, err
	}
	all, err = b.Client.Profiles(ctx)
	return all, cmp.Or(err, b.Close())
}

// AddProfile adds --profile to a command that makes sandboxes.
func (sess *Session) AddProfile(c *cobra.Command, to *string) {
	c.Flags().StringVar(to, "profile", "", "`NAME` of a profile (\"cove profile list\"); default is none")
	c.RegisterFlagCompletionFunc("profile", sess.CompleteProfile())
}

func (sess *Session) CompleteProfile() cobra.CompletionFunc {
	return ui.CompleteFirst(func(ctx context.Context) []string {
		names := []string{profile.Default}
		all, _ := sess.Profiles(ctx) // a completion has no place for an error
		for _, p := range all {
			names = append(names, p.Name)
		}
		return names
	})
}
