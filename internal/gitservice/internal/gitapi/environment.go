package gitapi

import (
	"slices"
	"strconv"
	"strings"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/gitservice/internal/command"
	"github.com/cove-sandbox/cove/internal/gitservice/internal/wire"
)

// maxValue is how many bytes a variable may have.
const maxValue = 1024

// variables lists the variables of a sandbox that git may see: they set the
// author, the date and the width of the screen, and nothing else.
var variables = []string{
	"GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_AUTHOR_DATE", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL",
	"GIT_COMMITTER_DATE",
	"GIT_MERGE_AUTOEDIT", "COLUMNS", "TZ",
}

// environment returns the sandbox's variables that git is given, without all others.
func environment(asked wire.Request) ([]string, error) {
	var env []string
	for _, name := range variables {
		v, ok := asked.Env[name]
		if !ok {
			continue
		}
		if len(v) > maxValue || strings.ContainsAny(v, "\x00\n\r") {
			return nil, cove.Errorf(cove.InvalidArgument, "the variable %s cannot have this value", name)
		}
		if n, err := strconv.Atoi(v); name == "COLUMNS" && (err != nil || n < 1 || n > 10_000) || name == "TZ" && !zone(v) {
			continue
		}
		env = append(env, name+"="+v)
	}
	if asked.Paged {
		env = append(env, "GIT_PAGER_IN_USE=true")
	}
	return env, nil
}

// zone reports whether a time zone is a name or a difference, and no path.
func zone(v string) bool {
	return v != "" && v[0] != '/' && v[0] != ':' && !strings.Contains(v, "..") &&
		strings.Trim(v, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+-_/:,.<>") == ""
}

// settings returns the settings of the request, as far as they are harmless; the rest is for other programs, or nothing
// that a sandbox may choose. Git itself sees no terminal: where there is one, what it would do by itself is said.
func settings(asked wire.Request) [][2]string {
	var all [][2]string
	if asked.Color {
		all = append(all, [2]string{"color.ui", "always"})
	}
	for _, kv := range asked.Config {
		if !command.Harmless(kv[0], kv[1]) {
			continue
		}
		if asked.Color && strings.HasPrefix(strings.ToLower(kv[0]), "color.") &&
			slices.Contains([]string{"auto", "true", "yes", "on", "1"}, strings.ToLower(kv[1])) {
			kv[1] = "always"
		}
		all = append(all, kv)
	}
	return all
}

// withProgress asks commands that go to the remote to say how far they are.
func withProgress(c command.Command) []string {
	if c.Effect != command.Remote || c.Verb == "ls-remote" || slices.Contains(c.Args, "--quiet") ||
		slices.Contains(c.Args, "--no-progress") {
		return c.Args
	}
	args := slices.Clone(c.Args)
	i := slices.Index(args, c.Verb)
	return slices.Insert(args, i+1, "--progress")
}
