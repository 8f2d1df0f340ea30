//go:build linux

package git

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove/internal/git/gittest"
)

// everything is a policy of git that refuses nothing that a policy can allow.
const everything = `- remote: REPO
  fetch: [well-known, "**", "refs/tags/**", "refs/notes/**"]
  push: ["**", main, release/1, "refs/notes/**"]
  force: allow
  delete: allow
  tags: allow
  options: allow
  files: {defaults: false}
`

// session is a git that does something, and what it has said.
type session struct {
	git  gittest.Git
	url  string
	more *strings.Replacer
	said strings.Builder
}

func (s *session) run(args ...string) {
	for i, a := range args {
		args[i] = s.more.Replace(a)
	}
	r := s.git.Try(args...)
	errors := strings.SplitAfter(r.Stderr, "\n") // of more than one process
	slices.Sort(errors)
	fmt.Fprintf(&s.said, "$ %q\n%s%s\n= %d\n", args, r.Stdout, strings.Join(errors, ""), r.Code)
}

// large is content that does not compress, and has nothing in common with that of another seed.
func large(size int, seed ...byte) string {
	data := make([]byte, size)
	random := rand.NewChaCha8(sha256.Sum256(seed))
	random.Read(data)
	return string(data)
}

// firstDifference returns the first line of b that a has not at that place, and the one that a has.
func firstDifference(a, b string) string {
	is := strings.Split(b, "\n")
	for i, line := range strings.Split(a, "\n") {
		if i == len(is) || is[i] != line {
			return fmt.Sprintf("line %d, %q is %q", i+1, line, append(is, "")[i])
		}
	}
	return "more lines"
}

// TestSame: where the policy allows it, git behaves through the gateway as
// without it: what it says, how it ends, what it leaves on both sides.
func TestSame(t *testing.T) { same(t, "0", "2") }

// TestSameNewer is the same with a newer git, on both sides, and with the version of the protocol that it takes by
// itself. All versions are tried if COVE_TEST_LONG is set.
func TestSameNewer(t *testing.T) {
	newer := os.Getenv("COVE_TEST_GIT")
	if newer == "" {
		t.Skip("needs a newer git: COVE_TEST_GIT is a directory with one, as scripts/newer-git.sh makes it")
	}
	t.Setenv("PATH", filepath.Join(newer, "bin")+":"+os.Getenv("PATH"))
	t.Log(gittest.NewGit(t, t.TempDir()).Run("version"))
	same(t, "2")
}

// same compares the steps with some versions of git's protocol, and "clone" with all: 1 is 0 with a line before it.
func same(t *testing.T, versions ...string) {
	long := os.Getenv("COVE_TEST_LONG") != ""
	l := newLab(t, account)
	steps := map[string]func(s *session){
		"clone": func(s *session) {
			s.run("clone", "URL", "a")
			s.git = s.git.In("a")
			s.run("branch", "-a", "-v")
			s.run("tag")
			s.run("remote", "show", "origin")
		},
		"mirror": func(s *session) {
			s.run("clone", "--mirror", "URL", "a")
			s.git = s.git.In("a")
			s.run("for-each-ref")
			s.run("fsck", "--full")
		},
		"ls-remote": func(s *session) {
			s.run("ls-remote", "URL")
			s.run("ls-remote", "--symref", "URL", "HEAD")
			s.run("ls-remote", "--heads", "--tags", "URL")
			s.run("ls-remote", "--exit-code", "URL", "refs/heads/none")
		},
		"shallow": func(s *session) {
			s.run("clone", "--depth=1", "URL", "a")
			s.git = s.git.In("a")
			s.run("log", "--oneline")
			s.run("fetch", "--depth=2")
			s.run("log", "--oneline")
			s.run("fetch", "--shallow-since=2001-01-01")
			s.run("fetch", "--unshallow")
			s.run("log", "--oneline", "--all")
			s.run("fetch", "--shallow-exclude=v1")
		},
		"partial": func(s *session) {
			s.run("clone", "--filter=blob:none", "URL", "a")
			s.git = s.git.In("a")
			s.run("log", "--oneline", "--all")
			s.run("show", "origin/topic:topic")
			s.run("checkout", "-q", "topic")
			s.run("log", "-p", "--all")
		},
		"treeless": func(s *session) {
			s.run("clone", "--filter=tree:0", "--no-checkout", "URL", "a")
			s.git = s.git.In("a")
			s.run("ls-tree", "-r", "origin/topic")
		},
		"single branch": func(s *session) {
			s.run("clone", "--single-branch", "-b", "topic", "URL", "a")
			s.git = s.git.In("a")
			s.run("fetch", "origin", "main")
			s.run("fetch", "origin", "refs/tags/v1:refs/tags/v1")
			s.run("fetch", "origin", "none")
		},
		"push": func(s *session) {
			s.run("clone", "-q", "URL", "a")
			s.git = s.git.In("a")
			s.git.Commit("one", "one", "1\n")
			s.run("push", "origin", "main")
			s.run("push", "origin", "main")
			s.git.Commit("two", "two", "2\n")
			s.run("push", "-u", "origin", "HEAD:refs/heads/new/branch")
			s.run("push", "--porcelain", "origin", "HEAD:refs/heads/another")
			s.run("status", "-sb")
		},
		"force": func(s *session) {
			s.run("clone", "-q", "URL", "a")
			s.git = s.git.In("a")
			s.run("checkout", "-q", "topic")
			s.git.Run("commit", "-q", "--amend", "-m", "amended")
			s.run("push", "origin", "topic")
			s.run("push", "--force-with-lease", "origin", "topic")
			s.run("push", "--force-with-lease=topic:main", "origin", "main:topic")
			s.run("push", "-f", "origin", "main:topic")
		},
		"delete": func(s *session) {
			s.run("clone", "-q", "URL", "a")
			s.git = s.git.In("a")
			s.run("push", "origin", ":topic")
			s.run("push", "origin", "--delete", "none")
			s.run("fetch", "--prune")
		},
		"tags": func(s *session) {
			s.run("clone", "-q", "URL", "a")
			s.git = s.git.In("a")
			s.git.Run("tag", "-a", "-m", "two", "v2")
			s.git.Run("tag", "light")
			s.run("push", "origin", "--tags")
			s.run("push", "--follow-tags", "origin", "main")
			s.run("ls-remote", "--tags", "origin")
		},
		"atomic": func(s *session) {
			s.run("clone", "-q", "URL", "a")
			s.git = s.git.In("a")
			s.git.Commit("one", "one", "1\n")
			s.run("push", "--atomic", "origin", "HEAD:a1", "HEAD:a2", "HEAD:main")
			s.run("push", "--atomic", "origin", "HEAD~1:a1", "HEAD:a3")
		},
		"options": func(s *session) {
			s.run("clone", "-q", "URL", "a")
			s.git = s.git.In("a")
			s.git.Commit("one", "one", "1\n")
			s.run("push", "-o", "one", "-o", "two=a;b 'c'", "origin", "main")
		},
		"notes": func(s *session) {
			s.run("clone", "-q", "URL", "a")
			s.git = s.git.In("a")
			s.git.Run("notes", "add", "-m", "note")
			s.run("push", "origin", "refs/notes/*")
			s.run("fetch", "origin", "refs/notes/*:refs/notes/x/*")
		},
		"large, in chunks": func(s *session) {
			s.run("clone", "-q", "URL", "a")
			s.git = s.git.In("a")
			s.git.Commit("large", "large", large(3<<20))
			s.run("-c", "http.postBuffer=65536", "push", "origin", "main")
			s.run("clone", "-q", "URL", "../b")
			s.run("-C", "../b", "rev-parse", "HEAD^{tree}")
		},
		"HTTP/1": func(s *session) {
			s.run("-c", "http.version=HTTP/1.1", "clone", "-q", "URL", "a")
			s.git = s.git.In("a")
			s.git.Commit("large", "large", large(2<<20))
			s.run("-c", "http.version=HTTP/1.1", "-c", "http.postBuffer=65536", "push", "origin", "main")
		},
		"merge and rebase": func(s *session) {
			s.run("clone", "-q", "URL", "a")
			s.git = s.git.In("a")
			s.run("merge", "-q", "-m", "merge", "origin/topic")
			s.run("push", "origin", "main")
			s.run("push", "origin", "main:topic")
			s.git.Run("checkout", "-q", "-b", "side", "HEAD~1")
			s.git.Commit("side", "side", "side\n")
			s.run("push", "origin", "side")
			s.run("rebase", "-q", "main")
			s.run("push", "origin", "side")
			s.run("pull", "-q", "--no-rebase", "origin", "topic")
		},
		"many haves": func(s *session) { // the request is gzipped
			s.run("clone", "-q", "URL", "a")
			s.git = s.git.In("a")
			for i := range 80 {
				s.git.Run("commit", "-q", "--allow-empty", "-m", fmt.Sprint(i))
			}
			s.run("fetch", "origin", "topic")
			s.run("push", "origin", "main")
			s.run("fetch", "origin")
		},
		"an orphan": func(s *session) {
			s.run("clone", "-q", "URL", "a")
			s.git = s.git.In("a")
			s.git.Run("checkout", "-q", "--orphan", "orphan")
			s.git.Commit("orphan", "x", "x\n")
			s.run("push", "origin", "orphan")
		},
		"an empty commit": func(s *session) {
			s.run("clone", "-q", "URL", "a")
			s.git = s.git.In("a")
			s.git.Run("commit", "-q", "--allow-empty", "-m", "empty")
			s.run("push", "origin", "main")
		},
		"an older commit": func(s *session) {
			s.run("clone", "-q", "--depth=1", "URL", "a")
			s.git = s.git.In("a")
			s.run("fetch", "origin", "FIRST")
			s.run("push", "origin", "FIRST:refs/heads/first")
		},
		"what is not there": func(s *session) {
			s.run("clone", "URL/no", "a")
			s.run("fetch", "URL", "refs/heads/none")
		},
	}
	const pushes = "push, force, delete, tags, atomic, options, HTTP/1, merge and rebase, an orphan, an empty commit"
	template := l.world("template.git")
	template.Branch("topic", "main")
	first := template.Run("rev-parse", "main")
	template.Run("update-ref", "refs/heads/main", template.Branch("second", "main"))
	template.Run("update-ref", "-d", "refs/heads/second")
	template.Run("tag", "-a", "-m", "one", "v1", first)
	for name, step := range steps {
		for _, version := range []string{"0", "1", "2"} {
			if version != "2" && strings.Contains(pushes, name) {
				continue // these are the same in all
			}
			if !long && !slices.Contains(versions, version) && name != "clone" {
				continue
			}
			t.Run(name+"/"+version, func(t *testing.T) {
				var sessions [2]*session
				var refs [2]string
				where := strings.NewReplacer(" ", "-", ",", "", "/", "").Replace(name) + version
				for i, way := range []string{"direct", "gated"} {
					of := way + "-" + where + ".git"
					if err := os.CopyFS(filepath.Join(l.server.Root, of), os.DirFS(template.Dir)); err != nil {
						t.Fatal(err)
					}
					r := gittest.NewGit(t, filepath.Join(l.server.Root, of))
					s := &session{}
					env := []string{"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=protocol.version", "GIT_CONFIG_VALUE_0=" + version,
						"GIT_AUTHOR_DATE=2001-02-03T04:05:06Z", "GIT_COMMITTER_DATE=2001-02-03T04:05:06Z",
						"GIT_PROGRESS_DELAY=1000"} // in seconds: what it shows of a slow step depends on the machine
					if way == "direct" {
						env[0] = "GIT_CONFIG_COUNT=2"
						env = append(env, "GIT_CONFIG_KEY_1=http.extraHeader",
							"GIT_CONFIG_VALUE_1=Authorization: Basic "+base64.StdEncoding.EncodeToString([]byte("robot:"+password)))
						s.git, s.url = l.server.Client(env...), l.server.URL(of)
					} else {
						policy := strings.ReplaceAll(l.policy(everything), l.remote("repo.git"), l.remote("**"))
						s.git, _ = l.client(where, policy, env...)
						s.url = l.remote(of)
					}
					s.more = strings.NewReplacer("URL", s.url, "FIRST", first)
					step(s)
					text := strings.NewReplacer(s.url, "URL", strings.TrimSuffix(s.url, ".git"), "URL", of, "OF", s.git.Dir, "DIR").
						Replace(s.said.String())
					s.said.Reset()
					s.said.WriteString(text)
					sessions[i] = s
					refs[i] = r.Run("for-each-ref")
				}
				if a, b := sessions[0].said.String(), sessions[1].said.String(); a != b {
					t.Errorf("git says other things through the gateway: %s\nwithout it:\n%s\nthrough it:\n%s\n%s",
						firstDifference(a, b), a, b, l.log)
				}
				if refs[0] != refs[1] {
					t.Errorf("the server has, without the gateway:\n%s\nthrough it:\n%s", refs[0], refs[1])
				}
			})
		}
	}
	for _, r := range l.server.Received() {
		if got := r.Header.Get("Authorization"); got == "" || r.Status == http.StatusUnauthorized {
			t.Errorf("%s came without the credential", r)
		}
	}
}
