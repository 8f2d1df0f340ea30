package daemon

import (
	"log/slog"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/config"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/instance"
)

// EngineNames lists the engines in the order in which "auto" prefers them.
func EngineNames() []string {
	var names []string
	for _, s := range (&Daemon{}).engines() {
		names = append(names, s.Name)
	}
	return names
}

// OpenEngine opens one engine without a daemon around it, to try it out. Its
// Close removes everything.
func OpenEngine(cfg *config.Config, name string, log *slog.Logger) (engine.Engine, error) {
	if err := directories(cfg); err != nil {
		return nil, err
	}
	held, err := instance.Hold(cfg.RunDir)
	if err != nil {
		return nil, err
	}
	d := &Daemon{cfg: cfg, log: log, instance: held}
	d.openNative = d.native
	for _, s := range d.engines() {
		if s.Name != name {
			continue
		}
		e, err := s.Open()
		if err != nil {
			held.Release()
			return nil, err
		}
		return trial{e, held}, nil
	}
	held.Release()
	return nil, cove.Errorf(cove.InvalidArgument, "there is no engine %.64q", name)
}

// trial is an engine with an instance of its own.
type trial struct {
	engine.Engine
	held *instance.Instance
}

func (t trial) Close() error {
	err := t.Engine.Close()
	if rerr := t.held.Release(); err == nil {
		err = rerr
	}
	return err
}
