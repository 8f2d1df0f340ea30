package doctor

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// runcVersion is a version in runc's notation: 1.1.5, 1.4.0-rc.2, 1.1.5+ds1.
type runcVersion struct {
	major, minor, patch int
	candidate           int  // of "-rc.N"; 0 for a release
	distribution        bool // modified by a distribution
}

var runcPattern = regexp.MustCompile(`^v?(\d+)\.(\d+)\.(\d+)(?:[-~]rc\.?(\d+))?(.*)$`)

func parseRunc(text string) (v runcVersion, ok bool) {
	m := runcPattern.FindStringSubmatch(strings.TrimSpace(text))
	if m == nil {
		return v, false
	}
	n := func(i int) int { v, _ := strconv.Atoi(m[i]); return v }
	return runcVersion{n(1), n(2), n(3), n(4), m[5] != ""}, true
}

// before reports whether v precedes a release or candidate.
func (v runcVersion) before(major, minor, patch, candidate int) bool {
	rank := func(c int) int { // a release follows its candidates
		if c == 0 {
			return 1 << 20
		}
		return c
	}
	a := [4]int{v.major, v.minor, v.patch, rank(v.candidate)}
	b := [4]int{major, minor, patch, rank(candidate)}
	for i := range a {
		if a[i] != b[i] {
			return a[i] < b[i]
		}
	}
	return false
}

// judgeRunc knows vulnerabilities through which a container reaches the host: CVE-2025-31133, CVE-2025-52565 and
// CVE-2025-52881, fixed in 1.2.8, 1.3.3 and 1.4.0-rc.3; and CVE-2024-21626, fixed in 1.1.12.
func judgeRunc(text string) outcome {
	v, ok := parseRunc(text)
	if !ok {
		return warn(fmt.Sprintf("version %q is not one that can be judged", text),
			"compare it with runc's security advisories")
	}
	var holes []string
	if v.before(1, 1, 12, 0) {
		holes = append(holes, "CVE-2024-21626")
	}
	if v.before(1, 2, 8, 0) ||
		!v.before(1, 3, 0, 1) && v.before(1, 3, 3, 0) ||
		!v.before(1, 4, 0, 1) && v.before(1, 4, 0, 3) {
		holes = append(holes, "CVE-2025-31133", "CVE-2025-52565", "CVE-2025-52881")
	}
	switch {
	case holes == nil:
		return outcome{status: OK, found: "version " + text}
	case v.distribution:
		return warn(fmt.Sprintf("version %s has %s, unless your distribution has mended it", text, strings.Join(holes, ", ")),
			"compare with your distribution's security tracker, or install runc 1.2.8, 1.3.3, 1.4.0 or later")
	}
	return fail(fmt.Sprintf("version %s has %s: containers can get at the host", text, strings.Join(holes, ", ")),
		"install runc 1.2.8, 1.3.3, 1.4.0 or later")
}
