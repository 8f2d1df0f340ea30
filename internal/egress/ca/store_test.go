package ca

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/clock"
)

func open(t *testing.T, home string) Store {
	t.Helper()
	s, err := OpenStore(home)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func save(t *testing.T, s Store, a *Authority) string {
	t.Helper()
	if err := s.Save(a); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(s.dir, string(a.sandbox)+".pem")
}

// TestRestart: a sandbox's authority survives a restart.
func TestRestart(t *testing.T) {
	home := t.TempDir()
	a := authority(t, clock.Real())
	save(t, open(t, home), a)

	b, err := open(t, home).Load(a.sandbox, clock.Real())
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(a.Certificate(), b.Certificate()) {
		t.Error("another certificate came back")
	}
	if _, err := parsed(t, mint(t, b, "example.com")).Verify(x509.VerifyOptions{
		Roots: trust(a), DNSName: "example.com",
	}); err != nil {
		t.Errorf("a leaf made after the restart: %v", err)
	}
}

func TestFilesAreNobodyElses(t *testing.T) {
	home := t.TempDir()
	if err := os.Mkdir(filepath.Join(home, "ca"), 0o755); err != nil {
		t.Fatal(err)
	}
	s, a := open(t, home), authority(t, clock.Real())
	path := save(t, s, a)
	for file, want := range map[string]fs.FileMode{path: 0o600, s.dir: 0o700 | fs.ModeDir} {
		if info, err := os.Stat(file); err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v; want %v", file, info.Mode(), err, want)
		}
	}
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Load(a.sandbox, clock.Real()); cove.ErrorCode(err) != cove.Corrupt {
		t.Errorf("a key that others could have read: %v", err)
	}
}

func TestRemove(t *testing.T) {
	s, a, b := open(t, t.TempDir()), authority(t, clock.Real()), authority(t, clock.Real())
	save(t, s, a)
	kept := save(t, s, b)
	left := filepath.Join(s.dir, "."+string(a.sandbox)+".pem.123") // the remains of a crash
	write(t, left, []byte("half a key"))
	write(t, filepath.Join(s.dir, "README"), nil)

	want := []cove.SandboxID{a.sandbox, b.sandbox}
	slices.Sort(want)
	if got, err := s.Sandboxes(); err != nil || !slices.Equal(got, want) {
		t.Errorf("Sandboxes() = %v, %v; want %v", got, err, want)
	}
	for range 2 { // removing a second time succeeds
		if err := s.Remove(a.sandbox); err != nil {
			t.Fatal(err)
		}
	}
	if files, _ := filepath.Glob(filepath.Join(s.dir, "*"+string(a.sandbox)+"*")); len(files) != 0 {
		t.Errorf("left behind: %v", files)
	}
	if _, err := s.Load(a.sandbox, clock.Real()); cove.ErrorCode(err) != cove.NotFound {
		t.Errorf("Load after Remove: %v", err)
	}
	if _, err := os.Stat(kept); err != nil {
		t.Errorf("another sandbox's authority: %v", err)
	}
}

func TestUnusableFiles(t *testing.T) {
	s, a, b := open(t, t.TempDir()), authority(t, clock.Real()), authority(t, clock.Real())
	path, other := save(t, s, a), save(t, s, b)
	good, _ := os.ReadFile(path)
	foreign, _ := os.ReadFile(other)
	cert, rest := pem.Decode(good)
	leaf := mint(t, a, "example.com")
	key, err := x509.MarshalPKCS8PrivateKey(leaf.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{
		"empty":            nil,
		"garbage":          []byte("garbage"),
		"cut":              good[:len(good)-20],
		"certificate only": pem.EncodeToMemory(cert),
		"key only":         rest,
		"another's":        foreign,
		"key of another": append(pem.EncodeToMemory(cert),
			pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})...),
		"a leaf": append(encode(leaf.Certificate[0]),
			pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})...),
		"larger than allowed": append(bytes.Repeat([]byte("\n"), maxFile), good...),
	} {
		t.Run(name, func(t *testing.T) {
			write(t, path, content)
			_, err := s.Load(a.sandbox, clock.Real())
			if cove.ErrorCode(err) != cove.Corrupt || cove.ErrorHint(err) == "" {
				t.Errorf("Load: %v", err)
			}
			if err != nil && strings.Contains(err.Error(), "PRIVATE KEY-----\n") {
				t.Errorf("the error shows the file: %v", err)
			}
		})
	}
	os.Remove(path)
	elsewhere := filepath.Join(t.TempDir(), "elsewhere.pem")
	write(t, elsewhere, good)
	if err := os.Symlink(elsewhere, path); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Load(a.sandbox, clock.Real()); cove.ErrorCode(err) != cove.Corrupt {
		t.Errorf("a symbolic link: %v", err)
	}
	for _, id := range []cove.SandboxID{"", "..", "../ca/x", cove.SandboxID("sb_" + strings.Repeat("0", 25) + "/"), "*"} {
		_, load := s.Load(id, clock.Real())
		for what, err := range map[string]error{"Load": load, "Remove": s.Remove(id),
			"Save": s.Save(&Authority{sandbox: id})} {
			if cove.ErrorCode(err) != cove.InvalidArgument {
				t.Errorf("%s of %q: %v", what, id, err)
			}
		}
	}
}

func BenchmarkSave(b *testing.B) {
	s, err := OpenStore(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	a := authority(b, clock.Real())
	for b.Loop() {
		if err := s.Save(a); err != nil {
			b.Fatal(err)
		}
	}
}
