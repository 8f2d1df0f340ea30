//go:build linux

package agents

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove/test/holdings"
)

// cgroups are where sandboxes of these tests are, and of no others that run beside.
var cgroups = fmt.Sprintf("cove-agents-test-%d", os.Getpid())

// inSandboxes are the directories in /proc of all processes in sandboxes.
func inSandboxes(t *testing.T) (dirs []string) {
	t.Helper()
	for _, file := range globbed(t, "/proc/[0-9]*/cgroup") {
		if groups, err := os.ReadFile(file); err == nil && bytes.Contains(groups, []byte("/"+cgroups+"/")) {
			dirs = append(dirs, filepath.Dir(file))
		}
	}
	return dirs
}

func globbed(t *testing.T, pattern string) []string {
	t.Helper()
	all, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// searchProcesses looks for the real key in every process of a sandbox: in its environment, its arguments, and all of
// its memory that it could have written. It returns those that it has looked into.
func searchProcesses(t *testing.T) (processes []string) {
	t.Helper()
	for _, dir := range inSandboxes(t) {
		comm, _ := os.ReadFile(filepath.Join(dir, "comm"))
		name := strings.TrimSpace(string(comm))
		for _, what := range []string{"environ", "cmdline"} {
			if data, err := os.ReadFile(filepath.Join(dir, what)); err == nil && bytes.Contains(data, []byte(key)) {
				t.Errorf("%s of %s has the key", what, name)
			}
		}
		found, err := inMemory(dir, []byte(key))
		if err != nil {
			continue // it has ended meanwhile
		}
		processes = append(processes, name)
		if found != "" {
			t.Errorf("the memory of %s has the key, at %s", name, found)
		}
	}
	return processes
}

// inMemory looks for what in the writable memory of the process of a directory of /proc.
func inMemory(dir string, what []byte) (string, error) {
	maps, err := os.Open(filepath.Join(dir, "maps"))
	if err != nil {
		return "", err
	}
	defer maps.Close()
	mem, err := os.Open(filepath.Join(dir, "mem"))
	if err != nil {
		return "", err
	}
	defer mem.Close()
	lines := bufio.NewScanner(maps)
	pages, err := os.Open(filepath.Join(dir, "pagemap"))
	if err != nil {
		return "", err
	}
	defer pages.Close()
	buffer := make([]byte, 1<<16)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 2 || !strings.HasPrefix(fields[1], "rw") {
			continue
		}
		from, to, _ := strings.Cut(fields[0], "-")
		begin, err := strconv.ParseUint(from, 16, 64)
		end, err2 := strconv.ParseUint(to, 16, 64)
		if err = errors.Join(err, err2); err != nil {
			return "", err
		}
		kept := 0 // of what was read before, so that what lies across is found
		for at := begin; at < end; {
			if size := min(uint64(len(buffer)), end-at); !touched(pages, at, size) {
				at, kept = at+size, 0
				continue
			}
			n, err := mem.ReadAt(buffer[kept:min(uint64(len(buffer)), uint64(kept)+end-at)], int64(at))
			if bytes.Contains(buffer[:kept+n], what) {
				return fields[0], nil
			}
			if n == 0 || err != nil {
				break // never touched, or gone
			}
			at += uint64(n)
			kept = copy(buffer, buffer[max(0, kept+n-len(what)):kept+n])
		}
	}
	return "", lines.Err()
}

// touched reports whether a process has used memory of a range. To read the rest takes memory on kernels that share no
// page of zeros, and the process may be ended for it.
func touched(pagemap *os.File, at, size uint64) bool {
	const page = 4096
	entries := make([]byte, (size+page-1)/page*8)
	n, _ := pagemap.ReadAt(entries, int64(at/page*8))
	for i := 7; i < n; i += 8 {
		if entries[i]&0xc0 != 0 { // present, or swapped out
			return true
		}
	}
	return false
}

// searchFiles looks for the real key in whatever Cove keeps, and in the
// directories beside it. It returns how many files it has looked into.
func searchFiles(t *testing.T, dirs ...string) int {
	t.Helper()
	found, files, err := holdings.Search(key, dirs...)
	if len(found) != 0 || err != nil {
		t.Errorf("the key is in %q, %v", found, err)
	}
	return files
}
