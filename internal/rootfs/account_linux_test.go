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
			u, err := AccountOf(Stack{tree}, "ada")
			if c.found && (err != nil || u.UID != 9) || !c.found && cove.ErrorCode(err) != cove.NotFound {
				t.Errorf("%+v, %v", u, err)
			}
			if u, err := AccountOf(Stack{tree}, "9:4"); err != nil || u.UID != 9 || u.GID != 4 || (u.Name == "ada") != c.found {
				t.Errorf("by its id: %+v, %v", u, err)
			}
		})
	}
	if _, err := AccountOf(Stack{t.TempDir() + "/gone"}, "9"); cove.ErrorCode(err) != cove.ImageMissing {
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
		if got := HasDir(Stack{tree}, place); got != want {
			t.Errorf("%s: %v", place, got)
		}
	}
}

// TestNames: the user of programs and its group have names, after all that an image has, and whatever else is at the
// places of the files stays.
func TestNames(t *testing.T) {
	const line = "cove:x:1000:1000::/home/cove:/bin/sh\n"
	user := cove.User{UID: 1000, GID: 1000, Name: "cove", Home: "/home/cove", Shell: "/bin/sh"}
	regular := func(text string) func(string) error {
		return func(passwd string) error { return os.WriteFile(passwd, []byte(text), 0o644) }
	}
	for name, c := range map[string]struct {
		make func(passwd string) error
		want string // empty: it stays
	}{
		"another":       {regular("root:x:0:0::/:/bin/sh"), "root:x:0:0::/:/bin/sh\n" + line},
		"its id":        {regular("dev:x:1000:7::/dev:/bin/zsh\n"), ""},
		"no entry":      {regular("cove:x:1000\nx\n"), "cove:x:1000\nx\n" + line},
		"empty":         {regular(""), line},
		"nothing":       {func(string) error { return nil }, "root:x:0:0:root:/root:/bin/sh\n" + line},
		"large":         {regular(strings.Repeat("x", maxNamed+1)), ""},
		"a pipe":        {func(passwd string) error { return unix.Mkfifo(passwd, 0o644) }, ""},
		"a directory":   {func(passwd string) error { return os.Mkdir(passwd, 0o755) }, ""},
		"a link around": {func(passwd string) error { return os.Symlink("passwd", passwd) }, ""},
	} {
		tree := t.TempDir()
		if err := os.Mkdir(filepath.Join(tree, "etc"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := c.make(filepath.Join(tree, "etc/passwd")); err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for _, f := range Names(Stack{tree}, user) {
			got[f.Name] = f.Data
		}
		if got["/etc/passwd"] != c.want || got["/etc/group"] != "root:x:0:\ncove:x:1000:\n" {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	if all := Names(Stack{t.TempDir()}, cove.User{UID: 7, GID: 0, Name: "7", Home: "/home/cove"}); len(all) != 2 ||
		!strings.HasSuffix(all[0].Data, "7:x:7:0::/home/cove:/bin/sh\n") || all[1].Name != "/etc/group" {
		t.Errorf("in a tree without /etc: %+v", all)
	}
}
