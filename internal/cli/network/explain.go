package network

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/internal/cli/flags"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
	"github.com/cove-sandbox/cove/internal/egress/github"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/egress/registry"
	git "github.com/cove-sandbox/cove/internal/git/policy"
	"github.com/cove-sandbox/cove/internal/git/smart"
)

func policyExplain(sess *session.Session) *cobra.Command {
	var f flags.Policy
	var method, address, push, sandbox string
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
  cove policy explain https://api.example.com --sandbox brave-otter
  cove policy explain git.example.com:22 --policy base.yaml --policy mine.yaml
  cove policy explain https://db.example.com --allow db.example.com --address 10.0.0.7
  cove policy explain https://git.example.com/group/repo --push fix-1 --policy policy.yaml`,
	}
	f.Add(c.Flags())
	c.Flags().StringVar(&method, "method", "GET", "`METHOD` of the request")
	c.Flags().StringVar(&address, "address", "", "`ADDRESS` that the host's name leads to")
	c.Flags().StringVar(&sandbox, "sandbox", "", "the policy of this `SANDBOX`, before those that are named")
	c.Flags().StringVar(&push, "push", "", "`REF` of the repository at URL that is pushed to")
	return sess.Showing(c, func(cmd *cobra.Command, args []string) (ui.Result, error) {
		r, err := toExplain(args[0], method, address)
		if push != "" {
			r, err = toPush(args[0])
		}
		if err != nil {
			return ui.Result{}, err
		}
		p, err := explainedPolicy(sess, cmd, f, sandbox)
		if err != nil {
			return ui.Result{}, err
		}
		e := explanation{Request: r.Method + " " + args[0]}
		if r.Method == "" {
			e.Request = r.Host.Authority(r.Port)
		}
		var steps []policy.Step
		e.Decision, steps = p.Explain(r)
		for _, s := range steps {
			e.Layers = append(e.Layers, explained{s.Layer.String(), s.Verdict})
		}
		if err := explainGitHub(sess, &e, p, r, args[0]); err != nil {
			return ui.Result{}, err
		}
		explainGit(&e, p, r, args[0], push)
		return ui.Result{Value: e, Text: e.text(ui.Colorful(sess.Out, sess.Getenv))}, nil
	})
}

// explainedPolicy returns the policy of a sandbox, extended by the one of the flags; either may be missing.
func explainedPolicy(sess *session.Session, cmd *cobra.Command, f flags.Policy, sandbox string) (*policy.Policy,
	error) {
	if sandbox == "" {
		return compile(sess, cmd, f)
	}
	n, err := networkOf(cmd, sess, sandbox)
	if err != nil {
		return nil, err
	}
	layers, err := documentsOf(n)
	if err != nil {
		return nil, err
	}
	more, err := f.Documents()
	if err != nil {
		return nil, err
	}
	return compileHere(cmd.Context(), sess, append(layers, more...))
}

var errBody = errors.New("it depends on the body")

// explainGitHub adds what the filter of GitHub's API makes of a request that the policy allows.
func explainGitHub(sess *session.Session, e *explanation, p *policy.Policy, r policy.Request, target string) error {
	cfg, err := sess.Config()
	if err != nil {
		return err
	}
	servers, err := github.ServersNamed(cfg.Gateway.GitHubHosts)
	if err != nil {
		return err
	}
	path, ok := servers.At(r.Host, r.Path)
	if !ok || r.Method == "" || e.Decision.Action == policy.Deny {
		return nil
	}
	_, query, _ := strings.Cut(target, "?")
	asked := github.Request{Server: servers.Of(r.Host), Method: r.Method, Path: path, Query: query}
	grants := github.Grants{PullRequests: true}.And(p.GitHub())
	_, err = github.Judge(asked, grants,
		func() ([]byte, error) { return nil, errBody })
	v := policy.Verdict{Action: policy.Allow, Rule: "github: read", Reason: "it only reads"}
	if !grants.Keyed(asked.Server, path) {
		v.Reason += ", without a credential: it is beyond the sandbox's repositories"
	}
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

func (e explanation) text(color bool) string {
	request, v := e.Request, e.Decision
	var b strings.Builder
	shade := map[policy.Action]string{policy.Allow: ui.Green, policy.Ask: ui.Yellow, policy.Deny: ui.Red}[v.Action]
	fmt.Fprintf(&b, "%s  %s\n", ui.Paint(color, shade, v.Action.String()), ui.Printable(request))
	fmt.Fprintf(&b, "  rule    %s\n  reason  %s\n", ui.Printable(v.Rule), ui.Printable(v.Reason))
	if v.PassThrough {
		b.WriteString("  note    the connection passes through: what is in it is not judged\n")
	}
	if bare := !strings.Contains(request, "://"); bare && v.Action == policy.Allow && !v.PassThrough {
		fmt.Fprintf(&b, "  note    HTTP and TLS only; for all else: --allow tcp://%s\n", ui.Printable(request))
	}
	if e.Note != "" {
		fmt.Fprintf(&b, "  note    %s\n", e.Note)
	}
	if v.Remedy != "" {
		fmt.Fprintf(&b, "  remedy  %s\n", ui.Printable(v.Remedy))
	}
	var rows [][]string
	for _, l := range e.Layers {
		rows = append(rows, []string{l.Layer, l.Decision.Action.String(), l.Decision.Rule})
	}
	b.WriteString("\n" + ui.Table([]string{"LAYER", "VERDICT", "RULE"}, rows))
	return b.String()
}

// explanation holds the decision on a request, and the decision of each layer.
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

// compile makes a policy of the flags; there must be some.
func compile(sess *session.Session, cmd *cobra.Command, f flags.Policy) (*policy.Policy, error) {
	layers, err := f.Documents()
	if err != nil {
		return nil, err
	}
	if len(layers) == 0 {
		return nil, ui.UsageError(cmd, "there is no policy: name one with --policy FILE, or say --network, --allow or --deny")
	}
	return compileHere(cmd.Context(), sess, layers)
}

// compileHere compiles a policy with the facts of this machine.
func compileHere(ctx context.Context, sess *session.Session, layers []*policy.Document) (*policy.Policy, error) {
	m, err := machine(ctx, sess)
	if err != nil {
		return nil, err
	}
	return policy.Compile(m, layers...)
}

// machine returns the facts about this machine that policies need, as configured.
func machine(ctx context.Context, sess *session.Session) (policy.Machine, error) {
	cfg, err := sess.Config()
	if err == nil {
		err = session.Here()
	}
	if err != nil {
		return policy.Machine{}, err
	}
	return registry.Machine(ctx, cfg.Gateway.PrivateCIDRs)
}

// toPush is the request that pushes to a repository at a URL.
func toPush(target string) (policy.Request, error) {
	r, err := toExplain(target, "POST", "")
	if err == nil && r.Path == "" {
		return r, cove.Errorf(cove.InvalidArgument, "%s is no repository", target).
			WithHint("it is https://HOST/OWNER/REPOSITORY")
	}
	r.Path = strings.TrimSuffix(r.Path, "/") + "/" + string(smart.Push)
	return r, err
}

// explainGit adds what the git section makes of a request that the rules allow: one of git's, or with ref a push to it.
func explainGit(e *explanation, p *policy.Policy, r policy.Request, target, ref string) {
	if r.Method == "" || e.Decision.Action == policy.Deny || !p.GitHost(r.Host) {
		if ref != "" && !p.GitHost(r.Host) {
			e.Note = "the git section does not list this host, so a push is judged like any other HTTP request"
		}
		return
	}
	_, query, asks := strings.Cut(target, "?")
	asked := smart.Recognise(r.Method, r.Path, query, asks)
	repo := asked.Repo
	if asked.Kind == smart.Other {
		repo = r.Path
	}
	rights := p.Git(r.Host, r.Port, repo)
	v := policy.Verdict{Rule: "default", Reason: "the git section has no such repository"}
	switch {
	case rights == nil && (asked.Kind == smart.Other || asked.Kind == smart.Files && !strings.HasSuffix(repo, ".git")):
		return // a page
	case rights == nil:
	case asked.Kind == smart.Odd || asked.Kind == smart.Files:
		v = policy.Verdict{
			Rule:   "gateway: git",
			Reason: "git's clients do not ask for this, and files of repositories are not given out by name",
		}
	case ref != "":
		v = explainPush(rights, ref)
		e.Note = "what is in a push is judged, too: its files, secrets, and whether it leaves commits behind"
	default:
		v = policy.Verdict{Action: policy.Allow, Rule: rights.ID, Reason: rights.Summary()}
	}
	if v.Action < e.Decision.Action {
		e.Decision = v
	}
	e.Layers = append(e.Layers, explained{"git", v})
}

// explainPush judges a push that makes ref, or updates it in order.
func explainPush(rights *git.Policy, ref string) policy.Verdict {
	if !strings.HasPrefix(ref, "refs/") && ref != "HEAD" {
		ref = "refs/heads/" + ref
	}
	u := git.Update{Ref: ref, Old: strings.Repeat("0", 40), New: strings.Repeat("1", 40)}
	ruling := rights.Admit(git.Push{Updates: []git.Update{u}}).Updates[0]
	v := policy.Verdict{Rule: ruling.Rule, Reason: ruling.Reason}
	switch ruling.Action {
	case git.Allow:
		v.Action, v.Reason = policy.Allow, rights.Summary()
	case git.Ask:
		v.Action = policy.Ask
	}
	return v
}

// sayDenied says which hosts a sandbox does not reach although they were just allowed, and by which rule.
func sayDenied(ctx context.Context, sess *session.Session, c *client.Client, sandbox string, hosts []string) error {
	n, err := c.SandboxNetwork(ctx, sandbox)
	if err != nil || len(n.Policies) == 0 {
		return err
	}
	documents, err := documentsOf(n)
	if err != nil {
		return err
	}
	p, err := compileHere(ctx, sess, documents)
	if err != nil {
		return err
	}
	for _, host := range hosts {
		r, err := toExplain(host, "GET", "")
		if err != nil {
			continue // a pattern, or a range of addresses
		}
		if v, _ := p.Explain(r); v.Action == policy.Deny {
			sess.Exit = ui.ExitFindings
			sess.Say.Line("%s stays denied: %s (%s)", host, v.Reason, v.Rule)
			sess.Say.Line("  a denial goes first; %q takes changes back", sess.Command("policy", "reset", sandbox))
		}
	}
	return nil
}
