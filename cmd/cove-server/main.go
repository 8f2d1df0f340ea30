//go:build linux

// Command cove-server is the command line with the daemon: cove puts it into its place where no server does the work.
package main

import (
	"context"
	"io"
	"log"
	"os"

	"github.com/cove-sandbox/cove/internal/cli"
	"github.com/cove-sandbox/cove/internal/cli/embedded"
	"github.com/cove-sandbox/cove/internal/image/files"
	"github.com/cove-sandbox/cove/internal/linux/forkserver"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == files.Command {
		files.Serve()
		return
	}
	log.SetOutput(io.Discard) // where net/http says what origins of a sandbox do wrong, in their words
	forkserver.Inherit()
	streams := cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}
	code := cli.Main(context.Background(), os.Args[1:], streams, embedded.Daemon{})
	forkserver.EndInherited()
	os.Exit(code)
}
