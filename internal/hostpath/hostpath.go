// Package hostpath decides which host paths a user may show to a sandbox (invariant H5), and opens them so that what
// was judged is what is used. What Cove shows of its own state directory is no user's wish: Own names and opens that,
// without a judgement.
package hostpath

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cove-sandbox/cove"
)

// Rules judge the host paths that a user wants a sandbox to see. Zero rules know nothing of Cove's own.
type Rules struct {
	// Own are the directories and files of Cove's own: its home and run directory, as they are configured. No mount is
	// one of them, contains one or lies in one.
	Own []string
	// Files returns the files that Cove is configured with at the time; nil is none.
	Files func() (Files, error)
	// Guarded are files that programs of a checkout's owner execute or obey, as paths from the root of a checkout;
	// one that ends in "/**" is a directory, "**/" at its beginning says nothing here, and one part may have a "*". In
	// a writable mount they are read-only.
	Guarded []string
	// Named returns the paths of a checkout at top that the configuration of its owner's git names, which are
	// read-only as well; nil is none.
	Named func(ctx context.Context, git, top string) []string
}

// Files are files that Cove uses, wherever its owner has put them.
type Files struct {
	Keys   []string // no mount is one of them or contains one
	Tokens []string // keys too, each of which may be attached by itself: see Wish.Token
	Obeyed []string // no writable mount contains one: who writes them, says what Cove does
}

// forbiddenTrees are refused with everything below them.
var forbiddenTrees = []string{"/etc", "/var", "/root", "/proc", "/sys", "/dev", "/boot", "/run"}

// systemTrees hold the programs of the machine. They may be written to only by MountAllow.System.
var systemTrees = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt"}

// startNames are directories of a home from which a shell or a login starts programs, as if they were system trees.
var startNames = []string{"bin", ".local/bin", ".cargo/bin", "go/bin", ".config/systemd", ".local/share/systemd",
	".config/autostart", ".config/environment.d", ".config/fish"}

// ancestors are refused themselves: what is forbidden lies below them.
var ancestors = []string{"/", "/home", "/usr"}

// projectTrees are places below forbidden trees where people keep projects: root's home, and what a web server shows.
// With a home, what its hidden directories hold is not a project.
var projectTrees = []string{"/root", "/var/www", "/var/home"}

// forbiddenNames are refused as a component anywhere: they hold credentials.
var forbiddenNames = []string{".ssh", ".aws", ".gnupg", ".claude", ".kube", ".docker", ".azure", ".netrc",
	".git-credentials", ".password-store", ".cove"}

// forbiddenPairs are refused as two components in a row.
var forbiddenPairs = [][2]string{{".config", "gcloud"}, {".config", "gh"}, {".config", "cove"},
	{".local", "share/cove"}}

// sockets of container engines, wherever they are.
var engineSockets = []string{"docker.sock", "containerd.sock", "podman.sock", "crio.sock",
	"buildkitd.sock", "cove.sock", "cove-debug.sock"}

// CheckProject judges a directory of the machine's owner that is copied into a sandbox, or in which files are changed
// one by one: it is not shown to a sandbox, and may lie where no mount may. Errors: those of Rules.Check.
func CheckProject(path string) (string, error) { return check(path, judgeProject) }

func check(path string, judge func(resolved string) string) (string, error) {
	if !filepath.IsAbs(path) || strings.IndexByte(path, 0) >= 0 {
		return "", cove.Errorf(cove.InvalidArgument, "the host path %q must be absolute", path)
	}
	resolved, err := filepath.EvalSymlinks(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", cove.Errorf(cove.NotFound, "the host path %q does not exist", path)
	case err != nil:
		return "", cove.Errorf(cove.InvalidArgument, "the host path %q cannot be resolved: %s", path, reason(err))
	}
	if why := judge(resolved); why != "" {
		return "", refused(path, resolved, why)
	}
	fi, err := os.Lstat(resolved)
	if err != nil {
		return "", cove.Errorf(cove.NotFound, "the host path %q does not exist", path)
	}
	if !fi.IsDir() && !fi.Mode().IsRegular() {
		return "", refused(path, resolved, "it is neither a directory nor a regular file")
	}
	if why := judgeContents(resolved); why != "" {
		return "", refused(path, resolved, why)
	}
	return resolved, nil
}

func refused(path, resolved, why string) *cove.Error {
	if resolved != filepath.Clean(path) {
		why += " (it resolves to " + resolved + ")"
	}
	return cove.Errorf(cove.Forbidden, "the host path %q is refused: %s", path, why).
		WithHint(projectHint)
}

const projectHint = "use a project directory, such as one under /home or /tmp; see docs/mounts.md"

// Judge says why a resolved path is refused, or "". It is pure.
func Judge(resolved string) string {
	clean := filepath.Clean(resolved)
	for _, tree := range forbiddenTrees {
		if within(clean, tree) {
			return tree + " belongs to the host"
		}
	}
	if slices.Contains(ancestors, clean) {
		return "it contains directories that no sandbox may see"
	}
	return judgeNames(clean)
}

// judgeProject says why a resolved path cannot be a project, or "". It is pure.
func judgeProject(resolved string) string {
	clean := filepath.Clean(resolved)
	for _, tree := range projectTrees {
		below, ok := strings.CutPrefix(clean, tree+"/")
		if ok && !strings.HasPrefix(below, ".") && !slices.Contains(ancestors, clean) {
			return judgeNames(clean)
		}
	}
	return Judge(clean)
}

// judgeNames says which name in a path holds credentials, or is a container engine's socket; or "".
func judgeNames(clean string) string {
	parts := strings.Split(strings.Trim(clean, "/"), "/")
	for i, name := range parts {
		if slices.Contains(forbiddenNames, name) {
			return name + " holds credentials"
		}
		for _, pair := range forbiddenPairs {
			if name == pair[0] && within("/"+strings.Join(parts[i+1:], "/"), "/"+pair[1]) {
				return name + "/" + pair[1] + " holds credentials"
			}
		}
	}
	if slices.Contains(engineSockets, filepath.Base(clean)) {
		return "it is the socket of a container engine"
	}
	return ""
}

// HoldsCredentials says why a path is a place of credentials, or "". It is pure.
func HoldsCredentials(resolved string) string { return judgeNames(filepath.Clean(resolved)) }

// judgeContents refuses a directory in which a place of credentials is seen at once, or "". What is shown to a sandbox
// is searched besides (Rules.Open).
func judgeContents(dir string) string {
	candidates := slices.Concat(forbiddenNames, engineSockets)
	for _, pair := range forbiddenPairs {
		whole := strings.Split(pair[0]+"/"+pair[1], "/")
		for i := range whole {
			candidates = append(candidates, filepath.Join(whole[i:]...))
		}
	}
	for _, name := range candidates {
		inside := filepath.Join(dir, name)
		why := Judge(inside)
		if why == "" {
			continue // forbidden below another directory only
		}
		fi, err := os.Lstat(inside)
		if err != nil || fi.IsDir() && slices.Contains(engineSockets, name) {
			continue
		}
		if ofPerson(name, func(sign string) bool { return has(inside, sign) }) {
			return "it contains " + name + ": " + why
		}
	}
	return ""
}

// lastNames are the last components of forbiddenPairs.
var lastNames = []string{"gcloud", "gh", "cove"}

// signs tell a person's directory from a project's of the same name: the one holds a login, the other settings.
var signs = map[string][]string{
	".claude": {".credentials.json", "projects", "history.jsonl"},
	".docker": {"config.json", "contexts"},
	".aws":    {"credentials", "config", "sso", "cli"},
	".azure":  {"azureProfile.json", "accessTokens.json", "msal_token_cache.json", "msal_token_cache.bin"},
	".kube":   {"config", "cache"},
}

// ofPerson reports whether a directory with the name of one of credentials is a person's.
func ofPerson(name string, has func(sign string) bool) bool {
	return signs[name] == nil || slices.ContainsFunc(signs[name], has)
}

// under reports whether path lies in root, which may itself be a link.
func under(path, root string) bool {
	resolved, err := filepath.EvalSymlinks(root)
	return err == nil && filepath.IsAbs(root) && within(path, resolved)
}

// within reports whether path is tree or below it.
func within(path, tree string) bool {
	return path == tree || tree == "/" || strings.HasPrefix(path, tree+"/")
}

func isDir(path string) bool {
	fi, err := os.Lstat(path)
	return err == nil && fi.IsDir()
}

func has(dir, name string) bool {
	_, err := os.Lstat(filepath.Join(dir, name))
	return err == nil
}

func reason(err error) string {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return pe.Err.Error()
	}
	return err.Error()
}
