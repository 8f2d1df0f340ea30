package enginetest

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// BuildGuest is the path of a cove-guest of this source: built now, or the one that was built before where there is no
// Go (COVE_TEST_BIN, see docs/testing.md). Every user may execute it.
func BuildGuest(t testing.TB) string {
	t.Helper()
	if dir := os.Getenv("COVE_TEST_BIN"); dir != "" {
		return filepath.Join(dir, "cove-guest")
	}
	dir := t.TempDir()
	for _, d := range []string{filepath.Dir(dir), dir} { // made for its owner only
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	bin := filepath.Join(dir, "cove-guest")
	cmd := exec.Command("go", "build", "-o", bin, "github.com/cove-sandbox/cove/cmd/cove-guest")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build cove-guest: %v\n%s", err, out)
	}
	return bin
}

// SharedGuest is BuildGuest's program in a directory, put there by the first of the processes that share the directory.
func SharedGuest(t testing.TB, dir string) string {
	t.Helper()
	path := filepath.Join(dir, "cove-guest")
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return path
	}
	program, err := os.ReadFile(BuildGuest(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, program, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}
