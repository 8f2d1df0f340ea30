package agent

import (
	"slices"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/internal/cli/flags"
	"github.com/cove-sandbox/cove/internal/cli/interact"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
)

// checkScreen refuses to show an agent's screen where there is no terminal, or with flags that are about a task.
func checkScreen(sess *session.Session, cmd *cobra.Command, o *options, ofTask ...string) error {
	if !ui.IsTerminal(sess.In) || !ui.IsTerminal(sess.Out) {
		return cove.Errorf(cove.InvalidArgument, "PROMPT is missing").
			WithHint("write it in quotes, in a file for --prompt-file, or on standard input for \"-\"")
	}
	if i := slices.IndexFunc(ofTask, o.Given); i >= 0 {
		return ui.UsageError(cmd, "PROMPT is missing: --%s is about a task", ofTask[i])
	}
	return nil
}

// agentTerminal shows the agent's own screen in a sandbox that is made for it,
// and settles what becomes of the work when it has ended.
func agentTerminal(sess *session.Session, cmd *cobra.Command, o *options) error {
	refused := []string{"json", "quiet", "verbose", "detach", "schema", "max-turns", "timeout", "resume", "sandbox",
		"model", "instructions"}
	if err := checkScreen(sess, cmd, o, refused...); err != nil {
		return err
	}
	req, err := agentSandbox(sess, o)
	if err != nil {
		return err
	}
	dir, below, err := o.workDirectory()
	if err != nil {
		return err
	}
	if req.Agent = o.Agent; o.bind {
		req.Bind = dir
	} else {
		req.Repository, req.WorkDir = &api.RepositoryRequest{Source: dir, Uncommitted: true}, below
	}
	s, err := interact.CreateSandbox(cmd.Context(), sess, req)
	if err != nil {
		return err
	}
	ended, err := interact.ShowTerminal(sess, cmd, flags.Target{Name: s.ID}, interact.DefaultDetachKeys,
		client.TerminalOptions{})
	t := &task{Session: sess, o: o, in: ui.WatchSignals(sess.Out, sess.Err), screen: sess.NewScreen(), ended: func() {}}
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
	if w.changed = len(done.Changes); w.changed == 0 {
		t.tell("it has changed nothing")
		return t.remove(cmd.Context(), w)
	}
	return t.settle(cmd.Context(), w)
}
