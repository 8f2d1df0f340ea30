package policy

import (
	"strings"
	"testing"
)

func TestPatterns(t *testing.T) {
	for _, c := range []struct {
		pattern string
		depth   int
		name    string
		want    bool
	}{
		{"x.lab", 1, "x.lab", true},
		{"x.lab", 1, "a.x.lab", false},
		{"*.x.lab", 1, "a.x.lab", true},
		{"*.x.lab", 1, "x.lab", false},
		{"*.x.lab", 1, "evilx.lab", false},
		{"*.x.lab", 1, "x.lab.evil.lab", false},
		{"*.x.lab", 1, "a.b.x.lab", false},
		{"*.x.lab", 2, "a.b.x.lab", true},
		{"*.x.lab", 2, "a.b.c.x.lab", false},
		{"*.X.Lab.", 1, "a.x.lab", true},
		{"*.x.lab", 5, strings.Repeat("a.", 4) + strings.Repeat("b", 60) + ".x.lab", true},
		{"*.x.lab", 5, strings.Repeat("a", 60) + "." + strings.Repeat("b", 60) + ".x.lab", false}, // too much data
		{"*.internal", 5, HostService, false},
	} {
		p, err := parsePattern(c.pattern, c.depth)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.match(c.name); got != c.want {
			t.Errorf("%s depth %d matches %s: %v", c.pattern, c.depth, c.name, got)
		}
	}
	for _, bad := range []string{"*", "*.", "a.*.b", "ex*mple", "*x.lab", "*.*.x.lab", "**.x.lab", "", ".", "*.x..lab",
		"10.0.0.1", "*.10.0.0.1", "2130706433", "[::1]", "a b", "x.lab:443", "http://x.lab", "x.lab/"} {
		if p, err := parsePattern(bad, 1); err == nil {
			t.Errorf("%q is taken for %v", bad, p)
		}
	}
}

func TestPatternCovers(t *testing.T) {
	for _, c := range []struct {
		a, b   string
		da, db int
		want   bool
	}{
		{"*.x.lab", "a.x.lab", 1, 1, true},
		{"a.x.lab", "*.x.lab", 1, 1, false},
		{"*.x.lab", "*.x.lab", 2, 1, true},
		{"*.x.lab", "*.x.lab", 1, 2, false},
		{"*.x.lab", "*.a.x.lab", 2, 1, true},
		{"*.x.lab", "*.a.x.lab", 1, 1, false},
		{"*.x.lab", "*.evilx.lab", 5, 1, false},
		{"x.lab", "x.lab", 1, 1, true},
	} {
		a, _ := parsePattern(c.a, c.da)
		b, _ := parsePattern(c.b, c.db)
		if got := a.covers(b); got != c.want {
			t.Errorf("%v/%d covers %v/%d: %v", a, c.da, b, c.db, got)
		}
	}
}

func TestGlobs(t *testing.T) {
	for _, c := range []struct {
		pattern, path   string
		together, apart bool // the two readings of an encoded slash
	}{
		{"/", "/", true, true},
		{"/", "/a", false, false},
		{"/a", "/a", true, true},
		{"/a", "/A", false, false},
		{"/a", "/a/", false, false},
		{"/a/", "/a/", true, true},
		{"/a", "/ab", false, false},
		{"/*", "/a", true, true},
		{"/*", "/", false, false},
		{"/*", "/a/b", false, false},
		{"/*", "/a/", false, false},
		{"/a/*/c", "/a/b/c", true, true},
		{"/a/*/c", "/a/b/d/c", false, false},
		{"/**", "/", true, true},
		{"/**", "/a/b/c", true, true},
		{"/a/**", "/a", true, true},
		{"/a/**", "/a/", true, true},
		{"/a/**", "/a/b/c", true, true},
		{"/a/**", "/ab", false, false},
		{"/a/**/z", "/a/z", true, true},
		{"/a/**/z", "/a/b/c/z", true, true},
		{"/a/**/z", "/a/b/c", false, false},
		{"/**/x/**/y", "/x/x/q/y", true, true},
		{"/**/x/*/y", "/x/x/q/y", true, true},
		{"/repos/*", "/repos/x%2Fadmin", true, false},
		{"/repos/*/*", "/repos/x%2Fadmin", false, true},
		{"/repos/**", "/repos%2Fx", false, true},
		{"/@types/*", "/@types%2Fnode", false, true},
		{"/@types%2Fnode", "/@types%2Fnode", true, false},
		{"/@evil/**", "/%40evil/x", true, true},
		{"/caf\u00e9", "/caf%C3%A9", true, true},
		{"/a b", "/a%20b", true, true},
		{"/%2A", "/*", true, true},
		{"/%2A", "/a", false, false},
	} {
		g, err := parseGlob(c.pattern)
		if err != nil {
			t.Errorf("%s: %v", c.pattern, err)
			continue
		}
		path, err := CanonicalPath(c.path)
		if err != nil {
			t.Fatal(err)
		}
		decoded, _ := appendDecoded(nil, path, encodedSlash)
		if together, apart := g.match(decoded, false), g.match(decoded, true); together != c.together || apart != c.apart {
			t.Errorf("%s on %s: %v and split %v", c.pattern, c.path, together, apart)
		}
	}
	for _, bad := range []string{"", "a", "*", "/a*", "/*.git", "/a//b", "/../a", "/%2e%2e", "/a;b", `/a\b`, "/%41",
		"/a?b", "/\x00", "/%zz", "/***", "/\xff"} {
		if _, err := parseGlob(bad); err == nil {
			t.Errorf("%q is taken for a pattern", bad)
		}
	}
	// Many stars do not cost exponential time.
	g, err := parseGlob(strings.Repeat("/**/a", 50))
	if err != nil {
		t.Fatal(err)
	}
	if g.match([]byte(strings.Repeat("/a", 4000)+"/b"), false) {
		t.Error("it matches")
	}
}

func TestPorts(t *testing.T) {
	for in, want := range map[string]string{"1": "1", "65535": "65535", "80-90": "80-90", "80-80": "80",
		"": "", "0": "", "65536": "", "080": "", "+80": "", "-80": "", "80-": "", "90-80": "", "80-90-95": "", " 80": "",
		"0x50": "", "８０": "", "1e3": "", "100000": ""} {
		r, err := parsePorts(in)
		if (err == nil) != (want != "") || err == nil && r.String() != want {
			t.Errorf("parsePorts(%q) = %v, %v", in, r, err)
		}
	}
	for _, c := range []struct {
		a, b string
		want bool
	}{{"1-65535", "80", true}, {"80", "80-81", false}, {"80-100 101-200", "90-150", true},
		{"80-100 102-200", "90-150", false}, {"443", "80 443", false}, {"65535", "65535", true}} {
		ranges := func(s string) (all []portRange) {
			for _, f := range strings.Fields(s) {
				r, _ := parsePorts(f)
				all = append(all, r)
			}
			return all
		}
		if got := coversPorts(ranges(c.a), ranges(c.b)); got != c.want {
			t.Errorf("%s covers %s: %v", c.a, c.b, got)
		}
	}
}
