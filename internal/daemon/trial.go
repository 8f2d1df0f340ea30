package daemon

import (
	"log/slog"

	"github.com/cove-sandbox/cove/internal/config"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engines"
	"github.com/cove-sandbox/cove/internal/instance"
)

// OpenEngine opens one engine without a daemon around it, to try it out. Its Close removes everything.
func OpenEngine(cfg *config.Config, name string, log *slog.Logger) (engine.Engine, error) {
	if err := directories(cfg); err != nil {
		return nil, err
	}
	held, err := instance.Hold(cfg.RunDir)
	if err != nil {
		return nil, err
	}
	e, err := engines.New(engineOptions(cfg, held, log), name).Get(name)
	if err != nil {
		held.Release()
		return nil, err
	}
	return trial{e, held}, nil
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
