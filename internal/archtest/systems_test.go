package archtest

import (
	"go/build"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// linuxOnly are the packages that a client on another system does without. The command line reaches them in files for
// Linux only, most of them in internal/cli/session.
var linuxOnly = []string{
	"internal/daemon", "internal/doctor", "internal/engine/native", "internal/engine/docker", "internal/engine/local",
	"internal/execution", "internal/gateway", "internal/gitservice", "internal/guest/pid1", "internal/httpapi",
	"internal/image", "internal/instance", "internal/linux/...", "internal/repos", "internal/run", "internal/sandbox",
	"internal/sidecar/inside", "internal/sidecar/outside",
	"internal/spool", "internal/store/sqlite", "internal/work", "internal/workspace", "internal/egress/proxy",
	"internal/egress/credential",
}

// seams are the packages with files for other systems than Linux. There are few of them.
var seams = []string{
	"client", "driver", "internal/atomicfile", "internal/cli/interact", "internal/cli/network",
	"internal/cli/session", "internal/cli/ui", "internal/engines", "internal/hostgit", "internal/localsocket",
}

// TestClientsOfOtherSystems: cove for other systems is made of packages that build there, and of nothing else.
func TestClientsOfOtherSystems(t *testing.T) {
	base := root(t)
	for _, system := range []string{"darwin", "windows", "freebsd"} {
		at := build.Default
		at.GOOS, at.GOARCH, at.CgoEnabled = system, "amd64", false
		from := map[string]string{}
		visit := []string{"cmd/cove"}
		for len(visit) > 0 {
			p := visit[0]
			visit = visit[1:]
			if slices.ContainsFunc(linuxOnly, func(only string) bool { return matches(only, p) }) {
				t.Errorf("%s: %s imports %s, which is for Linux only: reach it in a file for Linux, as "+
					"internal/cli/session/here_linux.go does", system, from[p], p)
				continue
			}
			read, err := at.ImportDir(filepath.Join(base, p), 0)
			if err != nil {
				t.Errorf("%s: %s, which %s imports: %v", system, p, from[p], err)
				continue
			}
			for _, imported := range read.Imports {
				to, ours := below(imported)
				if _, known := from[to]; ours && !known {
					from[to] = p
					visit = append(visit, to)
				}
			}
		}
		if len(from) < 20 {
			t.Errorf("%s: only %d packages were found; the walk is wrong", system, len(from))
		}
	}
}

// TestSeamsAreFew: a difference between systems is made in few places.
func TestSeamsAreFew(t *testing.T) {
	base := root(t)
	found := map[string]bool{}
	for _, p := range packages(t) {
		for _, system := range []string{"darwin", "windows", "freebsd"} {
			linux, other := build.Default, build.Default
			linux.GOOS, other.GOOS = "linux", system
			files, err := os.ReadDir(filepath.Join(base, p.path))
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range files {
				if f.IsDir() || !strings.HasSuffix(f.Name(), ".go") {
					continue
				}
				here, err := linux.MatchFile(filepath.Join(base, p.path), f.Name())
				there, oerr := other.MatchFile(filepath.Join(base, p.path), f.Name())
				if err != nil || oerr != nil {
					t.Fatal(err, oerr)
				}
				if !there || here {
					continue
				}
				found[p.path] = true
				if !slices.Contains(seams, p.path) {
					t.Errorf("%s/%s is for %s and not for Linux: have one of %v differ instead", p.path, f.Name(), system, seams)
				}
			}
		}
	}
	for _, s := range seams {
		if !found[s] {
			t.Errorf("%s differs between systems no more: take it out of the table", s)
		}
	}
}
