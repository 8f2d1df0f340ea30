package flags

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
)

// Target selects the sandbox of a command: the named sandbox, with --last the one used last, or else the sandbox that
// the current directory belongs to.
type Target struct {
	Name string // as written; empty when none was
	Last bool
}

// TargetHelp is part of the help of every command that takes a sandbox.
const TargetHelp = `SANDBOX is a name, an id, or a unique prefix of one. Without it, it is
the sandbox whose checkout the current directory is in, or the only one that was
made from the repository it is in; with --last, the one that was used last. One
that another caller has made is meant only where none of your own is.`

// AddTo gives a command SANDBOX and --last, with their help and completion.
func (p *Target) AddTo(sess *session.Session, c *cobra.Command) {
	c.Use += " [SANDBOX]"
	c.Long += "\n\n" + TargetHelp
	c.ValidArgsFunction = CompleteSandbox(sess)
	c.Args = p.Take
	c.Flags().BoolVar(&p.Last, "last", false, "the sandbox that was used last")
}

// Take takes SANDBOX from the arguments, if it is there.
func (p *Target) Take(cmd *cobra.Command, args []string) error {
	if len(args) > 1 {
		return ui.UsageError(cmd, "%q is one argument too many", args[1])
	}
	if len(args) == 1 {
		if p.Last {
			return ui.UsageError(cmd, "--last is instead of SANDBOX")
		}
		p.Name = args[0]
	}
	return nil
}

// Find asks a server which sandbox it is.
func (p Target) Find(ctx context.Context, c *client.Client) (api.Sandbox, error) {
	of, service, ok := strings.Cut(p.Name, ".")
	if ok && of != "" && service != "" && !strings.Contains(p.Name, "/") { // a service's, which lists leave out
		return c.Sandbox(ctx, p.Name)
	}
	l, err := c.Sandboxes(ctx)
	if err != nil {
		return api.Sandbox{}, err
	}
	return p.Among(l.Sandboxes, CurrentDirectory())
}

// Open connects to the server that keeps sandboxes, and finds the sandbox. The caller closes the connection.
func (p Target) Open(ctx context.Context, sess *session.Session) (*session.Backend, api.Sandbox, error) {
	b, err := sess.Server(ctx)
	if err != nil {
		return nil, api.Sandbox{}, err
	}
	s, err := p.Find(ctx, b.Client)
	if err != nil {
		b.Close()
	}
	SayOwners(sess, s)
	return b, s, err
}

// With calls do with the sandbox and a client of its server. A signal cancels do's context.
func (p *Target) With(cmd *cobra.Command, sess *session.Session,
	do func(context.Context, *client.Client, api.Sandbox) error) error {
	return sess.WithServer(cmd, func(ctx context.Context, c *client.Client) error {
		s, err := p.Find(ctx, c)
		if err != nil {
			return err
		}
		SayOwners(sess, s)
		return do(ctx, c, s)
	})
}

// CurrentDirectory is without symbolic links; empty when it cannot be told.
func CurrentDirectory() string {
	dir, err := os.Getwd()
	if err != nil {
		return ""
	}
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		return real
	}
	return dir
}

// Among is the sandbox of all that is meant in a directory. Errors: NotFound,
// InvalidArgument when it is not said well enough.
func (p Target) Among(all []api.Sandbox, dir string) (api.Sandbox, error) {
	switch {
	case p.Name != "":
		return Named(all, p.Name)
	case len(all) == 0:
		return api.Sandbox{}, cove.Errorf(cove.NotFound, "there is no sandbox").WithHint("make one with \"cove new REPO\"")
	case p.Last:
		if of := own(all); len(of) > 0 {
			all = of
		}
		return slices.MaxFunc(all, func(a, b api.Sandbox) int { return a.LastUsedAt.Compare(b.LastUsedAt) }), nil
	}
	return ofDirectory(all, dir)
}

// own are the caller's own sandboxes of all that it sees.
func own(all []api.Sandbox) []api.Sandbox {
	return slices.DeleteFunc(slices.Clone(all), func(s api.Sandbox) bool { return s.OfAnother })
}

// SayOwners prints the owners of sandboxes that belong to other callers.
func SayOwners(sess *session.Session, all ...api.Sandbox) {
	for _, s := range all {
		if s.OfAnother {
			sess.Say.Line("the sandbox %s is another caller's: %s", s.Name, s.CreatedBy)
		}
	}
}

// Named is the sandbox of a name, an id, or the beginning of either; those of other callers come after the caller's
// own.
func Named(all []api.Sandbox, name string) (api.Sandbox, error) {
	if i := slices.IndexFunc(all, func(s api.Sandbox) bool { return s.ID == name }); i >= 0 {
		return all[i], nil
	}
	s, err := called(own(all), name)
	if cove.ErrorCode(err) == cove.NotFound {
		return called(all, name)
	}
	return s, err
}

// called is the sandbox of a name, or of the beginning of a name or an id.
func called(all []api.Sandbox, name string) (api.Sandbox, error) {
	var begin []api.Sandbox
	for _, s := range all {
		if s.Name == name {
			return s, nil
		}
		if strings.HasPrefix(s.Name, name) || len(name) > len("sb_") && strings.HasPrefix(s.ID, name) {
			begin = append(begin, s)
		}
	}
	switch len(begin) {
	case 0:
		return api.Sandbox{}, cove.Errorf(cove.NotFound, "there is no sandbox %.80q", name).
			WithHint("\"cove list\" shows them")
	case 1:
		return begin[0], nil
	}
	return api.Sandbox{}, cove.Errorf(cove.InvalidArgument, "%.80q is the beginning of %d sandboxes", name, len(begin)).
		WithHint("say which: %s", Names(begin))
}

// ofDirectory returns the sandbox whose checkout dir is in, or else the only one made from the repository there.
func ofDirectory(all []api.Sandbox, dir string) (api.Sandbox, error) {
	for _, s := range all {
		if s.Directory != "" && Within(dir, s.Directory) {
			return s, nil
		}
	}
	var made []api.Sandbox
	for _, s := range all {
		if s.Repository == nil {
			continue
		}
		if of := LocalFolder(s.Repository.Source); of != "" && Within(dir, of) {
			made = append(made, s)
		}
	}
	switch len(made) {
	case 0:
		return api.Sandbox{}, cove.Errorf(cove.InvalidArgument, "this directory belongs to no sandbox").
			WithHint("name one, or use --last; \"cove list\" shows them")
	case 1:
		return made[0], nil
	}
	return api.Sandbox{}, cove.Errorf(cove.InvalidArgument, "%d sandboxes were made from this repository", len(made)).
		WithHint("say which: %s", Names(made))
}

// Within reports whether a directory is below another, or it.
func Within(dir, top string) bool {
	if real, err := filepath.EvalSymlinks(top); err == nil {
		top = real
	}
	rel, err := filepath.Rel(top, dir)
	return err == nil && dir != "" && filepath.IsLocal(rel)
}

// Names lists sandboxes for a message.
func Names(all []api.Sandbox) string {
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

// CompleteSandbox completes the name of one sandbox. It starts no server.
func CompleteSandbox(sess *session.Session) cobra.CompletionFunc {
	return ui.CompleteFirst(func(ctx context.Context) []string { return sandboxNames(ctx, sess) })
}

// CompleteSandboxes completes the names of several.
func CompleteSandboxes(sess *session.Session) cobra.CompletionFunc {
	return ui.CompleteEach(func(ctx context.Context) []string { return sandboxNames(ctx, sess) })
}

// sandboxNames are names with what they are, parted by a tab; none when no server answers.
func sandboxNames(ctx context.Context, sess *session.Session) []string {
	var all []string
	for _, s := range AnsweredSandboxes(ctx, sess) {
		all = append(all, s.Name+"\t"+ui.Printable(strings.TrimSpace(s.State+" "+RepositoryText(s))))
	}
	return all
}

// AnsweredSandboxes returns the sandboxes of a server that answers now, the last used first.
func AnsweredSandboxes(ctx context.Context, sess *session.Session) []api.Sandbox {
	l := session.OfRunning(ctx, sess, (*client.Client).Sandboxes)
	slices.SortStableFunc(l.Sandboxes, func(a, b api.Sandbox) int { return b.LastUsedAt.Compare(a.LastUsedAt) })
	return l.Sandboxes
}

// RepositoryText is the repository of a sandbox, as it was asked for.
func RepositoryText(s api.Sandbox) string {
	if s.Repository == nil {
		return ""
	}
	return s.Repository.Source
}
