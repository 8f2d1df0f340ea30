package sandbox

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/workspace"
)

// TestMountPoints: the places of mounts are made below the workspace and the home, and nowhere else, whatever the
// sandbox has put there.
func TestMountPoints(t *testing.T) {
	dir := t.TempDir()
	ws := workspace.Workspace{Directory: filepath.Join(dir, "checkout"), Home: filepath.Join(dir, "home")}
	file, outside := filepath.Join(dir, "file"), filepath.Join(dir, "outside")
	for _, d := range []string{ws.Directory, ws.Home, outside} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(ws.Home, "escape")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../checkout", filepath.Join(ws.Home, "up")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(ws.Home, "pipe"), 0o644); err != nil {
		t.Fatal(err)
	}
	for target, c := range map[string]struct {
		source string
		made   string // below dir
		fails  bool
	}{
		"/home/cove/.claude/skills": {outside, "home/.claude/skills/", false},
		"/home/cove/.config/a/b":    {file, "home/.config/a/b", false},
		"/workspace/vendor":         {outside, "checkout/vendor/", false},
		"/workspace/deep/er":        {file, "checkout/deep/er", false},
		"/data":                     {outside, "", false},
		"/home/cover/x":             {outside, "", false},
		"/home/cove/escape/x":       {outside, "", true},
		"/home/cove/up/x":           {outside, "", true},
		"/home/cove/pipe":           {file, "home/pipe", false},
		"/home/cove/pipe/x":         {file, "", true},
		"/home/cove/missing":        {filepath.Join(dir, "nothing"), "", false},
	} {
		err := makeMountPoints(ws, "/home/cove", []cove.Mount{{Source: c.source, Target: target}})
		if (err != nil) != c.fails || c.fails && cove.ErrorCode(err) != cove.InvalidArgument {
			t.Errorf("%s: %v", target, err)
		}
		if c.made == "" {
			continue
		}
		if info, err := os.Lstat(filepath.Join(dir, c.made)); err != nil || info.IsDir() != (c.source == outside) {
			t.Errorf("%s: %v", target, err)
		}
	}
	if left, err := os.ReadDir(outside); err != nil || len(left) != 0 {
		t.Errorf("made outside: %v, %v", left, err)
	}
	nested := []cove.Mount{{Source: outside, Target: "/workspace/a"}, {Source: outside, Target: "/workspace/a/b"}}
	if err := makeMountPoints(ws, "/home/cove", nested); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(filepath.Join(ws.Directory, "a/b")); err == nil {
		t.Error("the place of a mount in another is made in the workspace")
	}
	ws.Bound = true
	if err := makeMountPoints(ws, "/home/cove", []cove.Mount{{Source: outside, Target: "/workspace/mine"}}); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(filepath.Join(ws.Directory, "mine")); err == nil {
		t.Error("a directory is made in a person's own")
	}
}
