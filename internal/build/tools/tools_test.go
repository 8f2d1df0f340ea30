package tools

import (
	"slices"
	"testing"

	"github.com/cove-sandbox/cove/internal/image/dockerfile"
	"github.com/cove-sandbox/cove/internal/image/layer"
)

var kept = []string{"etc", "proc", "dev"}

// TestCaches: caches are where the variables of a command say, at none of its own mounts, and for root alone.
func TestCaches(t *testing.T) {
	root := layer.User{Home: "/root"}
	at := func(user layer.User, r dockerfile.Run) (all []string) {
		for _, m := range Caches("/project", "sha256:1", user, r, kept) {
			if m.Kind != dockerfile.MountCache || m.ReadOnly || !m.From.Context() || m.Mode != 0o755 {
				t.Errorf("%+v", m)
			}
			all = append(all, m.Target)
		}
		return all
	}
	usual := at(root, dockerfile.Run{})
	for _, want := range []string{"/root/.cache/go-build", "/root/.npm", "/root/.cache/pip"} {
		if !slices.Contains(usual, want) {
			t.Errorf("no cache at %s: %q", want, usual)
		}
	}
	for _, tc := range []struct {
		run           dockerfile.Run
		has, has2, no string
	}{
		{dockerfile.Run{Env: []string{"GOCACHE=/go/cache", "HOME=/h"}}, "/go/cache", "/h/.npm", "/root/.cache/go-build"},
		{dockerfile.Run{Env: []string{"XDG_CACHE_HOME=/c"}}, "/c/go-build", "/root/.npm", "/root/.cache/pip"},
		{dockerfile.Run{Env: []string{"GOCACHE=off", "PIP_CACHE_DIR=/"}}, "/root/.npm", "/root/.npm", "/root/.cache/pip"},
		{dockerfile.Run{Env: []string{"GOCACHE=/proc/1", "PIP_CACHE_DIR=/dev"}}, "/root/.npm", "/root/.npm", "/proc/1"},
		{dockerfile.Run{Env: []string{"GOCACHE=/one", "PIP_CACHE_DIR=/one/two"}}, "/one", "/root/.npm", "/one/two"},
		{dockerfile.Run{Mounts: []dockerfile.Mount{{Target: "/root/.npm"}}}, "/root/.cache/pip", "/root/.cache/pip",
			"/root/.npm"},
		{dockerfile.Run{Mounts: []dockerfile.Mount{{Target: "/root/.cache"}}}, "/root/.npm", "/root/.npm",
			"/root/.cache/pip"},
		{dockerfile.Run{Mounts: []dockerfile.Mount{{Target: "/root/.npm/_logs"}}}, "/root/.cache/pip", "/root/.cache/pip",
			"/root/.npm"},
	} {
		got := at(root, tc.run)
		if !slices.Contains(got, tc.has) || !slices.Contains(got, tc.has2) || slices.Contains(got, tc.no) {
			t.Errorf("%+v: %q", tc.run, got)
		}
	}
	if got := at(layer.User{Owner: layer.Owner{UID: 33, GID: 33}, Home: "/home/app"}, dockerfile.Run{}); len(got) > 0 {
		t.Errorf("of another user: %q", got)
	}
	id := func(project, base string) string {
		return Caches(project, base, root, dockerfile.Run{}, kept)[0].ID
	}
	if id("/a", "1") == id("/b", "1") || id("/a", "1") == id("/a", "2") || id("/a", "1") != id("/a", "1") {
		t.Error("another project or image has the same cache")
	}
}

// TestOwnCaches: no Dockerfile can name the caches of tools, which another project's build would then write to.
func TestOwnCaches(t *testing.T) {
	id := dockerfile.OwnCache("x")
	for own, id := range map[bool]string{true: id, false: "x"} {
		file, err := dockerfile.Parse([]byte("FROM scratch\nRUN --mount=type=cache,target=/c,id="+id+" true\n"),
			dockerfile.Options{})
		if err == nil {
			_, _, _, err = file.Steps(file.Target(), dockerfile.Config{}, nil)
		}
		if (err != nil) != own {
			t.Errorf("the id %q: %v", id, err)
		}
	}
}
