package sandbox

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/internal/cli/flags"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
)

func repoCommand(sess *session.Session) *cobra.Command {
	return ui.Group(&cobra.Command{
		Use:   "repo",
		Short: "See and look after the store of repositories",
		Long: `See and look after the store of repositories, below repos in --home: one mirror of
each, with its well-known branches and tags. Sandboxes borrow objects from it
read-only, so the first "cove new" of a repository fetches it, and the next take
next to no time and no space. An object that a sandbox borrows is never removed;
mirrors that no sandbox borrows from make room for others when all together have
more than disk.repositories_mb, or the disk is short: those first that were used
the longest ago.`,
		Example: "  cove repo list\n  cove repo fetch owner/repo",
	}, repoList(sess), repoFetch(sess), repoRemove(sess), repoCollect(sess))
}

func repoList(sess *session.Session) *cobra.Command {
	return sess.ShowingList(&cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List the repositories in the store",
	}, func(cmd *cobra.Command, _ []string) (ui.Result, error) {
		all, err := session.OfServer(cmd, sess, (*client.Client).Repositories)
		headings := []string{"NAME", "SIZE", "SANDBOXES", "FETCHED", "USED", "SOURCE"}
		r := ui.Listing("repositories", all, headings, func(r api.StoredRepository) []string {
			size := ui.SizeText(r.Size)
			if r.Partial {
				size += ", in part"
			}
			return []string{r.Name, size, strconv.Itoa(len(r.Sandboxes)), ui.Ago(time.Since(r.FetchedAt)),
				ui.Ago(time.Since(r.UsedAt)), r.Source}
		})
		for _, stored := range all {
			for _, dir := range stored.Kept {
				r.Notes = append(r.Notes, fmt.Sprintf("work that was kept borrows from %s: %s; "+
					"once you have removed that directory, \"cove repo gc\" forgets it", stored.Name, dir))
			}
		}
		return r, err
	})
}

func repoFetch(sess *session.Session) *cobra.Command {
	partial := false
	c := &cobra.Command{
		Use:   "fetch REPO",
		Short: "Put a repository into the store, or bring it up to date",
		Long: `Put a repository into the store, or bring it up to date. With --partial, for one
that is very large, the contents of files are left out: what a sandbox checks out
is fetched when it is made, and an older file when git inside looks at it, through
the sandbox's network.`,
		Example: "  cove repo fetch owner/repo\n  cove repo fetch --partial https://git.example/owner/repo.git",
	}
	c.Flags().BoolVar(&partial, "partial", false, "leave out the contents of files until they are checked out")
	return sess.Showing(c, func(cmd *cobra.Command, args []string) (ui.Result, error) {
		source, err := flags.RepositorySource(args[0], false)
		if err != nil {
			return ui.Result{}, err
		}
		r, err := session.OfServer(cmd, sess, func(c *client.Client, ctx context.Context) (api.StoredRepository, error) {
			shown := sess.NewSteps()
			r, err := c.FetchRepository(ctx, api.FetchRepositoryRequest{Source: source, Partial: partial}, shown.Take)
			shown.End(err)
			return r, err
		})
		return ui.Result{Value: r, Text: r.Name + "\n"}, err
	})
}

func repoRemove(sess *session.Session) *cobra.Command {
	c := &cobra.Command{
		Use:     "remove REPO...",
		Aliases: []string{"rm", "delete"},
		Short:   "Remove repositories from the store",
		Long: `Remove repositories from the store, by their names in "cove repo list" or by the
SOURCE that they were fetched from. One that sandboxes borrow from stays.`,
		Example:           "  cove repo remove github.com/owner/repo",
		ValidArgsFunction: completeStored(sess),
		RunE: func(cmd *cobra.Command, args []string) error {
			return sess.WithServer(cmd, func(ctx context.Context, c *client.Client) error {
				done, err := eachStored(sess, args, func(source string) error { return c.RemoveRepository(ctx, source) })
				return sess.Show(ui.Result{Value: map[string][]string{"removed": done}}, err)
			})
		},
	}
	sess.AddJSON(c.Flags(), "print one JSON object")
	return c
}

// eachStored does something with each repository and prints its name. It ends with the first error.
func eachStored(sess *session.Session, names []string, do func(source string) error) (done []string, err error) {
	done = []string{}
	for _, name := range names {
		source, err := flags.RepositorySource(name, false)
		if err != nil {
			source = name // by which the store lists it
		}
		if err := do(source); err != nil {
			return done, err
		}
		done = append(done, name)
		if err := sess.PrintText(name + "\n"); err != nil {
			return done, err
		}
	}
	return done, nil
}

func repoCollect(sess *session.Session) *cobra.Command {
	c := &cobra.Command{
		Use:   "gc [REPO]...",
		Short: "Pack repositories of the store anew",
		Long: `Pack repositories of the store anew, all of them when none is named, and say how
much that has freed. While sandboxes borrow from one, every object of it stays, and
so it does for work that "cove destroy --keep-work" has kept ("cove repo list" says
where) until you remove that.`,
		Example:           "  cove repo gc",
		ValidArgsFunction: completeStored(sess),
		RunE: func(cmd *cobra.Command, args []string) error {
			return sess.WithServer(cmd, func(ctx context.Context, c *client.Client) error {
				before, err := c.Repositories(ctx)
				if err != nil {
					return err
				}
				if len(args) == 0 {
					for _, r := range before {
						args = append(args, r.Name)
					}
				}
				done, err := eachStored(sess, args, func(source string) error { return c.CollectRepository(ctx, source) })
				if err != nil {
					return err
				}
				after, err := c.Repositories(ctx)
				if err != nil {
					return err
				}
				freed := max(storedSize(before)-storedSize(after), 0)
				r := ui.Result{Value: map[string]any{"collected": done, "freed": freed}}
				if freed > 0 {
					r.Notes = []string{"freed " + ui.SizeText(freed)}
				}
				return sess.Show(r, nil)
			})
		},
	}
	sess.AddJSON(c.Flags(), "print one JSON object")
	return c
}

func storedSize(all []api.StoredRepository) (n int64) {
	for _, r := range all {
		n += r.Size
	}
	return n
}

// completeStored completes the names of repositories in the store. It starts no server.
func completeStored(sess *session.Session) cobra.CompletionFunc {
	return ui.CompleteEach(func(ctx context.Context) (names []string) {
		for _, r := range session.OfRunning(ctx, sess, (*client.Client).Repositories) {
			names = append(names, r.Name)
		}
		return names
	})
}
