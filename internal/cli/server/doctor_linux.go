package server

import (
	"context"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
	"github.com/cove-sandbox/cove/internal/daemon"
	"github.com/cove-sandbox/cove/internal/doctor"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engine/provision"
	"github.com/cove-sandbox/cove/internal/engines"
	"github.com/cove-sandbox/cove/internal/runtime"
	"github.com/cove-sandbox/cove/internal/version"
)

func doctorCommand(sess *session.Session) *cobra.Command {
	return sess.Showing(&cobra.Command{
		Use:   "doctor",
		Short: "Try every control on this machine, and say how to get what is missing",
		Long: `Try every kernel feature and limit that Cove uses, by using it, and print what
works, what does not, and how to put it right. The exit code is 1 when the
default engine cannot hold its invariants here.`,
		Example: "  cove doctor\n  sudo cove doctor --json",
	}, func(cmd *cobra.Command, _ []string) (ui.Result, error) {
		o, err := doctorOptions(sess)
		if err != nil {
			return ui.Result{}, err
		}
		report := doctor.Run(cmd.Context(), o)
		if !report.Healthy {
			sess.Exit = ui.ExitUnhealthy
		}
		var text strings.Builder
		err = report.Text(&text, ui.Colorful(sess.Out, sess.Getenv))
		return ui.Result{Value: report, Text: text.String()}, err
	})
}

// doctorProbeCommand is the child that a check of the doctor's runs in.
func doctorProbeCommand(sess *session.Session) *cobra.Command {
	return &cobra.Command{
		Use:                doctorProbe,
		Hidden:             true,
		DisableFlagParsing: true,
		Args:               cobra.ArbitraryArgs,
		RunE: func(_ *cobra.Command, args []string) error {
			sess.Exit = doctor.RunProbe(args)
			return nil
		},
	}
}

const doctorProbe = "doctor-probe"

func doctorOptions(sess *session.Session) (doctor.Options, error) {
	cfg, err := sess.Config()
	if err != nil {
		return doctor.Options{}, err
	}
	self, err := os.Executable()
	if err != nil {
		return doctor.Options{}, err
	}
	limits, err := cfg.Bounds().Resolve(runtime.Runtime{}, cove.Limits{})
	if err != nil {
		return doctor.Options{}, err
	}
	o := doctor.Options{
		Version: version.Version,
		Probe:   []string{self, doctorProbe},
		Engine:  cfg.Engine,
		Home:    cfg.Home,
		Guest:   daemon.GuestPath(cfg),
		Docker:  sess.Getenv("DOCKER_HOST"),
	}
	o.Expires = map[string]time.Time{}
	for who, g := range cfg.Grants() {
		if name, _ := who.Key(); !g.Expires.IsZero() {
			o.Expires[name] = g.Expires
		}
	}
	for _, name := range engines.Names() {
		o.Engines = append(o.Engines, doctor.Engine{
			Name: name,
			Open: func(context.Context) (engine.Engine, error) {
				return daemon.OpenEngine(cfg, name, sess.QuietLogger(cfg))
			},
			Plan: provision.Plan{Shape: cove.Shape{Limits: limits, User: cove.CodeUser}},
			Args: []string{"/bin/true"},
		})
	}
	return o, nil
}
