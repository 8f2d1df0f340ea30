package flags

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/cove-sandbox/cove"
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
		{"", api.Mount{}}, {"/a", api.Mount{}}, {":/b", api.Mount{}}, {"/a:b", api.Mount{}}, {"/a:/b:/c", api.Mount{}}, {"/a:/b:wx", api.Mount{}},
	} {
		if got, err := parseMount(c.in); got != c.want || (err == nil) != (c.want != api.Mount{}) {
			t.Errorf("parseMount(%q) = %+v, %v; want %+v", c.in, got, err, c.want)
		}
	}
}

func TestFilesKeepTheirPlaceInside(t *testing.T) {
	t.Chdir(t.TempDir())
	outside := filepath.Join(t.TempDir(), "o.bin")
	for name, data := range map[string]string{"a.txt": "a", "d/b.txt": "b", outside: "\xff"} {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(data), 0o750); err != nil {
			t.Fatal(err)
		}
	}
	files, err := readFiles([]string{"./a.txt", "d/../d/b.txt", outside})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []api.File{{Path: "a.txt", Content: "a", Mode: 0o750}, {Path: "d/b.txt", Content: "b", Mode: 0o750},
		{Path: "o.bin", Content: "/w==", Encoding: "base64", Mode: 0o750}} {
		if files[i] != want {
			t.Errorf("%+v, want %+v", files[i], want)
		}
	}
	if err := os.Truncate("a.txt", maxFiles+1); err != nil {
		t.Fatal(err)
	}
	if _, err := readFiles([]string{"a.txt"}); cove.ErrorCode(err) != cove.TooLarge {
		t.Errorf("a file that is too large: %v", err)
	}
}
