package packages

import (
	"net/url"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove/internal/egress/policy"
)

var database = Sums{Name: "sums.lab.test", Key: "sums.lab.test+00+x", URL: "https://sums.lab.test",
	Private: "corp.lab.test/*"}

func findModule(t testing.TB, raw string, sums Sums) (Module, bool) {
	u, err := url.Parse(raw)
	if err != nil {
		return Module{}, false
	}
	return FindModule(u, func(string) (all []policy.Endpoint, err error) {
		for _, base := range []string{"https://modules.lab.test", "https://second.lab.test:8443/go", "http://plain.lab.test",
			"https://sums.lab.test"} {
			at, err := url.Parse(base)
			if err != nil {
				t.Fatal(err)
			}
			h, port, err := policy.ParseAuthority(at.Host, 443)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, policy.Endpoint{Host: h, Port: port, Bases: []string{base}})
		}
		return all, nil
	}, func() Sums { return sums })
}

// TestFindModule: a file of a module is found below a proxy, and leads to the database at the proxy and its own.
func TestFindModule(t *testing.T) {
	for file, want := range map[string]string{
		"https://modules.lab.test/lab.test/x/@v/v1.0.0.zip":              "lab.test/x v1.0.0",
		"https://modules.lab.test/lab.test/x/@v/v1.0.0.mod":              "lab.test/x v1.0.0/go.mod",
		"https://modules.lab.test/lab.test/!a!b/v2/@v/v2.0.0-!r!c1.zip":  "lab.test/AB/v2 v2.0.0-RC1",
		"https://modules.lab.test/lab.test/x/@v/v2.0.0+incompatible.zip": "lab.test/x v2.0.0+incompatible",
		"https://second.lab.test:8443/go/lab.test/x/@v/v1.0.0.zip":       "lab.test/x v1.0.0",
		"https://second.lab.test:8443/lab.test/x/@v/v1.0.0.zip":          "",
		"https://modules.lab.test/lab.test/x/@v/v1.0.0.info":             "",
		"https://modules.lab.test/lab.test/x/@v/list":                    "",
		"https://modules.lab.test/lab.test/x/@latest":                    "",
		"https://modules.lab.test/lab.test/X/@v/v1.0.0.zip":              "", // not as it is escaped
		"https://modules.lab.test/lab.test/x/@v/master.zip":              "",
		"https://modules.lab.test/lab.test/x/@v/a/v1.0.0.zip":            "",
		"https://modules.lab.test/lab.test/../x/@v/v1.0.0.zip":           "",
		"https://modules.lab.test/lab.test/%78/@v/v1.0.0.zip":            "",
		"https://modules.lab.test/lab.test/!/@v/v1.0.0.zip":              "",
		"https://modules.lab.test/lab.test/x/@v/v1.0.0.zip?x":            "",
		"https://modules.lab.test/corp.lab.test/x/@v/v1.0.0.zip":         "", // which no database is told of
		"https://sums.lab.test/lab.test/x/@v/v1.0.0.zip":                 "",
		"http://plain.lab.test/lab.test/x/@v/v1.0.0.zip":                 "",
		"https://plain.lab.test/lab.test/x/@v/v1.0.0.zip":                "",
		"https://other.lab.test/lab.test/x/@v/v1.0.0.zip":                "",
	} {
		m, ok := findModule(t, file, database)
		got := strings.TrimSpace(m.Path + " " + m.Version)
		if m.Mod {
			got = m.Path + " " + m.Lookup()
		}
		if got != want || ok != (want != "") {
			t.Errorf("%s: %v, %+v, want %s", file, ok, m, want)
		}
		if !ok {
			continue
		}
		base := file[:strings.Index(file, "/lab.test/")]
		if m.URL != file || len(m.Sums) != 2 || m.Sums[0] != base+"/sumdb/sums.lab.test" || m.Sums[1] != database.URL {
			t.Errorf("%s: %+v", file, m)
		}
		const h1 = "h1:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="
		d, stated := m.Digest(m.Path + " " + m.Lookup() + " " + h1)
		if !stated || (d != Digest{GoZip: h1}) != m.Mod || (d != Digest{GoMod: h1}) == m.Mod {
			t.Errorf("%s: %+v", file, d)
		}
		for _, line := range []string{"", m.Path + " v9.0.0 " + h1, "lab.test/other " + m.Lookup() + " " + h1,
			m.Path + " " + m.Lookup() + " h2:x", m.Path + " " + m.Lookup()} {
			if d, stated := m.Digest(line); stated {
				t.Errorf("%s: %q states %+v", file, line, d)
			}
		}
	}
	if m, ok := findModule(t, "https://modules.lab.test/lab.test/x/@v/v1.0.0.zip", Sums{}); ok {
		t.Errorf("without a database: %+v", m)
	}
	if (Digest{GoZip: "h1:a"}).Matches(Digest{GoMod: "h1:a"}) || (Digest{GoMod: "h1:a"}).Matches(Digest{SHA256: "00"}) {
		t.Error("another digest matches")
	}
}

// FuzzFindModule: whatever URL is asked, the database is asked below itself or below a proxy.
func FuzzFindModule(f *testing.F) {
	f.Add("https://modules.lab.test/lab.test/!a/@v/v1.0.0.zip")
	f.Fuzz(func(t *testing.T, raw string) {
		m, ok := findModule(t, raw, database)
		if !ok {
			return
		}
		if strings.Contains(m.URL, "..") || strings.ContainsAny(m.URL, "%?#") || len(m.Sums) != 2 ||
			!strings.HasSuffix(m.Sums[0], "/sumdb/sums.lab.test") || strings.ContainsAny(m.Path+m.Version, " \n@") {
			t.Errorf("%q is %+v", raw, m)
		}
		_, _ = m.Digest(raw)
	})
}
