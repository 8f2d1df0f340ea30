package server

import (
	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
)

func doctorCommand(sess *session.Session, d Daemon) *cobra.Command {
	return session.OfDaemon(sess, sess.Showing(&cobra.Command{
		Use:   "doctor",
		Short: "Try every control on this machine, and say how to get what is missing",
		Long: `Try every kernel feature and limit that Cove uses, by using it, and print what
works, what does not, and how to put it right. The exit code is 1 when the
default engine cannot hold its invariants here.`,
		Example: "  cove doctor\n  sudo cove doctor --json",
	}, func(cmd *cobra.Command, _ []string) (ui.Result, error) { return d.Doctor(cmd.Context(), sess) }))
}

func doctorProbeCommand(sess *session.Session, d Daemon) *cobra.Command {
	return session.OfDaemon(sess, &cobra.Command{
		Use:                DoctorProbe,
		Hidden:             true,
		DisableFlagParsing: true,
		Args:               cobra.ArbitraryArgs,
		RunE: func(_ *cobra.Command, args []string) error {
			sess.Exit = d.Probe(args)
			return nil
		},
	})
}

// DoctorProbe is the hidden command that a check of the doctor's runs in.
const DoctorProbe = "doctor-probe"
