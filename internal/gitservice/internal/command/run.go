package command

import (
	"context"
	"io"
)

// Runner runs commands that have been judged, on one sandbox's repository. Methods may be called concurrently.
type Runner interface {
	// Context returns what commands are judged in, without their directory.
	Context(ctx context.Context) (Context, error)
	// Run runs one and returns git's exit code. Its context ends it. Errors, for what did not come to git: Forbidden
	// for objects that the sandbox may not see, Unavailable.
	Run(ctx context.Context, r Run) (exit int, err error)
}

// Run is a run of a command.
type Run struct {
	Command
	Settings [][2]string // before the command's own, which win; harmless ones
	Env      []string    // of Environment
	Stdin    []byte
	Stdout   io.Writer // written to by one goroutine at a time
	Stderr   io.Writer
	// Edit has a text edited; nil without an editor. Its error is the editor's.
	Edit func(ctx context.Context, name string, text []byte) ([]byte, error)
}
