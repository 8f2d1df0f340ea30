package compose

import (
	"bytes"
	"io"
	"regexp"
	"strings"
	"sync"

	"github.com/compose-spec/compose-go/v2/dotenv"
	"github.com/sirupsen/logrus"

	"github.com/cove-sandbox/cove"
)

const (
	maxEnv = 64 << 10 // bytes of a file, and of its values
	// Each variable in a file may double what was before.
	maxEnvSplices = 16
)

// quiet keeps the library from writing what Env returns as unset to standard error, by a logger of its own.
var quiet = sync.OnceFunc(func() { logrus.SetOutput(io.Discard) })

// Env reads a file of variables, in which those of known can be referred to; unset are the lines of
// others that it refers to, which have no value. raw has values as they are written. Errors: InvalidArgument, TooLarge.
func Env(f File, raw bool, known map[string]string) (all map[string]string, unset map[string]int, err error) {
	if len(f.Data) > maxEnv {
		return nil, nil, cove.Errorf(cove.TooLarge, "%s is larger than %d KiB", f.Path, maxEnv>>10)
	}
	if raw {
		return rawEnv(f), nil, nil
	}
	if n := bytes.Count(f.Data, []byte("$")); n > maxEnvSplices {
		return nil, nil, cove.Errorf(cove.TooLarge, "%s refers to variables %d times, at most %d are possible", f.Path, n,
			maxEnvSplices)
	}
	quiet()
	unset = map[string]int{}
	all, err = dotenv.ParseWithLookup(bytes.NewReader(f.Data), func(name string) (string, bool) {
		value, is := known[name]
		if line := plainly(f, name); !is && line > 0 { // other forms may have a default
			unset[name] = line
		}
		return value, is
	})
	if err != nil {
		return nil, nil, cove.Errorf(cove.InvalidArgument, "%s: %.500s", f.Path, err)
	}
	total := 0
	for name, value := range all {
		delete(unset, name)
		total += len(name) + len(value)
	}
	if total > maxEnv {
		return nil, nil, cove.Errorf(cove.TooLarge, "the values of %s are longer than %d KiB", f.Path, maxEnv>>10)
	}
	return all, unset, nil
}

// plainly returns the line in which a file first refers to a variable by no more than its name, or 0.
func plainly(f File, name string) int {
	name = regexp.QuoteMeta(name)
	at := regexp.MustCompile(`\$(` + name + `\b|\{` + name + `\})`).FindIndex(f.Data)
	if at == nil {
		return 0
	}
	return 1 + bytes.Count(f.Data[:at[0]], []byte("\n"))
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
