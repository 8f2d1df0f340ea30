package gittest

import (
	"net/http"
	"strings"
	"testing"
)

// TestServer: what comes in is logged as it was, and accounts are asked for.
func TestServer(t *testing.T) {
	s := Start(t, Options{User: "robot", Password: "word", Token: "tok"})
	r := s.Create("group/repo.git")
	topic := r.Branch("topic", "main")
	git := s.Client()
	if got := git.Try("clone", "-q", r.URL, "none"); got.Code != 128 ||
		!strings.Contains(got.Stderr, "terminal prompts disabled") {
		t.Errorf("without an account: %+v", got)
	}
	s.Forget()
	git.Run("clone", "-q", strings.Replace(r.URL, "https://", "https://robot:word@", 1), "a")
	if got := s.Received(); len(got) < 3 || got[0].Status != http.StatusUnauthorized ||
		got[1].Header.Get("Authorization") != "Basic cm9ib3Q6d29yZA==" {
		t.Errorf("%+v", got)
	}
	if got := git.In("a").Run("rev-parse", "origin/topic"); got != topic {
		t.Errorf("topic is %s, want %s", got, topic)
	}
	git = git.In("a").With("GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=http.extraHeader",
		"GIT_CONFIG_VALUE_0=Authorization: Bearer tok")
	made := git.Commit("large", "large", strings.Repeat("0123456789abcdef", 1<<17))
	before := r.Refs()
	git.Run("-c", "http.postBuffer=65536", "-c", "core.compression=0", "push", "-q", r.URL, "HEAD:refs/heads/new")
	if after := r.Refs(); after == before || !strings.Contains(after, "refs/heads/new "+made) {
		t.Errorf("%s", after)
	}
	var chunks bool
	for _, got := range s.Received() {
		chunks = chunks || got.Chunks && got.Body > 2<<20 && got.String() == "POST /group/repo.git/git-receive-pack"
	}
	if !chunks {
		t.Errorf("no push in chunks: %v", s.Received())
	}
}

// TestFaults: each of them is what clients see.
func TestFaults(t *testing.T) {
	waiting, released := make(chan struct{}), make(chan struct{})
	var moved *Server
	moved = Start(t, Options{Wrap: Redirect("/old.git", func() string { return moved.URL("repo.git") }, http.StatusFound)})
	for name, c := range map[string]struct {
		server *Server
		path   string
		says   string // nothing: it succeeds
	}{
		"broken":   {Start(t, Options{Wrap: Break("git-upload-pack", 100)}), "repo.git", "fatal"},
		"moved":    {moved, "old.git", ""},
		"dumb":     {Start(t, Options{Dumb: true}), "repo.git", ""},
		"held":     {Start(t, Options{Wrap: Hold("info/refs", waiting, released)}), "repo.git", ""},
		"answered": {Start(t, Options{Wrap: Answer("info/refs", http.NotFound)}), "repo.git", "not found"},
		"HTTP/1":   {Start(t, Options{HTTP1: true}), "repo.git", ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := c.server.Create("repo.git")
			r.Run("update-server-info")
			if name == "held" {
				go func() { <-waiting; close(released) }()
			}
			got := c.server.Client().Try("clone", "-q", c.server.URL(c.path), "a")
			if (got.Code == 0) != (c.says == "") || !strings.Contains(got.Stderr, c.says) {
				t.Errorf("%+v", got)
			}
		})
	}
}
