//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engine/native"
	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/instance"
	"github.com/cove-sandbox/cove/internal/rootfs"
	runtimes "github.com/cove-sandbox/cove/internal/runtime"
)

// coveUnderTest is a build with a real server process, and two engines in this one: with guests ready and without.
type coveUnderTest struct {
	build
	*server        // with the settings that users have
	ready, unready engine.Engine
	instance       *instance.Instance
	guest          string
}

func newCove(ctx context.Context, dir string) (c *coveUnderTest, err error) {
	c = &coveUnderTest{build: build{dir: dir}}
	defer func() {
		if err != nil {
			c.close()
		}
	}()
	if c.guest, err = binary("cove-guest"); err != nil {
		return c, err
	}
	run := filepath.Join(dir, "run")
	if err := os.Mkdir(run, 0o755); err != nil {
		return c, err
	}
	if c.instance, err = instance.Hold(run); err != nil {
		return c, err
	}
	open := func(ready int) (engine.Engine, error) {
		return native.New(native.Options{
			Guest: c.guest, RunDir: run, Instance: c.instance.ID, CgroupParent: "cove-bench" + strconv.Itoa(ready), Ready: ready,
			Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
		})
	}
	if c.ready, err = open(2); err != nil {
		return c, err
	}
	if c.unready, err = open(0); err != nil {
		return c, err
	}
	c.server, err = c.build.server(ctx)
	return c, err
}

func (c *coveUnderTest) close() error {
	errs := []error{c.build.close()}
	for _, e := range []engine.Engine{c.ready, c.unready} {
		if e != nil {
			errs = append(errs, e.Close())
		}
	}
	if c.instance != nil {
		errs = append(errs, c.instance.Release())
	}
	return errors.Join(errs...)
}

// first makes a sandbox by an engine and runs /bin/true in it. Destroying it is not measured: a user has the answer
// before.
func (c *coveUnderTest) first(name string, e engine.Engine) contender {
	var destroying sync.WaitGroup
	run := func(ctx context.Context) error {
		sb, err := e.Prepare(ctx, engine.Template{
			ID: cove.NewSandboxID(), Shape: cove.Shape{Limits: runtimes.Defaults, User: cove.CodeUser},
			Rootfs: engine.Rootfs{Kind: engine.RootfsHost}, Network: cove.NetworkNone,
		})
		if err != nil {
			return err
		}
		defer destroying.Go(func() { sb.Destroy(context.Background()) })
		if err := sb.Bind(ctx, engine.Binding{}); err != nil {
			return err
		}
		p, err := sb.Guest().Start(ctx, guest.ProcessSpec{Args: []string{"/bin/true"}, Env: rootfs.Env(cove.CodeUser),
			Dir: cove.WorkDir, Alone: true})
		if err != nil {
			return err
		}
		go io.Copy(io.Discard, p.Stderr())
		io.Copy(io.Discard, p.Stdout())
		exit, err := p.Wait(ctx)
		if err == nil && exit.Code != 0 {
			err = fmt.Errorf("exit code %d", exit.Code)
		}
		return err
	}
	return contender{name: name, run: run, settle: func() error {
		destroying.Wait()
		return nil
	}}
}
