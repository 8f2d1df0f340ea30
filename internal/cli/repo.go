package cli

import (
	"context"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
)

func (a *app) repoCommand() *cobra.Command {
	return group(&cobra.Command{
		Use:   "repo",
		Short: "See and look after the store of repositories",
		Long: `See and look after the store of repositories, below repos in --home: one mirror of
each, with its well-known branches and tags. Sandboxes borrow objects from it
read-only, so the first "cove new" of a repository fetches it, and the next take
next to no time and no space. An object that a sandbox borrows is never removed.`,
		Example: "  cove repo list\n  cove repo fetch owner/repo",
	}, a.repoList(), a.repoFetch(), a.repoRemove(), a.repoCollect())
}

func (a *app) repoList() *cobra.Command {
	asJSON := false
	c := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the repositories in the store",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withServer(cmd, func(ctx context.Context, c *client.Client) error {
				all, err := c.Repositories(ctx)
				if err != nil {
					return err
				}
				if asJSON {
					return a.printJSON(api.StoredRepositories{Repositories: all})
				}
				var rows [][]string
				for _, r := range all {
					size := sizeText(r.Size)
					if r.Partial {
						size += ", in part"
					}
					rows = append(rows, []string{r.Name, size, strconv.Itoa(len(r.Sandboxes)), ago(time.Since(r.FetchedAt)), r.Source})
				}
				if err := a.print(table([]string{"NAME", "SIZE", "SANDBOXES", "FETCHED", "SOURCE"}, rows)); err != nil {
					return err
				}
				for _, r := range all {
					for _, dir := range r.Kept {
						a.say.line("work that was kept borrows from %s: %s; once you have removed that directory, \"cove repo gc\" forgets it", r.Name, dir)
					}
				}
				return nil
			})
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}

func (a *app) repoFetch() *cobra.Command {
	asJSON, partial := false, false
	c := &cobra.Command{
		Use:   "fetch REPO",
		Short: "Put a repository into the store, or bring it up to date",
		Long: `Put a repository into the store, or bring it up to date. With --partial, for one
that is very large, the contents of files are left out: what a sandbox checks out
is fetched when it is made, and an older file when git inside looks at it, through
the sandbox's network.`,
		Example: "  cove repo fetch owner/repo\n  cove repo fetch --partial https://git.example/owner/repo.git",
		Args:    exactly("REPO"),
		RunE: func(cmd *cobra.Command, args []string) error {
			source, err := repositorySource(args[0], false)
			if err != nil {
				return err
			}
			return a.withServer(cmd, func(ctx context.Context, c *client.Client) error {
				shown := a.newSteps()
				r, err := c.FetchRepository(ctx, api.FetchRepositoryRequest{Source: source, Partial: partial}, shown.take)
				if err != nil {
					shown.fail()
					return err
				}
				shown.finish()
				if asJSON {
					return a.printJSON(r)
				}
				return a.print(r.Name + "\n")
			})
		},
	}
	c.Flags().BoolVar(&partial, "partial", false, "leave out the contents of files until somebody checks them out")
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}

// storedSource is REPO as the store may know it: by the name that it lists,
// too.
func storedSource(s string) string {
	if source, err := repositorySource(s, false); err == nil {
		return source
	}
	return s
}

func (a *app) repoRemove() *cobra.Command {
	asJSON := false
	c := &cobra.Command{
		Use:               "remove REPO...",
		Aliases:           []string{"rm"},
		Short:             "Remove repositories from the store",
		Long:              "Remove repositories from the store, by what \"cove repo list\" calls them or as they were asked for. One that sandboxes borrow from stays.",
		Example:           "  cove repo remove github.com/owner/repo",
		ValidArgsFunction: a.completeStored,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageError(cmd, "REPO is missing")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withServer(cmd, func(ctx context.Context, c *client.Client) error {
				done, err := a.eachStored(args, asJSON, func(source string) error { return c.RemoveRepository(ctx, source) })
				if asJSON && err == nil {
					err = a.printJSON(map[string][]string{"removed": done})
				}
				return err
			})
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}

// eachStored does something with each repository and prints its name, unless
// that is told later. It ends with the first error.
func (a *app) eachStored(names []string, quiet bool, do func(source string) error) (done []string, err error) {
	done = []string{}
	for _, name := range names {
		if err := do(storedSource(name)); err != nil {
			return done, err
		}
		done = append(done, name)
		if !quiet {
			if err := a.print(name + "\n"); err != nil {
				return done, err
			}
		}
	}
	return done, nil
}

func (a *app) repoCollect() *cobra.Command {
	asJSON := false
	c := &cobra.Command{
		Use:   "gc [REPO]...",
		Short: "Pack repositories of the store anew",
		Long: `Pack repositories of the store anew, all of them when none is named, and say how
much that has freed. While sandboxes borrow from one, every object of it stays, and
so it does for work that "cove destroy --keep-work" has kept ("cove repo list" says
where) until you remove that.`,
		Example:           "  cove repo gc",
		ValidArgsFunction: a.completeStored,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withServer(cmd, func(ctx context.Context, c *client.Client) error {
				before, err := c.Repositories(ctx)
				if err != nil {
					return err
				}
				if len(args) == 0 {
					for _, r := range before {
						args = append(args, r.Name)
					}
				}
				done, err := a.eachStored(args, asJSON, func(source string) error { return c.CollectRepository(ctx, source) })
				if err != nil {
					return err
				}
				after, err := c.Repositories(ctx)
				if err != nil {
					return err
				}
				freed := max(storedSize(before)-storedSize(after), 0)
				if asJSON {
					return a.printJSON(map[string]any{"collected": done, "freed": freed})
				}
				if freed > 0 {
					a.say.line("freed %s", sizeText(freed))
				}
				return nil
			})
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}

func storedSize(all []api.StoredRepository) (n int64) {
	for _, r := range all {
		n += r.Size
	}
	return n
}

// completeStored completes the names of repositories in the store. It starts no
// server.
func (a *app) completeStored(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	var names []string
	a.askIfThere(cmd.Context(), func(ctx context.Context, c *client.Client) error {
		all, err := c.Repositories(ctx)
		for _, r := range all {
			names = append(names, r.Name)
		}
		return err
	})
	return names, cobra.ShellCompDirectiveNoFileComp
}

// askIfThere asks a server that answers now, for as long as somebody waits who
// types; else it is Unavailable.
func (a *app) askIfThere(ctx context.Context, ask func(context.Context, *client.Client) error) error {
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, cancel := context.WithTimeout(ctx, completionTimeout)
	defer cancel()
	address := a.serverAddress()
	if address == "" {
		cfg, err := a.loadConfig()
		if err != nil {
			return err
		}
		if !answers(ctx, cfg.Socket()) {
			return cove.Errorf(cove.Unavailable, "no server answers")
		}
		address = "unix:" + cfg.Socket()
	}
	b, err := a.remote(address)
	if err != nil {
		return err
	}
	defer b.close()
	return ask(ctx, b.client)
}
