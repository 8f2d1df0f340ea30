package client_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestBuildsElsewhere: programs of other systems talk to a server with this package, and with package driver.
func TestBuildsElsewhere(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles for other systems; make test does")
	}
	for _, system := range []string{"darwin/arm64", "windows/amd64", "freebsd/amd64"} {
		t.Run(system, func(t *testing.T) {
			t.Parallel()
			name, arch, _ := strings.Cut(system, "/")
			c := exec.Command("go", "build", ".", "../driver")
			c.Env = append(os.Environ(), "GOOS="+name, "GOARCH="+arch, "CGO_ENABLED=0")
			if out, err := c.CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}
