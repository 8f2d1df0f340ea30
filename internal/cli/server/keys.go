package server

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
)

func keysCommand(sess *session.Session) *cobra.Command {
	return sess.ShowingList(&cobra.Command{
		Use:   "keys",
		Short: "List the API keys, and what each has used of its model budget",
		Long: `List the API keys that the configuration has: what each may do, until when, and
what it has used of the models of this machine, of its model_budget. A budget is for
all the time of its key; a larger one gives more. The holder of a key sees that key
alone (--server, COVE_API_KEY). "cove config new-key" makes a key.`,
		Example: "  cove keys\n  cove keys --json",
	}, func(cmd *cobra.Command, _ []string) (ui.Result, error) {
		all, err := session.OfBackend(cmd, sess, (*client.Client).Keys)
		headings := []string{"KEY", "SCOPES", "LAST DAY", "MODELS"}
		return ui.Listing("keys", all, headings, func(k api.Key) []string {
			last := "-"
			if k.Expires != nil {
				last = k.Expires.Add(-time.Second).UTC().Format(time.DateOnly)
			}
			return []string{k.Name, strings.Join(k.Scopes, ", "), last, modelsOf(k)}
		}), err
	})
}

// modelsOf describes what a key has used of its model budget, in the words of the budget.
func modelsOf(k api.Key) string {
	var parts []string
	if b := k.ModelBudget; b != nil {
		if b.Requests > 0 {
			parts = append(parts, fmt.Sprintf("%d of %d requests", k.ModelsUsed.Requests, b.Requests))
		}
		if b.Tokens > 0 {
			parts = append(parts, fmt.Sprintf("%d of %d tokens", k.ModelsUsed.Tokens, b.Tokens))
		}
		if b.Cost > 0 {
			parts = append(parts, fmt.Sprintf("$%.2f of $%.2f", k.ModelsUsed.Cost, b.Cost))
		}
	}
	if len(parts) == 0 {
		return "-"
	}
	return strings.Join(parts, ", ")
}
