//go:build linux

package real

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"crypto/tls"

	"github.com/cove-sandbox/cove/internal/git/gittest"
	"github.com/cove-sandbox/cove/test/modeltest"
)

// populate puts into the world what the documents speak of: providers of models, GitHub and another git server, and
// hosts whose pages say what was asked for.
func (w *world) populate(t *testing.T) {
	t.Helper()
	script, err := modeltest.Parse("the documents'", []byte(modelSays))
	if err != nil {
		t.Fatal(err)
	}
	models := modeltest.New(modeltest.Options{Script: script})
	for _, host := range []string{"api.anthropic.com", "api.openai.com"} {
		w.Site(host, models)
	}
	git := gittest.Start(t, gittest.Options{User: "ada", Password: token, Token: token, Anonymous: true})
	for _, path := range []string{"owner/repo.git", "owner/tool.git", "team/app.git", "group/repository.git"} {
		r := git.Create(path)
		r.Branch("release/2", "main")
		author := gittest.NewGit(t, t.TempDir())
		author.Run("clone", "-q", r.Dir, "a")
		author = author.In("a")
		author.Commit("Say hello", "README.md", "hello\n")
		author.Run("push", "-q", "origin", "HEAD:main")
	}
	address, err := url.Parse(git.URL("/"))
	if err != nil {
		t.Fatal(err)
	}
	forge := httputil.NewSingleHostReverseProxy(address)
	forge.Transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: git.Roots}}
	for _, host := range []string{"github.com", "git.example", "git.example.com"} {
		w.Site(host, forge)
	}
	w.Site("api.github.com", http.HandlerFunc(serveGitHub))
	for _, host := range []string{"api.example.com", "docs.example.com", "tracker.example.com", "upload.example.com"} {
		w.Lead(host)
	}
}

// token is what GitHub in the world takes.
const token = "ghp_of0ada0in0the0documents0000000000000"

// serveGitHub answers as GitHub's API does what gh asks of an issue.
func serveGitHub(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 64<<10))
	if err != nil || !strings.HasSuffix(r.URL.Path, "/graphql") || !strings.Contains(string(body), "issue") {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(map[string]any{"data": map[string]any{"repository": map[string]any{
		"hasIssuesEnabled": true,
		"issue": map[string]any{"__typename": "Issue", "number": 42, "title": "Make login work",
			"body": "The failing test says what is wrong.", "url": "https://github.com/owner/repo/issues/42"},
	}}})
}

// modelSays is what models answer.
const modelSays = `aside: A title
prompts:
  - when: failing test
    turns:
      - say: The test will tell what is wrong.
        do: [{shell: "python3 -m unittest -q 2>&1 | tail -1"}]
      - do: [{write: {path: add.py, content: "def add(a, b):\n    return a + b\n"}}]
      - say: Add subtracted, and adds now.
  - when: review
    turns: [{answer: {verdict: fine}}]
  - turns:
      - do: [{shell: ls}]
      - say: I have looked at it.
`
