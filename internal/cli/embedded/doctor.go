package embedded

import (
	"context"
	"os"
	"strings"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/cli/server"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
	"github.com/cove-sandbox/cove/internal/daemon"
	"github.com/cove-sandbox/cove/internal/dockercontext"
	"github.com/cove-sandbox/cove/internal/doctor"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engine/provision"
	"github.com/cove-sandbox/cove/internal/runtime"
	"github.com/cove-sandbox/cove/internal/version"
)

// Doctor implements server.Daemon.
func (Daemon) Doctor(ctx context.Context, sess *session.Session) (ui.Result, error) {
	o, err := doctorOptions(sess)
	if err != nil {
		return ui.Result{}, err
	}
	report := doctor.Run(ctx, o)
	if !report.Healthy {
		sess.Exit = ui.ExitUnhealthy
	}
	var text strings.Builder
	err = report.Text(&text, ui.Colorful(sess.Out, sess.Getenv))
	return ui.Result{Value: report, Text: text.String()}, err
}

// Probe implements server.Daemon.
func (Daemon) Probe(args []string) int { return doctor.RunProbe(args) }

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
		Probe:   []string{self, server.DoctorProbe},
		Engine:  cfg.Engine,
		Home:    cfg.Home,
		Guest:   daemon.GuestPath(cfg),
		Podman:  engine.PodmanHost(sess.Getenv, os.Geteuid()),
	}
	o.Docker, o.DockerErr = dockercontext.Current(sess.Getenv)
	o.Expires = map[string]time.Time{}
	for who, g := range cfg.Grants() {
		if name, _ := who.Key(); !g.Expires.IsZero() {
			o.Expires[name] = g.Expires
		}
	}
	for _, name := range engine.Names() {
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
