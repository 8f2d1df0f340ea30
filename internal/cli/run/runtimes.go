package run

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
)

func runtimesCommand(sess *session.Session) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:     "runtimes",
		Short:   "List the languages, their versions and default limits",
		Example: "  cove runtimes",
		Args:    ui.Exactly(),
		RunE:    func(cmd *cobra.Command, _ []string) error { return runtimes(cmd.Context(), sess, asJSON) },
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}

func runtimes(ctx context.Context, sess *session.Session, asJSON bool) (err error) {
	b, err := sess.Connect(ctx, false)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := b.Close(); err == nil {
			err = cerr
		}
	}()
	all, err := b.Client.Runtimes(ctx)
	if err != nil {
		return err
	}
	if asJSON {
		return sess.PrintJSON(api.RuntimeList{Runtimes: all})
	}
	return sess.Print(runtimeTable(all))
}

func runtimeTable(all []api.Runtime) string {
	var rows [][]string
	for _, r := range all {
		version := r.Version
		if !r.Available {
			version = "missing: " + r.Missing
		}
		rows = append(rows, []string{r.Name, firstLine(version), defaultsText(r)})
	}
	return ui.Table([]string{"RUNTIME", "VERSION", "LIMITS"}, rows)
}

func defaultsText(r api.Runtime) string {
	return fmt.Sprintf("%s, %d pids, %g CPU, %s disk, %s", ui.SizeText(r.Limits.MemoryMB<<20), r.Limits.PIDs, r.Limits.CPUs,
		ui.SizeText(r.Limits.DiskMB<<20), ui.TimeText(time.Duration(r.Timeout*float64(time.Second))))
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return line
}
