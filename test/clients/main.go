// Command clients is programs that people run in sandboxes and that speak more than a command line can: model SDKs,
// gRPC, WebSocket, h2spec. Tests of the gateway run it inside, and its gRPC server as an origin. It is a module of its
// own, so that what it needs is no dependency of Cove.
package main

import (
	"context"
	"fmt"
	"os"
	"time"
)

// programs print what they see on standard output, one line for each thing.
var programs = map[string]func(ctx context.Context, args []string) error{
	"anthropic":   anthropicProgram,
	"openai":      openaiProgram,
	"agent":       agentProgram,
	"list":        listProgram,
	"http":        httpProgram,
	"grpc":        grpcProgram,
	"grpc-origin": grpcOrigin,
	"h2spec":      h2specProgram,
	"websocket":   webSocketProgram,
}

func main() {
	if len(os.Args) < 2 || programs[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: clients PROGRAM ARGUMENT…")
		os.Exit(2)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if err := programs[os.Args[1]](ctx, os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
