// Package agent owns the commands about coding agents: giving them tasks, what is shown of a task, the records of runs,
// issues that agents work on, and which agents are installed.
package agent

import (
	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/internal/cli/flags"
	"github.com/cove-sandbox/cove/internal/cli/interact"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
)

// Commands returns the commands of this room. d is nil in a program without a daemon.
func Commands(sess *session.Session, d Daemon) []*cobra.Command {
	all := ui.InGroup(ui.GroupAgent, append(taskCommands(sess, d), generateCommand(sess), runsCommand(sess),
		agentsCommand(sess))...)
	ui.InGroup(ui.GroupStart, all[0]) // claude
	return all
}

func taskCommands(sess *session.Session, d Daemon) []*cobra.Command {
	var all []*cobra.Command
	for _, k := range []struct{ name, title string }{
		{"claude", "Claude Code"},
		{"codex", "Codex"},
		{"gemini", "Gemini CLI"},
		{"opencode", "opencode"},
		{"worker", "Cove's own agent"},
	} {
		o := &options{}
		o.Agent = k.name
		all = append(all, agentCommand(sess, d, o, k.name, k.title))
	}
	return append(all, agentCommand(sess, d, &options{}, "", "an agent"))
}

// agentCommand is the command of one agent, or without a name of any.
func agentCommand(sess *session.Session, d Daemon, o *options, name, title string) *cobra.Command {
	use, example := name+" [PROMPT]", name
	if name == "" {
		use, example = "agent NAME [PROMPT]", "agent reviewer"
	}
	more := "Without one, at a terminal, its own screen is shown there."
	if name == "worker" {
		more = "It has no screen of its own."
	}
	c := &cobra.Command{
		Use:   use,
		Short: "Give " + title + " a task",
		Long: "Give " + title + ` a task: PROMPT, a file of it (--prompt-file), or standard input ("-").
` + more + `

It works in a sandbox that is made for it, on a private copy of this directory
(--dir), with what is not committed there; of a directory within a repository all
of that is copied, and the copy is sent to a server of another machine. It reaches the
provider of its models, what --allow and the like say, and nothing else. It never sees
a key: the gateway sets those of its machine on its requests. It has 2 GiB of memory,
2 CPUs, 512 processes and 30 minutes, unless flags or a profile say otherwise.

What it says and does is shown as it comes, on standard error; its answer is on
standard output, or with --json each message as one line. At the end you see what
it has changed, and at a terminal are asked whether to take that over. --apply
does so without asking if the agent has succeeded. Work that was neither taken
over nor declined stays in the sandbox, which is named then. With --bind it works
in the directory itself instead, and there is nothing to ask. The sandbox is that of
the directory's dev container if you have agreed to it, as "cove new" asks you, or
do so by --devcontainer. Only a --profile of
the mode none has it work on this machine without a sandbox, and this says so.

ctrl-c asks the agent to stop, a second one ends it at once, and a third leaves.
When this command dies the agent is interrupted, and its work stays; with --detach
it goes on by itself. "cove runs show" has what became of it.

Exit codes: 0 the agent has done it; 1 it says that it has not, or failed; 124 out
of time; 137 ended by another limit; 130 interrupted; 123 the models or a server
cannot be reached; 126 refused; 127 the agent or its image is missing. "cove help
exit-codes" has all of them.`,
		Example: `  cove ` + example + ` "make the failing test pass"
  cove ` + example + ` --apply "update the copyright years"
  git diff main | cove ` + example + ` --prompt-file review.md --allow docs.example.com
  cove ` + example + ` --resume "now add a test"
  cove ` + example + ` --json --detach - <task.txt`,
		Args: func(cmd *cobra.Command, args []string) error { return o.arguments(cmd, name, args) },
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Given = cmd.Flags().Changed
			return start(sess, d, cmd, o)
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	o.addAgent(sess, c.Flags())
	sess.AddProfile(c, &o.Profile)
	c.RegisterFlagCompletionFunc("permission-mode", completeModes(sess, func() string { return name }))
	return c
}

func start(sess *session.Session, d Daemon, cmd *cobra.Command, o *options) error {
	bare, err := bareProfile(cmd.Context(), sess, o)
	if err == nil && bare != nil {
		err = session.NeedDaemon(sess)
	}
	if err != nil {
		return err
	}
	prompt, err := readPrompt(sess, o)
	if err != nil {
		return err
	}
	switch {
	case bare != nil:
		return agentHere(sess, d, cmd, o, *bare, prompt)
	case prompt == "":
		return agentTerminal(sess, cmd, o)
	}
	req, err := runRequest(cmd.Context(), sess, o, prompt)
	if err == nil {
		err = inDevContainer(cmd.Context(), sess, o, &req)
	}
	if err != nil {
		return err
	}
	return giveTask(cmd.Context(), sess, o, req, (*task).settle)
}

// agentTerminal shows the agent's own screen in a new sandbox, and then settles what becomes of the work.
func agentTerminal(sess *session.Session, cmd *cobra.Command, o *options) error {
	refused := []string{"json", "quiet", "verbose", "detach", "schema", "max-turns", "timeout", "resume", "sandbox",
		"model", "instructions", "allowed-tools", "disallowed-tools", "mcp-config", "permission-mode"}
	if err := checkScreen(sess, cmd, o, refused...); err != nil {
		return err
	}
	dir, below, err := o.workDirectory()
	if err != nil {
		return err
	}
	if o.bind {
		if err := flags.CheckNear(sess, dir); err != nil {
			return err
		}
	}
	req, err := agentSandbox(cmd.Context(), sess, o, dir)
	if err != nil {
		return err
	}
	if req.Agent = o.Agent; o.bind {
		req.Bind = dir
	} else {
		if o.Ignored, err = interact.Ignored(cmd.Context(), sess, req.Profile, dir, o.Ignored); err != nil {
			return err
		}
		req.Repository, req.WorkDir = &api.RepositoryRequest{Source: dir, Uncommitted: true,
			Ignored: o.Ignored}, below
	}
	found, err := o.dev.Bring(cmd.Context(), sess, &req)
	if err != nil {
		return err
	}
	s, err := interact.CreateSandbox(cmd.Context(), sess, req)
	if err == nil && found != nil {
		err = found.Begin(cmd.Context(), sess, s, true)
	}
	if err != nil {
		return err
	}
	ended, err := interact.ShowTerminal(sess, cmd, flags.Target{Name: s.ID}, interact.DefaultDetachKeys,
		client.TerminalOptions{})
	t := newTask(sess, o)
	defer t.in.Stop()
	w := work{sandbox: s.ID, name: s.Name, directory: dir, succeeded: ended && sess.Exit == 0, ours: true}
	if !ended {
		if err != nil {
			t.sayKept(w)
		}
		return err
	}
	b, err := sess.Server(cmd.Context())
	if err != nil {
		t.sayKept(w)
		return err
	}
	defer b.Close()
	t.client = b.Client
	if o.bind {
		return t.remove(cmd.Context(), w)
	}
	done, err := t.client.WorkChanges(cmd.Context(), s.ID, nil, false)
	if err != nil {
		t.sayKept(w)
		return err
	}
	if w.changed = len(done.Changes); w.changed > 0 {
		return t.settle(cmd.Context(), w)
	}
	if holdsMore(cmd.Context(), t, w) {
		return nil
	}
	t.tell("it has changed nothing")
	return t.remove(cmd.Context(), w)
}
