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
)

func main() {
	log.SetOutput(io.Discard) // where net/http says what origins of a sandbox do wrong, in their words
	streams := cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}
	os.Exit(cli.Main(context.Background(), os.Args[1:], streams, embedded.Daemon{}))
}
