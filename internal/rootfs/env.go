package rootfs

import (
	"strings"
)

// LastWins drops of several values of a variable all but the last.
func LastWins(env []string) []string {
	last := map[string]int{}
	for i, kv := range env {
		k, _, _ := strings.Cut(kv, "=")
		last[k] = i
	}
	merged := env[:0:0]
	for i, kv := range env {
		if k, _, _ := strings.Cut(kv, "="); last[k] == i {
			merged = append(merged, kv)
		}
	}
	return merged
}

// WithVariables appends variables to an environment.
func WithVariables(env []string, more map[string]string) []string {
	for k, v := range more {
		env = append(env, k+"="+v)
	}
	return env
}

// InFront appends a PATH that begins with a directory; an empty one changes nothing.
func InFront(env []string, dir string) []string {
	if dir == "" {
		return env
	}
	path := ""
	for _, v := range env { // the last one counts
		if p, ok := strings.CutPrefix(v, "PATH="); ok {
			path = p
		}
	}
	return append(env, "PATH="+dir+":"+path)
}
