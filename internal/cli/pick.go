package cli

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
)

// pick says which sandbox a command is about: the one that is named, the one
// used last, or else the one that the current directory belongs to.
type pick struct {
	name string // as written; empty when none was
	last bool
}

// pickHelp is what the help of every command says that takes a sandbox.
const pickHelp = `SANDBOX is a name, an id, or as much of one as no other has. Without it, it is
the sandbox whose checkout the current directory is in, or the only one that was
made from the repository it is in; with --last, the one that was used last.`

func (p *pick) add(f *pflag.FlagSet) {
	f.BoolVar(&p.last, "last", false, "the sandbox that was used last")
}

// of takes SANDBOX from the arguments, if it is there.
func (p *pick) of(cmd *cobra.Command, args []string) error {
	if len(args) > 1 {
		return usageError(cmd, "%q is one argument too many", args[1])
	}
	if len(args) == 1 {
		if p.last {
			return usageError(cmd, "--last is instead of SANDBOX")
		}
		p.name = args[0]
	}
	return nil
}

// find asks a server which sandbox it is.
func (p pick) find(ctx context.Context, c *client.Client) (api.Sandbox, error) {
	l, err := c.Sandboxes(ctx)
	if err != nil {
		return api.Sandbox{}, err
	}
	return p.among(l.Sandboxes, currentDirectory())
}

// currentDirectory is without symbolic links; empty when it cannot be told.
func currentDirectory() string {
	dir, err := os.Getwd()
	if err != nil {
		return ""
	}
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		return real
	}
	return dir
}

// among is the sandbox of all that is meant in a directory. Errors: NotFound,
// InvalidArgument when it is not said well enough.
func (p pick) among(all []api.Sandbox, dir string) (api.Sandbox, error) {
	switch {
	case p.name != "":
		return named(all, p.name)
	case len(all) == 0:
		return api.Sandbox{}, cove.Errorf(cove.NotFound, "there is no sandbox").WithHint("make one with \"cove new REPO\"")
	case p.last:
		return slices.MaxFunc(all, func(a, b api.Sandbox) int { return a.LastUsedAt.Compare(b.LastUsedAt) }), nil
	}
	return ofDirectory(all, dir)
}

// named is the sandbox of a name, an id, or the beginning of either.
func named(all []api.Sandbox, name string) (api.Sandbox, error) {
	var begin []api.Sandbox
	for _, s := range all {
		if s.Name == name || s.ID == name {
			return s, nil
		}
		if strings.HasPrefix(s.Name, name) || len(name) > len("sb_") && strings.HasPrefix(s.ID, name) {
			begin = append(begin, s)
		}
	}
	switch len(begin) {
	case 0:
		return api.Sandbox{}, cove.Errorf(cove.NotFound, "there is no sandbox %.80q", name).WithHint("\"cove list\" shows them")
	case 1:
		return begin[0], nil
	}
	return api.Sandbox{}, cove.Errorf(cove.InvalidArgument, "%.80q is the beginning of %d sandboxes", name, len(begin)).WithHint("say which: %s", names(begin))
}

// ofDirectory is the sandbox whose checkout a directory is in, or the only one
// that was made from the repository it is in.
func ofDirectory(all []api.Sandbox, dir string) (api.Sandbox, error) {
	for _, s := range all {
		if s.Directory != "" && within(dir, s.Directory) {
			return s, nil
		}
	}
	var made []api.Sandbox
	for _, s := range all {
		if s.Repository != nil && filepath.IsAbs(s.Repository.Source) && within(dir, s.Repository.Source) {
			made = append(made, s)
		}
	}
	switch len(made) {
	case 0:
		return api.Sandbox{}, cove.Errorf(cove.InvalidArgument, "this directory belongs to no sandbox").WithHint("name one, or use --last; \"cove list\" shows them")
	case 1:
		return made[0], nil
	}
	return api.Sandbox{}, cove.Errorf(cove.InvalidArgument, "%d sandboxes were made from this repository", len(made)).WithHint("say which: %s", names(made))
}

// within reports whether a directory is below another, or it.
func within(dir, top string) bool {
	if real, err := filepath.EvalSymlinks(top); err == nil {
		top = real
	}
	rel, err := filepath.Rel(top, dir)
	return err == nil && dir != "" && filepath.IsLocal(rel)
}

// names lists sandboxes for a message.
func names(all []api.Sandbox) string {
	const most = 8
	var list []string
	for _, s := range all {
		list = append(list, s.Name)
	}
	slices.Sort(list)
	if len(list) > most {
		list = append(list[:most], "…")
	}
	return strings.Join(list, ", ")
}

// completionTimeout is how long whoever presses Tab waits for a server.
const completionTimeout = 2 * time.Second

// completeSandbox completes the names of sandboxes. It starts no server.
func (a *app) completeSandbox(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.sandboxNames(cmd.Context()), cobra.ShellCompDirectiveNoFileComp
}

// completeSandboxes does so for commands that take several.
func (a *app) completeSandboxes(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	return slices.DeleteFunc(a.sandboxNames(cmd.Context()), func(s string) bool {
		name, _, _ := strings.Cut(s, "\t")
		return slices.Contains(args, name)
	}), cobra.ShellCompDirectiveNoFileComp
}

// sandboxNames are names with what they are, parted by a tab; none when no
// server answers.
func (a *app) sandboxNames(ctx context.Context) []string {
	var all []string
	for _, s := range a.answeredSandboxes(ctx) {
		all = append(all, s.Name+"\t"+printable(strings.TrimSpace(s.State+" "+repositoryText(s))))
	}
	return all
}
