package flags

import (
	"errors"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
)

// inFlag names the flag in front of what is wrong with it.
func inFlag(flag string, err error) error {
	var e *cove.Error
	if !errors.As(err, &e) {
		return err
	}
	c := *e
	c.Message = flag + " " + e.Message
	return &c
}

// Environment reads NAME=VALUE, and NAME alone as this process's own value.
func Environment(pairs []string, getenv func(string) string) (map[string]string, error) {
	env := map[string]string{}
	for _, p := range pairs {
		name, value, ok := strings.Cut(p, "=")
		if name == "" {
			return nil, cove.Errorf(cove.InvalidArgument, "--env %s has no name", p).WithHint("write NAME=VALUE, or NAME for this shell's value")
		}
		if !ok {
			value = getenv(name)
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
		return api.Mount{}, cove.Errorf(cove.InvalidArgument, "--mount %s is not SOURCE:TARGET[:ro] with an absolute TARGET", s).
			WithHint("for example --mount ./data:/data:ro")
	}
	abs, err := filepath.Abs(source)
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
