//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
)

// fsyncs prints how long a write of 4 KiB with its fsync takes in milliseconds, the 95th percentile of 300.
const fsyncs = `import os, time
f, all = os.open("/workspace/neighbour", os.O_CREAT | os.O_WRONLY), []
for _ in range(300):
    t = time.perf_counter()
    os.pwrite(f, bytes(4096), 0)
    os.fsync(f)
    all.append(time.perf_counter() - t)
print(sorted(all)[285] * 1000)
`

// storms writes and syncs without pause in four processes, until it is ended.
const storms = `import os
for i in range(3):
    if os.fork() == 0: break
f = os.open("/workspace/storm%d" % os.getpid(), os.O_CREAT | os.O_WRONLY)
print("storming", flush=True)
while True:
    os.pwrite(f, bytes(4096), 0)
    os.fsync(f)
`

// storm measures what it costs the disk of one long-lived sandbox that another one writes and syncs without pause.
func (c *coveUnderTest) storm(ctx context.Context, f map[string]float64) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, name := range []string{"neighbour", "storm"} {
		if _, err := c.client.CreateSandbox(ctx, api.SandboxRequest{Name: name}, nil); err != nil {
			return err
		}
		defer func() {
			_, derr := c.client.DestroySandbox(context.WithoutCancel(ctx), name, false)
			err = errors.Join(err, derr)
		}()
	}
	run := func(ctx context.Context, name, script string, out io.Writer) error {
		_, err := c.client.Exec(ctx, name, api.ExecRequest{Args: []string{"/usr/bin/python3", "-c", script}},
			client.Stream{Stdout: out})
		return err
	}
	measure := func() (float64, error) {
		var said bytes.Buffer
		if err := run(ctx, "neighbour", fsyncs, &said); err != nil {
			return 0, err
		}
		return strconv.ParseFloat(string(bytes.TrimSpace(said.Bytes())), 64)
	}
	calm, err := measure()
	if err != nil {
		return fmt.Errorf("fsync of a sandbox: %w", err)
	}
	begun, ended := make(heard, 1), make(chan error, 1)
	storming, end := context.WithCancel(ctx)
	go func() {
		ended <- run(storming, "storm", storms, begun)
	}()
	select {
	case <-begun:
	case err := <-ended:
		end()
		return fmt.Errorf("a storm of fsync: %w", err)
	}
	stormed, err := measure()
	end()
	<-ended
	if err != nil {
		return fmt.Errorf("fsync beside a storm: %w", err)
	}
	f["fsync_p95_ms"], f["fsync_beside_a_storm_p95_ms"], f["fsync_storm_ratio"] = calm, stormed, stormed/calm
	return nil
}

// heard receives once something has been written to it.
type heard chan struct{}

func (s heard) Write(p []byte) (int, error) {
	select {
	case s <- struct{}{}:
	default:
	}
	return len(p), nil
}
