package image

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestNotes: a note is found by its name, if it is whole, and those that were used the longest ago make room.
func TestNotes(t *testing.T) {
	s := newStore(t)
	b := BuildsOf(s)
	key := strings.Repeat("0123456789abcdef", 4)
	if err := b.Note("one", key); err != nil {
		t.Fatal(err)
	}
	if got, err := b.Noted("one"); err != nil || got != key {
		t.Errorf("%q, %v", got, err)
	}
	for _, text := range []string{"", key[1:], "../" + key[3:], key + "0"} {
		writeFile(t, filepath.Join(string(notesOf(s)), "other"), []byte(text))
		if got, err := b.Noted("other"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%q says %q, %v", text, got, err)
		}
	}
	if _, err := b.Noted("none"); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	for i := range maxNotes {
		path := writeFile(t, filepath.Join(string(notesOf(s)), fmt.Sprintf("old-%d", i)), []byte(key))
		at := time.Now().Add(-time.Hour - time.Duration(i)*time.Minute)
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Note("two", key); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(string(notesOf(s)))
	if err != nil || len(left) != maxNotes {
		t.Errorf("%d notes are left, %v", len(left), err)
	}
	for name, want := range map[string]bool{"one": true, "two": true, "old-0": true, fmt.Sprint("old-", maxNotes-1): false,
		fmt.Sprint("old-", maxNotes-3): false, fmt.Sprint("old-", maxNotes-4): true} {
		if _, err := b.Noted(name); (err == nil) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
}
