package rootfs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
)

// TestAccountOf: the accounts are those of the tree, wherever its links lead, and none where there is no file of them.
func TestAccountOf(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "passwd")
	if err := os.WriteFile(outside, []byte("ada:x:7:8::/home/ada:/bin/sh\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		make  func(tree, passwd string) error
		found bool
	}{
		"a file":  {func(_, passwd string) error { return os.WriteFile(passwd, []byte(accounts), 0o600) }, true},
		"nothing": {func(string, string) error { return nil }, false},
		"a link inside": {func(tree, passwd string) error {
			if err := os.WriteFile(filepath.Join(tree, "store"), []byte(accounts), 0o644); err != nil {
				return err
			}
			return os.Symlink("/../../store", passwd)
		}, true},
		"a link outside": {func(_, passwd string) error { return os.Symlink(outside, passwd) }, false},
		"a pipe":         {func(_, passwd string) error { return unix.Mkfifo(passwd, 0o644) }, false},
		"a directory":    {func(_, passwd string) error { return os.Mkdir(passwd, 0o755) }, false},
		"too large": {func(_, passwd string) error {
			return os.WriteFile(passwd, []byte(accounts+strings.Repeat("x", maxAccounts)), 0o600)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			tree := t.TempDir()
			if err := os.Mkdir(filepath.Join(tree, "etc"), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := c.make(tree, filepath.Join(tree, "etc/passwd")); err != nil {
				t.Fatal(err)
			}
			u, err := AccountOf(tree, "ada")
			if c.found && (err != nil || u.UID != 9) || !c.found && cove.ErrorCode(err) != cove.NotFound {
				t.Errorf("%+v, %v", u, err)
			}
			if u, err := AccountOf(tree, "9:4"); err != nil || u.UID != 9 || u.GID != 4 || (u.Name == "ada") != c.found {
				t.Errorf("by its id: %+v, %v", u, err)
			}
		})
	}
	if _, err := AccountOf(t.TempDir()+"/gone", "9"); cove.ErrorCode(err) != cove.ImageMissing {
		t.Errorf("no tree: %v", err)
	}
}

const accounts = "ada:x:9:9::/home/ada:/bin/sh\n"

func TestHasDir(t *testing.T) {
	tree := t.TempDir()
	if err := os.MkdirAll(filepath.Join(tree, "home/ada"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{"in": "/home/ada", "out": "/usr", "file": "/home/ada/file"} {
		if err := os.Symlink(target, filepath.Join(tree, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(tree, "home/ada/file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for place, want := range map[string]bool{"/home/ada": true, "/": true, "/in": true, "/out": false, "/file": false,
		"/home/bob": false, "/../home": true} {
		if got := HasDir(tree, place); got != want {
			t.Errorf("%s: %v", place, got)
		}
	}
}
