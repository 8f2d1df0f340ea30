package gittest

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// isolated keeps a git from what this machine says to it.
var isolated = []string{"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_TERMINAL_PROMPT=0", "LC_ALL=C",
	"GIT_AUTHOR_NAME=A", "GIT_AUTHOR_EMAIL=a@git.test", "GIT_COMMITTER_NAME=C", "GIT_COMMITTER_EMAIL=c@git.test"}

// Git is a git of the tests: where it runs, and what its environment has beside nothing.
type Git struct {
	Dir string
	Env []string
	t   testing.TB
}

// NewGit is a git that runs in a directory.
func NewGit(t testing.TB, dir string, env ...string) Git {
	return Git{Dir: dir, Env: slices.Concat([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()},
		isolated, env), t: t}
}

// Client is a git in a new directory that trusts the server.
func (s *Server) Client(env ...string) Git {
	return NewGit(s.t, s.t.TempDir(), append([]string{"GIT_SSL_CAINFO=" + s.CA}, env...)...)
}

// In is the same git in another directory, below its own unless it is absolute.
func (g Git) In(dir string) Git {
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(g.Dir, dir)
	}
	g.Dir = dir
	return g
}

// With is the same git with more in its environment.
func (g Git) With(env ...string) Git {
	g.Env = slices.Concat(g.Env, env)
	return g
}

// Result is what a git has said, and how it ended.
type Result struct {
	Stdout, Stderr string
	Code           int
}

// Try runs git.
func (g Git) Try(args ...string) Result { return g.TryWith("", args...) }

// TryWith runs git with something to read.
func (g Git) TryWith(stdin string, args ...string) Result {
	g.t.Helper()
	cmd := exec.CommandContext(g.t.Context(), "git", args...)
	cmd.Dir, cmd.Env, cmd.Stdin = g.Dir, g.Env, strings.NewReader(stdin)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if cmd.ProcessState == nil {
		g.t.Fatalf("git %q: %v", args, err)
	}
	return Result{out.String(), errs.String(), cmd.ProcessState.ExitCode()}
}

// Run runs git, which must succeed, and gives what it wrote, without the last newline.
func (g Git) Run(args ...string) string {
	g.t.Helper()
	return g.RunWith("", args...)
}

// RunWith is Run with something to read.
func (g Git) RunWith(stdin string, args ...string) string {
	g.t.Helper()
	r := g.TryWith(stdin, args...)
	if r.Code != 0 {
		g.t.Fatalf("git %q ended with %d\n%s%s", args, r.Code, r.Stdout, r.Stderr)
	}
	return strings.TrimSuffix(r.Stdout, "\n")
}

// Pack is the pack that git pack-objects makes of what it is told to, to the last byte.
func (g Git) Pack(objects string, flags ...string) string {
	g.t.Helper()
	r := g.TryWith(objects, append([]string{"pack-objects", "-q", "--stdout"}, flags...)...)
	if r.Code != 0 {
		g.t.Fatalf("git pack-objects: %s", r.Stderr)
	}
	return r.Stdout
}

// Write writes a file, and what is above it, in the directory of g.
func (g Git) Write(name, content string) {
	g.t.Helper()
	file := filepath.Join(g.Dir, name)
	err := os.MkdirAll(filepath.Dir(file), 0o755)
	if err == nil {
		err = os.WriteFile(file, []byte(content), 0o644)
	}
	if err != nil {
		g.t.Fatal(err)
	}
}

// Commit writes files (name, content, …) and commits everything; it gives the commit's object id.
func (g Git) Commit(message string, files ...string) string {
	g.t.Helper()
	for i := 0; i+1 < len(files); i += 2 {
		g.Write(files[i], files[i+1])
	}
	g.Run("add", "-A")
	g.Run("commit", "-q", "--allow-empty", "-m", message)
	return g.Run("rev-parse", "HEAD")
}

// Repository is a bare one on a server.
type Repository struct {
	Git  // in it, on the server's side
	Path string
	URL  string
}

// Create makes a repository on the server, whose default branch is main, with one commit: the file README. Pushing to
// it is allowed, and so is all that git knows to ask of it, but objects that no ref leads to.
func (s *Server) Create(of string) *Repository {
	s.t.Helper()
	dir := filepath.Join(s.Root, of)
	NewGit(s.t, s.Root).Run("init", "-q", "--bare", "-b", "main", dir)
	r := &Repository{Git: NewGit(s.t, dir), Path: of, URL: s.URL(of)}
	for _, key := range []string{"http.receivepack", "uploadpack.allowFilter", "receive.advertisePushOptions",
		"receive.advertiseAtomic"} {
		r.Run("config", key, "true")
	}
	work := NewGit(s.t, s.t.TempDir())
	work.Run("init", "-q", "-b", "main")
	work.Commit("first", "README", "first\n")
	work.Run("push", "-q", dir, "main")
	return r
}

// Refs are all refs, as "NAME OBJECT" each, and what HEAD leads to.
func (r *Repository) Refs() string {
	r.t.Helper()
	all := map[string]string{"HEAD": r.Run("symbolic-ref", "HEAD")}
	for line := range strings.Lines(r.Run("for-each-ref", "--format=%(refname) %(objectname)")) {
		name, id, _ := strings.Cut(strings.TrimSpace(line), " ")
		all[name] = id
	}
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(&b, "%s %s\n", name, all[name])
	}
	return b.String()
}

// Branch makes a branch at a commit of its own that has a file of the same
// name, on top of another branch, and gives its object id.
func (r *Repository) Branch(name, from string) string {
	r.t.Helper()
	blob := r.RunWith(name+"\n", "hash-object", "-w", "--stdin")
	tree := r.RunWith(r.Run("ls-tree", from)+"\n100644 blob "+blob+"\t"+strings.ReplaceAll(name, "/", "-")+"\n", "mktree")
	commit := r.Run("commit-tree", "-p", from, "-m", "work of "+name, tree)
	r.Run("update-ref", "refs/heads/"+name, commit)
	return commit
}
