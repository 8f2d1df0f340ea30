//go:build linux

package outside

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"path"

	"github.com/cove-sandbox/cove/internal/sidecar"
)

// The container of a sidecar, for every caller that has an engine make one: its image is cove-guest alone. The streams
// that it holds take at most half of its memory.
const (
	Program = "/cove-guest" // in its image
	Flag    = "--sidecar"   // the program's argument
	Memory  = 192 << 20
	Heap    = "GOMEMLIMIT=128MiB" // in its environment
	Tasks   = 64
	Files   = 2 * sidecar.MaxStreams // descriptors: of its streams, and few others
)

// Capabilities let it lead the network, listen at the ports of names, and become a user without any.
var Capabilities = []string{"NET_ADMIN", "NET_BIND_SERVICE", "SETUID", "SETGID"}

// ImageName is the name of the image of sidecars with a program. One program has one name.
func ImageName(program []byte) string {
	sum := sha256.Sum256(program)
	return "cove/guest:" + hex.EncodeToString(sum[:16])
}

// ImageFiles is the archive of all files of that image: the program.
func ImageFiles(program []byte) []byte {
	var archive bytes.Buffer
	tw := tar.NewWriter(&archive) // which writes to memory, and so without errors
	tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: path.Base(Program), Mode: 0o755, Size: int64(len(program))})
	tw.Write(program)
	tw.Close()
	return archive.Bytes()
}
