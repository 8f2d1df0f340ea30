package run

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

func runtimesCommand(sess *session.Session) *cobra.Command {
	return sess.Showing(&cobra.Command{
		Use:     "runtimes",
		Short:   "List the languages, their versions and default limits",
		Example: "  cove runtimes",
		Args:    ui.Exactly(),
	}, func(cmd *cobra.Command, _ []string) (ui.Result, error) {
		all, err := session.OfBackend(cmd, sess, (*client.Client).Runtimes)
		return runtimeListing().Result(all), err
	})
}

func runtimeListing() ui.Listing[api.Runtime] {
	return ui.Listing[api.Runtime]{
		Key:      "runtimes",
		Headings: []string{"RUNTIME", "VERSION", "LIMITS"},
		Row: func(r api.Runtime) []string {
			version := r.Version
			if !r.Available {
				version = "missing: " + r.Missing
			}
			return []string{r.Name, firstLine(version), defaultsText(r)}
		},
	}
}

func defaultsText(r api.Runtime) string {
	return fmt.Sprintf("%s, %d pids, %g CPU, %s disk, %s",
		ui.SizeText(r.Limits.MemoryMB<<20), r.Limits.PIDs, r.Limits.CPUs,
		ui.SizeText(r.Limits.DiskMB<<20), ui.TimeText(time.Duration(r.Timeout*float64(time.Second))))
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return line
}
