package interact

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/git/folder"
)

func TestLines(t *testing.T) {
	made := &api.SandboxRepository{Branch: "fix", From: "main", Base: "0123456789"}
	for name, c := range map[string]struct {
		standing folder.Standing
		ignored  []measured
		asked    api.RepositoryRequest
		made     *api.SandboxRepository
		want     []string
	}{
		"nothing": {made: made},
		"files": {standing: folder.Standing{Changed: 1, Untracked: 3}, made: made, want: []string{
			"1 changed file is not taken (--uncommitted takes it)",
			"3 untracked files are not taken (--uncommitted takes them)",
		}},
		"files that are taken": {standing: folder.Standing{Changed: 1, Untracked: 3}, made: made,
			asked: api.RepositoryRequest{Uncommitted: true}},
		"no branch": {standing: folder.Standing{Detached: "c104574aaaa"}, made: made,
			want: []string{"HEAD is detached at c104574; the sandbox begins at main"}},
		"a beginning that was asked for": {standing: folder.Standing{Detached: "c104574aaaa"}, made: made,
			asked: api.RepositoryRequest{From: "v1"}},
		"empty": {made: &api.SandboxRepository{Branch: "fix"},
			want: []string{"the repository is empty: the branch fix begins with nothing"}},
		"ignored": {ignored: []measured{{"a", 1, false}, {"b", 5 << 20, true}, {"c", 1 << 10, false}, {"d", 1, false},
			{"e", 1, false}, {"f", 2, false}}, asked: api.RepositoryRequest{Uncommitted: true},
			want: []string{"left out because ignored: b (over 5 MiB), c (1 KiB), f (2 B), a (1 B), 2 more (2 B); " +
				"--with-ignored PATH takes one"}},
		"ignored, and taken": {ignored: []measured{{"node_modules/", 1, false}, {".env", 2, false}},
			asked: api.RepositoryRequest{Uncommitted: true, Ignored: []string{"node_modules", "./.env"}}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := lines(c.standing, c.ignored, c.asked, c.made); !slices.Equal(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// TestMeasure: files are added up, links are not followed, and a context that has ended ends it.
func TestMeasure(t *testing.T) {
	top := t.TempDir()
	for path, size := range map[string]int{"deps/a/b": 1000, "deps/c": 24, "one": 7} {
		file := filepath.Join(top, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755),
			os.WriteFile(file, make([]byte, size), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/", filepath.Join(top, "deps", "root")); err != nil {
		t.Fatal(err)
	}
	want := []measured{{"deps", 1024, false}, {"one", 7, false}}
	if got := measure(t.Context(), top, []string{"deps/", "one"}); !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if got := measure(ended, top, []string{"deps/"}); !slices.Equal(got, []measured{{"deps", 0, true}}) {
		t.Errorf("it went on: %+v", got)
	}
}

// TestNoTimeToLook: a directory that takes too long to look at is not taken for one from which nothing is left out.
func TestNoTimeToLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		over := make(chan struct{})
		close(over)
		for uncommitted, want := range map[bool]string{
			false: "there was no time to look for changed, untracked and ignored files, which are not taken " +
				"(git status --ignored shows them)",
			true: "there was no time to look for ignored files, which are left out (git status --ignored shows them)",
		} {
			asked := api.RepositoryRequest{Uncommitted: uncommitted}
			for name, l := range map[string]*LeftOut{
				"still looking": {ready: make(chan struct{}), asked: asked},
				"given up":      {ready: over, asked: asked, err: context.DeadlineExceeded},
			} {
				if got := l.Lines(nil); !slices.Equal(got, []string{want}) {
					t.Errorf("%s: %q, want %q", name, got, want)
				}
			}
		}
	})
}
