package network

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
)

func credentialsCommand(sess *session.Session) *cobra.Command {
	return ui.Group(&cobra.Command{
		Use:   "credentials",
		Short: "See the credentials of this machine, and whether they have a value",
		Long: `See the credentials that the gateway sets on requests of sandboxes, and where
their values come from. No value is shown, and none enters a sandbox.

Values are read on this machine when a request needs one. A server that a command
has started in the background takes the variables of each shell that uses it: an
exported key counts from the next command on. A server that you have started
yourself ("cove serve") keeps its own environment, and commands say so where theirs
is another.`,
	}, credentialsList(sess), credentialsCheck(sess))
}

func credentialsList(sess *session.Session) *cobra.Command {
	return sess.ShowingList(&cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List the credentials, without asking programs for values",
		Example: "  cove credentials list\n  cove credentials list --json",
	}, func(cmd *cobra.Command, _ []string) (ui.Result, error) {
		all, err := credentialsOf(cmd, sess, false)
		return credentialTable(all), err
	})
}

func credentialsCheck(sess *session.Session) *cobra.Command {
	return sess.Showing(&cobra.Command{
		Use:   "check [NAME…]",
		Short: "Try credentials: say which have a value, and what to do for the others",
		Long: `Try credentials: say which have a value, and what to do for the others. The
programs that give values are asked, too. The exit code is 1 when one that is named
has none.`,
		Example: "  cove credentials check\n  cove credentials check anthropic",
	}, func(cmd *cobra.Command, args []string) (ui.Result, error) {
		all, err := credentialsOf(cmd, sess, true)
		if err != nil {
			return ui.Result{}, err
		}
		for _, name := range args {
			if !slices.ContainsFunc(all, func(c api.Credential) bool { return c.Name == name }) {
				return ui.Result{}, cove.Errorf(cove.NotFound, "there is no credential %.80q", name).
					WithHint("\"cove credentials list\" shows those that there are")
			}
		}
		if len(args) > 0 {
			all = slices.DeleteFunc(all, func(c api.Credential) bool { return !slices.Contains(args, c.Name) })
		}
		r := credentialTable(all)
		for _, c := range all {
			if len(args) > 0 && c.State == "missing" {
				sess.Exit = ui.ExitFindings
				r.Notes = append(r.Notes, c.Problem, "  "+c.Hint)
			}
		}
		return r, nil
	})
}

// credentialsOf asks the server of this machine, which has the keys of this shell, or a daemon in this process.
func credentialsOf(cmd *cobra.Command, sess *session.Session, check bool) ([]api.Credential, error) {
	l, err := session.OfBackend(cmd, sess, func(c *client.Client, ctx context.Context) (api.CredentialList, error) {
		session.ShareKeys(ctx, sess, c)
		if check {
			defer sess.Waits("waiting for the values of credentials: their programs and files are asked")()
		}
		return client.AsOwner(c).Credentials(ctx, check)
	})
	return l.Credentials, err
}

func credentialTable(all []api.Credential) ui.Result {
	headings := []string{"CREDENTIAL", "STATE", "FROM", "INSIDE"}
	return ui.Listing("credentials", all, headings, func(c api.Credential) []string {
		return []string{c.Name, c.State, cmp.Or(c.From, strings.Join(c.Sources, ", ")),
			cmp.Or(strings.Join(c.Variables, ", "), "-")}
	})
}
