package packages

import (
	"net/url"
	"strings"

	"golang.org/x/mod/module"

	"github.com/cove-sandbox/cove/internal/egress/policy"
)

// Sums is the checksum database of this machine's go.
type Sums struct {
	Name    string // of its key
	Key     string // which verifies what it has signed
	URL     string // without a slash at its end
	Private string // patterns of modules that it is not asked for, as in GONOSUMDB
}

// Module is a file of a Go module at a proxy of this machine's go.
type Module struct {
	URL     string
	Path    string
	Version string
	Mod     bool // the file is go.mod, and not the archive
	// Sums are URLs at which the database may be: at the proxy first, then its own.
	Sums []string
}

// Lookup returns the version as the database has it, by which it states the digest of the file.
func (m Module) Lookup() string {
	if m.Mod {
		return m.Version + "/go.mod"
	}
	return m.Version
}

// Digest returns the digest that a line of go.sum states for the file.
func (m Module) Digest(line string) (Digest, bool) {
	f := strings.Fields(line)
	if len(f) != 3 || f[0] != m.Path || f[1] != m.Lookup() || !strings.HasPrefix(f[2], "h1:") {
		return Digest{}, false
	}
	if m.Mod {
		return Digest{GoMod: f[2]}, true
	}
	return Digest{GoZip: f[2]}, true
}

// FindModule returns the file of a Go module at a URL. What is known of the tools is asked only where the URL has the
// form of such a file. The time of a version (.info) is in no database.
func FindModule(of *url.URL, registry func(tool string) ([]policy.Endpoint, error), sums func() Sums) (Module, bool) {
	at := of.EscapedPath()
	if of.Scheme != "https" || of.RawQuery != "" || of.User != nil || !plain(strings.ReplaceAll(at, "!", "")) {
		return Module{}, false
	}
	before, file, found := strings.Cut(at, "/@v/")
	version, zip := strings.CutSuffix(file, ".zip")
	if !zip {
		var mod bool
		if version, mod = strings.CutSuffix(file, ".mod"); !mod {
			return Module{}, false
		}
	}
	if !found || strings.Contains(file, "/") {
		return Module{}, false
	}
	proxies, err := registry("go")
	if err != nil {
		return Module{}, false
	}
	database := sums()
	if database.Name == "" {
		return Module{}, false
	}
	for _, e := range proxies {
		for _, base := range e.Bases {
			u, err := url.Parse(base)
			if err != nil || u.Scheme != "https" || authority(u) != authority(of) || base == database.URL {
				continue
			}
			escaped, inside := strings.CutPrefix(before, strings.TrimSuffix(u.Path, "/")+"/")
			if !inside {
				continue
			}
			m := Module{URL: strings.TrimSuffix(base, "/") + "/" + escaped + "/@v/" + file, Mod: !zip,
				Sums: []string{strings.TrimSuffix(base, "/") + "/sumdb/" + database.Name, database.URL}}
			if m.Path, err = module.UnescapePath(escaped); err != nil {
				continue
			}
			if m.Version, err = module.UnescapeVersion(version); err != nil || module.Check(m.Path, m.Version) != nil ||
				module.MatchPrefixPatterns(database.Private, m.Path) {
				continue
			}
			return m, true
		}
	}
	return Module{}, false
}
