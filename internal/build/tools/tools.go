// Package tools knows where compilers and package managers have their caches.
package tools

import (
	"fmt"
	"path"
	"strings"

	"github.com/cove-sandbox/cove/internal/image/dockerfile"
	"github.com/cove-sandbox/cove/internal/image/layer"
)

// known are tools whose caches hold only what they can make or get again, and what no program of an image needs when it
// runs: the variable that names the directory, and where it is without, below the user's home.
var known = []struct{ variable, below string }{
	{"GOCACHE", ".cache/go-build"},
	{"npm_config_cache", ".npm"},
	{"YARN_CACHE_FOLDER", ".cache/yarn"},
	{"PIP_CACHE_DIR", ".cache/pip"},
	{"COMPOSER_CACHE_DIR", ".cache/composer"},
	{"CCACHE_DIR", ".cache/ccache"},
	{"SCCACHE_DIR", ".cache/sccache"},
}

// Caches are mounts for the caches of tools, beside those that a command has itself. Commands share them with those of
// the same project over the same image: what one has written the others trust, and a compiler does not notice another
// version of what the image has installed. base is the image's digest. Users other than root have none, as the
// directories above would not belong to them. kept are places that have no mounts, relative to the root.
func Caches(project, base string, user layer.User, r dockerfile.Run, kept []string) (all []dockerfile.Mount) {
	if user.Owner != (layer.Owner{}) {
		return nil
	}
	vars := map[string]string{}
	for _, kv := range r.Env {
		name, value, _ := strings.Cut(kv, "=")
		vars[name] = value
	}
	for _, tool := range known {
		at := cacheOf(tool.variable, tool.below, user.Home, vars, kept)
		if at == "" || overlaps(at, r.Mounts) || overlaps(at, all) {
			continue
		}
		all = append(all, dockerfile.Mount{Kind: dockerfile.MountCache, From: dockerfile.Source{Stage: -1}, Target: at,
			ID: dockerfile.OwnCache(fmt.Sprintf("%q %s %s", project, base, at)), Mode: 0o755})
	}
	return all
}

// cacheOf returns where a tool has its cache; empty: a variable says that it has none, or at a place of no mount.
func cacheOf(variable, below, home string, vars map[string]string, kept []string) string {
	at, ok := vars[variable]
	if !ok {
		if vars["HOME"] != "" {
			home = vars["HOME"]
		}
		at = path.Join(home, below)
		if in, ok := strings.CutPrefix(below, ".cache/"); ok && path.IsAbs(vars["XDG_CACHE_HOME"]) {
			at = path.Join(vars["XDG_CACHE_HOME"], in)
		}
	}
	at = path.Clean(at)
	if !path.IsAbs(at) || at == "/" || at == home {
		return ""
	}
	for _, place := range kept {
		if at == "/"+place || strings.HasPrefix(at, "/"+place+"/") {
			return ""
		}
	}
	return at
}

// overlaps reports whether one of the mounts is at a place, in it or above it.
func overlaps(at string, mounts []dockerfile.Mount) bool {
	for _, m := range mounts {
		own := path.Clean(m.Target)
		if own == at || strings.HasPrefix(own, at+"/") || strings.HasPrefix(at, strings.TrimSuffix(own, "/")+"/") {
			return true
		}
	}
	return false
}
