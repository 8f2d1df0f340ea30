// Package source owns the kinds of image strings that name a place on the disk: "tar:PATH" and the like.
package source

import (
	"path/filepath"
	"strings"
)

// Kind is the scheme of an image string.
type Kind string

// The kinds of images on the disk.
const (
	Dir    Kind = "dir"
	Tar    Kind = "tar"
	Layout Kind = "oci"            // PATH[:TAG]
	Docker Kind = "docker-archive" // PATH[:TAG]
)

// OnDisk reports whether a path follows the scheme.
func (k Kind) OnDisk() bool { return k == Dir || k == Tar || k == Layout || k == Docker }

// Absolute makes the path in an image string absolute, for a client with another working directory than the server's.
func Absolute(s, workDir string) string {
	scheme, rest, found := strings.Cut(s, ":")
	if !found || rest == "" || filepath.IsAbs(rest) || !Kind(scheme).OnDisk() {
		return s
	}
	return scheme + ":" + filepath.Join(workDir, rest)
}
