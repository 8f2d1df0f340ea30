package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
)

// States of a sandbox that pass by themselves.
const (
	statePreparing  = "preparing"
	stateRunning    = "running"
	statePaused     = "paused"
	stateDestroying = "destroying"
)

func (a *app) listCommand() *cobra.Command {
	var all, quiet, asJSON bool
	c := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List sandboxes",
		Long: `List the sandboxes that last, whether they run or not, the one that was used
last first. With --all also those that are being made or removed.`,
		Example: "  cove list\n  cove list --json\n  cove destroy $(cove list -q)",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withServer(cmd, func(ctx context.Context, c *client.Client) error {
				l, err := c.Sandboxes(ctx)
				if err != nil {
					return err
				}
				if !all {
					l.Sandboxes = slices.DeleteFunc(l.Sandboxes, func(s api.Sandbox) bool { return s.State == statePreparing || s.State == stateDestroying })
				}
				slices.SortStableFunc(l.Sandboxes, func(a, b api.Sandbox) int { return b.LastUsedAt.Compare(a.LastUsedAt) })
				return a.showSandboxes(l, quiet, asJSON)
			})
		},
	}
	f := c.Flags()
	f.BoolVarP(&all, "all", "a", false, "those that are being made or removed, too")
	f.BoolVarP(&quiet, "quiet", "q", false, "print names only")
	f.BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}

// withServer lets do talk to the server that keeps sandboxes, until a signal
// comes.
func (a *app) withServer(cmd *cobra.Command, do func(context.Context, *client.Client) error) error {
	interrupts := watchSignals(a.Out)
	defer interrupts.stop()
	ctx, cancel := interrupts.cover(cmd.Context())
	defer cancel()
	b, err := a.lasting(ctx)
	if err != nil {
		return interrupts.explain(err)
	}
	defer b.close()
	return interrupts.explain(do(ctx, b.client))
}

func (a *app) showSandboxes(l api.SandboxList, quiet, asJSON bool) error {
	if asJSON {
		return a.printJSON(l)
	}
	if quiet {
		for _, s := range l.Sandboxes {
			if err := a.print(s.Name + "\n"); err != nil {
				return err
			}
		}
		return nil
	}
	var rows [][]string
	for _, s := range l.Sandboxes {
		branch := ""
		if s.Repository != nil {
			branch = s.Repository.Branch
		}
		rows = append(rows, []string{s.Name, s.State, repositoryText(s), branch, s.Network, ago(time.Since(s.LastUsedAt))})
	}
	if err := a.print(table([]string{"NAME", "STATE", "REPOSITORY", "BRANCH", "NETWORK", "USED"}, rows)); err != nil {
		return err
	}
	for _, s := range l.Sandboxes {
		if s.Error != "" {
			a.say.line("%s: %s", s.Name, s.Error)
		}
	}
	switch len(l.Orphans) {
	case 0:
	case 1:
		a.say.line("the workspace %s belongs to no sandbox; \"cove destroy %s\" removes it", l.Orphans[0], l.Orphans[0])
	default:
		a.say.line("%d workspaces belong to no sandbox: %s; \"cove destroy --orphans\" removes them", len(l.Orphans), strings.Join(l.Orphans, ", "))
	}
	return nil
}

// repositoryText is the repository of a sandbox, as it was asked for.
func repositoryText(s api.Sandbox) string {
	if s.Repository == nil {
		return ""
	}
	return s.Repository.Source
}

func (a *app) infoCommand() *cobra.Command {
	var p pick
	asJSON := false
	c := &cobra.Command{
		Use:               "info [SANDBOX]",
		Short:             "Show everything about a sandbox",
		Long:              "Show everything about a sandbox.\n\n" + pickHelp,
		Example:           "  cove info\n  cove info brave-otter --json",
		ValidArgsFunction: a.completeSandbox,
		Args:              p.of,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withServer(cmd, func(ctx context.Context, c *client.Client) error {
				s, err := p.find(ctx, c)
				if err != nil {
					return err
				}
				if s, err = c.Sandbox(ctx, s.ID); err != nil {
					return err
				}
				if asJSON {
					return a.printJSON(s)
				}
				return a.print(facts(sandboxFacts(s, time.Now())))
			})
		},
	}
	p.add(c.Flags())
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}

// sandboxFacts are the lines of "cove info".
func sandboxFacts(s api.Sandbox, now time.Time) [][2]string {
	var rows [][2]string
	add := func(name, value string) {
		if value != "" {
			rows = append(rows, [2]string{name, value})
		}
	}
	when := func(t time.Time) string { return t.Local().Format(time.DateTime) + " (" + ago(now.Sub(t)) + ")" }
	add("name", s.Name)
	add("id", s.ID)
	add("state", s.State)
	add("within", s.Within)
	add("error", s.Error)
	if r := s.Repository; r != nil {
		add("repository", r.Source)
		add("branch", r.Branch)
		add("from", strings.TrimSpace(r.From+" "+brackets(shortID(r.Base))))
		add("pushes to", orElse(r.Remote, "nowhere: it has no remote"))
		if r.Worktree {
			add("git", "outside: a worktree of a repository on this machine")
		}
	}
	add("checkout", s.Directory)
	add("runs in", s.WorkDir)
	add("network", s.Network)
	if s.AllowPR {
		add("GitHub", "pull requests may be opened and commented on")
	}
	if s.SSHAgent {
		add("SSH agent", "signs for the sandbox")
	}
	for _, m := range s.Mounts {
		mode := ""
		if m.ReadOnly {
			mode = " (read-only)"
		}
		add("mount", m.Source+" at "+m.Target+mode)
	}
	add("agent", s.Agent)
	add("profile", s.Profile)
	add("image", s.Image)
	add("engine", s.Engine)
	add("limits", limitsText(s.Limits))
	for _, t := range s.Terminals {
		add("terminal", t.ID+": "+strings.Join(t.Args, " ")+attachedText(t.Attached))
	}
	add("disk used", sizeText(s.DiskUsed))
	add("created", when(s.CreatedAt)+" by "+s.CreatedBy)
	add("last used", when(s.LastUsedAt))
	return rows
}

func orElse(text, other string) string {
	if text == "" {
		return other
	}
	return text
}

func brackets(text string) string {
	if text == "" {
		return ""
	}
	return "(" + text + ")"
}

// shortID is enough of a commit's id for people.
func shortID(id string) string { return id[:min(len(id), 12)] }

func attachedText(n int) string {
	switch n {
	case 0:
		return ""
	case 1:
		return ", one attached"
	}
	return fmt.Sprintf(", %d attached", n)
}

func limitsText(l api.Limits) string {
	var parts []string
	if l.MemoryMB > 0 {
		parts = append(parts, sizeText(l.MemoryMB<<20)+" memory")
	}
	if l.CPUs > 0 {
		parts = append(parts, strconv.FormatFloat(l.CPUs, 'f', -1, 64)+" CPUs")
	}
	if l.PIDs > 0 {
		parts = append(parts, strconv.FormatInt(l.PIDs, 10)+" processes")
	}
	if l.DiskMB > 0 {
		parts = append(parts, sizeText(l.DiskMB<<20)+" disk")
	}
	return strings.Join(parts, ", ")
}

// changeCommand makes a command that changes one sandbox and prints its name.
func (a *app) changeCommand(c *cobra.Command, change func(context.Context, *client.Client, string) (api.Sandbox, error)) *cobra.Command {
	var p pick
	asJSON := false
	c.Use += " [SANDBOX]"
	c.Long += "\n\n" + pickHelp
	c.ValidArgsFunction = a.completeSandbox
	c.Args = p.of
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		return a.withServer(cmd, func(ctx context.Context, c *client.Client) error {
			s, err := p.find(ctx, c)
			if err != nil {
				return err
			}
			if s, err = change(ctx, c, s.ID); err != nil {
				return err
			}
			if asJSON {
				return a.printJSON(s)
			}
			return a.print(s.Name + "\n")
		})
	}
	p.add(c.Flags())
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}

func (a *app) startCommand() *cobra.Command {
	return a.startsWorkflow(a.changeCommand(&cobra.Command{
		Use:   "start",
		Short: "Start a sandbox that does not run, or work on an issue",
		Long: `Start a sandbox that was stopped, or that has failed. What it is made of is put
right first: its network, its mounts, what a crash has left.`,
		Example: "  cove start brave-otter",
	}, func(ctx context.Context, c *client.Client, id string) (api.Sandbox, error) {
		return c.StartSandbox(ctx, id)
	}))
}

func (a *app) stopCommand() *cobra.Command {
	return a.changeCommand(&cobra.Command{
		Use:   "stop",
		Short: "Stop a sandbox, and keep the work in it",
		Long: `End everything that runs in a sandbox. Its checkout and its home stay, and
"cove start" begins with them.`,
		Example: "  cove stop brave-otter",
	}, func(ctx context.Context, c *client.Client, id string) (api.Sandbox, error) {
		return c.StopSandbox(ctx, id)
	})
}

func (a *app) pauseCommand() *cobra.Command {
	return a.changeCommand(&cobra.Command{
		Use:     "pause",
		Short:   "Hold everything that runs in a sandbox",
		Long:    "Hold everything that runs in a sandbox where it is, in memory, until \"cove resume\".",
		Example: "  cove pause brave-otter",
	}, func(ctx context.Context, c *client.Client, id string) (api.Sandbox, error) {
		return c.PauseSandbox(ctx, id)
	})
}

func (a *app) resumeCommand() *cobra.Command {
	return a.changeCommand(&cobra.Command{
		Use:     "resume",
		Short:   "Let a sandbox that was paused go on",
		Long:    "Let everything go on in a sandbox that was paused.",
		Example: "  cove resume brave-otter",
	}, func(ctx context.Context, c *client.Client, id string) (api.Sandbox, error) {
		return c.ResumeSandbox(ctx, id)
	})
}

func (a *app) renameCommand() *cobra.Command {
	var p pick
	asJSON := false
	name := ""
	c := &cobra.Command{
		Use:               "rename [SANDBOX] NAME",
		Short:             "Give a sandbox another name",
		Long:              "Give a sandbox another name; its branch keeps its own.\n\n" + pickHelp,
		Example:           "  cove rename brave-otter login-page",
		ValidArgsFunction: a.completeSandbox,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageError(cmd, "NAME is missing")
			}
			name = args[len(args)-1]
			return p.of(cmd, args[:len(args)-1])
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withServer(cmd, func(ctx context.Context, c *client.Client) error {
				s, err := p.find(ctx, c)
				if err != nil {
					return err
				}
				if s, err = c.RenameSandbox(ctx, s.ID, name); err != nil {
					return err
				}
				if asJSON {
					return a.printJSON(s)
				}
				return a.print(s.Name + "\n")
			})
		},
	}
	p.add(c.Flags())
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}

// destroyOptions are the flags of "cove destroy".
type destroyOptions struct {
	all, orphans bool
	keepWork     bool
	yes          bool
	last         bool
	json         bool
}

func (a *app) destroyCommand() *cobra.Command {
	var o destroyOptions
	c := &cobra.Command{
		Use:   "destroy [SANDBOX]...",
		Short: "Remove sandboxes and the work in them",
		Long: `Remove sandboxes: everything that runs in them, their checkouts and their homes.
With --keep-work the checkouts stay, as directories of yours. At a terminal it
asks before; elsewhere --yes has to be there. --all removes every sandbox, and
asks twice at a terminal, whatever --yes says. The id of a workspace that belongs
to no sandbox ("cove list" names them) removes that; --orphans all of them.

` + pickHelp,
		Example: `  cove destroy brave-otter
  cove destroy --last --keep-work
  cove destroy --yes $(cove list -q)`,
		ValidArgsFunction: a.completeSandboxes,
		Args: func(cmd *cobra.Command, args []string) error {
			said := 0
			for _, b := range []bool{len(args) > 0, o.all, o.last, o.orphans} {
				if b {
					said++
				}
			}
			if said > 1 {
				return usageError(cmd, "SANDBOX, --last, --orphans and --all exclude each other")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return a.destroy(cmd, o, args) },
	}
	f := c.Flags()
	f.BoolVar(&o.keepWork, "keep-work", false, "leave the checkout where it is")
	f.BoolVarP(&o.yes, "yes", "y", false, "do not ask")
	f.BoolVar(&o.last, "last", false, "the sandbox that was used last")
	f.BoolVar(&o.all, "all", false, "every sandbox: the number of them is typed twice")
	f.BoolVar(&o.orphans, "orphans", false, "workspaces that belong to no sandbox")
	f.BoolVar(&o.json, "json", false, "print one JSON object")
	return c
}

// destroyed is what "cove destroy --json" prints of each.
type destroyed struct {
	ID   string `json:"id"`
	Name string `json:"name,omitempty"`
	Kept string `json:"kept,omitempty"` // directory
}

func (a *app) destroy(cmd *cobra.Command, o destroyOptions, args []string) error {
	ctx := cmd.Context()
	b, err := a.lasting(ctx)
	if err != nil {
		return err
	}
	defer b.close()
	l, err := b.client.Sandboxes(ctx)
	if err != nil {
		return err
	}
	doomed, err := o.chosen(l, args)
	if err != nil {
		return err
	}
	doomed = withWithin(l.Sandboxes, doomed)
	if len(doomed) > 0 {
		if err := a.confirmDestroy(o, doomed); err != nil {
			return err
		}
	}
	interrupts := watchSignals(a.Out) // only now: who is asked is ended by a signal at once
	defer interrupts.stop()
	ctx, cancel := interrupts.cover(ctx)
	defer cancel()
	done := []destroyed{}
	var failed error
	for _, s := range doomed {
		if err := b.client.DestroySandbox(ctx, s.ID, o.keepWork); err != nil {
			if failed != nil {
				a.say.fail(failed)
			}
			if failed = err; ctx.Err() != nil {
				break
			}
			continue
		}
		d := destroyed{ID: s.ID, Name: s.Name}
		if o.keepWork {
			d.Kept = s.Directory
		}
		done = append(done, d)
		if !o.json {
			if err := a.print(orElse(s.Name, s.ID) + "\n"); err != nil {
				return err
			}
			if d.Kept != "" {
				a.say.line("the work is kept in %s", d.Kept)
			}
		}
	}
	if o.json {
		if err := a.printJSON(struct {
			Destroyed []destroyed `json:"destroyed"`
		}{done}); err != nil {
			return err
		}
	}
	return interrupts.explain(failed)
}

// chosen are the sandboxes to destroy; one without a name is a workspace that
// belongs to none.
func (o destroyOptions) chosen(l api.SandboxList, args []string) ([]api.Sandbox, error) {
	if o.all {
		return l.Sandboxes, nil
	}
	var chosen []api.Sandbox
	if o.orphans {
		for _, id := range l.Orphans {
			chosen = append(chosen, api.Sandbox{ID: id})
		}
		return chosen, nil
	}
	if len(args) == 0 {
		s, err := pick{last: o.last}.among(l.Sandboxes, currentDirectory())
		return []api.Sandbox{s}, err
	}
	for _, arg := range args {
		s, err := api.Sandbox{ID: arg}, error(nil)
		if !slices.Contains(l.Orphans, arg) {
			if s, err = named(l.Sandboxes, arg); err != nil {
				return nil, err
			}
		}
		if !slices.ContainsFunc(chosen, func(c api.Sandbox) bool { return c.ID == s.ID }) {
			chosen = append(chosen, s)
		}
	}
	return chosen, nil
}

// withWithin are sandboxes with those that are within them and go with them, which
// come first. It is pure.
func withWithin(all, chosen []api.Sandbox) []api.Sandbox {
	has := func(list []api.Sandbox, id string) bool {
		return slices.ContainsFunc(list, func(s api.Sandbox) bool { return s.ID == id })
	}
	var inside, rest []api.Sandbox
	for _, s := range all {
		if s.Within != "" && (has(chosen, s.ID) || has(chosen, s.Within)) {
			inside = append(inside, s)
		}
	}
	for _, s := range chosen {
		if !has(inside, s.ID) {
			rest = append(rest, s)
		}
	}
	return append(inside, rest...)
}

// confirmDestroy asks. Errors: InvalidArgument when nobody can be asked,
// Canceled when the answer is no.
func (a *app) confirmDestroy(o destroyOptions, doomed []api.Sandbox) error {
	atTerminal := isTerminal(a.In) && isTerminal(a.Err)
	switch {
	case o.all && !atTerminal:
		return cove.Errorf(cove.InvalidArgument, "--all is confirmed twice at a terminal, and this is none").WithHint("name the sandboxes: cove destroy --yes $(cove list -q)")
	case !o.all && o.yes:
		return nil
	case !atTerminal:
		return cove.Errorf(cove.InvalidArgument, "nobody can be asked whether to destroy the work in %s", destroyNames(doomed)).WithHint("add --yes, or --keep-work --yes to keep it")
	}
	work := "with the work in it"
	if len(doomed) > 1 {
		work = "with the work in them"
	}
	if o.keepWork {
		work = "and keep the work"
	}
	if !o.all {
		return a.confirm(fmt.Sprintf("destroy %s, %s? [y/N] ", destroyNames(doomed), work), "y", "yes")
	}
	count := strconv.Itoa(len(doomed))
	if err := a.confirm(fmt.Sprintf("destroy every sandbox, %s, %s?\n      type how many they are (%s) to go on: ", destroyNames(doomed), work, count), count); err != nil {
		return err
	}
	return a.confirm("type it again: ", count)
}

func destroyNames(doomed []api.Sandbox) string {
	var list []api.Sandbox
	for _, s := range doomed {
		s.Name = orElse(s.Name, s.ID)
		list = append(list, s)
	}
	return printable(names(list))
}

// confirm asks at the terminal, and is an error unless the answer is one of
// yes. A signal ends the command meanwhile.
func (a *app) confirm(question string, yes ...string) error {
	fmt.Fprint(a.Err, a.say.paint(dim, "cove:")+" "+question)
	answer, err := typedLine(a.In)
	if err != nil {
		fmt.Fprintln(a.Err)
	}
	if !slices.Contains(yes, strings.ToLower(strings.TrimSpace(answer))) {
		return cove.Errorf(cove.Canceled, "nothing was done")
	}
	return nil
}

// typedLine reads a line, and not more, for whoever reads next.
func typedLine(r io.Reader) (string, error) {
	line, err := bufio.NewReaderSize(r, 16).ReadString('\n') // a terminal gives a line at a time
	if errors.Is(err, io.EOF) && line != "" {
		err = nil
	}
	return line, err
}
