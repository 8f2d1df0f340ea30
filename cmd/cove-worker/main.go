// Command cove-worker is Cove's own agent, which runs inside a sandbox: it works
// on one task with a model and tools, and ends.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/cove-sandbox/cove/internal/worker"
)

func main() {
	// The first signal ends the task, which says what it has; the next one this.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	context.AfterFunc(ctx, stop)
	// A reader that went away is an error of the write. Were the signal ignored, commands would inherit that.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	os.Exit(worker.Main(ctx, worker.Process{
		Args: os.Args[1:], Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Env: os.Environ(),
	}))
}
