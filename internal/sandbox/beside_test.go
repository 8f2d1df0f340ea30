package sandbox_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/sandbox"
	"github.com/cove-sandbox/cove/internal/store"
	"github.com/cove-sandbox/cove/internal/workspace"
)

// besides keeps what it is asked for, and refuses it.
type besides struct{ asked sandbox.HiddenGit }

func (b *besides) OpenGit(_ context.Context, h sandbox.HiddenGit) (sandbox.GitService, error) {
	b.asked = h
	return nil, errors.New("refused")
}

// TestGitOfWorktreeIsItsOwners: what programs in a worktree's sandbox do with git is recorded among what its owner has
// done, and so does not count as another's when records give way.
func TestGitOfWorktreeIsItsOwners(t *testing.T) {
	h := newHome(t)
	h.workspaces.hidden = t.TempDir()
	git, ci := &besides{}, cove.KeyHolder("ci")
	s := h.serve(t)
	host := h.lasting()
	host.Git = git
	if err := s.Adopt(t.Context(), host); err != nil {
		t.Fatal(err)
	}
	s.Create(t.Context(), ci, sandbox.Request{Name: "one",
		Repository: &workspace.Repository{Source: "o/r", Worktree: true}}, nil)
	if git.asked.Audit == nil {
		t.Fatal("git was not asked for")
	}
	git.asked.Audit([]string{"push", "--force"}, cove.Errorf(cove.Forbidden, "no"))
	page, err := h.store.Audit(t.Context(), store.AuditQuery{Action: "sandbox-git", Limit: 10})
	if err != nil || len(page.Records) != 1 {
		t.Fatalf("%+v, %v", page, err)
	}
	r := page.Records[0]
	if r.Who != ci.String() || r.Verdict != "deny" || !strings.Contains(r.Detail, `a program in one: ["push" "--force"]`) {
		t.Errorf("%+v", r)
	}
}
