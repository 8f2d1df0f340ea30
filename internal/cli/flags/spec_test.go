package flags

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/cove-sandbox/cove/api"
)

func TestParseMount(t *testing.T) {
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		in   string
		want api.Mount // zero: refused
	}{
		{"/a:/b", api.Mount{Source: "/a", Target: "/b"}},
		{"/a:/b:ro", api.Mount{Source: "/a", Target: "/b", ReadOnly: true}},
		{"/a:/b:rw", api.Mount{Source: "/a", Target: "/b"}},
		{"x/../y:/b", api.Mount{Source: filepath.Join(dir, "y"), Target: "/b"}},
		{"", api.Mount{}}, {"/a", api.Mount{}}, {":/b", api.Mount{}}, {"/a:b", api.Mount{}}, {"/a:/b:/c", api.Mount{}},
		{"/a:/b:wx", api.Mount{}},
	} {
		if got, err := parseMount(c.in); got != c.want || (err == nil) != (c.want != api.Mount{}) {
			t.Errorf("parseMount(%q) = %+v, %v; want %+v", c.in, got, err, c.want)
		}
	}
}
