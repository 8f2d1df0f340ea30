package sandbox

import (
	"context"
	"errors"
	"slices"
	"strings"

	"charm.land/huh/v2"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/internal/cli/flags"
	"github.com/cove-sandbox/cove/internal/cli/session"
)

// askNew asks at the terminal for what the command line did not say.
func askNew(ctx context.Context, sess *session.Session, o *flags.NewSandbox) error {
	known := knownRepositories(ctx, sess)
	if o.Source = first(known); o.Source == "" {
		o.Source = "."
	}
	network := o.Policy.Network
	if network == "" && !o.Policy.Given() {
		network = string(cove.NetworkNone)
	}
	fields := []huh.Field{
		huh.NewInput().Title("Repository").Description("OWNER/REPO, an HTTPS address, or a directory").Suggestions(known).Value(&o.Source).
			Validate(func(s string) error {
				_, err := flags.RepositorySource(strings.TrimSpace(s), o.Uncommitted)
				return plainError(err)
			}),
		huh.NewInput().Title("Branch").Description("of the sandbox's own; empty: made up").Value(&o.Branch),
		huh.NewInput().Title("From").Description("branch, tag or commit where it begins; empty: the default branch").Value(&o.From),
	}
	if network != "" {
		fields = append(fields, huh.NewSelect[string]().Title("Network").Options(
			huh.NewOption("none", string(cove.NetworkNone)),
			huh.NewOption("limited: what rules allow, and the repository", string(cove.NetworkLimited)),
			huh.NewOption("open: everything but private addresses", string(cove.NetworkOpen)),
		).Value(&network))
	}
	fields = append(fields, huh.NewInput().Title("Agent").Description("program of its terminal; empty: a shell").Value(&o.Agent))
	err := huh.NewForm(huh.NewGroup(fields...)).WithInput(sess.In).WithOutput(sess.Err).WithAccessible(sess.Getenv("TERM") == "dumb").RunWithContext(ctx)
	if errors.Is(err, huh.ErrUserAborted) {
		return cove.Errorf(cove.Canceled, "nothing was made")
	}
	if err != nil {
		return cove.Errorf(cove.InvalidArgument, "this terminal cannot be asked: %w", err).WithHint("write it: cove new REPO")
	}
	for _, s := range []*string{&o.Source, &o.Branch, &o.From, &o.Agent} {
		*s = strings.TrimSpace(*s)
	}
	if o.Policy.Network == "" && network != string(cove.NetworkNone) {
		o.Policy.Network = network
	}
	return nil
}

// plainError is an error for a form: the hint is its own sentence there.
func plainError(err error) error {
	if err == nil {
		return nil
	}
	return errors.New(strings.TrimSuffix(err.Error(), " ("+cove.ErrorHint(err)+")") + "; " + cove.ErrorHint(err))
}

func first(all []string) string {
	if len(all) == 0 {
		return ""
	}
	return all[0]
}

// knownRepositories are those that somebody at this terminal may mean: the one
// of this directory, those of sandboxes, the last used first, and those in the
// store. A server that does not answer knows none.
func knownRepositories(ctx context.Context, sess *session.Session) []string {
	var known []string
	if top := flags.RepositoryTop(flags.CurrentDirectory()); top != "" {
		known = append(known, top)
	}
	for _, s := range flags.AnsweredSandboxes(ctx, sess) {
		if s.Repository != nil && !slices.Contains(known, s.Repository.Source) {
			known = append(known, s.Repository.Source)
		}
	}
	sess.AskRunning(ctx, func(ctx context.Context, c *client.Client) error {
		stored, err := c.Repositories(ctx)
		for _, r := range stored {
			if source := strings.TrimSuffix(r.Source, "/.git"); !slices.Contains(known, source) {
				known = append(known, source)
			}
		}
		return err
	})
	return known
}
