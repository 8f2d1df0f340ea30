package cli

import (
	"fmt"
	goruntime "runtime"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove/internal/version"
)

func versionLine() string {
	return fmt.Sprintf("cove %s (%s, %s/%s)", version.Version, goruntime.Version(), goruntime.GOOS, goruntime.GOARCH)
}

func (a *app) versionCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !asJSON {
				return a.print(versionLine() + "\n")
			}
			return a.printJSON(map[string]string{"version": version.Version, "go": goruntime.Version(),
				"os": goruntime.GOOS, "arch": goruntime.GOARCH})
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}
