//go:build linux && !amd64

package snapshot

import "os"

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
