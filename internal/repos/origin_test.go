package repos

import (
	"testing"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/git/gittest"
)

// TestOrigin: only an address is one to push to.
func TestOrigin(t *testing.T) {
	git := gittest.NewGit(t, t.TempDir())
	git.Run("init", "-q")
	for origin, want := range map[string]string{
		"https://git.example/owner/app.git":     "https://git.example/owner/app.git",
		"git@git.example:owner/app.git":         "https://git.example/owner/app.git",
		"/srv/app.git":                          "",
		"../app.git":                            "",
		"file:///srv/app.git":                   "",
		"https://me:secret@git.example/app.git": "",
		"https://localhost:3000/owner/app.git":  "",
		"ssh://git@127.0.0.1:2222/owner/app":    "",
		"git@[::1]:owner/app.git":               "",
		"https://169.254.169.254/app.git":       "",
		"https://10.1.2.3/owner/app.git":        "https://10.1.2.3/owner/app.git",
		"":                                      "",
	} {
		git.Try("config", "--unset-all", "remote.origin.url")
		if origin != "" {
			git.Run("config", "remote.origin.url", origin)
		}
		got, err := Origin(t.Context(), git.Dir)
		if got != want || (want == "") != (cove.ErrorCode(err) == cove.Conflict) {
			t.Errorf("%q: %q, %v; want %q", origin, got, err, want)
		}
	}
}
