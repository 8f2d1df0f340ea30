package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/daemon"
	"github.com/cove-sandbox/cove/internal/egress/github"
	"github.com/cove-sandbox/cove/internal/egress/policy"
)

func (a *app) policyCommand() *cobra.Command {
	return group(&cobra.Command{
		Use:   "policy",
		Short: "Explain, test and check what may leave a sandbox",
		Long: `A policy says what a sandbox may reach: hosts, ports, methods, paths, ranges of
addresses. It is a YAML file; the order of rules does not matter, a rule that
denies wins, and what no rule allows is denied. Several files are layers of one
policy, each extending the ones before it.`,
	}, a.policyExplain(), a.policyTest(), a.policyCheck(), a.policyLearn(), a.policyPresets(), a.policyAllow(), a.policyDeny())
}

// compile makes a policy of the flags; there must be some.
func (a *app) compile(cmd *cobra.Command, f policyFlags) (*policy.Policy, error) {
	layers, err := f.documents()
	if err != nil {
		return nil, err
	}
	if len(layers) == 0 {
		return nil, usageError(cmd, "there is no policy: name one with --policy FILE, or say --network, --allow or --deny")
	}
	m, err := a.machine(cmd.Context())
	if err != nil {
		return nil, err
	}
	return policy.Compile(m, layers...)
}

// machine is what policies have to know of this one, as it is configured.
func (a *app) machine(ctx context.Context) (policy.Machine, error) {
	cfg, err := a.loadConfig()
	if err != nil {
		return policy.Machine{}, err
	}
	return daemon.Machine(ctx, cfg.Gateway)
}

// cause is an error of a file without its name, which the message has.
func cause(err error) error {
	if e := new(fs.PathError); errors.As(err, &e) {
		return e.Err
	}
	return err
}

func (a *app) policyExplain() *cobra.Command {
	var f policyFlags
	var method, address, push string
	var asJSON bool
	c := &cobra.Command{
		Use:   "explain URL",
		Short: "Show what becomes of a request, and by which rule",
		Long: `Show what a policy makes of a request: the verdict, the rule with its file and
line, why, and the command that would allow it. URL may also be HOST or
HOST:PORT, for connections that are not HTTP. With --address the address that
the name leads to is judged as well. What is asked of GitHub's API has to pass
the gateway's filter, too, and what git is asked for the policy's git section.
With --push it is a push to a ref of the repository at URL.`,
		Example: `  cove policy explain https://api.example.com/v1/items --method POST --policy policy.yaml
  cove policy explain git.example.com:22 --policy base.yaml --policy mine.yaml
  cove policy explain https://db.example.com --allow db.example.com --address 10.0.0.7
  cove policy explain https://git.example.com/group/repo --push fix-1 --policy policy.yaml`,
		Args: exactly("URL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := toExplain(args[0], method, address)
			if push != "" {
				r, err = toPush(args[0])
			}
			if err != nil {
				return err
			}
			p, err := a.compile(cmd, f)
			if err != nil {
				return err
			}
			e := explanation{Request: requestText(r, args[0])}
			var steps []policy.Step
			e.Decision, steps = p.Explain(r)
			for _, s := range steps {
				e.Layers = append(e.Layers, explained{s.Layer.String(), s.Verdict})
			}
			if err := a.explainGitHub(&e, p, r, args[0]); err != nil {
				return err
			}
			explainGit(&e, p, r, args[0], push)
			if asJSON {
				return a.printJSON(e)
			}
			return a.printExplanation(e)
		},
	}
	f.add(c.Flags())
	c.Flags().StringVar(&method, "method", "GET", "`METHOD` of the request")
	c.Flags().StringVar(&address, "address", "", "`ADDRESS` that the host's name leads to")
	c.Flags().StringVar(&push, "push", "", "`REF` of the repository at URL that is pushed to")
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}

// toExplain reads what is to be explained.
func toExplain(target, method, address string) (policy.Request, error) {
	var r policy.Request
	if strings.Contains(target, "://") {
		u, err := policy.ParseURL(target)
		if err != nil {
			return r, err
		}
		r = policy.Request{Host: u.Host, Port: u.Port, Method: strings.ToUpper(method), Path: u.Path}
	} else {
		var err error
		if r.Host, r.Port, err = policy.ParseAuthority(target, 443); err != nil {
			return r, err
		}
	}
	if address != "" {
		h, err := policy.ParseHost(address)
		if err != nil {
			return r, err
		}
		var ok bool
		if r.Address, ok = h.Addr(); !ok {
			return r, cove.Errorf(cove.InvalidArgument, "--address %s is not an address", address)
		}
	} else {
		r.Address, _ = r.Host.Addr()
	}
	return r, nil
}

// requestText is a request for people.
func requestText(r policy.Request, target string) string {
	if r.Method == "" {
		return r.Host.Authority(r.Port)
	}
	return r.Method + " " + target
}

// explanation is what becomes of a request, and what each layer makes of it.
type explanation struct {
	Request  string         `json:"request"`
	Decision policy.Verdict `json:"decision"`
	Layers   []explained    `json:"layers"`
	Note     string         `json:"note,omitempty"`
}

type explained struct {
	Layer    string         `json:"layer"`
	Decision policy.Verdict `json:"decision"`
}

var errBody = errors.New("it depends on the body")

// explainGitHub adds what the filter of GitHub's API makes of a request that
// the policy allows.
func (a *app) explainGitHub(e *explanation, p *policy.Policy, r policy.Request, target string) error {
	cfg, err := a.loadConfig()
	if err != nil {
		return err
	}
	servers, err := daemon.GitHub(cfg.Gateway)
	if err != nil {
		return err
	}
	path, ok := servers.At(r.Host, r.Path)
	if !ok || r.Method == "" || e.Decision.Action == policy.Deny {
		return nil
	}
	_, query, _ := strings.Cut(target, "?")
	asked := github.Request{Method: r.Method, Path: path, Query: query}
	_, err = github.Judge(asked, github.Grants{PullRequests: p.PullRequests()}, func() ([]byte, error) { return nil, errBody })
	v := policy.Verdict{Action: policy.Allow, Rule: "github: read", Reason: "it only reads"}
	var refused *github.Refusal
	switch {
	case errors.As(err, &refused):
		v = policy.Verdict{Rule: refused.Rule, Reason: refused.Reason, Remedy: refused.Remedy}
		e.Decision = v
	case errors.Is(err, errBody):
		v.Rule, v.Reason = "github: body", errBody.Error()
		e.Note = "the body of the request is judged, too"
	}
	e.Layers = append(e.Layers, explained{"github", v})
	return nil
}

func (a *app) printExplanation(e explanation) error {
	request, v := e.Request, e.Decision
	var b strings.Builder
	color := colorful(a.Out, a.getenv)
	shade := map[policy.Action]string{policy.Allow: green, policy.Ask: yellow, policy.Deny: red}[v.Action]
	fmt.Fprintf(&b, "%s  %s\n", paint(color, shade, v.Action.String()), printable(request))
	fmt.Fprintf(&b, "  rule    %s\n  reason  %s\n", printable(v.Rule), printable(v.Reason))
	if v.PassThrough {
		b.WriteString("  note    the connection passes through: what is in it is not judged\n")
	}
	if bare := !strings.Contains(request, "://"); bare && v.Action == policy.Allow && !v.PassThrough {
		fmt.Fprintf(&b, "  note    HTTP and TLS only; for all else: --allow tcp://%s\n", printable(request))
	}
	if e.Note != "" {
		fmt.Fprintf(&b, "  note    %s\n", e.Note)
	}
	if v.Remedy != "" {
		fmt.Fprintf(&b, "  remedy  %s\n", printable(v.Remedy))
	}
	var rows [][]string
	for _, l := range e.Layers {
		rows = append(rows, []string{l.Layer, l.Decision.Action.String(), l.Decision.Rule})
	}
	b.WriteString("\n" + table([]string{"LAYER", "VERDICT", "RULE"}, rows))
	return a.print(b.String())
}

func (a *app) policyTest() *cobra.Command {
	var f policyFlags
	var asJSON bool
	c := &cobra.Command{
		Use:   "test FILE",
		Short: "Hold a policy to a table of what is expected of it",
		Long: `Run a table of expectations: requests, each with the verdict it must get. The
table names the files of the policy, relative to itself; --policy and the like
take their place. The exit code is 1 when an expectation is not met.`,
		Example: "  cove policy test expect.yaml\n  cove policy test expect.yaml --policy other.yaml --json",
		Args:    exactly("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			data, err := readPolicyFile(args[0])
			if err != nil {
				return err
			}
			t, err := policy.ParseTable(args[0], data)
			if err != nil {
				return err
			}
			if !f.given() {
				f.files, f.dir = t.Policies, filepath.Dir(args[0]) // its rules are called as the table calls its files
			}
			p, err := a.compile(cmd, f)
			if err != nil {
				return err
			}
			return a.runTable(p, t, asJSON)
		},
	}
	f.add(c.Flags())
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}

// tried is one expectation and what came of it.
type tried struct {
	ID       string         `json:"id"`
	Request  string         `json:"request"`
	Passed   bool           `json:"passed"`
	Differs  string         `json:"differs,omitempty"`
	Decision policy.Verdict `json:"decision"`
}

func (a *app) runTable(p *policy.Policy, t *policy.Table, asJSON bool) error {
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
		a.exit = exitFindings
	}
	if asJSON {
		return a.printJSON(struct {
			Passed int     `json:"passed"`
			Failed int     `json:"failed"`
			Tests  []tried `json:"tests"`
		}{len(all) - failed, failed, all})
	}
	var b strings.Builder
	color := colorful(a.Out, a.getenv)
	for _, r := range all {
		if r.Passed {
			fmt.Fprintf(&b, "%s    %s  %s\n", paint(color, green, "ok"), printable(r.ID), printable(r.Request))
			continue
		}
		fmt.Fprintf(&b, "%s  %s  %s\n      %s: %s\n", paint(color, red, "FAIL"), printable(r.ID), printable(r.Request), printable(r.Differs), printable(r.Decision.Reason))
	}
	fmt.Fprintf(&b, "%d of %d as expected\n", len(all)-failed, len(all))
	return a.print(b.String())
}

func (a *app) policyCheck() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "check FILE…",
		Short: "Say what is wrong or odd about a policy",
		Long: `Check the files of a policy, layers first to last: what is not right, what is
wider than it looks, what has no effect, and where data can leave. The exit
code is 1 when there is a warning; notes are for knowing.`,
		Example: "  cove policy check policy.yaml\n  cove policy check base.yaml mine.yaml --json",
		Args:    cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageError(cmd, "FILE is missing")
			}
			f := policyFlags{files: args}
			layers, err := f.documents()
			if err != nil {
				return err
			}
			m, err := a.machine(cmd.Context())
			if err != nil {
				return err
			}
			findings, err := policy.Check(m, layers...)
			if err != nil {
				return err
			}
			return a.printFindings(findings, asJSON)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}

func (a *app) printFindings(findings []policy.Finding, asJSON bool) error {
	warnings := 0
	for _, f := range findings {
		if f.Severity == policy.Warning {
			warnings++
		}
	}
	if warnings > 0 {
		a.exit = exitFindings
	}
	if asJSON {
		return a.printJSON(struct {
			Warnings int              `json:"warnings"`
			Findings []policy.Finding `json:"findings"`
		}{warnings, append([]policy.Finding{}, findings...)})
	}
	var b strings.Builder
	color := colorful(a.Out, a.getenv)
	for _, f := range findings {
		shade := dim
		if f.Severity == policy.Warning {
			shade = yellow
		}
		fmt.Fprintf(&b, "%s: %s: %s (%s)\n", printable(f.Rule), paint(color, shade, string(f.Severity)), printable(f.Message), f.Kind)
		if f.Hint != "" {
			fmt.Fprintf(&b, "      %s\n", printable(f.Hint))
		}
	}
	if warnings == 0 {
		b.WriteString("the policy is right\n")
	}
	return a.print(b.String())
}

func (a *app) policyPresets() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "presets",
		Short: "List the presets that a policy may name",
		Long: `List the sets of rules that come with Cove, for a policy's "presets". Those of
package registries take their hosts from the configuration of the tool on this
machine.`,
		Example: "  cove policy presets",
		Args:    exactly(),
		RunE: func(*cobra.Command, []string) error {
			all, err := policy.Presets()
			if err != nil {
				return err
			}
			type preset struct {
				Name     string `json:"name"`
				About    string `json:"about"`
				Registry string `json:"registry,omitempty"`
			}
			var list []preset
			var rows [][]string
			for _, p := range all {
				list = append(list, preset{p.Name, p.About, p.Registry})
				rows = append(rows, []string{p.Name, p.About})
			}
			if asJSON {
				return a.printJSON(map[string]any{"presets": list})
			}
			return a.print(table([]string{"NAME", "WHAT"}, rows))
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}
