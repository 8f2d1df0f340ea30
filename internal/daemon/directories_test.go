//go:build linux

package daemon

import (
	"os"
	"testing"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/config"
)

// TestDirectoriesOfOthers: no server is made in a directory in which another user could put something.
func TestDirectoriesOfOthers(t *testing.T) {
	for name, change := range map[string]func(dir string) error{
		"another user's":     func(dir string) error { return os.Chown(dir, 61005, -1) },
		"open to all":        func(dir string) error { return os.Chmod(dir, 0o777) },
		"open, and sticky":   func(dir string) error { return os.Chmod(dir, 0o777|os.ModeSticky) },
		"open to its group":  func(dir string) error { return os.Chmod(dir, 0o770) },
		"readable by others": nil,
	} {
		if os.Geteuid() != 0 && name == "another user's" {
			continue // giving a directory away needs root
		}
		for i := range 2 {
			dirs := []string{t.TempDir(), t.TempDir()}
			if change != nil {
				if err := change(dirs[i]); err != nil {
					t.Fatal(err)
				}
			}
			err := directories(&config.Config{Home: dirs[0], RunDir: dirs[1]})
			if (err == nil) != (change == nil) || err != nil && cove.ErrorCode(err) != cove.Forbidden {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}
