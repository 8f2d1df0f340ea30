package cli

import (
	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove/internal/doctor"
)

func (a *app) doctorCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Try every control on this machine, and say how to get what is missing",
		Long: `Try every kernel feature and limit that Cove uses, by using it, and print what
works, what does not, and how to put it right. The exit code is 1 when the
default engine cannot hold its invariants here.`,
		Example: "  cove doctor\n  sudo cove doctor --json",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			o, err := a.doctorOptions()
			if err != nil {
				return err
			}
			report := doctor.Run(cmd.Context(), o)
			if !report.Healthy {
				a.exit = exitUnhealthy
			}
			if asJSON {
				return a.printJSON(report)
			}
			return report.Text(a.Out, colorful(a.Out, a.getenv))
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}

// doctorProbeCommand is the child that a check of the doctor's runs in.
func (a *app) doctorProbeCommand() *cobra.Command {
	return &cobra.Command{
		Use:                doctorProbe,
		Hidden:             true,
		DisableFlagParsing: true,
		RunE: func(_ *cobra.Command, args []string) error {
			a.exit = doctor.RunProbe(args)
			return nil
		},
	}
}

// doctorProbe is the hidden command's name.
const doctorProbe = "doctor-probe"
