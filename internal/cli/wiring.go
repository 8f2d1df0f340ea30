package cli

import (
	"context"
	"log/slog"
	"os"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/config"
	"github.com/cove-sandbox/cove/internal/daemon"
	"github.com/cove-sandbox/cove/internal/doctor"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engines"
	"github.com/cove-sandbox/cove/internal/image"
	"github.com/cove-sandbox/cove/internal/runtime"
	"github.com/cove-sandbox/cove/internal/version"
)

// quietLogger is for commands, whose daemon has nobody to tell but the person
// at the terminal: what went wrong, unless the configuration asks for more.
func (a *app) quietLogger(cfg *config.Config) *slog.Logger {
	if cfg.Origin("log.level") == "default" {
		return a.loggerAt(cfg, slog.LevelError)
	}
	return a.logger(cfg)
}

func (a *app) openImages() (*image.Store, error) {
	cfg, err := a.loadConfig()
	if err != nil {
		return nil, err
	}
	return daemon.OpenImages(cfg, a.quietLogger(cfg))
}

func (a *app) doctorOptions() (doctor.Options, error) {
	cfg, err := a.loadConfig()
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
	o := doctor.Options{Version: version.Version, Probe: []string{self, doctorProbe}, Engine: cfg.Engine, Home: cfg.Home, Guest: daemon.GuestPath(cfg),
		Docker: a.getenv("DOCKER_HOST")}
	for _, name := range engines.Names() {
		o.Engines = append(o.Engines, doctor.Engine{
			Name: name,
			Open: func(context.Context) (engine.Engine, error) { return daemon.OpenEngine(cfg, name, a.quietLogger(cfg)) },
			Template: engine.Template{Shape: cove.Shape{Limits: limits, User: cove.CodeUser},
				Rootfs: engine.Rootfs{Kind: engine.RootfsHost}, Network: cove.NetworkNone},
			Args: []string{"/bin/true"},
		})
	}
	return o, nil
}
