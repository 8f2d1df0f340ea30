package run

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/cli/flags"
)

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
	for i, want := range []api.File{{Path: "a.txt", Content: "a", Mode: 0o750},
		{Path: "d/b.txt", Content: "b", Mode: 0o750},
		{Path: "o.bin", Content: "/w==", Encoding: "base64", Mode: 0o750}} {
		if files[i] != want {
			t.Errorf("%+v, want %+v", files[i], want)
		}
	}
	if err := os.Truncate("a.txt", flags.MaxFiles+1); err != nil {
		t.Fatal(err)
	}
	if _, err := readFiles([]string{"a.txt"}); cove.ErrorCode(err) != cove.TooLarge {
		t.Errorf("a file that is too large: %v", err)
	}
}
