package runtime

import (
	"time"

	"github.com/cove-sandbox/cove"
)

// The Go toolchain compiles before it runs, so it gets more of everything.
var golang = Runtime{
	Name: "go", Aliases: []string{"golang"}, File: "main.go",
	Command: []string{"go", "run", "main.go"}, Probe: []string{"go", "version"},
	Env: []string{"GOFLAGS=-buildvcs=false", "GOTOOLCHAIN=local", "GOPROXY=off", "GO111MODULE=off", "CGO_ENABLED=0",
		"GOTELEMETRY=off"},
	Package: "golang", Image: "golang:1.26",
	Limits: cove.Limits{Memory: 1 << 30, PIDs: 200, Disk: 512 << 20, Inodes: 50_000, CPUs: 2, Timeout: 60 * time.Second},
}
