package cli

import (
	"context"
	"errors"
	"slices"
	"strings"

	"charm.land/huh/v2"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
)

// askNew asks at the terminal for what the command line did not say.
func (a *app) askNew(ctx context.Context, o *newOptions) error {
	known := a.knownRepositories(ctx)
	if o.source = first(known); o.source == "" {
		o.source = "."
	}
	network := o.policy.network
	if network == "" && !o.policy.given() {
		network = string(cove.NetworkNone)
	}
	fields := []huh.Field{
		huh.NewInput().Title("Repository").Description("OWNER/REPO, an HTTPS address, or a directory").Suggestions(known).Value(&o.source).
			Validate(func(s string) error {
				_, err := repositorySource(strings.TrimSpace(s), o.uncommitted)
				return plainError(err)
			}),
		huh.NewInput().Title("Branch").Description("of the sandbox's own; empty: made up").Value(&o.branch),
		huh.NewInput().Title("From").Description("branch, tag or commit where it begins; empty: the default branch").Value(&o.from),
	}
	if network != "" {
		fields = append(fields, huh.NewSelect[string]().Title("Network").Options(
			huh.NewOption("none", string(cove.NetworkNone)),
			huh.NewOption("limited: what rules allow, and the repository", string(cove.NetworkLimited)),
			huh.NewOption("open: everything but private addresses", string(cove.NetworkOpen)),
		).Value(&network))
	}
	fields = append(fields, huh.NewInput().Title("Agent").Description("program of its terminal; empty: a shell").Value(&o.agent))
	err := huh.NewForm(huh.NewGroup(fields...)).WithInput(a.In).WithOutput(a.Err).WithAccessible(a.getenv("TERM") == "dumb").RunWithContext(ctx)
	if errors.Is(err, huh.ErrUserAborted) {
		return cove.Errorf(cove.Canceled, "nothing was made")
	}
	if err != nil {
		return cove.Errorf(cove.InvalidArgument, "this terminal cannot be asked: %w", err).WithHint("write it: cove new REPO")
	}
	for _, s := range []*string{&o.source, &o.branch, &o.from, &o.agent} {
		*s = strings.TrimSpace(*s)
	}
	if o.policy.network == "" && network != string(cove.NetworkNone) {
		o.policy.network = network
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
func (a *app) knownRepositories(ctx context.Context) []string {
	var known []string
	if top := repositoryTop(currentDirectory()); top != "" {
		known = append(known, top)
	}
	for _, s := range a.answeredSandboxes(ctx) {
		if s.Repository != nil && !slices.Contains(known, s.Repository.Source) {
			known = append(known, s.Repository.Source)
		}
	}
	a.askIfThere(ctx, func(ctx context.Context, c *client.Client) error {
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

// answeredSandboxes are those of a server that answers now, the last used first.
func (a *app) answeredSandboxes(ctx context.Context) []api.Sandbox {
	var l api.SandboxList
	a.askIfThere(ctx, func(ctx context.Context, c *client.Client) (err error) {
		l, err = c.Sandboxes(ctx)
		return err
	})
	slices.SortStableFunc(l.Sandboxes, func(a, b api.Sandbox) int { return b.LastUsedAt.Compare(a.LastUsedAt) })
	return l.Sandboxes
}
