package compose

import (
	"bytes"
	"strings"

	"github.com/compose-spec/compose-go/v2/dotenv"

	"github.com/cove-sandbox/cove"
)

const (
	maxEnv = 64 << 10 // bytes of a file, and of its values
	// Each variable in a file may double what was before.
	maxEnvSplices = 16
)

// Env reads a file of variables, in which those of known can be referred to. raw has values as they are written.
// Errors: InvalidArgument, TooLarge.
func Env(f File, raw bool, known map[string]string) (map[string]string, error) {
	if len(f.Data) > maxEnv {
		return nil, cove.Errorf(cove.TooLarge, "%s is larger than %d KiB", f.Path, maxEnv>>10)
	}
	if raw {
		return rawEnv(f), nil
	}
	if n := bytes.Count(f.Data, []byte("$")); n > maxEnvSplices {
		return nil, cove.Errorf(cove.TooLarge, "%s refers to variables %d times, at most %d are possible", f.Path, n,
			maxEnvSplices)
	}
	all, err := dotenv.ParseWithLookup(bytes.NewReader(f.Data), func(name string) (string, bool) {
		value, is := known[name]
		return value, is
	})
	if err != nil {
		return nil, cove.Errorf(cove.InvalidArgument, "%s: %.500s", f.Path, err)
	}
	total := 0
	for name, value := range all {
		total += len(name) + len(value)
	}
	if total > maxEnv {
		return nil, cove.Errorf(cove.TooLarge, "the values of %s are longer than %d KiB", f.Path, maxEnv>>10)
	}
	return all, nil
}

func rawEnv(f File) map[string]string {
	all := map[string]string{}
	for line := range strings.Lines(string(f.Data)) {
		line = strings.TrimRight(line, "\r\n")
		if name, value, is := strings.Cut(line, "="); is && !strings.HasPrefix(strings.TrimSpace(line), "#") {
			all[strings.TrimSpace(name)] = value
		}
	}
	return all
}

// EnvLine returns the line of a variable in a file of them, or 1.
func EnvLine(f File, name string) int {
	number, last := 0, 1
	for line := range strings.Lines(string(f.Data)) {
		number++
		key, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "export "), "=")
		if strings.TrimSpace(key) == name {
			last = number
		}
	}
	return last
}
