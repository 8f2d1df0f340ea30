//go:build linux

package unixconn

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDoor: a listening socket works with a path longer than a socket address, and only its owner may connect.
func TestDoor(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("long", 40))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "door")
	door, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	defer door.Close()
	if fi, err := os.Stat(path); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("the socket's file: %v, %v", fi.Mode(), err)
	}
	if _, err := Listen(path); err == nil {
		t.Error("a second one at the same path")
	}
	for _, word := range []string{"one", "two"} {
		came := make(chan error, 1)
		go func() {
			c, err := Accept(door)
			if err == nil {
				_, err = c.Write([]byte(word))
				c.Close()
			}
			came <- err
		}()
		c, err := Dial(path)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(c)
		if err != nil || string(got) != word {
			t.Errorf("%q, %v; want %q", got, err, word)
		}
		c.Close()
		if err := <-came; err != nil {
			t.Error(err)
		}
	}
	if _, err := Dial(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no door: %v", err)
	}
}
