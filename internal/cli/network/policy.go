package network

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/internal/cli/flags"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
	"github.com/cove-sandbox/cove/internal/egress/policy"
)

func policyCommand(sess *session.Session) *cobra.Command {
	return ui.Group(&cobra.Command{
		Use:   "policy",
		Short: "Explain, test and check what may leave a sandbox",
		Long: `A policy says what a sandbox may reach: hosts, ports, methods, paths, ranges of
addresses. It is a YAML file; the order of rules does not matter, a rule that
denies wins, and what no rule allows is denied. Several files are layers of one
policy, each extending the ones before it.`,
	},
		policyExplain(sess), policyTest(sess), policyCheck(sess), policyLearn(sess), policyPresets(sess), policyShow(sess),
		policyMode(sess), policyReset(sess),
		policyChange(sess, "allow", "Let a sandbox or a running execution reach more",
			`Let a sandbox, a running execution, or a client of "cove gateway", reach a host,
*.HOST, an address or a range, at once, and a sandbox each time that it is started.
What its policy denies stays denied; the command says so, and its exit code is 1.`,
			func(hosts []string) api.NetworkChange { return api.NetworkChange{Allow: hosts} }, true),
		policyChange(sess, "deny", "Let a sandbox or a running execution reach less",
			`Cut a sandbox, a running execution, or a client of "cove gateway", off from a host,
*.HOST, an address or a range, whatever allows it, at once, and a sandbox each time
that it is started. Connections there are cut.`,
			func(hosts []string) api.NetworkChange { return api.NetworkChange{Deny: hosts} }, false))
}

func policyChange(sess *session.Session, verb, short, long string,
	change func(hosts []string) api.NetworkChange, allows bool) *cobra.Command {
	var presets, passed []string
	c := &cobra.Command{
		Use:   verb + " SANDBOX|EXECUTION|CLIENT HOST[:PORT]...",
		Short: short,
		Long:  long,
		Example: "  cove policy " + verb + " brave-otter api.example.com\n" +
			"  cove policy " + verb + " $(cove ps -q) api.example.com",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 1 || len(args)+len(presets)+len(passed) < 2 {
				return ui.UsageError(cmd, "SANDBOX, EXECUTION or CLIENT, and HOST, are needed")
			}
			return nil
		},
		ValidArgsFunction: flags.CompleteSandbox(sess),
	}
	if allows {
		c.Use = verb + " SANDBOX|EXECUTION|CLIENT [HOST[:PORT]]..."
		c.Example += "\n  cove policy allow brave-otter --preset npm"
		c.Flags().StringArrayVar(&presets, "preset", nil, "what the preset `NAME` has (repeatable)")
		c.Flags().StringArrayVar(&passed, "pass-through", nil,
			"`HOST[:PORT]` without a look into its connections (repeatable)")
	}
	addSocket(c.Flags())
	return sess.Showing(c, func(cmd *cobra.Command, args []string) (r ui.Result, err error) {
		if err := flags.CheckPresets(presets); err != nil {
			return r, err
		}
		ctx, name, change := cmd.Context(), args[0], change(args[1:])
		change.Presets, change.PassThrough = presets, passed
		var changed api.NetworkChanged
		err = aboutNetwork(sess, cmd, name, theirNetwork{
			execution: func(c *client.Client) error { changed, err = c.ChangeNetwork(ctx, name, change); return err },
			sandbox: func(c *client.Client) error {
				changed, err = c.ChangeSandboxNetwork(ctx, name, api.SandboxNetworkChange{NetworkChange: change})
				if err == nil && len(change.Allow) > 0 {
					err = sayDenied(ctx, sess, c, name, change.Allow)
				}
				return err
			},
			gateway: func(c *client.Client) error { changed, err = c.ChangeGatewayClient(ctx, name, change); return err },
		})
		return ui.Result{Value: changed}, err
	})
}

func policyTest(sess *session.Session) *cobra.Command {
	var f flags.Policy
	c := &cobra.Command{
		Use:   "test FILE",
		Short: "Hold a policy to a table of what is expected of it",
		Long: `Run a table of expectations: requests, each with the verdict it must get. The
table names the files of the policy, relative to itself; --policy and the like
take their place. The exit code is 1 when an expectation is not met.`,
		Example: "  cove policy test expect.yaml\n  cove policy test expect.yaml --policy other.yaml --json",
	}
	f.Add(c.Flags())
	return sess.Showing(c, func(cmd *cobra.Command, args []string) (ui.Result, error) {
		data, err := flags.ReadPolicyFile(args[0])
		if err != nil {
			return ui.Result{}, err
		}
		t, err := policy.ParseTable(args[0], data)
		if err != nil {
			return ui.Result{}, err
		}
		if !f.Given() {
			f.Files, f.Dir = t.Policies, filepath.Dir(args[0]) // its rules are called as the table calls its files
		}
		p, err := compile(sess, cmd, f)
		if err != nil {
			return ui.Result{}, err
		}
		return runTable(sess, p, t), nil
	})
}

type tried struct {
	ID       string         `json:"id"`
	Request  string         `json:"request"`
	Passed   bool           `json:"passed"`
	Differs  string         `json:"differs,omitempty"`
	Decision policy.Verdict `json:"decision"`
}

func runTable(sess *session.Session, p *policy.Policy, t *policy.Table) ui.Result {
	var all []tried
	failed := 0
	var b strings.Builder
	color := ui.Colorful(sess.Out, sess.Getenv)
	for _, e := range t.Expectations {
		v, differs := e.Judge(p)
		all = append(all, tried{e.ID, e.Request, differs == "", differs, v})
		if differs == "" {
			fmt.Fprintf(&b, "%s    %s  %s\n", ui.Paint(color, ui.Green, "ok"), ui.Printable(e.ID), ui.Printable(e.Request))
			continue
		}
		failed++
		sess.Exit = ui.ExitFindings
		fmt.Fprintf(&b, "%s  %s  %s\n      %s: %s\n", ui.Paint(color, ui.Red, "FAIL"), ui.Printable(e.ID),
			ui.Printable(e.Request), ui.Printable(differs), ui.Printable(v.Reason))
	}
	fmt.Fprintf(&b, "%d of %d as expected\n", len(all)-failed, len(all))
	return ui.Result{Text: b.String(), Value: struct {
		Passed int     `json:"passed"`
		Failed int     `json:"failed"`
		Tests  []tried `json:"tests"`
	}{len(all) - failed, failed, all}}
}

func policyCheck(sess *session.Session) *cobra.Command {
	return sess.Showing(&cobra.Command{
		Use:   "check FILE…",
		Short: "Say what is wrong or odd about a policy",
		Long: `Check the files of a policy, layers first to last: what is not right, what is
wider than it looks, what has no effect, and where data can leave. The exit
code is 1 when there is a warning; notes are for knowing.`,
		Example: "  cove policy check policy.yaml\n  cove policy check base.yaml mine.yaml --json",
		Args:    ui.Arguments("FILE..."),
	}, func(cmd *cobra.Command, args []string) (ui.Result, error) {
		f := flags.Policy{Files: args}
		layers, err := f.Documents()
		if err != nil {
			return ui.Result{}, err
		}
		m, err := machine(cmd.Context(), sess)
		if err != nil {
			return ui.Result{}, err
		}
		findings, err := policy.Check(m, layers...)
		return found(sess, findings), err
	})
}

// found shows findings. Warnings set the exit code.
func found(sess *session.Session, findings []policy.Finding) ui.Result {
	warnings := 0
	var b strings.Builder
	color := ui.Colorful(sess.Out, sess.Getenv)
	for _, f := range findings {
		shade := ui.Dim
		if f.Severity == policy.Warning {
			shade = ui.Yellow
			warnings++
			sess.Exit = ui.ExitFindings
		}
		fmt.Fprintf(&b, "%s: %s: %s (%s)\n",
			ui.Printable(f.Rule), ui.Paint(color, shade, string(f.Severity)), ui.Printable(f.Message), f.Kind)
		if f.Hint != "" {
			fmt.Fprintf(&b, "      %s\n", ui.Printable(f.Hint))
		}
	}
	if warnings == 0 {
		b.WriteString("the policy is right\n")
	}
	return ui.Result{Text: b.String(), Value: struct {
		Warnings int              `json:"warnings"`
		Findings []policy.Finding `json:"findings"`
	}{warnings, append([]policy.Finding{}, findings...)}}
}

type shownPreset struct {
	Name     string `json:"name"`
	About    string `json:"about"`
	Registry string `json:"registry,omitempty"`
}

func policyPresets(sess *session.Session) *cobra.Command {
	return sess.ShowingList(&cobra.Command{
		Use:   "presets",
		Short: "List the presets that a policy may name",
		Long: `List the sets of rules that come with Cove, for a policy's "presets". Those of
package registries take their hosts from the configuration of the tool on this
machine.`,
		Example: "  cove policy presets",
	}, func(*cobra.Command, []string) (ui.Result, error) {
		all, err := policy.Presets()
		var list []shownPreset
		for _, p := range all {
			list = append(list, shownPreset{p.Name, p.About, p.Registry})
		}
		row := func(p shownPreset) []string { return []string{p.Name, p.About} }
		return ui.Listing("presets", list, []string{"NAME", "WHAT"}, row), err
	})
}
