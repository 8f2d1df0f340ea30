package ca

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/rootfs"
)

func TestJavaKeystore(t *testing.T) {
	a := authority(t, clock.Real())
	other := authority(t, clock.Real())
	data, err := a.JavaKeystore(NewJavaRoots(other.Certificate()))
	if err != nil {
		t.Fatal(err)
	}
	again, err := a.JavaKeystore(NewJavaRoots(other.Certificate()))
	if err != nil || string(again) != string(data) {
		t.Errorf("made again it differs (%v)", err)
	}
	keytool, err := exec.LookPath("keytool")
	if err != nil {
		t.Skip("keytool is not installed")
	}
	file := filepath.Join(t.TempDir(), "cacerts")
	if err := os.WriteFile(file, data, 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(keytool, "-list", "-rfc", "-keystore", file, "-storepass", javaPassword).CombinedOutput()
	text := strings.ReplaceAll(string(out), "\r", "")
	if err != nil || !strings.Contains(text, "contains 2 entries") {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, c := range []*Authority{a, other} {
		if !strings.Contains(text, strings.TrimSpace(string(c.Certificate()))) {
			t.Errorf("a certificate is missing in\n%s", text)
		}
	}
}

func TestJavaStores(t *testing.T) {
	dir := t.TempDir()
	write := func(name string) {
		t.Helper()
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	link := func(to, name string) {
		t.Helper()
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(to, name); err != nil {
			t.Fatal(err)
		}
	}
	if got := JavaStores(rootfs.Stack{dir}); len(got) > 0 {
		t.Errorf("without Java: %q", got)
	}
	write("etc/ssl/certs/java/cacerts")
	link("/etc/ssl/certs/java/cacerts", "usr/lib/jvm/a/lib/security/cacerts")
	link("../../../../../../etc/pki/elsewhere", "usr/lib/jvm/b/lib/security/cacerts")
	write("opt/java/openjdk/lib/security/cacerts")
	link("cacerts", "usr/local/loop/lib/security/cacerts")
	link("/etc", "usr/lib/jvm/outside")              // not followed
	link("../../../../../../../etc", "usr/java/out") // not followed
	want := []string{"/etc/ssl/certs/java/cacerts", "/etc/pki/elsewhere", "/opt/java/openjdk/lib/security/cacerts",
		"/usr/local/loop/lib/security/cacerts"}
	if got := JavaStores(rootfs.Stack{dir}); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := JavaStores(rootfs.Stack{filepath.Join(dir, "nothing")}); len(got) > 0 {
		t.Errorf("without a root: %q", got)
	}
}

func BenchmarkJavaKeystore(b *testing.B) {
	roots, err := SystemRoots(os.Getenv)
	if err != nil {
		b.Skip(err)
	}
	a := authority(b, clock.Real())
	read := NewJavaRoots(roots)
	for b.Loop() {
		if _, err := a.JavaKeystore(read); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkJavaStores(b *testing.B) {
	for b.Loop() {
		JavaStores(rootfs.Stack{"/"})
	}
}
