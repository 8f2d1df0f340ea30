//go:build linux

package git

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cove-sandbox/cove/internal/git/gittest"
	"github.com/cove-sandbox/cove/internal/git/pktline"
)

// blocked is what a server says in place of an answer.
const blocked = "the owner of this account is asked to call us"

// answers are forms in which git servers say why they do not answer, by the place where they do.
func answers() map[string]map[string]http.HandlerFunc {
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { http.Error(w, blocked, code) }
	}
	packets := func(write func(p *pktline.Writer, push, two bool)) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			service := r.URL.Query().Get("service")
			kind := "-advertisement"
			if service == "" {
				service, kind = r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:], "-result"
			}
			w.Header().Set("Content-Type", "application/x-"+service+kind)
			write(pktline.NewWriter(w), service == "git-receive-pack", r.Header.Get("Git-Protocol") == "version=2")
		}
	}
	refuse := packets(func(p *pktline.Writer, _, _ bool) { p.Text("ERR %s", blocked) })
	// Band 3 is for a server's last words; they come after some of the answer.
	band := packets(func(p *pktline.Writer, push, two bool) {
		switch {
		case two && !push:
			p.Text("packfile")
		case !push:
			p.Text("NAK")
		}
		fmt.Fprintf(p.Band(pktline.Fatal, pktline.MaxBand), "%s\n", blocked)
	})
	return map[string]map[string]http.HandlerFunc{
		// Not 401: git answers that with a login, and does not show what else was said.
		"list": {"ERR": refuse, "403": status(403), "404": status(404), "429": status(429),
			"503": status(503)},
		"fetch": {"ERR": refuse, "band 3": band},
		"push":  {"ERR": refuse, "band 3": band},
	}
}

// TestServerSays: what a git server says of why it does not answer reaches the user, inside a sandbox and on the host.
func TestServerSays(t *testing.T) {
	var fault atomic.Pointer[func(w http.ResponseWriter, r *http.Request) bool]
	l := newLab(t, gittest.Options{User: "robot", Password: password, Wrap: func(git http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if f := fault.Load(); f == nil || !(*f)(w, r) {
				git.ServeHTTP(w, r)
			}
		})
	}})
	l.lasting()
	l.server.Create("repo.git")
	l.server.Create("never.git") // the store never gets it
	l.write("cove.yaml", fmt.Sprintf("gateway: {extra_cas: [%s]}\n", l.server.CA))
	l.write(".gitconfig", "[credential]\n\thelper = store\n")
	l.write(".git-credentials", fmt.Sprintf("https://robot:%s@%s:%d\n", password, host, l.server.Addr().Port))
	l.cove("new", l.remote("repo.git"), "own", "--name", "box", "--no-attach")
	if out, code := l.in("box", fixed+"git commit -q --allow-empty -m work"); code != 0 {
		t.Fatal(out)
	}
	on := func(args ...string) func() (string, bool) {
		return func() (string, bool) {
			out, err := l.command(args...).CombinedOutput()
			return string(out), err == nil
		}
	}
	in := func(script string) func() (string, bool) {
		return func() (string, bool) {
			out, code := l.in("box", script)
			return out, code == 0
		}
	}
	users := []struct {
		name, meets string // the places whose answers it meets
		run         func() (string, bool)
	}{
		{"fetch, version 0", "list fetch", in("git -c protocol.version=0 fetch --refetch origin")},
		{"fetch, version 2", "list fetch", in("git -c protocol.version=2 fetch --refetch origin")},
		{"push", "list push", in("git push origin HEAD")},
		{"cove new", "list fetch", on("new", l.remote("never.git"), "--name", "none", "--no-attach")},
		{"cove push", "list push", on("push", "box", "--yes")},
	}
	for at, forms := range answers() {
		service := map[string]string{"list": "/info/refs", "fetch": "/git-upload-pack", "push": "/git-receive-pack"}[at]
		for form, answer := range forms {
			for _, u := range users {
				if !strings.Contains(u.meets, at) {
					continue
				}
				f := func(w http.ResponseWriter, r *http.Request) bool {
					if !strings.HasSuffix(r.URL.Path, service) {
						return false
					}
					if at == "fetch" {
						body, _ := io.ReadAll(r.Body)
						r.Body = io.NopCloser(strings.NewReader(string(body)))
						if strings.Contains(string(body), "command=ls-refs") {
							return false
						}
					}
					answer(w, r)
					return true
				}
				fault.Store(&f)
				said, ok := u.run()
				fault.Store(nil)
				if ok || !strings.Contains(said, blocked) {
					t.Errorf("%s at %s: %s says (ok: %t)\n%s", form, at, u.name, ok, said)
				}
			}
		}
	}
	if out, err := l.command("info", "none").CombinedOutput(); err == nil {
		t.Errorf("left is %s", out)
	}
	if out, code := l.in("box", "git fetch -q && git push -q origin HEAD"); code != 0 {
		t.Errorf("afterwards: %s", out)
	}
}
