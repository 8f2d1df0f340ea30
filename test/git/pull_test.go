//go:build linux

package git

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cove-sandbox/cove/internal/git/gittest"
)

// forge answers for the API of a GitHub Enterprise server that is beside git.
type forge struct {
	mu     sync.Mutex
	opened []string // what was asked to be opened, "TITLE: HEAD into BASE"
	of     []string // the repository of each, "OWNER/REPO"
	rest   []string // what else was asked of the API
}

func (f *forge) wrap(git http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, "/api/") {
			git.ServeHTTP(w, r)
			return
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		var p struct{ Title, Head, Base, Body string }
		of, pulls := strings.CutSuffix(strings.TrimPrefix(r.URL.Path, "/api/v3/repos/"), "/pulls")
		if r.Method != http.MethodPost || !pulls || !strings.HasPrefix(of, "owner/") ||
			json.NewDecoder(r.Body).Decode(&p) != nil {
			f.rest = append(f.rest, r.Method+" "+r.URL.Path)
			http.NotFound(w, r)
			return
		}
		if slices.Contains(f.of, of) {
			w.WriteHeader(http.StatusUnprocessableEntity)
			fmt.Fprint(w,
				`{"message":"Validation Failed","errors":[{"message":"A pull request already exists for owner:own."}]}`)
			return
		}
		f.opened = append(f.opened, fmt.Sprintf("%s: %s into %s", p.Title, p.Head, p.Base))
		f.of = append(f.of, of)
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, `{"number":7,"html_url":"https://%s/%s/pull/7"}`, host, of)
	})
}

// TestPullRequest: without gh a pull request is opened by the API of the server
// that git is pushed to, with the same credential, which only the gateway has.
func TestPullRequest(t *testing.T) {
	f := &forge{}
	l := newLab(t, gittest.Options{Token: password, Wrap: f.wrap})
	l.lasting()
	// pr runs the command where no gh is; the server runs already.
	pr := func() (stdout, stderr string) {
		l.cove("list")
		cmd := l.command("pr", "box", "--yes")
		cmd.Env = append(cmd.Env, "PATH="+l.dir)
		var out, said bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &said
		cmd.Run()
		return out.String(), said.String()
	}
	address := fmt.Sprintf("https://%s:%d", host, l.server.Addr().Port)
	l.write(".gitconfig", "[credential]\n\thelper = store --file "+l.path("logins")+"\n")
	l.write("logins", strings.Replace(address, "https://", "https://robot:"+password+"@", 1)+"\n")
	r := l.server.Create("owner/repo.git")
	l.write("cove.yaml", fmt.Sprintf("gateway:\n  extra_cas: [%s]\n", l.server.CA))
	l.cove("new", l.remote("owner/repo.git"), "own", "--name", "box", "--no-attach")
	if out, code := l.in("box",
		"git -c user.name=A -c user.email=a@x.example commit -q --allow-empty -m 'Say hello'"); code != 0 {
		t.Fatal(out)
	}
	// A server that nobody has named is none of GitHub's.
	if out, said := pr(); out != address+"/owner/repo/compare/main...own?expand=1\n" {
		t.Errorf("%s%s", out, said)
	}
	if len(f.opened)+len(f.rest) > 0 {
		t.Fatalf("opened %q, and asked %q", f.opened, f.rest)
	}
	l.cove("server", "stop")
	l.write("cove.yaml", fmt.Sprintf("gateway:\n  extra_cas: [%s]\n  github_hosts: [%s]\n", l.server.CA, host))
	if out, said := pr(); out != "https://"+host+"/owner/repo/pull/7\n" {
		t.Errorf("%s%s", out, said)
	}
	if len(f.opened) != 1 || f.opened[0] != "Say hello: own into main" || len(f.rest) > 0 {
		t.Errorf("opened %q, and asked %q", f.opened, f.rest)
	}
	if refs := r.Refs(); !strings.Contains(refs, "refs/heads/own ") {
		t.Errorf("%s", refs)
	}
	if out, said := pr(); out != "" || !strings.Contains(said, "A pull request already exists") {
		t.Errorf("again: %s%s", out, said)
	}
}
