// Command cove runs untrusted code in sandboxes: the command line and the
// server in one binary.
package main

import (
	"context"
	"os"

	"github.com/cove-sandbox/cove/internal/cli"
)

func main() {
	os.Exit(cli.Main(context.Background(), os.Args[1:], cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}))
}
