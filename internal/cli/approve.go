package cli

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
)

type approveOptions struct {
	deny      bool
	scope     string
	period    string
	all       bool
	execution string
	follow    bool
	json      bool
}

var scopes = []string{"once", "sandbox", "policy"}

func (a *app) approveCommand() *cobra.Command {
	var o approveOptions
	c := &cobra.Command{
		Use:   "approve [ID]...",
		Short: "See and answer what a policy asks about",
		Long: `List the requests that wait for an answer, because a rule of their policy says
"action: ask", of every process of Cove on this machine and of the clients of a
gateway ("cove gateway"). With ID, let one go;
with --deny, deny it. What nobody answers is denied.

An answer is for what waits (--scope once), for everything the same that its
sandbox asks until it ends (sandbox), or for every sandbox that is started with
the same policy (policy), for 30 days or what --for says; "cove approvals" lists
these. What is allowed is so once, and what is denied for the sandbox, unless
--scope says otherwise.`,
		Example: `  cove approve
  cove approve ho_0123456789abcdefghjkmnpqrs --scope sandbox --for 1h
  cove approve ho_0123456789abcdefghjkmnpqrs --deny
  cove approve --all --execution $(cove ps -q)
  cove approve -f`,
		RunE: func(cmd *cobra.Command, args []string) error {
			given := cmd.Flags().Changed
			if _, err := cove.ParseExecutionID(o.execution); o.execution != "" && err != nil {
				return idError(o.execution)
			}
			switch {
			case len(args) > 0 && o.all:
				return usageError(cmd, "--all answers everything, so no ID can be with it")
			case (len(args) > 0 || o.all) && (o.follow || o.json):
				return usageError(cmd, "--follow and --json list what waits, and answer nothing")
			case len(args) == 0 && !o.all && (o.deny || given("scope") || given("for")):
				return usageError(cmd, "ID is missing, or --all")
			case len(args) > 0 || o.all:
				return a.answer(cmd.Context(), args, o)
			case o.follow:
				return a.followHolds(cmd.Context(), o)
			}
			return a.listHolds(cmd.Context(), o)
		},
	}
	f := c.Flags()
	f.BoolVar(&o.deny, "deny", false, "deny it")
	f.StringVar(&o.scope, "scope", "", "how far the answer goes, `SCOPE`: once, sandbox or policy")
	f.StringVar(&o.period, "for", "", "how long it counts, `TIME` like 30m, 12h or 7d")
	f.BoolVar(&o.all, "all", false, "answer everything that waits")
	f.StringVar(&o.execution, "execution", "", "of the execution `ID` only")
	f.BoolVarP(&o.follow, "follow", "f", false, "go on listing what comes to wait")
	f.BoolVar(&o.json, "json", false, "print one JSON object; with --follow, one for each that waits")
	return c
}

// answerOf is what the flags say.
func (o approveOptions) answer() (api.HoldAnswer, error) {
	answer := api.HoldAnswer{Allow: !o.deny, Scope: o.scope}
	if err := checkOneOf("--scope", o.scope, scopes); err != nil {
		return answer, err
	}
	if o.period != "" {
		d, ok := parsePeriod(o.period)
		if !ok {
			return answer, cove.Errorf(cove.InvalidArgument, "--for %q is not a time", o.period).WithHint("write it like 30m, 12h or 7d")
		}
		answer.For = d.Seconds()
	}
	return answer, nil
}

// answer answers what waits, whichever process it waits in.
func (a *app) answer(ctx context.Context, ids []string, o approveOptions) error {
	answer, err := o.answer()
	if err != nil {
		return err
	}
	for _, id := range ids {
		if _, err := cove.ParseHoldID(id); err != nil {
			return cove.Errorf(cove.InvalidArgument, "%.64q is not the id of what waits", id).WithHint("\"cove approve\" lists them")
		}
	}
	peers, err := a.askers(ctx)
	if err != nil {
		return err
	}
	defer closeAll(peers)
	if o.all {
		holds, err := collectHolds(ctx, peers, o.execution)
		if err != nil {
			return err
		}
		for _, h := range holds {
			ids = append(ids, h.ID)
		}
	}
	var failed error
	for _, id := range ids {
		err := whoeverHolds(peers, id, func(p *backend) error { return p.client.AnswerHold(ctx, id, answer) })
		if o.all && cove.ErrorCode(err) == cove.NotFound {
			continue // it has gone meanwhile, or went with another
		}
		if err != nil {
			if failed != nil {
				a.say.fail(failed)
			}
			failed = err
			continue
		}
		if err := a.print(id + "\n"); err != nil {
			return err
		}
	}
	return failed
}

// askers are all backends where something may wait: the peers, and a gateway of
// its own.
func (a *app) askers(ctx context.Context) ([]*backend, error) {
	peers, err := a.peers(ctx)
	if err != nil || a.serverAddress() != "" {
		return peers, err
	}
	cfg, err := a.loadConfig()
	if err != nil {
		return peers, err
	}
	path := filepath.Join(cfg.RunDir, gatewaySocket)
	if !answers(ctx, path) {
		return peers, nil
	}
	gateway, err := a.remote("unix:" + path)
	return append(peers, gateway), err
}

// whoeverHolds asks one peer after the other; only the one where it waits can
// do it.
func whoeverHolds(peers []*backend, id string, do func(*backend) error) error {
	var last error = cove.Errorf(cove.NotFound, "nothing waits as %s", id).WithHint("it was answered, or has gone; \"cove approve\" lists what waits")
	for _, p := range peers {
		err := do(p)
		if err == nil || !notHere(err) {
			return err
		}
		if cove.ErrorCode(err) == cove.NotFound {
			last = err
		}
	}
	return last
}

func closeAll(peers []*backend) {
	for _, p := range peers {
		p.close()
	}
}

// collectHolds asks every peer; one that has just gone is no error.
func collectHolds(ctx context.Context, peers []*backend, execution string) ([]api.Hold, error) {
	all := []api.Hold{}
	seen := map[string]bool{} // the server answers on two sockets
	var failed error
	answered := false
	for _, p := range peers {
		holds, err := p.client.Holds(ctx, execution)
		if err != nil {
			failed = err
			continue
		}
		answered = true
		for _, h := range holds {
			if !seen[h.ID] {
				seen[h.ID] = true
				all = append(all, h)
			}
		}
	}
	if !answered && failed != nil {
		return nil, failed
	}
	slices.SortStableFunc(all, func(a, b api.Hold) int { return a.Since.Compare(b.Since) })
	return all, nil
}

func (a *app) currentHolds(ctx context.Context, execution string) ([]api.Hold, error) {
	peers, err := a.askers(ctx)
	if err != nil {
		return nil, err
	}
	defer closeAll(peers)
	return collectHolds(ctx, peers, execution)
}

func (a *app) listHolds(ctx context.Context, o approveOptions) error {
	all, err := a.currentHolds(ctx, o.execution)
	if err != nil {
		return err
	}
	if o.json {
		return a.printJSON(api.HoldList{Holds: all})
	}
	return a.print(holdTable(all, time.Now()))
}

// lookAgain is how often processes are looked for that hold something.
const lookAgain = time.Second

// followHolds prints what waits, and what comes to wait, until it is stopped.
// Processes come and go meanwhile, so all are asked again and again.
func (a *app) followHolds(ctx context.Context, o approveOptions) error {
	printed := map[string]bool{}
	for {
		all, err := a.currentHolds(ctx, o.execution)
		if err != nil && cove.ErrorCode(err) != cove.Unavailable {
			return err
		}
		for _, h := range all {
			if printed[h.ID] {
				continue
			}
			printed[h.ID] = true
			if o.json {
				err = a.printJSON(h)
			} else {
				err = a.print(fmt.Sprintf("%s  %s, %s left  %s\n", h.ID, printable(holdText(h)), leftText(h, time.Now()), cmp.Or(h.Execution, h.Client)))
			}
			if err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(lookAgain):
		}
	}
}

// requestOf is what waits: "POST api.example.com:443/v1/items".
func requestOf(h api.Hold) string {
	text := net.JoinHostPort(h.Host, strconv.Itoa(int(h.Port))) + h.Path
	if h.Method != "" {
		text = h.Method + " " + text
	}
	if h.Address != "" {
		text += " at " + h.Address
	}
	return text
}

// holdText is what waits and why, in one line.
func holdText(h api.Hold) string {
	text := requestOf(h)
	if h.Count > 1 {
		text += fmt.Sprintf(" (and %d more)", h.Count-1)
	}
	return text + ": " + h.Reason + " (" + h.Rule + ")"
}

func leftText(h api.Hold, now time.Time) string {
	return max(0, h.Until.Sub(now)).Round(time.Second).String()
}

func holdTable(all []api.Hold, now time.Time) string {
	var rows [][]string
	for _, h := range all {
		rows = append(rows, []string{h.ID, requestOf(h), strconv.Itoa(h.Count), h.Rule, h.Reason, ago(now.Sub(h.Since)), leftText(h, now), cmp.Or(h.Execution, h.Client)})
	}
	return table([]string{"ID", "REQUEST", "COUNT", "RULE", "REASON", "SINCE", "LEFT", "OF"}, rows)
}

func (a *app) approvalsCommand() *cobra.Command {
	asJSON := false
	c := &cobra.Command{
		Use:   "approvals",
		Short: "List and revoke what has been approved for a policy",
		Long: `List the approvals that are remembered for every sandbox that is started with
the same policy ("cove approve ID --scope policy"), newest first. POLICY is the
beginning of a digest of the policy's rules.`,
		Example: "  cove approvals\n  cove approvals revoke ap_0123456789abcdefghjkmnpqrs",
		Args:    unknownCommand,
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.approvals(cmd.Context(), asJSON) },
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	c.AddCommand(&cobra.Command{
		Use:   "revoke ID...",
		Short: "Forget approvals",
		Long: `Forget approvals. What they are about is asked about again at once, in sandboxes
that run, too; requests that are under way go on.`,
		Example: "  cove approvals revoke ap_0123456789abcdefghjkmnpqrs",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageError(cmd, "ID is missing")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return a.revoke(cmd.Context(), args) },
	})
	return c
}

func (a *app) approvals(ctx context.Context, asJSON bool) error {
	all := []api.Approval{}
	err := a.readRecords(ctx, func(c *client.Client) error {
		found, err := c.Approvals(ctx)
		all = append(all, found...)
		return err
	})
	if err != nil {
		return err
	}
	if asJSON {
		return a.printJSON(api.ApprovalList{Approvals: all})
	}
	var rows [][]string
	now := time.Now()
	for _, p := range all {
		rows = append(rows, []string{p.ID, p.About, p.Rule, p.Policy[:min(len(p.Policy), 12)], p.Who, ago(now.Sub(p.Time)), p.Until.UTC().Format(time.RFC3339)})
	}
	return a.print(table([]string{"ID", "WHAT", "RULE", "POLICY", "WHO", "GIVEN", "UNTIL"}, rows))
}

func (a *app) revoke(ctx context.Context, ids []string) error {
	for _, id := range ids {
		if _, err := cove.ParseApprovalID(id); err != nil {
			return cove.Errorf(cove.InvalidArgument, "%.64q is not the id of an approval", id).WithHint("\"cove approvals\" lists them")
		}
	}
	var failed error
	for _, id := range ids {
		err := a.readRecords(ctx, func(c *client.Client) error { return c.Revoke(ctx, id) })
		if err == nil {
			err = a.print(id + "\n")
		}
		if err != nil && failed != nil {
			a.say.fail(failed)
		}
		failed = cmp.Or(err, failed)
	}
	return failed
}

// command is a command line of Cove's that reaches the same processes as this
// one.
func (a *app) command(words ...string) string {
	for _, f := range []struct{ flag, value string }{{"--server", a.server}, {"--config", a.settings.path}, {"--run-dir", a.settings.runDir}} {
		if f.value != "" {
			words = append(words, f.flag, shellWord(f.value))
		}
	}
	return "cove " + strings.Join(words, " ")
}

// shellWord quotes s for a shell, if that is needed.
func shellWord(s string) string {
	if s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:@%+=,") == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
