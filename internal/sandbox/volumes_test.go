package sandbox

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/workspace"
)

// TestVolumesLast: a volume is a directory of its own where nothing else of the sandbox's disk is at its place.
func TestVolumesLast(t *testing.T) {
	image := t.TempDir()
	if err := os.MkdirAll(filepath.Join(image, "var/lib/data"), 0o755); err != nil {
		t.Fatal(err)
	}
	root := engine.Rootfs{Kind: engine.RootfsDir, Dir: image}
	of := cove.User{UID: 70, GID: 70, Name: "postgres", Home: cove.Home, Shell: "/bin/sh"}
	plain, layered, bound := workspace.Workspace{}, workspace.Workspace{Layer: "/l"}, workspace.Workspace{Bound: true}
	for _, c := range []struct {
		place string
		ws    workspace.Workspace
		user  cove.User
		lasts bool
	}{
		{"/data", plain, cove.AgentUser, false}, {"/var/lib/data", plain, cove.AgentUser, false},
		{"/workspace/m", plain, cove.AgentUser, true}, {"/workspace/m", bound, cove.AgentUser, false},
		{"/workspaces/m", plain, cove.AgentUser, false}, {"/home/cove/.cache", bound, of, true},
		{"/root/.cache", layered, cove.RootUser, true}, {"/data", layered, cove.RootUser, true},
		{"/tmp/x", layered, cove.RootUser, false}, {"/run", layered, of, false},
		{"/var/lib/data", layered, of, true}, {"/data", layered, of, false}, {"/usr/data", layered, of, true},
	} {
		if got := lasts(c.place, c.ws, c.user, root); got != c.lasts {
			t.Errorf("%s of %s in %+v: %v", c.place, c.user.Name, c.ws, got)
		}
	}
}

func TestCheckVolumes(t *testing.T) {
	for place, want := range map[string]string{"/data": "", "/workspace/m": "", "/workspace": "would hide",
		"/home": "would hide", "/proc/x": "/proc belongs", "/run/cove/x": "/run/cove belongs",
		"/mounted": "a mount and a volume", "data": "no place"} {
		err := checkVolumes([]cove.Volume{{Target: place}}, []cove.Mount{{Source: "/x", Target: "/mounted"}})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", place, err)
		}
	}
}
