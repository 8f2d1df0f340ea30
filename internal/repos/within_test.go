package repos

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/git/gittest"
	"github.com/cove-sandbox/cove/internal/workspace"
)

// TestWithin: a checkout in another sandbox's home has its own repository and branch, borrows where that sandbox does,
// and is removed alone.
func TestWithin(t *testing.T) {
	server := gittest.Start(t, gittest.Options{})
	repo := server.Create("project.git")
	s := newStore(t, server)
	source := workspace.Repository{Source: repo.URL}
	host := create(t, s, ownSpec("host", source))
	of := func(name string) workspace.Spec {
		q := ownSpec(name, source)
		q.Within = host.ID
		return q
	}
	one, two := create(t, s, of("one")), create(t, s, of("two"))
	place := func(w workspace.Workspace) string { return filepath.Join(host.Home, filepath.Base(w.Place)) }
	for _, w := range []workspace.Workspace{one, two} {
		if filepath.Dir(w.Place) != cove.Home || w.Directory != "" || w.Home != "" || w.Borrowed != "" {
			t.Errorf("%+v", w)
		}
		if again, err := s.Open(t.Context(), w.ID); err != nil || again.Place != w.Place || again.Branch != w.Branch {
			t.Errorf("%+v, %v", again, err)
		}
		if got := read(t, place(w), ".git/HEAD"); got != "ref: refs/heads/"+w.Branch+"\n" {
			t.Errorf("it has checked out %q", got)
		}
		if got := read(t, place(w), ".git/objects/info/alternates"); got != "/run/cove/objects\n" {
			t.Errorf("it borrows from %q", got)
		}
	}
	if one.Branch == two.Branch || one.Place == two.Place {
		t.Errorf("%+v and %+v", one, two)
	}

	other := ownSpec("robot", source)
	other.Within, other.Owner = host.ID, cove.KeyHolder("robot")
	nested := ownSpec("nested", source)
	nested.Within = one.ID
	dirty := of("dirty")
	dirty.Repository.Uncommitted = true
	elsewhere := of("elsewhere")
	elsewhere.Repository.Source = server.Create("other.git").URL
	gone := of("gone")
	gone.Within = cove.NewSandboxID()
	for name, c := range map[string]struct {
		spec workspace.Spec
		code cove.Code
	}{
		"another owner's": {other, cove.Forbidden}, "within one that is within": {nested, cove.Forbidden},
		"what is not committed": {dirty, cove.Unsupported},
		"another repository":    {elsewhere, cove.Conflict}, "a sandbox that is not there": {gone, cove.NotFound},
	} {
		if _, err := s.Create(t.Context(), c.spec, nil); cove.ErrorCode(err) != c.code {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got := names(t, host.Home); len(got) != len(filepath.Base(one.Place)+" "+filepath.Base(two.Place)) {
		t.Errorf("in the home are %s", got)
	}

	if err := s.Remove(t.Context(), one.ID, true); cove.ErrorCode(err) != cove.Unsupported {
		t.Errorf("keeping its work: %v", err)
	}
	if err := s.Remove(t.Context(), one.ID, false); err != nil {
		t.Fatal(err)
	}
	if exists(place(one)) || !exists(place(two)) || !exists(host.Directory) {
		t.Errorf("left is %s", names(t, host.Home))
	}
	if ids, err := s.List(t.Context()); err != nil || len(ids) != 2 {
		t.Errorf("%v, %v", ids, err)
	}
}

// TestWithinHostile: a sandbox's substitutes for a checkout in it are not followed.
func TestWithinHostile(t *testing.T) {
	server := gittest.Start(t, gittest.Options{})
	s := newStore(t, server)
	source := workspace.Repository{Source: server.Create("project.git").URL}
	host := create(t, s, ownSpec("host", source))
	outside := t.TempDir()
	if err := os.WriteFile(filepath.Join(outside, "file"), []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, put := range map[string]func(place string) error{
		"a link":  func(place string) error { return os.Symlink(outside, place) },
		"a file":  func(place string) error { return os.WriteFile(place, []byte("x"), 0o600) },
		"nothing": func(string) error { return nil },
		"a directory that leads out": func(place string) error {
			if err := os.Mkdir(place, 0o755); err != nil {
				return err
			}
			return os.Symlink(outside, filepath.Join(place, "in"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			q := ownSpec("one", source)
			q.Within = host.ID
			w := create(t, s, q)
			place := filepath.Join(host.Home, filepath.Base(w.Place))
			if err := os.RemoveAll(place); err != nil {
				t.Fatal(err)
			}
			if err := put(place); err != nil {
				t.Fatal(err)
			}
			r, err := s.read(w.ID)
			if err != nil {
				t.Fatal(err)
			}
			if name != "nothing" {
				if err := os.Mkdir(filepath.Join(s.directory(w.ID), checkoutDir), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := s.lend(r); err == nil {
					t.Error("what the sandbox has there was replaced")
				}
			}
			if err := s.Remove(t.Context(), w.ID, false); err != nil {
				t.Error(err)
			}
			if names(t, host.Home) != "" || names(t, outside) != "file" {
				t.Errorf("left are %q inside, and %q outside", names(t, host.Home), names(t, outside))
			}
		})
	}
}
