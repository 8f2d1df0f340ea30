package repos

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/git/gittest"
	"github.com/cove-sandbox/cove/internal/workspace"
)

// inside returns a Connect that runs "git upload-pack" in a workspace, as a sandbox does.
func inside(t *testing.T, w workspace.Workspace, env ...string) Connect {
	return func(ctx context.Context, asIs bool) (Stream, error) {
		git := gittest.NewGit(t, w.Directory, env...)
		args := []string{"upload-pack", "."}
		if asIs {
			args = slices.Insert(args, 0, "-c", "pack.depth=0")
		}
		cmd := exec.CommandContext(ctx, "git", args...)
		cmd.Dir, cmd.Env = git.Dir, git.Env
		in, err := cmd.StdinPipe()
		if err != nil {
			return nil, err
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			return nil, err
		}
		return &program{in, in, out, cmd}, cmd.Start()
	}
}

type program struct {
	io.Writer
	in  io.Closer
	out io.Reader
	cmd *exec.Cmd
}

func (p *program) Read(b []byte) (int, error) { return p.out.Read(b) }

func (p *program) CloseWrite() error { return p.in.Close() }

func (p *program) Close() error {
	p.cmd.Process.Kill()
	p.cmd.Wait()
	return nil
}

func TestImport(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds; make test runs it")
	}
	server := gittest.Start(t, gittest.Options{})
	repo := server.Create("project.git")
	s := newStore(t, server)
	for name, r := range map[string]workspace.Repository{
		"whole": {}, "shallow": {Depth: 1}, "worktree": {Worktree: true},
	} {
		for _, version := range []string{"0", "2"} {
			t.Run(name+" by version "+version, func(t *testing.T) {
				r.Source = repo.URL
				w := create(t, s, spec("x", r))
				connect := inside(t, w, "GIT_PROTOCOL=version="+version)
				git := server.Client().In(w.Directory)
				git.Commit("one", "a/b", "text\n", "README", "changed\n")
				two := git.Commit("two", "bin", "\x00\x01")
				git.Run("branch", "side")
				git.Write("loose", "not committed\n")
				work := git.Run("commit-tree", "-p", "HEAD", "-m", "work", git.Run("write-tree"))
				git.Run("update-ref", WorkRef, work)

				refs, err := s.Import(t.Context(), w.ID, 0, connect)
				if err != nil {
					t.Fatal(err)
				}
				got := map[string]string{}
				for _, ref := range refs {
					got[ref.Name] = ref.ID
				}
				if got["HEAD"] != two || got["work"] != work || got["heads/"+w.Branch] != two || got["heads/side"] != two {
					t.Errorf("%v", refs)
				}
				if hooks := names(t, filepath.Join(s.directory(w.ID), importDir)); strings.Contains(hooks, "FETCH_HEAD") {
					t.Errorf("import.git has %s", hooks)
				}
				// A ref deleted inside disappears, and a name can change from a file to a directory.
				git.Run("branch", "-D", "side")
				git.Run("branch", "side/way")
				git.Run("update-ref", "-d", WorkRef)
				if refs, err = s.Import(t.Context(), w.ID, 0, connect); err != nil || len(refs) < 3 {
					t.Fatalf("%v, %v", refs, err)
				}
				for _, ref := range refs {
					if ref.Name == "work" || ref.Name == "heads/side" {
						t.Errorf("%s is still there", ref.Name)
					}
				}
				var diff, stat, log bytes.Buffer
				if err := errors.Join(s.Diff(t.Context(), w.ID, Work{}, DiffStyle{}, &diff),
					s.Diff(t.Context(), w.ID, Work{Paths: []string{"a"}}, DiffStyle{Stat: true}, &stat),
					s.Log(t.Context(), w.ID, Work{}, true, &log)); err != nil {
					t.Fatal(err)
				}
				if !strings.Contains(diff.String(), "+changed\n") ||
					!strings.Contains(diff.String(), "Binary files /dev/null and b/bin differ") {
					t.Errorf("diff %s", &diff)
				}
				if !strings.Contains(stat.String(), "a/b") || strings.Contains(stat.String(), "README") {
					t.Errorf("stat %s", &stat)
				}
				if lines := strings.Split(strings.TrimSpace(log.String()), "\n"); len(lines) != 2 ||
					!strings.HasSuffix(lines[0], " two") {
					t.Errorf("log %q", lines)
				}
				changes, err := s.Changes(t.Context(), w.ID, Work{}, ChangeStyle{})
				if err != nil || len(changes) != 3 || changes[0].Path != "README" || changes[0].Added != 1 ||
					changes[0].Removed != 1 || !changes[2].Binary {
					t.Errorf("%+v, %v", changes, err)
				}
				var patch bytes.Buffer
				if err := s.Diff(t.Context(), w.ID, Work{}, DiffStyle{Binary: true}, &patch); err != nil {
					t.Fatal(err)
				}
				index := git.With("GIT_INDEX_FILE=" + filepath.Join(t.TempDir(), "index"))
				index.Run("read-tree", "HEAD~2")
				index.RunWith(patch.String(), "apply", "--cached")
				if got, want := index.Run("write-tree"), git.Run("rev-parse", two+"^{tree}"); got != want {
					t.Errorf("applied, the patch makes %s, not %s", got, want)
				}
				branch := "cove/pushed-" + name + version
				if err := s.Push(t.Context(), w.ID, Work{}, branch, s.o.Outlet); err != nil {
					t.Fatal(err)
				}
				if got := repo.Run("rev-parse", branch); got != two {
					t.Errorf("pushed %s", got)
				}
				repo.Run("update-ref", "refs/heads/"+branch, repo.Branch("aside-"+name+version, "main"))
				if err := s.Push(t.Context(), w.ID, Work{}, branch, s.o.Outlet); cove.ErrorCode(err) != cove.Conflict {
					t.Errorf("over somebody else's commit: %v", err)
				}
				if err := s.Remove(t.Context(), w.ID, false); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// literally makes objects that git itself would refuse.
func literally(t *testing.T, git gittest.Git, kind, content string) string {
	t.Helper()
	return git.RunWith(content, "hash-object", "-w", "--literally", "-t", kind, "--stdin")
}

// TestImportHostile: only bounded objects that git accepts are imported.
func TestImportHostile(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds; make test runs it")
	}
	server := gittest.Start(t, gittest.Options{})
	repo := server.Create("project.git")
	home := t.TempDir()
	s := open(t, Options{Home: home, Outlet: direct{server.CA}, MaxImport: 1 << 20})
	raw := func(id string) string { // in a tree's binary form
		var b strings.Builder
		for i := 0; i < len(id); i += 2 {
			var c byte
			for _, d := range id[i : i+2] {
				c = c<<4 + byte(strings.IndexRune("0123456789abcdef", d))
			}
			b.WriteByte(c)
		}
		return b.String()
	}
	head := func(t *testing.T, git gittest.Git, tree string) {
		commit := literally(t, git, "commit", "tree "+tree+
			"\nauthor a <a@b.test> 1 +0000\ncommitter a <a@b.test> 1 +0000\n\nx\n")
		git.Run("update-ref", "--no-deref", "HEAD", commit)
	}
	entry := func(mode, name string) func(*testing.T, gittest.Git) {
		return func(t *testing.T, git gittest.Git) {
			blob := literally(t, git, "blob", "x")
			if mode == "40000" {
				blob = literally(t, git, "tree", "100644 config\x00"+raw(blob))
			}
			head(t, git, literally(t, git, "tree", mode+" "+name+"\x00"+raw(blob)))
		}
	}
	for _, tt := range []struct {
		name string
		do   func(*testing.T, gittest.Git)
		code cove.Code
	}{
		{"a tree with .git", entry("40000", ".git"), cove.InvalidArgument},
		{"a file .git", entry("100644", ".git"), cove.InvalidArgument},
		{"a tree with .GIT", entry("40000", ".GIT"), cove.InvalidArgument},
		{"a tree with git~1", entry("40000", "git~1"), cove.InvalidArgument},
		{"a tree with .git and a space", entry("40000", ".git "), cove.InvalidArgument},
		{"a tree with .g\u200cit", entry("40000", ".g\u200cit"), cove.InvalidArgument},
		{"a tree with ..", entry("40000", ".."), cove.InvalidArgument},
		{"a tree with a slash", entry("100644", "a/b"), cove.InvalidArgument},
		{"a mode that is none, which git reads as one that is", entry("100777", "a"), ""},
		{".gitmodules that is a link", entry("120000", ".gitmodules"), cove.InvalidArgument},
		{".gitmodules with a flag as an address", func(t *testing.T, git gittest.Git) {
			blob := literally(t, git, "blob", "[submodule \"x\"]\n\tpath = x\n\turl = -u./payload\n")
			head(t, git, literally(t, git, "tree", "100644 .gitmodules\x00"+raw(blob)))
		}, cove.InvalidArgument},
		{".gitmodules with a name that climbs", func(t *testing.T, git gittest.Git) {
			blob := literally(t, git, "blob", "[submodule \"../../x\"]\n\tpath = x\n\turl = https://git.example/x\n")
			head(t, git, literally(t, git, "tree", "100644 .gitmodules\x00"+raw(blob)))
		}, cove.InvalidArgument},
		{"a commit of nothing", func(t *testing.T, git gittest.Git) {
			git.Run("update-ref", "--no-deref", "HEAD", literally(t, git, "commit",
				"tree "+git.Run("rev-parse", "HEAD^{tree}")+"\nauthor\n\nx\n"))
		}, cove.InvalidArgument},
		{"too much", func(t *testing.T, git gittest.Git) {
			var big strings.Builder
			for i := range 1 << 17 {
				big.WriteString(strings.Repeat(string(rune('a'+i*7919%26)), 1+i*31%5) + string(rune('A'+i%61)))
			}
			for i := range 6 {
				git.Commit("big", "big", big.String()[i*1000:]+strings.Repeat(string(rune(i)), 7))
			}
			git.Run("-c", "core.compression=0", "-c", "pack.compression=0", "commit", "-q", "--allow-empty", "-m", "x")
			git.Run("config", "core.compression", "0")
			git.Run("config", "core.bigFileThreshold", "1") // no deltas
		}, cove.TooLarge},
		{"too many branches", func(t *testing.T, git gittest.Git) {
			var in strings.Builder
			for i := range 1001 {
				in.WriteString("create refs/heads/b" + strings.Repeat("x", i/100) + string(rune('a'+i%100/10)) +
					string(rune('a'+i%10)) + " HEAD\n")
			}
			git.RunWith(in.String(), "update-ref", "--stdin")
		}, cove.TooLarge},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := create(t, s, spec("x", workspace.Repository{Source: repo.URL}))
			git := server.Client().In(w.Directory)
			tt.do(t, git)
			refs, err := s.Import(t.Context(), w.ID, 0, inside(t, w))
			if cove.ErrorCode(err) != tt.code {
				t.Errorf("%v, %v; want %s", refs, err, tt.code)
			}
			if err := s.Diff(t.Context(), w.ID, Work{}, DiffStyle{},
				io.Discard); (cove.ErrorCode(err) == cove.NotFound) != (tt.code != "") {
				t.Errorf("something was imported: %v", err)
			}
		})
	}

	w := create(t, s, spec("x", workspace.Repository{Source: repo.URL}))
	for name, words := range map[string]string{
		"nothing":            "",
		"nonsense":           "nonsense\n",
		"a length that lies": "ffffxx",
		"an error":           "002fERR \x1b[31mno\x1b]0;x\x07                           ",
		"no end":             strings.Repeat("0032"+strings.Repeat("a", 40)+" r/x\n", 1<<16),
		"odd names":          "003d" + strings.Repeat("a", 40) + " refs/heads/../x\x00 ofs\n0000",
	} {
		t.Run(name, func(t *testing.T) {
			refs, err := s.Import(t.Context(), w.ID, 0, func(context.Context, bool) (Stream, error) {
				return &reciting{in: strings.NewReader(words)}, nil
			})
			if err == nil && len(refs) > 0 {
				t.Errorf("it is taken: %v", refs)
			}
			if err != nil && strings.ContainsAny(err.Error(), "\x1b\x07") {
				t.Errorf("%q", err)
			}
		})
	}
	t.Run("silence", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		_, err := s.Import(ctx, w.ID, 0, func(context.Context, bool) (Stream, error) {
			return &silent{first: cancel, closed: make(chan struct{})}, nil
		})
		if cove.ErrorCode(err) != cove.Canceled {
			t.Error(err)
		}
	})
	t.Run("nobody there", func(t *testing.T) {
		gone := cove.Errorf(cove.Unavailable, "the sandbox does not run")
		if _, err := s.Import(t.Context(), w.ID, 0, func(context.Context, bool) (Stream, error) {
			return nil, gone
		}); !errors.Is(err, gone) {
			t.Error(err)
		}
		if _, err := s.Import(t.Context(), cove.NewSandboxID(), 0, inside(t, w)); cove.ErrorCode(err) != cove.NotFound {
			t.Error(err)
		}
	})
}

// reciting sends fixed bytes, whatever it receives.
type reciting struct{ in io.Reader }

func (r *reciting) Read(p []byte) (int, error)  { return r.in.Read(p) }
func (r *reciting) Write(p []byte) (int, error) { return len(p), nil }
func (r *reciting) CloseWrite() error           { return nil }
func (r *reciting) Close() error                { return nil }

// silent sends nothing until it is closed.
type silent struct {
	reciting
	first  func() // called at the first read
	closed chan struct{}
	once   sync.Once
}

func (s *silent) Read([]byte) (int, error) {
	s.first()
	<-s.closed
	return 0, io.EOF
}

func (s *silent) Close() error {
	s.once.Do(func() { close(s.closed) })
	return nil
}

// TestNothingInACheckoutRuns: no operation of the host on a workspace starts a program that the sandbox has planted in
// its checkout.
func TestNothingInACheckoutRuns(t *testing.T) {
	server := gittest.Start(t, gittest.Options{})
	repo := server.Create("project.git")
	s := newStore(t, server)
	if _, err := s.FetchMirror(t.Context(), ci, repo.URL, false, nil); err != nil {
		t.Fatal(err)
	}
	for name, r := range map[string]workspace.Repository{
		"private": {}, "shallow": {Depth: 1}, "worktree": {Worktree: true},
	} {
		t.Run(name, func(t *testing.T) {
			r.Source = repo.URL
			w := create(t, s, spec("x", r))
			top := t.TempDir()
			canary, script := filepath.Join(top, "canary"), filepath.Join(top, "evil")
			if err := os.WriteFile(script, []byte("#!/bin/sh\necho $0 $* >>"+canary+"\ncat\n"), 0o755); err != nil {
				t.Fatal(err)
			}
			git := gittest.NewGit(t, w.Directory)
			git.Write(".gitattributes", "* filter=x diff=x merge=x\n")
			git.Commit("attributes", "file", "text\n")
			dir := git.Run("rev-parse", "--git-common-dir")
			if !filepath.IsAbs(dir) {
				dir = filepath.Join(w.Directory, dir)
			}
			config := "[core]\n\tfsmonitor = S\n\talternateRefsCommand = S\n\tsshCommand = S\n\tpager = S\n\teditor = " +
				"S\n\tgitProxy = S\n\thooksPath = " + top + "/hooks\n" +
				"[filter \"x\"]\n\tclean = S\n\tsmudge = S\n\tprocess = S\n\trequired = true\n[diff]\n\texternal = S\n[diff " +
				"\"x\"]\n\ttextconv = S\n\tcommand = S\n" +
				"[merge \"x\"]\n\tdriver = S\n[uploadpack]\n\tpackObjectsHook = S\n[credential]\n\thelper = !S\n[gpg]\n\tprogram " +
				"= S\n[remote \"origin\"]\n\tvcs = evil\n\tuploadpack = S\n"
			f, err := os.OpenFile(filepath.Join(dir, "config"), os.O_APPEND|os.O_WRONLY, 0)
			if err == nil {
				_, err = f.WriteString(strings.ReplaceAll(config, "S", script))
				err = errors.Join(err, f.Close())
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, hooks := range []string{filepath.Join(top, "hooks"), filepath.Join(dir, "hooks")} {
				if err := os.MkdirAll(hooks, 0o755); err != nil {
					t.Fatal(err)
				}
				for _, path := range hookPaths(hooks) {
					if err := os.Link(script, path); err != nil {
						t.Fatal(err)
					}
				}
			}
			// A repository in a subdirectory, and a pointer to one.
			git.Try("-c", "core.fsmonitor=false", "clone", "-q", "--bare", repo.URL, filepath.Join(w.Directory, "bare"))
			git.Write("pointed/.git", "gitdir: "+dir+"\n")
			git.Try("status") // the trap works
			if !exists(canary) {
				t.Fatal("an ordinary git runs nothing")
			}
			os.Remove(canary)

			if _, err := s.Import(t.Context(), w.ID, 0, inside(t, w)); err != nil {
				t.Fatal(err)
			}
			mine := gittest.NewGit(t, t.TempDir())
			mine.Write("README", "first\n")
			_, e1 := s.Apply(t.Context(), w.ID, Work{}, mine.Dir, ApplyStyle{Restricted: true})
			_, e2 := s.disks.Used(t.Context(), w.ID)
			_, e3 := s.Open(t.Context(), w.ID)
			_, e4 := s.Mirrors(t.Context(), owner)
			open(t, s.o)
			if err := errors.Join(e1, e2, e3, e4, s.Diff(t.Context(), w.ID, Work{}, DiffStyle{}, io.Discard),
				s.Log(t.Context(), w.ID, Work{}, false, io.Discard),
				s.CollectMirror(t.Context(), ci, repo.URL), s.Push(t.Context(), w.ID, Work{}, "cove/pushed-"+name, s.o.Outlet),
				s.Remove(t.Context(), w.ID, true), os.RemoveAll(w.Directory), s.Remove(t.Context(), w.ID, false)); err != nil {
				t.Error(err)
			}
			if said, err := os.ReadFile(canary); err == nil {
				t.Errorf("it ran: %s", said)
			}
		})
	}
}

// TestChangesAndCommits: every kind of change has its own patch, and the patches together are the whole.
func TestChangesAndCommits(t *testing.T) {
	s, w, _ := worked(t, func(git gittest.Git) {
		git.Run("mv", "a/two", "a/moved")
		git.Write("a/one", "1\n2\ndiff --git a/x b/x\n")
		git.Run("rm", "-q", "b", "c/d/e")
		if err := errors.Join(os.Symlink("a/one", filepath.Join(git.Dir, "b")),
			os.Chmod(filepath.Join(git.Dir, "run.sh"), 0o755)); err != nil {
			t.Fatal(err)
		}
		git.Write("new \"one\"", "\x00")
		git.Run("add", "-A")
		git.Run("commit", "-q", "--author=Näme <n@x.example>", "--date=@99999999999 +0000", "-m", "first\n\nbody\n\nend")
		git.Write("README", "said\n")
	})
	changes, err := s.Changes(t.Context(), w.ID, Work{}, ChangeStyle{Renames: true, Patches: true})
	if err != nil {
		t.Fatal(err)
	}
	var whole, list strings.Builder
	for _, c := range changes {
		whole.WriteString(c.Patch)
		fmt.Fprintf(&list, "%s<%s %o %o +%d-%d %v %d; ", c.Path, c.OldPath, c.Old.Mode, c.New.Mode, c.Added, c.Removed,
			c.Binary, strings.Count(c.Patch, "diff --git ")-strings.Count(c.Patch, "+diff"))
	}
	if want := `README< 100644 100644 +1-1 false 1; a/moved<a/two 100644 100644 +0-0 false 1; a/one< 100644 100644 +2-0 ` +
		`false 1; b< 100644 120000 +1-1 false 2; ` +
		`c/d/e< 100644 0 +0-1 false 1; new "one"< 0 100644 +0-0 true 1; run.sh< 100644 100755 +0-0 false 1; `; list.String() != want {
		t.Errorf("%s, want\n%s", &list, want)
	}
	var diff bytes.Buffer
	if err := s.Diff(t.Context(), w.ID, Work{}, DiffStyle{}, &diff); err != nil || diff.String() != whole.String() {
		t.Errorf("the patches are\n%s, and the diff (%v)\n%s", &whole, err, &diff)
	}
	commits, err := s.Commits(t.Context(), w.ID, Work{Ref: "HEAD"})
	if err != nil || len(commits) != 2 {
		t.Fatalf("%+v, %v", commits, err)
	}
	if c := commits[1]; c.Message != "first\n\nbody\n\nend" || c.Author.Name != "Näme" ||
		c.Author.Time.Unix() != 99999999999 || len(c.Parents) != 1 || commits[0].Parents[0] != c.ID {
		t.Errorf("%+v", commits)
	}
	if some, err := s.Commits(t.Context(), w.ID, Work{Ref: "HEAD", Paths: []string{"README"}}); err != nil ||
		len(some) != 1 || some[0].Message != "work" {
		t.Errorf("%+v, %v", some, err)
	}
}

func FuzzParseCommits(f *testing.F) {
	id := strings.Repeat("0a", 20)
	f.Add(id + "\n" + id + " " + id + "\nA\na@x\n1700000000\nB\nb@x\n-5\nsubject\n\nbody\n\x00")
	f.Fuzz(func(t *testing.T, s string) {
		all, err := parseCommits(s)
		for _, c := range all {
			if _, e := json.Marshal(c); e != nil || err != nil {
				t.Fatal(e, err)
			}
		}
	})
}
