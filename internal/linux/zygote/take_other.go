//go:build linux && !amd64

package zygote

import "os"

// Supported says that zygotes can be made on this architecture.
const Supported = false

// Take is not there on this architecture.
func Take(int, string, func(*Program)) (*os.File, error) {
	return nil, unsupported("on this architecture")
}

const (
	pageSize    = 4096
	topOfMemory = 1<<47 - pageSize
	imageFD     = 99
	firstFileFD = 100
)
