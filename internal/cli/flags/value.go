package flags

import (
	"cmp"
	"encoding/base64"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/pflag"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
)

// inFlag names the flag in front of what is wrong with it.
func inFlag(flag string, err error) error {
	e, ok := errors.AsType[*cove.Error](err)
	if !ok {
		return err
	}
	c := *e
	c.Message = flag + " " + e.Message
	return &c
}

// Environment reads NAME=VALUE, and NAME alone as this process's own value, which must not be empty.
func Environment(pairs []string, getenv func(string) string) (map[string]string, error) {
	env := map[string]string{}
	for _, p := range pairs {
		name, value, ok := strings.Cut(p, "=")
		if name == "" {
			return nil, cove.Errorf(cove.InvalidArgument, "--env %s has no name", p).
				WithHint("write NAME=VALUE, or NAME for this shell's value")
		}
		if !ok {
			if value = getenv(name); value == "" {
				return nil, cove.Errorf(cove.InvalidArgument, "--env %s: this shell has no variable of that name", name).
					WithHint("export it, write %s=VALUE, or leave it out", name)
			}
		}
		env[name] = value
	}
	return env, nil
}

// parseMount reads SRC:DST[:ro|:rw]; SRC may be relative.
func parseMount(s string) (api.Mount, error) {
	text, readOnly := strings.CutSuffix(s, ":ro")
	text = strings.TrimSuffix(text, ":rw")
	source, target, ok := strings.Cut(text, ":")
	if !ok || source == "" || !strings.HasPrefix(target, "/") || strings.Contains(target, ":") {
		return api.Mount{}, cove.Errorf(cove.InvalidArgument,
			"--mount %s is not SOURCE:TARGET[:ro] with an absolute TARGET", s).
			WithHint("for example --mount ./data:/data:ro")
	}
	abs, err := session.ServerPath(source)
	if err != nil {
		return api.Mount{}, cove.Errorf(cove.InvalidArgument, "--mount %s: %w", s, err)
	}
	return api.Mount{Source: abs, Target: target, ReadOnly: readOnly}, nil
}

// CheckText refuses what JSON would replace silently.
func CheckText(name, text string) error {
	if utf8.ValidString(text) {
		return nil
	}
	return cove.Errorf(cove.InvalidArgument, "%s is not UTF-8 text", name).
		WithHint("give compiled programs and data with --file, --mount or on standard input")
}

// MaxFiles is the API's limit on the size of all files together, in bytes. A file beyond it is not read.
const MaxFiles = 16 << 20

// File is a file as it is sent: text as it is, and anything else encoded.
func File(path string, data []byte, mode fs.FileMode) api.File {
	f := api.File{Path: path, Content: string(data), Mode: uint32(mode.Perm())}
	if !utf8.Valid(data) {
		f.Content, f.Encoding = base64.StdEncoding.EncodeToString(data), "base64"
	}
	return f
}

// ReadFile reads a regular file of at most limit bytes.
func ReadFile(path string, limit int) ([]byte, fs.FileMode, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, fileError(path, err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, 0, fileError(path, err)
	}
	if info.IsDir() {
		return nil, 0, cove.Errorf(cove.InvalidArgument, "%s is a directory", path).
			WithHint("attach it with --mount %s:/data:ro", path)
	}
	data, err := ReadLimited(f, path, limit)
	return data, info.Mode(), err
}

// ReadFiles reads files that belong to a request: a relative path as it is, any other by its last name.
func ReadFiles(paths []string) ([]api.File, error) {
	var files []api.File
	total := 0
	for _, p := range paths {
		data, mode, err := ReadFile(p, MaxFiles-total)
		if err != nil {
			return nil, err
		}
		total += len(data)
		name := filepath.Clean(p)
		if !filepath.IsLocal(name) {
			name = filepath.Base(name)
		}
		files = append(files, File(filepath.ToSlash(name), data, mode))
	}
	return files, nil
}

// ReadLimited reads at most limit bytes of what is called name.
func ReadLimited(r io.Reader, name string, limit int) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, int64(limit)+1))
	if err != nil {
		return nil, fileError(name, err)
	}
	if len(data) > limit {
		return nil, cove.Errorf(cove.TooLarge, "%s is larger than %s", name, ui.SizeText(int64(limit))).
			WithHint("attach large files with --mount")
	}
	return data, nil
}

func fileError(path string, err error) error {
	return cove.Errorf(cove.InvalidArgument, "cannot read %s: %w", path, ui.Cause(err))
}

// AbsoluteImage makes the path in an image string absolute: a server has another working directory.
func AbsoluteImage(s string) (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", cove.Errorf(cove.InvalidArgument, "this directory cannot be read: %w", err)
	}
	return session.AbsoluteImage(s, dir), nil
}

// List holds the flags of every command that lists records.
type List struct {
	since string
	Limit int
}

// Add defines the flags; begun is what happened since --since.
func (l *List) Add(sess *session.Session, f *pflag.FlagSet, begun string) {
	f.StringVar(&l.since, "since", "", begun+" since `TIME` only: how long ago, like 1h or 7d, or when")
	f.IntVarP(&l.Limit, "limit", "n", 50, "at most `COUNT`")
	sess.AddJSON(f, "print one JSON object")
}

// From is the time that --since says.
func (l *List) From(now time.Time) (time.Time, error) {
	since, err := ui.ParseSince(l.since, now)
	return since, cmp.Or(err, CheckLimit(l.Limit))
}

// CheckOneOf refuses a value of a flag that is neither empty nor allowed.
func CheckOneOf(flag, value string, allowed []string) error {
	if value == "" || slices.Contains(allowed, value) {
		return nil
	}
	return cove.Errorf(cove.InvalidArgument, "%s %q is none of %s", flag, value, strings.Join(allowed, ", "))
}

func CheckLimit(n int) error {
	if n < 1 {
		return cove.Errorf(cove.InvalidArgument, "--limit %d: it must be at least 1", n)
	}
	return nil
}
