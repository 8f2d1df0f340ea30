package sandbox

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/internal/cli/flags"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
)

// askNew asks at the terminal for what the command line did not say.
func askNew(ctx context.Context, sess *session.Session, o *flags.NewSandbox) error {
	known := knownRepositories(ctx, sess)
	if len(known) > 0 {
		o.Source = known[0]
	}
	o.Source = cmp.Or(o.Source, ".")
	checkSource := func(s string) error {
		_, err := flags.RepositorySource(s, o.Uncommitted)
		return err
	}
	questions := []ui.Question{
		{
			Name:        "Repository",
			About:       "OWNER/REPO, an HTTPS address, or a directory",
			Value:       &o.Source,
			Suggestions: known,
			Check:       checkSource,
		},
		{Name: "Branch", About: "of the sandbox's own; empty: made up", Value: &o.Branch},
		{Name: "From", About: "branch, tag or commit where it begins; empty: the default branch", Value: &o.From},
	}
	network := o.Policy.Network
	if network == "" && !o.Policy.Given() {
		network = string(cove.NetworkNone)
	}
	preset := network
	if network != "" {
		questions = append(questions, ui.Question{Name: "Network", Value: &network, Choices: []ui.Choice{
			{Value: string(cove.NetworkNone), About: "none"},
			{Value: string(cove.NetworkLimited), About: "limited: what rules allow, and the repository"},
			{Value: string(cove.NetworkOpen), About: "open: everything but private addresses"},
		}})
	}
	questions = append(questions,
		ui.Question{Name: "Agent", About: "program of its terminal; empty: a shell", Value: &o.Agent})
	if err := sess.Ask(ctx, questions...); err != nil {
		if cove.ErrorCode(err) == cove.Canceled {
			return cove.Errorf(cove.Canceled, "nothing was made")
		}
		return err
	}
	if network != preset {
		o.Policy.Network = network
	}
	return nil
}

// knownRepositories lists repositories to suggest at the terminal: the repository around this directory, those of
// sandboxes, the last used first, and those in the store. A server that does not answer knows none.
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
	for _, r := range session.OfRunning(ctx, sess, (*client.Client).Repositories) {
		if source := strings.TrimSuffix(r.Source, "/.git"); !slices.Contains(known, source) {
			known = append(known, source)
		}
	}
	return known
}
