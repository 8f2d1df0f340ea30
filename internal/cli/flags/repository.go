package flags

import (
	"cmp"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
	"github.com/cove-sandbox/cove/internal/git/folder"
	"github.com/cove-sandbox/cove/internal/pattern"
)

// IsOwnerRepo reports whether text names a repository of GitHub. A directory is
// written with a dot or a slash at its beginning.
func IsOwnerRepo(text string) bool { return ownerRepo.MatchString(text) }

var ownerRepo = pattern.New(`^[A-Za-z0-9][A-Za-z0-9-]*/[A-Za-z0-9_][A-Za-z0-9._-]*$`)

// RepositorySource is REPO for a server, which knows no current directory: OWNER/REPO and addresses as they are, of a
// directory the top of the repository that it is in. With plain, a directory that is in none is one, too.
func RepositorySource(s string, plain bool) (string, error) {
	switch {
	case strings.Contains(s, "://") || IsOwnerRepo(s):
		return s, nil
	case filepath.VolumeName(s) == "" && !strings.HasPrefix(s, "/") && !strings.HasPrefix(s, ".") &&
		scpAddress.MatchString(s):
		return s, nil
	}
	info, err := os.Stat(s)
	if err != nil || !info.IsDir() {
		return "", cove.Errorf(cove.InvalidArgument, "%.200q is neither OWNER/REPO, an address, nor a directory", s).
			WithHint("for example owner/repo, https://git.example/owner/repo.git, or .")
	}
	dir, err := RealDirectory(s)
	if err != nil {
		return "", err
	}
	if top := RepositoryTop(dir); top != "" || plain {
		return cmp.Or(top, dir), nil
	}
	return "", cove.Errorf(cove.InvalidArgument, "%s is not in a git repository", s).
		WithHint("copy it as it is: cove new %s --uncommitted; or attach it: cove new --empty --mount %s:/data", s, s)
}

// CheckNear refuses a directory of this machine for a server of another one, which would take it for its own.
func CheckNear(sess *session.Session, dir string) error {
	if !sess.Far() || !filepath.IsAbs(dir) {
		return nil
	}
	return cove.Errorf(cove.Unsupported, "%s is a directory of this machine, and the server is %s", dir,
		sess.ServerAddress()).WithHint("leave out --bind: a copy is sent")
}

// LocalFolder returns the directory of this machine that a repository's source is; empty for any other source.
func LocalFolder(source string) string {
	if filepath.IsAbs(source) {
		return source
	}
	u, err := url.Parse(source)
	if err != nil || u.Scheme != "file" {
		return ""
	}
	if dir := filepath.FromSlash(u.Path); folder.Name(dir) == source {
		return dir
	}
	dir := filepath.FromSlash(strings.TrimPrefix(u.Path, "/")) // C:/Users
	if filepath.VolumeName(dir) == "" || folder.Name(dir) != source {
		return ""
	}
	return dir
}

// LikeDirectory says what OWNER/REPO stands for when a directory here has the same path.
func LikeDirectory(source string) string {
	if info, err := os.Stat(source); !IsOwnerRepo(source) || err != nil || !info.IsDir() {
		return ""
	}
	return fmt.Sprintf("%s is a repository of GitHub; write ./%s for the directory", source, source)
}

// scpAddress is USER@HOST:PATH, as ssh writes it.
var scpAddress = pattern.New(`^([A-Za-z0-9._-]+@)?[A-Za-z0-9.-]+:[^:]+$`)

// RepositoryTop is the directory at or above dir that is a git repository, or
// nothing. No git is asked: it would read the repository's configuration.
func RepositoryTop(dir string) string {
	for {
		has := func(name string) bool { return Exists(filepath.Join(dir, name)) }
		if has(".git") || has("HEAD") && has("objects") && has("refs") {
			return dir
		}
		up := filepath.Dir(dir)
		if up == dir {
			return ""
		}
		dir = up
	}
}

// Exists reports whether there is a file, whatever it is.
func Exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// RealPath is a path for a server, which knows no current directory: without symbolic links.
func RealPath(path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err == nil {
		abs, err = filepath.EvalSymlinks(abs)
	}
	if err != nil {
		return "", cove.Errorf(cove.InvalidArgument, "%s: %w", path, ui.Cause(err))
	}
	return abs, nil
}

// RealDirectory is RealPath of a directory; empty is the current one.
func RealDirectory(dir string) (string, error) {
	dir = cmp.Or(dir, ".")
	abs, err := RealPath(dir)
	if err != nil {
		return "", err
	}
	if info, err := os.Stat(abs); err != nil || !info.IsDir() {
		return "", cove.Errorf(cove.InvalidArgument, "%s is not a directory", dir).
			WithHint("say which one to work on with --dir DIR")
	}
	return abs, nil
}

// GitIdentity returns the name and address for commits that git is configured for in dir, an absolute path; empty is
// outside of every repository.
func GitIdentity(getenv func(string) string, dir string) *api.GitIdentity {
	id := api.GitIdentity{
		Name:  cmp.Or(getenv("GIT_AUTHOR_NAME"), gitConfig(dir, "user.name")),
		Email: cmp.Or(getenv("GIT_AUTHOR_EMAIL"), gitConfig(dir, "user.email"), getenv("EMAIL")),
	}
	if id == (api.GitIdentity{}) || CheckText("", id.Name+id.Email) != nil {
		return nil
	}
	return &id
}

// gitConfig reads a value of the user's configuration and, in a directory of the user's, of the repository there.
// Without git or the key it is empty.
func gitConfig(dir, key string) string {
	if top := RepositoryTop(dir); top != "" && (folder.Waits(top) || folder.Waits(filepath.Join(top, ".git"))) {
		return "" // the server refuses it
	}
	c := exec.Command("git", "config", "--get", key)
	c.Dir = cmp.Or(dir, "/")
	out, err := c.Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// PlaceOf is a repository's host, and its path there.
func PlaceOf(remote string) (host, repository string, err error) {
	u, err := url.Parse(remote)
	if err != nil || u.Host == "" {
		return "", "", cove.Errorf(cove.InvalidArgument, "%.200q is no address that could take a pull request", remote)
	}
	return u.Host, strings.TrimSuffix(strings.Trim(u.Path, "/"), ".git"), nil
}
