package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
)

func (a *app) networkCommand() *cobra.Command {
	return group(&cobra.Command{
		Use:   "network",
		Short: "See what leaves sandboxes, and what was not let out",
	}, a.networkLog())
}

type decisionOptions struct {
	follow bool
	denied bool
	host   string
	listFlags
}

func (a *app) networkLog() *cobra.Command {
	var o decisionOptions
	c := &cobra.Command{
		Use:   "log [EXECUTION]",
		Short: "Show what became of attempts to leave sandboxes",
		Long: `Show what became of attempts to leave sandboxes, of every process of Cove that
shares the database, the newest last: requests, connections that were not looked
into, and questions for names. Attempts that are alike and come at once are one
line with a count. With -f it goes on as they come.

What is said of one that was denied is the rule, the reason, and the command
that would allow it. Queries, headers, bodies and secrets are never recorded: a
path has "…" where it would show one.`,
		Example: "  cove network log $(cove ps -aq -n 1)\n  cove network log -f --denied\n  cove network log --host api.example.com --since 1h",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usageError(cmd, "%q is one argument too many", args[1])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			q := client.DecisionOptions{Host: strings.ToLower(o.host)}
			if o.denied {
				q.Verdict = api.VerdictDeny
			}
			if len(args) > 0 {
				if _, err := cove.ParseExecutionID(args[0]); err != nil {
					return idError(args[0])
				}
				q.Execution = args[0]
			}
			var err error
			if q.Since, err = o.from(time.Now()); err != nil {
				return err
			}
			if o.follow {
				return a.followDecisions(cmd.Context(), q, o)
			}
			return a.decisions(cmd.Context(), q, o)
		},
	}
	f := c.Flags()
	f.BoolVarP(&o.follow, "follow", "f", false, "go on as they come")
	f.BoolVar(&o.denied, "denied", false, "what was not let out only")
	f.StringVar(&o.host, "host", "", "to this `HOST` only, a name or an address")
	o.listFlags.add(f, "begun")
	f.Lookup("json").Usage += "; with -f one on each line"
	return c
}

// decisionsUpTo are the newest, oldest first.
func decisionsUpTo(ctx context.Context, c *client.Client, q client.DecisionOptions, limit int) ([]api.Decision, error) {
	all, err := upTo(limit, func(cursor string, n int) ([]api.Decision, string, error) {
		q.Cursor, q.Limit = cursor, n
		page, err := c.Decisions(ctx, q)
		return page.Decisions, page.NextCursor, err
	})
	slices.Reverse(all)
	return all, err
}

func (a *app) decisions(ctx context.Context, q client.DecisionOptions, o decisionOptions) error {
	var all []api.Decision
	err := a.readRecords(ctx, func(c *client.Client) (err error) {
		all, err = decisionsUpTo(ctx, c, q, o.limit)
		return err
	})
	if err != nil {
		return err
	}
	if o.json {
		return a.printJSON(api.DecisionList{Decisions: all})
	}
	var rows [][]string
	for _, d := range all {
		rows = append(rows, decisionCells(d))
	}
	return a.print(table([]string{"TIME", "EXECUTION", "VERDICT", "WHAT", "STATUS", "SENT", "RECEIVED", "TOOK", "WHY"}, rows))
}

// followDecisions follows the database, which all processes share: in the
// server if there is one, else in a daemon of its own, which goes on when those
// that run something end.
func (a *app) followDecisions(ctx context.Context, q client.DecisionOptions, o decisionOptions) error {
	interrupts := watchSignals(a.Out)
	defer interrupts.stop()
	ctx, cancel := interrupts.cover(ctx)
	defer cancel()
	b, err := a.connect(ctx, false)
	if err != nil {
		return interrupts.explain(err)
	}
	err = a.printDecisions(ctx, b.client, q, o)
	if cerr := b.close(); err == nil {
		err = cerr
	}
	return interrupts.explain(err)
}

func (a *app) printDecisions(ctx context.Context, c *client.Client, q client.DecisionOptions, o decisionOptions) error {
	all, err := decisionsUpTo(ctx, c, q, o.limit)
	if err != nil {
		return err
	}
	last := int64(0)
	show := func(d api.Decision) error {
		last = d.Seq
		if !o.json {
			return a.print(decisionLine(d))
		}
		b, err := json.Marshal(d)
		if err != nil {
			return err
		}
		return a.print(plainJSON(string(b)) + "\n")
	}
	for _, d := range all {
		if err := show(d); err != nil {
			return err
		}
	}
	return c.FollowDecisions(ctx, q, last, func(d api.Decision) error {
		if d.Time.Before(q.Since) {
			return nil
		}
		return show(d)
	})
}

// decisionLine is one line for those who follow: the cells of the table in
// columns that fit most.
func decisionLine(d api.Decision) string {
	widths := []int{20, 29, 7, 48, 6, 6, 8, 6, 0}
	var b strings.Builder
	for i, cell := range decisionCells(d) {
		fmt.Fprintf(&b, "%-*s  ", widths[i], printable(cell))
	}
	return strings.TrimRight(b.String(), " ") + "\n"
}

func decisionCells(d api.Decision) []string {
	verdict, status := string(d.Verdict), ""
	if d.Count > 1 {
		verdict += " x" + strconv.FormatInt(d.Count, 10)
	}
	if d.Status != 0 {
		status = strconv.Itoa(d.Status)
	}
	took := ""
	if d.Duration > 0 {
		took = timeText(time.Duration(d.Duration * float64(time.Second)))
	}
	return []string{d.Time.UTC().Format(time.RFC3339), d.Execution, verdict, attempt(d), status, some(d.Sent), some(d.Received), took, why(d)}
}

// some is a number of bytes, if there are any.
func some(n int64) string {
	if n == 0 {
		return ""
	}
	return sizeText(n)
}

// attempt is what a decision is about: GET https://api.example.com/v1, lookup
// A api.example.com, tcp://git.example.com:22.
func attempt(d api.Decision) string {
	switch {
	case d.Verdict == api.VerdictLost:
		return ""
	case d.Entry == api.EntryDNS:
		return "lookup " + d.Method + " " + d.Host
	}
	protocol := d.Protocol
	if protocol == "" { // it was denied before it spoke
		protocol = api.ProtocolTCP
	}
	host := d.Host
	if port := (map[api.Protocol]uint16{api.ProtocolHTTP: 80, api.ProtocolHTTPS: 443})[protocol]; port != d.Port {
		host = net.JoinHostPort(d.Host, strconv.Itoa(int(d.Port)))
	} else if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	text := string(protocol) + "://" + host + d.Path
	if d.Method != "" {
		text = d.Method + " " + text
	}
	return text
}

// why says what denied it, or what went wrong, and what would allow it.
func why(d api.Decision) string {
	var parts []string
	for _, p := range []string{d.Reason, d.Remedy} {
		if p != "" {
			parts = append(parts, p)
		}
	}
	text := strings.Join(parts, "; to allow it: ")
	if d.Verdict == api.VerdictDeny && d.Rule != "" {
		return "(" + d.Rule + ") " + text
	}
	return d.Reason
}
