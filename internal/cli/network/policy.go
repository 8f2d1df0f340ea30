package network

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

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
		policyExplain(sess), policyTest(sess), policyCheck(sess), policyLearn(sess), policyPresets(sess),
		policyAllow(sess), policyDeny(sess))
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
		Args:    ui.Exactly("FILE"),
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

// tried is one expectation and what came of it.
type tried struct {
	ID       string         `json:"id"`
	Request  string         `json:"request"`
	Passed   bool           `json:"passed"`
	Differs  string         `json:"differs,omitempty"`
	Decision policy.Verdict `json:"decision"`
}

// runTable holds the policy to the table.
func runTable(sess *session.Session, p *policy.Policy, t *policy.Table) ui.Result {
	var all []tried
	failed := 0
	for _, e := range t.Expectations {
		v, differs := e.Judge(p)
		if differs != "" {
			failed++
		}
		all = append(all, tried{e.ID, e.Request, differs == "", differs, v})
	}
	if failed > 0 {
		sess.Exit = ui.ExitFindings
	}
	var b strings.Builder
	color := ui.Colorful(sess.Out, sess.Getenv)
	for _, r := range all {
		if r.Passed {
			fmt.Fprintf(&b, "%s    %s  %s\n", ui.Paint(color, ui.Green, "ok"), ui.Printable(r.ID), ui.Printable(r.Request))
			continue
		}
		fmt.Fprintf(&b, "%s  %s  %s\n      %s: %s\n", ui.Paint(color, ui.Red, "FAIL"), ui.Printable(r.ID),
			ui.Printable(r.Request), ui.Printable(r.Differs), ui.Printable(r.Decision.Reason))
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
		Args:    ui.AtLeastOne("FILE"),
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
	for _, f := range findings {
		if f.Severity == policy.Warning {
			warnings++
		}
	}
	if warnings > 0 {
		sess.Exit = ui.ExitFindings
	}
	var b strings.Builder
	color := ui.Colorful(sess.Out, sess.Getenv)
	for _, f := range findings {
		shade := ui.Dim
		if f.Severity == policy.Warning {
			shade = ui.Yellow
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

// shownPreset is a preset of policies as JSON.
type shownPreset struct {
	Name     string `json:"name"`
	About    string `json:"about"`
	Registry string `json:"registry,omitempty"`
}

func policyPresets(sess *session.Session) *cobra.Command {
	return sess.Showing(&cobra.Command{
		Use:   "presets",
		Short: "List the presets that a policy may name",
		Long: `List the sets of rules that come with Cove, for a policy's "presets". Those of
package registries take their hosts from the configuration of the tool on this
machine.`,
		Example: "  cove policy presets",
		Args:    ui.Exactly(),
	}, func(*cobra.Command, []string) (ui.Result, error) {
		all, err := policy.Presets()
		var list []shownPreset
		for _, p := range all {
			list = append(list, shownPreset{p.Name, p.About, p.Registry})
		}
		return ui.Listing[shownPreset]{
			Key:      "presets",
			Headings: []string{"NAME", "WHAT"},
			Row:      func(p shownPreset) []string { return []string{p.Name, p.About} },
		}.Result(list), err
	})
}
