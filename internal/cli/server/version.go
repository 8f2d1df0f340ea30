package server

import (
	"fmt"
	goruntime "runtime"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
	"github.com/cove-sandbox/cove/internal/version"
)

// VersionLine is the version of this program and what it was built for.
func VersionLine() string {
	return fmt.Sprintf("cove %s (%s, %s/%s)", version.Version, goruntime.Version(), goruntime.GOOS, goruntime.GOARCH)
}

func versionCommand(sess *session.Session) *cobra.Command {
	return sess.Showing(&cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  ui.Exactly(),
	}, func(*cobra.Command, []string) (ui.Result, error) {
		return ui.Result{
			Text: VersionLine() + "\n",
			Value: map[string]string{
				"version": version.Version,
				"go":      goruntime.Version(),
				"os":      goruntime.GOOS,
				"arch":    goruntime.GOARCH,
			},
		}, nil
	})
}
