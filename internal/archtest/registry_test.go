package archtest

import (
	"bytes"
	"context"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// repositoryFiles lists the files that git tracks or would track; without git, every file.
func repositoryFiles(t *testing.T) []string {
	t.Helper()
	base := root(t)
	cmd := exec.Command("git", "ls-files", "--cached", "--others", "--exclude-standard", "-z")
	cmd.Dir = base
	out, err := cmd.Output()
	if err != nil {
		return walkFiles(t, base)
	}
	var files []string
	for _, f := range strings.Split(string(out), "\x00") {
		if f == "" {
			continue
		}
		if info, err := os.Lstat(filepath.Join(base, f)); err == nil && info.Mode().IsRegular() {
			files = append(files, f)
		}
	}
	if len(files) < 10 {
		t.Fatalf("git lists only %d files", len(files))
	}
	return files
}

func walkFiles(t *testing.T, base string) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(base, func(file string, d os.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == ".git" || d.Name() == "bin" || d.Name() == ".cache"):
			return filepath.SkipDir
		case d.Type().IsRegular():
			rel, err := filepath.Rel(base, file)
			files = append(files, filepath.ToSlash(rel))
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// TestNoPackageRegistryIsNamed keeps machine configuration out of the repository: where packages come from is the
// machine's business. The names are read from the installed tools, so none is written down here either.
func TestNoPackageRegistryIsNamed(t *testing.T) {
	hosts := registryHosts(t)
	if len(hosts) == 0 {
		t.Skip("no installed tool is configured with a package registry")
	}
	base := root(t)
	for _, file := range repositoryFiles(t) {
		data, err := os.ReadFile(filepath.Join(base, file))
		if err != nil {
			t.Fatal(err)
		}
		lower := bytes.ToLower(data)
		for _, host := range hosts {
			if !bytes.Contains(lower, []byte(strings.ToLower(host))) {
				continue // without the cost of an expression
			}
			if at := mentions(data, host); at >= 0 {
				line := 1 + bytes.Count(data[:at], []byte("\n"))
				t.Errorf("%s:%d names a package registry's host that this machine is configured with; "+
					"say which tool to use and leave the host to its configuration", file, line)
			}
		}
	}
}

// mentions finds host in data as a whole name.
func mentions(data []byte, host string) int {
	re := regexp.MustCompile(`(?i)(^|[^a-z0-9.-])` + regexp.QuoteMeta(host) + `($|[^a-z0-9-])`)
	if loc := re.FindIndex(data); loc != nil {
		return loc[0]
	}
	return -1
}

func TestMentions(t *testing.T) {
	for _, c := range []struct {
		text string
		want bool
	}{
		{"see https://packages.example.org/x", true},
		{"PACKAGES.EXAMPLE.ORG", true},
		{"mirror.packages.example.org", false},
		{"packages.example.organic", false},
		{"packages-example.org", false},
	} {
		if got := mentions([]byte(c.text), "packages.example.org") >= 0; got != c.want {
			t.Errorf("mentions(%q) = %v", c.text, got)
		}
	}
}

var urls = regexp.MustCompile(`https?://[^\s"',|\]]+`)

// registryHosts asks the installed tools where they get packages from.
func registryHosts(t *testing.T) []string {
	t.Helper()
	var text strings.Builder
	text.WriteString(ask(t, "go", "env", "GOPROXY"))
	if sum, _, _ := strings.Cut(strings.TrimSpace(ask(t, "go", "env", "GOSUMDB")), " "); strings.Contains(sum, ".") {
		text.WriteString("\nhttps://" + strings.SplitN(sum, "+", 2)[0] + "\n")
	}
	text.WriteString(ask(t, "npm", "config", "get", "registry"))
	text.WriteString(ask(t, "pip", "config", "list"))
	text.WriteString(ask(t, "gem", "environment", "remotesources"))
	for _, pattern := range []string{"/etc/apt/sources.list", "/etc/apt/sources.list.d/*.list",
		"/etc/apt/sources.list.d/*.sources",
		"/etc/apt/mirrors/*", "/etc/apt/apt.conf.d/*"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if data, err := os.ReadFile(f); err == nil {
				text.WriteString(withoutComments(string(data)))
			}
		}
	}
	return hostsIn(text.String(), modulePrefixes(t))
}

func ask(t *testing.T, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, name, args...).Output()
	if err != nil {
		return "" // not installed, or not configured
	}
	return string(out) + "\n"
}

func withoutComments(s string) string {
	var kept []string
	for line := range strings.Lines(s) {
		if trimmed := strings.TrimSpace(line); !strings.HasPrefix(trimmed, "#") && !strings.HasPrefix(trimmed, "//") {
			kept = append(kept, trimmed)
		}
	}
	return strings.Join(kept, "\n") + "\n"
}

// modulePrefixes are hosts that go.mod has to name as parts of import paths.
func modulePrefixes(t *testing.T) []string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root(t), "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	var hosts []string
	for _, m := range regexp.MustCompile(`(?m)^\s*([a-z0-9.-]+\.[a-z]+)/\S+ v`).FindAllSubmatch(data, -1) {
		hosts = append(hosts, string(m[1]))
	}
	return append(hosts, "github.com")
}

// hostsIn collects the host names of the URLs in text; names that say nothing
// about a registry (loopback, single labels, hosts of import paths) are left out.
func hostsIn(text string, except []string) []string {
	var hosts []string
	for _, raw := range urls.FindAllString(text, -1) {
		u, err := url.Parse(raw)
		if err != nil {
			continue
		}
		host := strings.ToLower(u.Hostname())
		if !strings.Contains(host, ".") || strings.HasPrefix(host, "127.") || slices.Contains(except, host) ||
			slices.Contains(hosts, host) {
			continue
		}
		hosts = append(hosts, host)
	}
	return hosts
}

func TestHostsIn(t *testing.T) {
	text := `https://modules.example.org,direct
URIs: http://mirror.example.net/debian
index-url='https://user:pw@python.example.com:8443/simple'
registry http://localhost:4873/ http://127.0.0.1:4873/ https://code.example.io/x
https://modules.example.org|off`
	got := hostsIn(text, []string{"code.example.io"})
	want := []string{"modules.example.org", "mirror.example.net", "python.example.com"}
	if !slices.Equal(got, want) {
		t.Errorf("hostsIn = %q, want %q", got, want)
	}
}
