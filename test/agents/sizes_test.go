//go:build linux

package agents

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove/internal/agent"
)

// TestSizesOfPackages: what the agents' declarations say of the sizes of pinned versions is about true.
func TestSizesOfPackages(t *testing.T) {
	installed := os.Getenv("COVE_TEST_AGENTS")
	if installed == "" {
		t.Skip("needs the agents: COVE_TEST_AGENTS is a directory that they were installed in, as scripts/test.sh does")
	}
	for _, a := range agent.Builtin() {
		if a.Package.Npm == "" {
			continue
		}
		dir := filepath.Join(installed, a.Name, a.Package.Version)
		out, err := exec.CommandContext(t.Context(), "du", "-s", "--bytes", dir).Output() // hard links count once
		if err != nil {
			t.Errorf("du of %s: %v", dir, err)
			continue
		}
		size, _, _ := strings.Cut(string(out), "\t")
		is, err := strconv.ParseFloat(size, 64)
		if err != nil {
			t.Fatal(err)
		}
		const tolerance = 0.15 // a package is not the same on every architecture
		if said := float64(a.Package.Megabytes) * 1e6; said < (1-tolerance)*is || said > (1+tolerance)*is {
			t.Errorf("%s %s takes %.0f MB: package.megabytes is %d", a.Name, a.Package.Version, is/1e6, a.Package.Megabytes)
		}
	}
}
