package packages

import (
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove/internal/egress/policy"
)

// registry is a machine's: bases by tool.
func registry(t testing.TB) func(tool string) ([]policy.Endpoint, error) {
	return func(tool string) ([]policy.Endpoint, error) {
		var all []policy.Endpoint
		for _, base := range map[string][]string{
			"npm":   {"https://npm.lab.test", "https://team.lab.test:4873/npm", "http://open.lab.test"},
			"pip":   {"https://pypi.lab.test/simple", "https://files.lab.test", "https://mirror.lab.test/pypi/simple"},
			"gem":   {"https://gems.lab.test", "https://team.lab.test:4873/gems"},
			"cargo": {"https://index.lab.test", "https://crates.lab.test/crates"},
		}[tool] {
			u, err := url.Parse(base)
			if err != nil {
				t.Fatal(err)
			}
			h, port, err := policy.ParseAuthority(u.Host, 443)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, policy.Endpoint{Host: h, Port: port, Bases: []string{base}})
		}
		if all == nil {
			return nil, errors.New("not installed")
		}
		return all, nil
	}
}

func find(t testing.TB, raw string) (File, bool) {
	u, err := url.Parse(raw)
	if err != nil {
		return File{}, false
	}
	return Find(u, registry(t))
}

// TestFind: a file is found below the registries of its own tool, and leads to their indexes.
func TestFind(t *testing.T) {
	for file, indexes := range map[string][]string{
		"https://npm.lab.test/left-pad/-/left-pad-1.3.0.tgz":     {"https://npm.lab.test/left-pad/1.3.0"},
		"https://npm.lab.test:443/left-pad/-/left-pad-1.3.0.tgz": {"https://npm.lab.test/left-pad/1.3.0"},
		"https://npm.lab.test/@a/b-c/-/b-c-1.0.0-rc.1.tgz":       {"https://npm.lab.test/@a/b-c/1.0.0-rc.1"},
		"https://team.lab.test:4873/npm/x/-/x-1.0.0.tgz":         {"https://team.lab.test:4873/npm/x/1.0.0"},
		"https://team.lab.test:4873/x/-/x-1.0.0.tgz":             nil, // not below the registry
		"https://team.lab.test/npm/x/-/x-1.0.0.tgz":              nil, // another port
		"https://npm.lab.test/deep/x/-/x-1.0.0.tgz":              nil,
		"https://npm.lab.test/x/-/y-1.0.0.tgz":                   nil, // another package's name
		"https://npm.lab.test/x/-/x-1.0.0.tgz?token=1":           nil,
		"https://npm.lab.test/x/-/../x/-/x-1.0.0.tgz":            nil,
		"https://npm.lab.test/%78/-/x-1.0.0.tgz":                 nil,
		"https://npm.lab.test/x/-/x-...tgz":                      nil, // whose document would be elsewhere
		"https://crates.lab.test/crates/a/a-...crate":            {"https://index.lab.test/1/a"},
		"https://user@npm.lab.test/x/-/x-1.0.0.tgz":              nil,
		"http://npm.lab.test/x/-/x-1.0.0.tgz":                    nil,
		"http://open.lab.test/x/-/x-1.0.0.tgz":                   nil, // plain HTTP can be changed on the way
		"https://open.lab.test/x/-/x-1.0.0.tgz":                  nil,
		"https://other.lab.test/x/-/x-1.0.0.tgz":                 nil,
		"https://npm.lab.test/x":                                 nil,
		"https://files.lab.test/packages/aa/Foo.Bar_baz-1.0-py3-none-any.whl": {
			"https://pypi.lab.test/simple/foo-bar-baz/", "https://mirror.lab.test/pypi/simple/foo-bar-baz/"},
		"https://files.lab.test/packages/aa/foo-1.0-py3-none-any.whl.metadata": {
			"https://pypi.lab.test/simple/foo/", "https://mirror.lab.test/pypi/simple/foo/"},
		"https://files.lab.test/aa/foo-bar-1.0.tar.gz": {
			"https://pypi.lab.test/simple/foo-bar/", "https://mirror.lab.test/pypi/simple/foo-bar/"},
		"https://pypi.lab.test/files/foo-1.0.zip": {
			"https://pypi.lab.test/simple/foo/", "https://mirror.lab.test/pypi/simple/foo/"},
		"https://files.lab.test/aa/foo.tar.gz":                        {},
		"https://npm.lab.test/foo-1.0-py3-none-any.whl":               nil, // a registry of another tool
		"https://crates.lab.test/crates/serde/1.0.1/download":         {"https://index.lab.test/se/rd/serde"},
		"https://crates.lab.test/crates/a/a-0.1.0.crate":              {"https://index.lab.test/1/a"},
		"https://crates.lab.test/crates/Abc/0.1.0/download":           {"https://index.lab.test/3/a/abc"},
		"https://crates.lab.test/serde/1.0.1/download":                nil,
		"https://gems.lab.test/gems/rake-13.2.1.gem":                  {"https://gems.lab.test/info/rake"},
		"https://gems.lab.test/gems/a-b_c-1.0.0.rc1-x86_64-linux.gem": {"https://gems.lab.test/info/a-b_c"},
		"https://gems.lab.test/gems/base-64-1.0-arm64-darwin-22.gem": {"https://gems.lab.test/info/base",
			"https://gems.lab.test/info/base-64", "https://gems.lab.test/info/base-64-1.0-arm64-darwin"},
		"https://team.lab.test:4873/gems/gems/x-1.gem": {"https://team.lab.test:4873/gems/info/x"},
		"https://team.lab.test:4873/gems/x-1.gem":      nil,
		"https://gems.lab.test/gems/rake.gem":          nil,
		"https://gems.lab.test/gems/-1.gem":            nil,
		"https://gems.lab.test/gems/..-1.gem":          nil,
		"https://gems.lab.test/other/rake-13.2.1.gem":  nil,
		"http://gems.lab.test/gems/rake-13.2.1.gem":    nil,
	} {
		f, ok := find(t, file)
		if ok && f.URL != strings.Replace(file, ":443", "", 1) {
			t.Errorf("%s is %s", file, f.URL)
		}
		if ok != (len(indexes) > 0) || ok && !slices.Equal(f.Index, indexes) {
			t.Errorf("%s: %v, %q, want %q", file, ok, f.Index, indexes)
		}
	}
}

// TestDigest: an index states a digest of exactly the file that was asked for, or none.
func TestDigest(t *testing.T) {
	content := []byte("content")
	sum256, sum512 := sha256.Sum256(content), sha512.Sum512(content)
	is := Digest{SHA256: hex.EncodeToString(sum256[:]), SHA512: hex.EncodeToString(sum512[:])}
	sri := "sha512-" + base64.StdEncoding.EncodeToString(sum512[:])
	npm := func(name, version, integrity, tarball string) string {
		return fmt.Sprintf(`{"name":%q,"version":%q,"dist":{"integrity":%q,"shasum":"00","tarball":%q}}`, name, version,
			integrity, tarball)
	}
	// page is one of PyPI's interface, with one file.
	page := func(url, hashes, more string) string {
		return fmt.Sprintf(`{"files":[{"url":%q,"hashes":{%s}%s}]}`, url, hashes, more)
	}
	link := func(url string) string { return fmt.Sprintf(`<a data-x="1" href=%q rel=x>foo</a>`, url) }
	crateLine := func(version, sum string) string {
		return fmt.Sprintf(`{"name":"serde","vers":%q,"cksum":%q}`, version, sum)
	}
	hash := `"sha256":"` + is.SHA256 + `"`
	const x = "https://npm.lab.test/x/-/x-1.0.0.tgz"
	const wheel = "https://files.lab.test/aa/foo-1.0-py3-none-any.whl"
	const crate = "https://crates.lab.test/crates/serde/1.0.1/download"
	const gem = "https://gems.lab.test/gems/x-1.0.0.gem"
	for name, c := range map[string]struct {
		file, index string
		ok          bool
	}{
		"npm":                {x, npm("x", "1.0.0", sri, x), true},
		"npm, another name":  {x, npm("y", "1.0.0", sri, x), false},
		"npm, version":       {x, npm("x", "1.0.1", sri, x), false},
		"npm, another file":  {x, npm("x", "1.0.0", sri, "https://npm.lab.test/x/-/x-1.0.1.tgz"), false},
		"npm, SHA-1":         {x, npm("x", "1.0.0", "sha1-2jmj7l5rSw0yVb/vlWAYkK/YBwk=", x), false},
		"npm, SHA-1 as well": {x, npm("x", "1.0.0", "sha1-2jmj7l5rSw0yVb/vlWAYkK/YBwk= "+sri, x), false},
		"npm, alternatives":  {x, npm("x", "1.0.0", sri+" "+sri, x), false},
		"npm, short":         {x, npm("x", "1.0.0", sri[:40], x), false},
		"npm, none":          {x, npm("x", "1.0.0", "", x), false},
		"npm, no JSON":       {x, "<html>", false},
		"pip, JSON":          {wheel, page(wheel, hash, ""), true},
		"pip, relative":      {wheel, page("//files.lab.test/aa/foo-1.0-py3-none-any.whl", hash, ""), true},
		"pip, another file":  {wheel, page(wheel+"x", hash, ""), false},
		"pip, MD5":           {wheel, page(wheel, `"md5":"00"`, ""), false},
		"pip, metadata":      {wheel + ".metadata", page(wheel, `"sha256":"00"`, `,"core-metadata":{`+hash+`}`), true},
		"pip, not its":       {wheel + ".metadata", page(wheel, hash, `,"core-metadata":true`), false},
		"pip, HTML":          {wheel, "<!DOCTYPE html>" + link(wheel+"#sha256="+is.SHA256), true},
		"pip, HTML, other":   {wheel, link("https://files.lab.test/aa/foo-1.1-py3-none-any.whl#sha256=" + is.SHA256), false},
		"pip, HTML, MD5":     {wheel, link(wheel + "#md5=0123456789abcdef0123456789abcdef"), false},
		"cargo":              {crate, crateLine("1.0.0", "00") + "\n" + crateLine("1.0.1", is.SHA256), true},
		"cargo, version":     {crate, crateLine("1.0.2", is.SHA256), false},
		"gem": {gem, "---\n2.0.0 x:>= 1|checksum:00\n" +
			"1.0.0 x:~> 2&< 3,y:>= 0|checksum:" + is.SHA256 + ",ruby:>= 2\n", true},
		"gem, another version": {gem, "---\n1.0.0-java |checksum:" + is.SHA256 + "\n1.0.0.1 |checksum:" + is.SHA256, false},
		"gem, a platform": {"https://gems.lab.test/gems/x-1.0.0-java.gem", "1.0.0 |checksum:00\n" +
			"1.0.0-java |checksum:" + is.SHA256, true},
		"gem, alternatives":    {gem, "1.0.0 |checksum:" + is.SHA256 + "\n1.0.0 |checksum:" + strings.Repeat("0", 64), false},
		"gem, none":            {gem, "1.0.0 |ruby:>= 2\n", false},
		"gem, of a dependency": {gem, "1.0.0 checksum:" + is.SHA256 + "|ruby:>= 2\n", false},
		"gem, MD5":             {gem, "1.0.0 |checksum:0123456789abcdef0123456789abcdef\n", false},
		"cargo, another name":  {crate, `{"name":"serd","vers":"1.0.1","cksum":"` + is.SHA256 + `"}`, false},
	} {
		f, found := find(t, c.file)
		if !found {
			t.Fatalf("%s: %s is not found", name, c.file)
		}
		d, ok := f.Digest(f.Index[0], []byte(c.index))
		if ok != c.ok || ok && !d.Matches(is) {
			t.Errorf("%s: %+v, %v, want %v", name, d, ok, c.ok)
		}
		if ok && d.Matches(Digest{SHA256: strings.Repeat("0", 64), SHA512: strings.Repeat("0", 128)}) {
			t.Errorf("%s: another file is taken for it", name)
		}
	}
	if (Digest{}).Matches(is) || (Digest{SHA256: is.SHA256, SHA512: "00"}).Matches(is) {
		t.Error("no digest, or one of two, is enough")
	}
}

// FuzzFind: whatever URL is asked, its indexes are below registries of the machine.
func FuzzFind(f *testing.F) {
	f.Add("https://npm.lab.test/@a/b/-/b-1.0.0.tgz")
	f.Add("https://files.lab.test/aa/foo-1.0-py3-none-any.whl")
	f.Add("https://crates.lab.test/crates/serde/1.0.1/download")
	f.Add("https://gems.lab.test/gems/rake-13.2.1.gem")
	bases := []string{"https://npm.lab.test/", "https://team.lab.test:4873/npm/", "https://pypi.lab.test/simple/",
		"https://mirror.lab.test/pypi/simple/", "https://index.lab.test/", "https://gems.lab.test/info/",
		"https://team.lab.test:4873/gems/info/"}
	f.Fuzz(func(t *testing.T, raw string) {
		file, ok := find(t, raw)
		if !ok {
			return
		}
		for _, index := range file.Index {
			u, err := url.Parse(index)
			if err != nil || u.RawQuery != "" || strings.Contains(u.Path, "..") || strings.Contains(u.Path, "//") ||
				!slices.ContainsFunc(bases, func(b string) bool { return strings.HasPrefix(index, b) }) {
				t.Errorf("%q leads to %q", raw, index)
			}
		}
	})
}

// FuzzDigest: whatever an index says, what it states is a digest.
func FuzzDigest(f *testing.F) {
	files := []string{"https://npm.lab.test/x/-/x-1.0.0.tgz", "https://files.lab.test/aa/foo-1.0-py3-none-any.whl",
		"https://files.lab.test/aa/foo-1.0-py3-none-any.whl.metadata", "https://crates.lab.test/crates/serde/1.0.1/download",
		"https://gems.lab.test/gems/x-1.0.0.gem"}
	f.Add(0, []byte(`{"name":"x","version":"1.0.0","dist":{"integrity":"sha512-AA==",
		"tarball":"https://npm.lab.test/x/-/x-1.0.0.tgz"}}`))
	f.Add(1, []byte(`<a href="https://files.lab.test/aa/foo-1.0-py3-none-any.whl#sha256=00">`))
	f.Add(4, []byte("1.0.0 |checksum:00\n"))
	f.Add(3, []byte(`{"name":"serde","vers":"1.0.1","cksum":"00"}`))
	f.Fuzz(func(t *testing.T, of int, body []byte) {
		file, ok := find(t, files[uint(of)%uint(len(files))])
		if !ok {
			t.Fatal("not found")
		}
		d, stated := file.Digest(file.Index[0], body)
		if stated && len(d.SHA256) != 64 && len(d.SHA512) != 128 {
			t.Errorf("%+v", d)
		}
	})
}
