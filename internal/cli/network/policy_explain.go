package network

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove/internal/cli/flags"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
	"github.com/cove-sandbox/cove/internal/daemon"
	"github.com/cove-sandbox/cove/internal/egress/github"
	"github.com/cove-sandbox/cove/internal/egress/policy"
)

func policyExplain(sess *session.Session) *cobra.Command {
	var f flags.Policy
	var method, address, push string
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
		Args: ui.Exactly("URL"),
	}
	f.Add(c.Flags())
	c.Flags().StringVar(&method, "method", "GET", "`METHOD` of the request")
	c.Flags().StringVar(&address, "address", "", "`ADDRESS` that the host's name leads to")
	c.Flags().StringVar(&push, "push", "", "`REF` of the repository at URL that is pushed to")
	return sess.Showing(c, func(cmd *cobra.Command, args []string) (ui.Result, error) {
		r, err := toExplain(args[0], method, address)
		if push != "" {
			r, err = toPush(args[0])
		}
		if err != nil {
			return ui.Result{}, err
		}
		p, err := compile(sess, cmd, f)
		if err != nil {
			return ui.Result{}, err
		}
		e := explanation{Request: requestText(r, args[0])}
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

var errBody = errors.New("it depends on the body")

// explainGitHub adds what the filter of GitHub's API makes of a request that the policy allows.
func explainGitHub(sess *session.Session, e *explanation, p *policy.Policy, r policy.Request, target string) error {
	cfg, err := sess.Config()
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
	_, err = github.Judge(asked, github.Grants{PullRequests: p.PullRequests()},
		func() ([]byte, error) { return nil, errBody })
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

// text is the explanation for people.
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
