package sandbox

import (
	"context"
	"fmt"

	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engine/process"
	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/sandbox/terminals"
)

// detachedLabel is what the guest keeps of a command that runs on when the server
// has gone.
const detachedLabel = "detached"

// adoptPrograms takes over the programs that an earlier server has left in a
// sandbox: terminals, and processes that are known by name. What else it has left,
// and no server waits for any more, is ended.
func (m *Manager) adoptPrograms(ctx context.Context, sb engine.Sandbox, ttys *terminals.Set) error {
	programs, err := sb.Guest().Listed(ctx)
	if err != nil {
		return fmt.Errorf("list the processes: %w", err)
	}
	for _, info := range programs {
		if err := m.adoptProgram(ctx, sb, ttys, info); err != nil {
			m.o.Log.Warn("a process of a sandbox cannot be adopted", "sandbox", sb.ID(), "process", info.ID, "error", err)
		}
	}
	return nil
}

func (m *Manager) adoptProgram(ctx context.Context, sb engine.Sandbox, ttys *terminals.Set, info guest.ProcessInfo) error {
	if ok, err := ttys.Adopt(ctx, info); ok {
		return err
	}
	left := LeftProcess{Sandbox: sb.ID(), Name: processName(info.Label), From: info.Stdout, To: info.StdoutEnd, m: m, engine: sb, info: info}
	m.mu.Lock()
	with := m.lasting
	m.mu.Unlock()
	if left.Name == "" || info.TTY || with == nil || with.TakeUp == nil {
		return left.End(ctx)
	}
	with.TakeUp(left)
	return nil
}

// End kills a process that is not adopted, unless it is a command that was started
// to run on. Its output is dropped.
func (l LeftProcess) End(ctx context.Context) error {
	p, err := process.Adopt(ctx, l.engine, l.m.o.Clock, l.info.ID, l.info.Stdout, l.info.Stderr)
	if err != nil {
		return err
	}
	p.Copy(nil, nil, nil)
	l.m.serving.Go(p.Copied)
	if string(l.info.Label) == detachedLabel {
		return nil
	}
	return p.Kill()
}
