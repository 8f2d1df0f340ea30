package gateway

import (
	"archive/zip"
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb"
	"golang.org/x/mod/sumdb/dirhash"
	"golang.org/x/mod/sumdb/note"

	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/packages"
	"github.com/cove-sandbox/cove/internal/packages/cache"
)

const (
	goProxy = "https://modules.example.com"
	goZip   = goProxy + "/lab.test/tiny/@v/v1.0.0.zip"
	goMod   = goProxy + "/lab.test/tiny/@v/v1.0.0.mod"
	modText = "module lab.test/tiny\n"
)

// goLab is a proxy of Go modules, with one module, and a checksum database behind it.
type goLab struct {
	*registryLab
	archive string
	signer  string
	records map[string]string // lines of go.sum by path@version
}

func hash1(t *testing.T, files map[string]string) string {
	t.Helper()
	var names []string
	for name := range files {
		names = append(names, name)
	}
	hash, err := dirhash.Hash1(names, func(name string) (io.ReadCloser, error) {
		return io.NopCloser(strings.NewReader(files[name])), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return hash
}

func newGoLab(t *testing.T) *goLab {
	t.Helper()
	signer, verifier, err := note.GenerateKey(rand.Reader, "sums.example.com")
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{"lab.test/tiny@v1.0.0/go.mod": modText, "lab.test/tiny@v1.0.0/tiny.go": "package tiny\n"}
	var archive bytes.Buffer
	z := zip.NewWriter(&archive)
	for name, text := range files {
		w, err := z.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(w, text)
	}
	z.Close()
	l := &goLab{archive: archive.String(), signer: signer, records: map[string]string{"lab.test/tiny@v1.0.0": fmt.Sprintf(
		"lab.test/tiny v1.0.0 %s\nlab.test/tiny v1.0.0/go.mod %s\n", hash1(t, files),
		hash1(t, map[string]string{"go.mod": modText}))}}
	l.registryLab = newRegistryLab(t, func(o *Options) {
		others := o.Machine.Registry
		o.Machine.Registry = func(tool string) ([]policy.Endpoint, error) {
			if tool == "go" {
				return []policy.Endpoint{{Host: hostOf(t, "modules.example.com"), Port: 443, Bases: []string{goProxy}}}, nil
			}
			return others(tool)
		}
		o.Sums = func() packages.Sums {
			return packages.Sums{Name: "sums.example.com", Key: verifier, URL: "https://sums.example.com", Private: "corp.test"}
		}
	})
	l.serve(goZip, says(l.archive))
	l.serve(goMod, says(modText))
	l.database(signer)
	return l
}

// database begins a database at the proxy, signed by a key.
func (l *goLab) database(signer string) {
	server := sumdb.NewServer(sumdb.NewTestServer(signer, func(path, version string) ([]byte, error) {
		record, ok := l.records[path+"@"+version]
		if !ok {
			return nil, errors.New("not found")
		}
		return []byte(record), nil
	}))
	l.mu.Lock()
	defer l.mu.Unlock()
	l.below = func(w http.ResponseWriter, r *http.Request) bool {
		rest, ok := strings.CutPrefix(r.URL.Path, "/sumdb/sums.example.com")
		if !ok || r.Host != "modules.example.com" {
			return false
		}
		if rest != "/supported" {
			r.URL.Path = rest
			server.ServeHTTP(w, r)
		}
		return true
	}
}

// TestModulesAreShared: what the checksum database states is shared: archives and go.mod.
func TestModulesAreShared(t *testing.T) {
	l := newGoLab(t)
	for u, content := range map[string]string{goZip: l.archive, goMod: modText} {
		for n, hit := range []string{"", "cove; hit"} {
			g := ask(t, l.sandbox(t, allowAll), "GET", u)
			if g.body != content || g.header.Get("Cache-Status") != hit || l.count(u) != 1 {
				t.Errorf("%d: %s: %d %v, asked %d times", n, u, g.status, g.header, l.count(u))
			}
		}
	}
	if c := l.cache.Counts(); c != (cache.Counts{Served: 2, Added: 2}) {
		t.Errorf("%+v", c)
	}
}

// TestPoisonedModules: a module that the database does not state comes as it is, and is not stored.
func TestPoisonedModules(t *testing.T) {
	for name, poison := range map[string]func(t *testing.T, l *goLab){
		"another archive": func(_ *testing.T, l *goLab) { l.serve(goZip, says("poison")) },
		"another record": func(_ *testing.T, l *goLab) {
			l.records["lab.test/tiny@v1.0.0"] = "lab.test/tiny v1.0.0 h1:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=\n"
		},
		"no record": func(_ *testing.T, l *goLab) { delete(l.records, "lab.test/tiny@v1.0.0") },
		"another key": func(t *testing.T, l *goLab) {
			signer, _, err := note.GenerateKey(rand.Reader, "sums.example.com")
			if err != nil {
				t.Fatal(err)
			}
			l.database(signer)
		},
		"no database": func(_ *testing.T, l *goLab) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.below = nil
		},
		"a private module": func(_ *testing.T, l *goLab) {
			l.gateway.sums.database()
			l.gateway.sums.sums.Private = "lab.test"
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newGoLab(t)
			poison(t, l)
			for n := range 2 {
				g := ask(t, l.sandbox(t, allowAll), "GET", goZip)
				if g.status != 200 || g.header.Get("X-Of") == "" || l.count(goZip) != n+1 {
					t.Errorf("%+v, asked %d times", g, l.count(goZip))
				}
			}
			mismatched := int64(0)
			if name == "another archive" || name == "another record" {
				mismatched = 2
			}
			if c := l.cache.Counts(); c != (cache.Counts{Mismatched: mismatched}) {
				t.Errorf("%+v", c)
			}
		})
	}
}

// TestForkedDatabase: a tree that does not continue the one that was seen is not believed, by another process either.
func TestForkedDatabase(t *testing.T) {
	l := newGoLab(t)
	ask(t, l.sandbox(t, allowAll), "GET", goMod)
	if c := l.cache.Counts(); c.Added != 1 {
		t.Fatalf("%+v", c)
	}
	// The same key signs another history, in which the poison is.
	l.records["lab.test/tiny@v1.0.0"] = "lab.test/tiny v1.0.0 " + hash1(t, map[string]string{"x": ""}) + "\n"
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	if _, err := z.Create("x"); err != nil {
		t.Fatal(err)
	}
	z.Close()
	l.serve(goZip, says(b.String()))
	l.database(l.signer)
	l.gateway.sums.mu.Lock()
	l.gateway.sums.latest, l.gateway.sums.held = nil, map[string][]byte{} // a process begins with none
	l.gateway.sums.mu.Unlock()
	ask(t, l.sandbox(t, allowAll), "GET", goZip)
	if c := l.cache.Counts(); c.Added != 1 {
		t.Errorf("a forked database is believed: %+v", c)
	}
}
