package hostgit

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cove-sandbox/cove/internal/pattern"
)

// namingSettings matches the settings whose values are commands, or paths of what git executes or obeys.
var namingSettings = pattern.New(`(?s)^(core\.(hookspath|fsmonitor|sshcommand|editor|pager|askpass|gitproxy)|` +
	`include(if\..*)?\.path|(alias|filter|diff|merge|hook|gpg|pager|credential|difftool|mergetool|sequence|` +
	`interactive|trailer|remote)\..*)$`)

// namedTime bounds the reading of a configuration, one of whose files may be a pipe.
const namedTime = 10 * time.Second

// Named returns the paths of a checkout at top that the configuration of its owner's git names: hooks, more
// configuration, and programs, as filters and file system monitors are. A directory ends in "/". git is the checkout's
// git directory, whose configuration is read, and not obeyed, beside that of the account that runs Cove. Where git does
// not read that, nothing of it runs, and nothing is named.
func Named(ctx context.Context, git, top string) []string {
	g, err := Find()
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, namedTime)
	defer cancel()
	home, err := os.UserHomeDir()
	if err != nil {
		home = "/nonexistent"
	}
	more, err := os.UserConfigDir()
	if err != nil {
		more = home
	}
	out, err := g.Output(ctx, Run{Dir: git, Command: []string{"config"},
		Flags: []string{"--list", "--null", "--show-origin"},
		// The person's own files, of which git reads two, are not read elsewhere.
		Env: []string{"GIT_CONFIG_GLOBAL=" + filepath.Join(home, ".gitconfig"), "GIT_CONFIG_NOSYSTEM=0",
			"GIT_CONFIG_SYSTEM=" + filepath.Join(more, "git/config")}})
	if err != nil {
		return nil
	}
	n := naming{top: top, home: home}
	n.links(filepath.Join(git, "hooks"))
	fields := strings.Split(string(out), "\x00") // origin, and key and value, of each
	for ; len(fields) >= 2; fields = fields[2:] {
		key, value, _ := strings.Cut(fields[1], "\n")
		file, isFile := strings.CutPrefix(fields[0], "file:")
		if !isFile { // Cove's own settings
			continue
		}
		n.add(file, "")
		switch {
		case !namingSettings.MatchString(key):
		case key == "core.hookspath":
			n.links(n.absolute(top, value))
			n.add(n.absolute(top, value), "/")
		case strings.HasPrefix(key, "include"):
			n.add(n.absolute(filepath.Dir(file), value), "")
		default:
			for _, word := range strings.FieldsFunc(value, func(r rune) bool { return strings.ContainsRune(between, r) }) {
				n.add(n.absolute(top, word), "")
			}
		}
	}
	return n.found
}

// between are the characters that a shell reads between words.
const between = " \t\n\"'`;|&()<>=!"

// naming collects paths below top.
type naming struct {
	top, home string
	found     []string
}

func (n *naming) absolute(dir, name string) string {
	if below, ok := strings.CutPrefix(name, "~/"); ok {
		return filepath.Join(n.home, below)
	}
	if filepath.IsAbs(name) {
		return filepath.Clean(name)
	}
	return filepath.Join(dir, name)
}

// add adds a path, and what it leads to, where that is in the checkout.
func (n *naming) add(name, end string) {
	for _, name := range []string{name, resolved(name)} {
		below, err := filepath.Rel(n.top, name)
		if err == nil && filepath.IsLocal(below) && below != "." && !slices.Contains(n.found, below+end) &&
			below != ".git" && !strings.HasPrefix(below, ".git/") {
			n.found = append(n.found, below+end)
		}
	}
}

// links adds what the symbolic links in a directory of hooks lead to.
func (n *naming) links(dir string) {
	entries, _ := os.ReadDir(dir) // if missing, there are none
	for _, e := range entries {
		if target, err := os.Readlink(filepath.Join(dir, e.Name())); err == nil { // which may not be there yet
			n.add(n.absolute(dir, target), "")
		}
	}
}

func resolved(name string) string {
	if target, err := filepath.EvalSymlinks(name); err == nil {
		return target
	}
	return name
}
