package driver

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var goBlock = regexp.MustCompile("(?ms)^```go\n(.*?)^```")

// TestDocumentedPrograms compiles the whole programs in Go that documents have.
func TestDocumentedPrograms(t *testing.T) {
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("needs the go command")
	}
	found := 0
	for _, name := range []string{"driver.md", "api.md"} {
		text, err := os.ReadFile(filepath.Join("..", "docs", name))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range goBlock.FindAllStringSubmatch(string(text), -1) {
			if !strings.HasPrefix(m[1], "package main\n") {
				continue
			}
			found++
			file := filepath.Join(t.TempDir(), "main.go")
			if err := os.WriteFile(file, []byte(m[1]), 0o644); err != nil {
				t.Fatal(err)
			}
			out, err := exec.CommandContext(t.Context(), "go", "build", "-o", os.DevNull, file).CombinedOutput()
			if err != nil {
				t.Errorf("docs/%s: %v\n%s", name, err, out)
			}
		}
	}
	if found == 0 {
		t.Error("no program was found; the search is wrong")
	}
}
