package folder

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cove-sandbox/cove/internal/hostgit"
	"github.com/cove-sandbox/cove/internal/pattern"
)

// required matches the setting by which git stores no file that a filter has not made (gitattributes): large files
// (LFS) and encrypted ones have it. Without it, git stores the file as it is where the filter cannot run.
var required = pattern.New(`(?s)^filter\.(.*)\.required$`)

// habits returns what of a person's configuration decides how the person's git would store a file: the settings of line
// ends, and the names of required filters. Git reads the configuration as data; no program of it is started.
func habits(ctx context.Context, by *hostgit.Git, git string) (settings []hostgit.Setting, filters []string,
	err error) {
	if git == "" {
		return nil, nil, nil
	}
	r := hostgit.Run{Dir: git, Command: []string{"config"}, Flags: []string{"--list", "--null"}}
	if home := os.Getenv("HOME"); home != "" {
		r.Env = []string{"GIT_CONFIG_GLOBAL=" + filepath.Join(home, ".gitconfig")}
	}
	out, err := by.Output(ctx, r)
	for setting := range strings.SplitSeq(string(out), "\x00") {
		key, value, valued := strings.Cut(setting, "\n")
		m := required.FindStringSubmatch(key)
		switch {
		case m != nil:
			filters = slices.DeleteFunc(filters, func(name string) bool { return name == m[1] })
			if !valued || slices.Contains([]string{"true", "yes", "on", "1"}, strings.ToLower(value)) {
				filters = append(filters, m[1])
			}
		case key == "core.autocrlf" || key == "core.eol":
			if !valued {
				value = "true"
			}
			settings = append(settings, hostgit.Setting{Key: key, Value: value})
		}
	}
	return settings, filters, err
}

// isPointer reports whether a file is what git stores of a large file (LFS): there is nothing to filter.
func isPointer(file string) bool {
	f, err := os.Open(file)
	if err != nil {
		return false
	}
	defer f.Close()
	const begin = "version https://git-lfs.github.com/spec/"
	head, err := io.ReadAll(io.LimitReader(f, 1025)) // a pointer has 1024 bytes at most
	return err == nil && len(head) <= 1024 && bytes.HasPrefix(head, []byte(begin))
}

// few names some of many files.
func few(names []string) string {
	const most = 3
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}
