// Command cove runs untrusted code in sandboxes: the command line, as a client. What needs the daemon is carried out by
// cove-server, which takes the place of its process.
package main

import (
	"context"
	"io"
	"log"
	"os"

	"github.com/cove-sandbox/cove/internal/cli"
)

func main() {
	log.SetOutput(io.Discard) // where net/http says what origins of a sandbox do wrong, in their words
	args := os.Args[1:]
	if helper, ok := cli.HelperArgs(os.Args[0], args); ok { // git runs it: git fetch cove::SANDBOX
		args = helper
	}
	cli.HandOverAtOnce(args)
	os.Exit(cli.Main(context.Background(), args, cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}, nil))
}
