package client_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestBuildsElsewhere: programs of other systems talk to a server with this package and with package driver, and people
// with cove.
func TestBuildsElsewhere(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles for other systems; make test does")
	}
	packages := []string{".", "../driver", "../cmd/cove"}
	// No file is about an architecture there, so this one's is enough; a release is built with the same flags.
	for _, system := range []string{"darwin", "windows", "freebsd"} {
		t.Run(system, func(t *testing.T) { // one after the other: each uses all processors
			into := t.TempDir() + string(filepath.Separator)
			c := exec.Command("go", append([]string{"build", "-trimpath", "-o", into}, packages...)...)
			c.Env = append(os.Environ(), "GOOS="+system, "CGO_ENABLED=0")
			if out, err := c.CombinedOutput(); err != nil {
				t.Errorf("go build: %v: %s", err, out)
			}
		})
	}
}
