package repos

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestOwnIndex: git reads the index that ownIndex has written as before, in all of its versions and with both kinds of
// ids, except for the owner of the files.
func TestOwnIndex(t *testing.T) {
	for _, format := range []string{"sha1", "sha256"} {
		for _, version := range []string{"2", "3", "4"} {
			t.Run(format+" "+version, func(t *testing.T) {
				dir := t.TempDir()
				git := func(args ...string) string {
					t.Helper()
					cmd := exec.Command("git", args...)
					cmd.Dir = dir
					cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null")
					out, err := cmd.CombinedOutput()
					if err != nil {
						t.Fatalf("git %q: %v\n%s", args, err, out)
					}
					return string(out)
				}
				git("init", "-q", "--object-format="+format)
				for i := range 40 {
					name := filepath.Join(dir, strings.Repeat("d", i%9+1), fmt.Sprint("f", i))
					if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
						t.Fatal(err)
					}
					if err := os.WriteFile(name, []byte(name), 0o644); err != nil {
						t.Fatal(err)
					}
				}
				git("add", ".")
				if version == "3" { // which git writes where an entry has more flags
					git("update-index", "--skip-worktree", "d/f0")
				} else {
					git("update-index", "--index-version", version)
				}
				file := filepath.Join(dir, ".git/index")
				before, entries := git("ls-files", "-s", "-v"), git("ls-files", "--debug")
				time, err := os.Stat(file)
				if err != nil {
					t.Fatal(err)
				}
				if data, _ := os.ReadFile(file); fmt.Sprint(data[7]) != version {
					t.Fatalf("the index has version %d", data[7])
				}
				if err := ownIndex(file, 4321, 8765, format == "sha256"); err != nil {
					t.Fatal(err)
				}
				if now := git("ls-files", "-s", "-v"); now != before {
					t.Errorf("it was\n%s and is\n%s", before, now)
				}
				owner := fmt.Sprintf("uid: %d\tgid: %d", os.Getuid(), os.Getgid())
				if want, now := strings.ReplaceAll(entries, owner, "uid: 4321\tgid: 8765"),
					git("ls-files", "--debug"); now != want || now == entries {
					t.Errorf("it is\n%s want\n%s", now, want)
				}
				if now, err := os.Stat(file); err != nil || !now.ModTime().Equal(time.ModTime()) {
					t.Errorf("it has another time: %v, %v", now, err)
				}
				git("fsck", "--strict")
			})
		}
	}
	for _, bad := range []string{"", "DIRC", "DIRC\x00\x00\x00\x02\x00\x00\x00\x05" + strings.Repeat("x", 60),
		"DIRC\x00\x00\x00\x09\x00\x00\x00\x00" + strings.Repeat("x", 20),
		"DIRC\x00\x00\x00\x04\x00\x00\x00\x01" + strings.Repeat("\xff", 200)} {
		if setOwner([]byte(bad), 1, 1, false) == nil {
			t.Errorf("%q is taken for an index", bad)
		}
	}
}

// FuzzSetOwner: a broken index is neither read nor written beyond its end, and a changed one keeps its size.
func FuzzSetOwner(f *testing.F) {
	entry := append(make([]byte, indexStat+20), 0, 1, 'a', 0)
	for version := range byte(6) {
		f.Add(append(append([]byte{'D', 'I', 'R', 'C', 0, 0, 0, version, 0, 0, 0, 1}, entry...), make([]byte, 28)...), false)
	}
	f.Fuzz(func(t *testing.T, data []byte, long bool) {
		size := len(data)
		if err := setOwner(data, 1000, 1000, long); err == nil && len(data) != size {
			t.Errorf("%d bytes are %d", size, len(data))
		}
	})
}
