package packages

import (
	"net/url"
	"slices"
	"strings"
	"testing"
)

var suites = []Suite{
	{Base: "http://deb.lab.test/debian", Name: "bookworm", Components: []string{"main", "contrib"},
		Architectures: []string{"amd64"}},
	{Base: "http://deb.lab.test/debian", Name: "bookworm-updates", Components: []string{"main"},
		Architectures: []string{"amd64", "i386"}},
	{Base: "http://deb.lab.test/debian-security", Name: "bookworm-security", Components: []string{"main"},
		Architectures: []string{"amd64"}},
	{Base: "https://third.lab.test:8443", Name: "old/updates", Components: []string{"main"},
		Architectures: []string{"amd64"}},
}

func findSigned(raw string) (Signed, bool) {
	u, err := url.Parse(raw)
	if err != nil {
		return Signed{}, false
	}
	return FindSigned(u, func() []Suite { return suites })
}

// TestFindSigned: a file is found below the bases of apt's suites, at each that may list it.
func TestFindSigned(t *testing.T) {
	sum := strings.Repeat("0a", 32)
	const pool = "http://deb.lab.test/debian/pool/main/h/hello/hello_2.10-3"
	for file, want := range map[string]string{
		pool + "_amd64.deb": "bookworm main/binary-amd64, bookworm-updates main/binary-amd64",
		pool + "_all.deb": "bookworm main/binary-amd64 main/binary-all, " +
			"bookworm-updates main/binary-amd64 main/binary-i386 main/binary-all",
		pool + "_i386.deb":  "bookworm-updates main/binary-i386",
		pool + "_arm64.deb": "",
		pool + ".dsc":       "",
		"http://deb.lab.test:80/debian/pool/contrib/x/x_1_amd64.deb": "bookworm contrib/binary-amd64, " +
			"bookworm-updates main/binary-amd64",
		"http://deb.lab.test/debian/pool/main/g/libg%2b%2B_1%7e2_amd64.deb": "bookworm main/binary-amd64, " +
			"bookworm-updates main/binary-amd64",
		"http://deb.lab.test/debian/pool/main/h/%68ello_2_amd64.deb":       "",
		"http://deb.lab.test/debian/pool/main%2fh/hello_2_amd64.deb":       "",
		"http://deb.lab.test/debian/pool/../pool/main/h/hello_2_amd64.deb": "",
		"http://deb.lab.test/debian//pool/main/h/hello_2_amd64.deb":        "",
		"http://deb.lab.test/debian-security/pool/updates/main/a/a_1_all.deb": "bookworm-security main/binary-amd64 " +
			"main/binary-all",
		"http://deb.lab.test/debian-other/pool/main/a/a_1_amd64.deb":    "",
		"http://deb.lab.test/debian/dists/bookworm/main/a_1_amd64.deb":  "",
		"https://deb.lab.test/debian/pool/main/h/hello_2_amd64.deb":     "",
		"http://deb.lab.test:8080/debian/pool/main/h/hello_2_amd64.deb": "",
		"http://u@deb.lab.test/debian/pool/main/h/hello_2_amd64.deb":    "",
		pool + "_amd64.deb?x": "",
		"http://deb.lab.test/debian/dists/bookworm/main/binary-amd64/by-hash/SHA256/" + sum: "bookworm index " +
			"main/binary-amd64",
		"http://deb.lab.test/debian/dists/bookworm/main/i18n/by-hash/SHA256/" + sum:         "bookworm index main/i18n",
		"http://deb.lab.test/debian/dists/trixie/main/binary-amd64/by-hash/SHA256/" + sum:   "",
		"http://deb.lab.test/debian/dists/bookworm/main/binary-amd64/by-hash/MD5Sum/" + sum: "",
		"http://deb.lab.test/debian/dists/bookworm/main/by-hash/SHA256/0a":                  "",
		"http://deb.lab.test/debian/dists/bookworm/main/binary-amd64/Packages.xz":           "",
		"http://deb.lab.test/debian/dists/bookworm/InRelease":                               "",
		"https://third.lab.test:8443/dists/old/updates/main/by-hash/SHA256/" + sum:          "old/updates index main",
		"https://third.lab.test:8443/pool/main/a/a_1_amd64.deb":                             "old/updates main/binary-amd64",
		"http://third.lab.test:8443/pool/main/a/a_1_amd64.deb":                              "",
		"https://third.lab.test/pool/main/a/a_1_amd64.deb":                                  "",
	} {
		f, ok := findSigned(file)
		var got []string
		for _, s := range f.Suites {
			if f.Package == "" {
				got = append(got, s.Name+" index "+f.Dir)
				continue
			}
			if dirs := f.Indexes(s); len(dirs) > 0 {
				got = append(got, s.Name+" "+strings.Join(dirs, " "))
			}
		}
		if strings.Join(got, ", ") != want || ok != (want != "") {
			t.Errorf("%s: %v, %q, want %q", file, ok, got, want)
		}
		if canonical := signedEscapes.Replace(strings.Replace(file, ":80/", "/", 1)); ok && f.URL != canonical {
			t.Errorf("%s is %s", file, f.URL)
		}
	}
	if s := suites[0]; s.Release() != "http://deb.lab.test/debian/dists/bookworm/InRelease" ||
		s.Plain("main/binary-amd64/Packages") != "http://deb.lab.test/debian/dists/bookworm/main/binary-amd64/Packages" ||
		s.ByHash("main/binary-amd64/Packages", sum) !=
			"http://deb.lab.test/debian/dists/bookworm/main/binary-amd64/by-hash/SHA256/"+sum {
		t.Error(s.Release(), s.Plain("main/binary-amd64/Packages"), s.ByHash("main/binary-amd64/Packages", sum))
	}
}

// FuzzFindSigned: whatever URL is asked, the file is below a base of a suite, at a path without special segments.
func FuzzFindSigned(f *testing.F) {
	f.Add("http://deb.lab.test/debian/pool/main/h/hello/hello_2.10-3_amd64.deb")
	f.Add("http://deb.lab.test/debian/dists/bookworm/main/by-hash/SHA256/" + strings.Repeat("0a", 32))
	f.Fuzz(func(t *testing.T, raw string) {
		file, ok := findSigned(raw)
		if !ok {
			return
		}
		u, err := url.Parse(file.URL)
		if err != nil || strings.Contains(u.Path, "..") || strings.Contains(u.Path, "//") ||
			strings.Contains(file.URL, "%") ||
			!slices.ContainsFunc(suites, func(s Suite) bool { return strings.HasPrefix(file.URL, s.Base+"/") }) {
			t.Errorf("%q is %q", raw, file.URL)
		}
	})
}
