package session

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestServerLogBeginsAnew: the file and the one before it hold the end of what
// was written, whole lines of it, and neither becomes large.
func TestServerLogBeginsAnew(t *testing.T) {
	path := filepath.Join(t.TempDir(), "server.log")
	l, err := OpenServerLog(path, 100)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 50 {
		if _, err := fmt.Fprintf(l, "line %02d\n", i); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if l, err = OpenServerLog(path, 100); err != nil { // as the next server does
		t.Fatal(err)
	}
	fmt.Fprintln(l, "line 50")
	l.Close()
	var all string
	for _, name := range []string{path + ".1", path} {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if len(data) > 100 || len(data) == 0 {
			t.Errorf("%s has %d bytes", filepath.Base(name), len(data))
		}
		all += string(data)
	}
	lines := strings.Split(strings.TrimSuffix(all, "\n"), "\n")
	for i, line := range lines {
		if want := fmt.Sprintf("line %02d", 51-len(lines)+i); line != want {
			t.Fatalf("%q, want %q in\n%s", line, want, all)
		}
	}
}
