package network

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
	"github.com/cove-sandbox/cove/internal/egress/policy"
)

// learnLimit is how many decisions of one execution are learned from.
const learnLimit = 20_000

func policyLearn(sess *session.Session) *cobra.Command {
	var last, force bool
	var out string
	c := &cobra.Command{
		Use:   "learn [EXECUTION...]",
		Short: "Propose a policy from what executions tried to reach",
		Long: `Propose the smallest policy that lets executions reach what they tried to, from
the record of what they did (cove network log): hosts by name, with the ports,
methods and paths that were seen. What was denied is in it too, and says so:
read it before you allow it.

To see all that a program does, run it once with --network open, which lets it
reach everything but private addresses, and learn from that. Or let it run into
denials, learn, and run it again with what you have learned; of a name whose
lookup was denied, nothing is known but the name.`,
		Example: `  cove run python fetch.py --network open
  cove policy learn --last --out policy.yaml
  cove run python fetch.py --policy policy.yaml`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case last == (len(args) > 0):
				return ui.UsageError(cmd, "name executions, or say --last for the last one")
			case force && out == "":
				return ui.UsageError(cmd, "--force is about the file of --out")
			}
			ids, err := session.ExecutionIDs(cmd.Context(), sess, args...)
			if err != nil {
				return err
			}
			return learnPolicy(cmd.Context(), sess, ids, out, force)
		},
	}
	f := c.Flags()
	f.BoolVar(&last, "last", false, "from the execution that began last")
	f.StringVarP(&out, "out", "o", "", "write to `FILE`, which must not exist")
	f.BoolVar(&force, "force", false, "or replace it")
	return c
}

func learnPolicy(ctx context.Context, sess *session.Session, ids []string, out string, force bool) error {
	all, err := session.OfRecords(ctx, sess, func(c *client.Client, ctx context.Context) (all []api.Decision, err error) {
		if len(ids) == 0 {
			if ids, err = lastExecution(ctx, c); err != nil {
				return nil, err
			}
		}
		for _, id := range ids {
			found, err := session.DecisionsUpTo(ctx, c, client.DecisionOptions{Execution: id}, learnLimit)
			if err != nil {
				return nil, err
			}
			all = append(all, found...)
		}
		return all, nil
	})
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return cove.Errorf(cove.NotFound, "%s tried to reach nothing", strings.Join(ids, ", ")).
			WithHint("run it with a network, such as --network open; \"cove network log\" shows what is recorded")
	}
	text, err := proposal(ids, all)
	if err != nil {
		return err
	}
	if out == "" {
		return sess.Print(text)
	}
	return writeNew(out, text, force)
}

func lastExecution(ctx context.Context, c *client.Client) ([]string, error) {
	newest, err := c.List(ctx, client.ListOptions{Limit: 1})
	if err != nil {
		return nil, err
	}
	if len(newest.Executions) == 0 {
		return nil, cove.Errorf(cove.NotFound, "nothing has run yet")
	}
	return []string{newest.Executions[0].ID}, nil
}

// writeNew writes a file that must not be there yet, unless it may be replaced.
func writeNew(path, text string, replace bool) error {
	flags := os.O_WRONLY | os.O_CREATE | os.O_TRUNC
	if !replace {
		flags |= os.O_EXCL
	}
	f, err := os.OpenFile(path, flags, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return cove.Errorf(cove.Conflict, "%s exists", path).WithHint("choose another name, or replace it with --force")
	}
	if err == nil {
		_, err = f.WriteString(text)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return cove.Errorf(cove.StorageFull, "cannot write the policy: %w", err)
	}
	return nil
}

func proposal(ids []string, all []api.Decision) (string, error) {
	tried, notes := attempts(all)
	text, err := policy.Propose(tried).YAML()
	if err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "# Proposed by \"cove policy learn\" from what was tried by\n# %s.\n"+
		"# What was denied is in it too: read it before you allow it.\n", strings.Join(ids, ", "))
	for _, n := range notes {
		fmt.Fprintf(&b, "# Note: %s\n", ui.Printable(n))
	}
	b.Write(text)
	return b.String(), nil
}

// attempts returns the attempts that a policy could allow, and a note on each that it could not.
func attempts(all []api.Decision) (tried []policy.Attempt, notes []string) {
	note := func(format string, args ...any) {
		if text := fmt.Sprintf(format, args...); !slices.Contains(notes, text) {
			notes = append(notes, text)
		}
	}
	for _, d := range all {
		if d.Verdict == api.VerdictLost {
			note("%s; this may be too little", d.Reason)
			continue
		}
		host, err := policy.ParseHost(d.Host)
		if err != nil {
			continue // nothing that has a rule
		}
		switch {
		case d.Stage == api.StageDial && d.Verdict == api.VerdictDeny:
			note("%s; a rule by cidrs would allow it", d.Reason)
		case d.Stage == api.StageProtocol && d.Protocol == api.ProtocolTLS:
			note("TLS to %s was not intercepted: %s; a rule with pass_through would not look into it",
				host.Authority(d.Port), d.Reason)
		}
		if t, ok := attemptOf(d, host); ok {
			tried = append(tried, t)
		}
	}
	return tried, notes
}

func attemptOf(d api.Decision, host policy.Host) (t policy.Attempt, ok bool) {
	t.Host, t.Port, t.Times = host, d.Port, d.Count
	remediable := []api.Stage{api.StageProtocol, api.StagePolicy, api.StageApproval, api.StageDial}
	t.Denied = d.Verdict == api.VerdictDeny && slices.Contains(remediable, d.Stage)
	switch {
	case d.Entry == api.EntryDNS:
		t.Layer = policy.LayerDNS
		return t, t.Denied && slices.Contains([]string{"A", "AAAA", "HTTPS"}, d.Method)
	case d.Path != "":
		t.Layer, t.Method = policy.LayerHTTP, d.Method
		t.Path = strings.ReplaceAll(d.Path, "…", "0") // what is not recorded becomes "*", as numbers do
		return t, d.Stage != api.StageProtocol
	case d.Protocol == api.ProtocolHTTP || d.Protocol == api.ProtocolHTTPS:
		return t, false // a request that could not be read
	}
	t.Layer = policy.LayerConnect
	t.PassThrough = d.Protocol == api.ProtocolTCP ||
		d.Protocol == api.ProtocolTLS && d.Verdict == api.VerdictAllow && d.Stage != api.StageProtocol
	return t, d.Stage != api.StageProtocol || d.Protocol == api.ProtocolTCP
}
