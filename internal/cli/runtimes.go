package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove/api"
)

func (a *app) runtimesCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:     "runtimes",
		Short:   "List the languages, their versions and default limits",
		Example: "  cove runtimes",
		Args:    exactly(),
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.runtimes(cmd.Context(), asJSON) },
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}

func (a *app) runtimes(ctx context.Context, asJSON bool) (err error) {
	b, err := a.connect(ctx, false)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := b.close(); err == nil {
			err = cerr
		}
	}()
	all, err := b.client.Runtimes(ctx)
	if err != nil {
		return err
	}
	if asJSON {
		return a.printJSON(api.RuntimeList{Runtimes: all})
	}
	return a.print(runtimeTable(all))
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
	return table([]string{"RUNTIME", "VERSION", "LIMITS"}, rows)
}

func defaultsText(r api.Runtime) string {
	return fmt.Sprintf("%s, %d pids, %g CPU, %s disk, %s", sizeText(r.Limits.MemoryMB<<20), r.Limits.PIDs, r.Limits.CPUs,
		sizeText(r.Limits.DiskMB<<20), timeText(time.Duration(r.Timeout*float64(time.Second))))
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return line
}
