//go:build linux

package git

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove/internal/git/gittest"
)

// A token in GitHub's form that nobody has.
const aToken = "ghp_q7Rk2ZpWv9LdXe4TnHb8MyCs3GfJ6uAa5Ki1"

// TestSecretsInAPush: a push that adds a key is refused by commit, file and line, unless the policy says that such keys
// are allowed; a key that was there before is no reason.
func TestSecretsInAPush(t *testing.T) {
	for name, filter := range map[string]string{"a server with filters": "true", "a plain server": "false"} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, account)
			r := l.server.Create("repo.git")
			r.Run("config", "uploadpack.allowFilter", filter)
			git, _ := l.client("box", l.policy("- {remote: REPO, push: [own, test-keys]}\n"))
			git.Run("clone", "-q", l.remote("repo.git"), "a")
			git = git.In("a")
			bad := git.Commit("a key", "conf.env", "A=1\nGH_TOKEN="+aToken+"\n")
			before := r.Refs()
			got := git.Try("push", "origin", "HEAD:refs/heads/own")
			for _, want := range []string{"remote: Cove refuses this push (rule: ", "own (" + bad[:12] +
				"): it adds what looks like a secret (GitHub token) in conf.env, line 2 of commit " + bad[:12], "[known_secrets]"} {
				if got.Code != 1 || !strings.Contains(got.Stderr, want) || strings.Contains(got.Stderr, aToken) {
					t.Errorf("no %q: %+v", want, got)
				}
			}
			git.Run("rm", "-q", "conf.env")
			git.Commit("removed again")
			if got := git.Try("push", "origin", "HEAD:refs/heads/own"); got.Code != 1 || r.Refs() != before {
				t.Errorf("removed by a later commit: %+v\n%s", got, r.Refs())
			}

			git.Run("reset", "-q", "--hard", "origin/main")
			file := filepath.Join(git.Dir, "key.pem")
			if out, err := exec.Command("openssl", "genrsa", "-out", file, "2048").CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			key, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			git.Commit("a private key", "src/key_test.go", "package src\n\nconst key = `"+string(key)+"`\n")
			if got := git.Try("push", "origin", "HEAD:refs/heads/own"); got.Code != 1 ||
				!strings.Contains(got.Stderr, "(private key) in ") {
				t.Errorf("a private key: %+v", got)
			}

			// another sandbox, which may
			free, _ := l.client("free", l.policy("- {remote: REPO, push: main, known_secrets: allow}\n"))
			free.Run("clone", "-q", l.remote("repo.git"), "b")
			free = free.In("b")
			free.Commit("keys of tests", "testdata/keys", "key: "+aToken+"\n")
			if got := free.Try("push", "origin", "HEAD:refs/heads/main"); got.Code != 0 {
				t.Errorf("allowed: %+v\n%s", got, l.log)
			}
			git.Run("fetch", "-q", "origin")
			git.Run("reset", "-q", "--hard", "origin/main")
			git.Commit("edited", "testdata/keys", "# not a real one\nkey: "+aToken+"\n")
			if got := git.Try("push", "origin", "HEAD:refs/heads/test-keys"); got.Code != 0 {
				t.Errorf("a key that was there: %+v\n%s", got, l.log)
			}
		})
	}
}

// TestMassDeletion: a push that deletes many files waits for an approval that says how many; one that moves them does
// not.
func TestMassDeletion(t *testing.T) {
	l := newLab(t, gittest.Options{})
	l.lasting()
	r := l.server.Create("repo.git")
	var files []string
	for i := range 120 {
		files = append(files, fmt.Sprintf("pkg/f%d.txt", i), fmt.Sprintf("file %d\n", i))
	}
	owner := l.owner(r)
	owner.Commit("files", files...)
	owner.Run("push", "-q", "origin", "HEAD:main")
	l.write("cove.yaml", fmt.Sprintf("gateway:\n  extra_cas: [%s]\n  approval_timeout: 60s\n", l.server.CA))
	l.cove("new", l.remote("repo.git"), "own", "--name", "box", "--no-attach")
	const commit = "git -c user.name=A -c user.email=a@x.example commit -q -a -m more; "
	if out, code := l.in("box", "git mv pkg moved; "+commit+"git push -q 2>&1"); code != 0 {
		t.Fatalf("moved: %s", out)
	}
	before := r.Refs()
	for _, answer := range []string{"--deny", ""} {
		ended := make(chan string, 1)
		go func() {
			out, _ := l.in("box", "git rm -q -r moved; "+commit+"git push -q 2>&1; echo code $?")
			ended <- out
		}()
		id := l.waits()
		list := l.cove("approve", "--json")
		if !strings.Contains(list, "it deletes 120 files, and more than 100 (max_deleted)") {
			t.Errorf("the question does not say how many: %s", list)
		}
		l.cove(strings.Fields("approve " + id + " --scope once " + answer)...)
		out := <-ended
		if denied := answer != ""; strings.Contains(out, "code 0") == denied || (r.Refs() == before) != denied {
			t.Errorf("answered %q: %s", answer, out)
		}
	}
}

// owner is a clone of a repository beside the server, which no gateway judges.
func (l *lab) owner(r *gittest.Repository) gittest.Git {
	dir := filepath.Join(l.t.TempDir(), "owner")
	r.Run("clone", "-q", r.Dir, dir)
	return gittest.NewGit(l.t, dir)
}

// TestManyTags: the tags of an old repository are pushed at once where the policy says so; otherwise the refusal says
// how many there are, and how many may be.
func TestManyTags(t *testing.T) {
	l := newLab(t, account)
	r := l.server.Create("repo.git")
	const many = 300
	owner := l.owner(r)
	for i := range many {
		owner.Commit(fmt.Sprint(i), "n", fmt.Sprintln(i))
	}
	owner.Run("push", "-q", "origin", "HEAD:main")
	for _, c := range []struct {
		name, more string
		tags       int
	}{{"usual", "", 0}, {"more", ", max_updates: 400", many}} {
		git, _ := l.client(c.name, l.policy("- {remote: REPO, push: 'refs/tags/**'"+c.more+"}\n"))
		git.Run("clone", "-q", l.remote("repo.git"), "a")
		git = git.In("a")
		for i, id := range strings.Fields(git.Run("rev-list", "main"))[:many] {
			git.Run("tag", fmt.Sprintf("v%d", i), id)
		}
		got := git.Try("push", "-q", "origin", "--tags")
		said := strings.Contains(got.Stderr, "it has 300 updates, and a push has 256 at most [max_updates]")
		if ok := c.tags > 0; (got.Code == 0) != ok || said == ok || strings.Count(r.Refs(), "refs/tags/") != c.tags {
			t.Errorf("%s: %.2000v\n%s", c.name, got, l.log)
		}
	}
}
