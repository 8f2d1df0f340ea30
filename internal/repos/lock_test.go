package repos

import (
	"testing"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/git/gittest"
	"github.com/cove-sandbox/cove/internal/workspace"
)

// TestRemovedStaysRemoved: whoever has found a workspace just before it was removed does not make its directory again
// with the lock of a file in it.
func TestRemovedStaysRemoved(t *testing.T) {
	server := gittest.Start(t, gittest.Options{})
	s := newStore(t, server)
	w := create(t, s, spec("x", workspace.Repository{Source: server.Create("project.git").URL}))
	r, err := s.read(w.ID)
	if err != nil {
		t.Fatal(err)
	}
	for name, take := range map[string]func() error{
		"import": func() error {
			l, err := s.lockImports(t.Context(), r)
			if err == nil {
				l.Close()
			}
			return err
		},
		"read": func() error {
			l, err := keepImported(t.Context(), s.importOf(w.ID))
			if err == nil {
				l.Close()
			}
			return err
		},
	} {
		if err := take(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		defer func() {
			if err := take(); cove.ErrorCode(err) != cove.NotFound {
				t.Errorf("%s of what was removed: %v", name, err)
			}
			if exists(s.directory(w.ID)) {
				t.Errorf("%s has made the workspace's directory again", name)
			}
		}()
	}
	if err := s.Remove(t.Context(), w.ID, false); err != nil {
		t.Fatal(err)
	}
}
