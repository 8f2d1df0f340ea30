// Package debian gives tests a root file system of Debian, with apt.
package debian

import (
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Root returns the directory of a root file system, which scripts/debian-root.sh makes or finds made. The test is
// skipped where it cannot be made.
func Root(t testing.TB) string {
	t.Helper()
	if _, err := exec.LookPath("mmdebstrap"); err != nil || os.Geteuid() != 0 {
		t.Skip("needs root and mmdebstrap, to make a root file system of Debian")
	}
	module, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		t.Fatalf("find the repository: %v", err)
	}
	script := exec.Command(filepath.Join(filepath.Dir(strings.TrimSpace(string(module))), "scripts/debian-root.sh"))
	script.Stderr = os.Stderr
	out, err := script.Output()
	if err != nil {
		t.Fatalf("scripts/debian-root.sh: %v", err)
	}
	return strings.TrimSpace(string(out))
}

// Hosts returns the hosts from which apt in a root file system fetches packages.
func Hosts(t testing.TB, root string) (hosts []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "etc/apt/sources.list"))
	if err != nil {
		t.Fatal(err)
	}
	for word := range strings.FieldsSeq(string(text)) {
		if u, err := url.Parse(word); err == nil && u.Host != "" {
			hosts = append(hosts, u.Host)
		}
	}
	if len(hosts) == 0 {
		t.Fatalf("apt has no sources in %s", root)
	}
	return hosts
}
