package cli

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
	l, err := openServerLog(path, 100)
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
	if l, err = openServerLog(path, 100); err != nil { // as the next server does
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

func TestLastLines(t *testing.T) {
	for _, c := range []struct {
		text string
		n    int
		want string
	}{
		{"a\nb\nc\n", 2, "b\nc\n"}, {"a\nb\nc\n", 1, "c\n"}, {"a\nb\nc\n", 3, "a\nb\nc\n"}, {"a\nb\nc\n", 9, "a\nb\nc\n"}, {"a\nb\nc\n", 0, ""},
		{"a\nb", 1, "b"}, {"", 5, ""}, {"\n", 1, "\n"}, {"\n\n", 1, "\n"},
	} {
		if got := string(lastLines([]byte(c.text), c.n)); got != c.want {
			t.Errorf("the last %d of %q are %q, want %q", c.n, c.text, got, c.want)
		}
	}
}
