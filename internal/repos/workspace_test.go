package repos

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/git/gittest"
	"github.com/cove-sandbox/cove/internal/workspace"
)

func TestEmptyWorkspace(t *testing.T) {
	s := newStore(t, nil)
	w := create(t, s, workspace.Spec{ID: cove.NewSandboxID(), Name: "quiet-heron", User: cove.CodeUser})
	if names(t, w.Directory) != "" || names(t, w.Home) != "" || w.Borrowed != "" ||
		w.Root != s.o.Home || w.Hidden != "" || w.Remote != "" {
		t.Errorf("%+v", w)
	}
	again, err := s.Open(t.Context(), w.ID)
	if err != nil || again.Directory != w.Directory {
		t.Errorf("%+v, %v", again, err)
	}
	if ids, err := s.List(t.Context()); err != nil || !slices.Equal(ids, []cove.SandboxID{w.ID}) {
		t.Errorf("%v, %v", ids, err)
	}
	if _, err := s.Create(t.Context(), workspace.Spec{ID: w.ID}, nil); cove.ErrorCode(err) != cove.Conflict {
		t.Errorf("a second one: %v", err)
	}
	for range 2 {
		if err := s.Remove(t.Context(), w.ID, false); err != nil {
			t.Error(err)
		}
	}
	if _, err := s.Open(t.Context(), w.ID); cove.ErrorCode(err) != cove.NotFound {
		t.Errorf("after it was removed: %v", err)
	}
	for _, id := range []cove.SandboxID{"", "..", "sb_x", "../../etc"} {
		_, e1 := s.Open(t.Context(), id)
		_, e2 := s.Create(t.Context(), workspace.Spec{ID: id}, nil)
		_, e3 := s.disks.Used(t.Context(), id)
		for _, err := range []error{e1, e2, e3, s.Remove(t.Context(), id, false)} {
			if cove.ErrorCode(err) != cove.InvalidArgument {
				t.Errorf("%q: %v", id, err)
			}
		}
	}
}

// TestCheckout: a private repository, on its own branch, with only the refs that every sandbox may read.
func TestCheckout(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds; make test runs it")
	}
	server := gittest.Start(t, gittest.Options{})
	repo := server.Create("group/project.git")
	origin := server.Client()
	origin.Run("clone", "-q", repo.URL, "work")
	work := origin.In("work")
	work.Write(".gitattributes", "*.bin filter=lfs diff=lfs merge=lfs -text\n*.txt filter=evil\n")
	work.Write("deep/er/file.txt", "text\n")
	work.Write("image.bin", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
	if err := os.Symlink("/etc/passwd", filepath.Join(work.Dir, "link")); err != nil {
		t.Fatal(err)
	}
	work.Run("add", ".")
	work.Run("commit", "-q", "-m", "files")
	work.Run("tag", "light")
	work.Run("tag", "-a", "-m", "v1", "v1")
	work.Run("push", "-q", "origin", "HEAD", "light", "v1")
	main := work.Run("rev-parse", "HEAD")
	repo.Branch("release/1", "main")
	work.Run("checkout", "-q", "-b", "secret")
	secret := work.Commit("secret", "s", "nobody reads this")
	work.Run("push", "-q", "origin", "secret")

	s := newStore(t, server)
	var steps []string
	sp := spec("brave-otter", workspace.Repository{Source: repo.URL})
	w, err := s.Create(t.Context(), sp, func(p workspace.Step) { steps = append(steps, p.Text) })
	if err != nil {
		t.Fatal(err)
	}
	git := origin.In(w.Directory)
	if w.Branch != "cove/brave-otter" || w.From != "main" || w.Base != main || w.Remote != repo.URL ||
		!slices.Equal(w.Shared, []string{"main", "release/1"}) {
		t.Errorf("%+v", w.Checkout)
	}
	if w.Borrowed == "" || !exists(w.Borrowed, "pack") || w.Bound {
		t.Errorf("objects %q, bound %t", w.Borrowed, w.Bound)
	}
	for _, dir := range []string{w.Directory, w.Home, w.Borrowed} {
		place, err := w.Own(dir).Open()
		if err != nil {
			t.Errorf("%s is not to be attached: %v", dir, err)
			continue
		}
		place.Close()
	}
	if len(steps) < 2 || steps[0] != "fetching "+repo.URL {
		t.Errorf("steps %q", steps)
	}
	if got := git.Run("status", "--porcelain"); got != "" {
		t.Errorf("it is not clean: %s", got)
	}
	if got := git.Run("symbolic-ref", "HEAD"); got != "refs/heads/cove/brave-otter" {
		t.Error(got)
	}
	var refs []string
	for line := range strings.Lines(git.Run("for-each-ref", "--format=%(refname)")) {
		refs = append(refs, strings.TrimSpace(line))
	}
	if want := []string{"refs/heads/cove/brave-otter", "refs/remotes/origin/HEAD", "refs/remotes/origin/main",
		"refs/remotes/origin/release/1", "refs/tags/light", "refs/tags/v1"}; !slices.Equal(refs, want) {
		t.Errorf("refs %q, want %q", refs, want)
	}
	if got := git.Try("cat-file", "-e", secret); got.Code == 0 {
		t.Error("a branch that is not for everybody can be read")
	}
	if got := read(t, w.Directory, ".git/objects/info/alternates"); got != "../../../run/cove/objects\n" {
		t.Errorf("alternates %q", got)
	}
	if got := git.Run("describe", "--exact-match", "--match=v*"); got != "v1" {
		t.Errorf("the tag is %s", got)
	}
	if got, err := os.Readlink(filepath.Join(w.Directory, "link")); err != nil || got != "/etc/passwd" {
		t.Errorf("the link is %q, %v", got, err)
	}
	if got := read(t, w.Directory, "image.bin"); !strings.HasPrefix(got, "version https://git-lfs") {
		t.Errorf("the pointer is %q", got)
	}
	git.Run("fsck", "--full")
	if hooks := names(t, filepath.Join(w.Directory, ".git")); strings.Contains(hooks, "hooks") {
		t.Errorf("hooks: %s", hooks)
	}

	// It pushes, and other sandboxes do not see its work.
	git.Commit("mine", "mine", "x")
	git.Run("push", "-q")
	if got := git.Run("rev-parse", "--abbrev-ref", "@{upstream}"); got != "origin/cove/brave-otter" {
		t.Errorf("upstream %s", got)
	}
	other := create(t, s, spec("brave-otter", workspace.Repository{Source: repo.URL}))
	if other.Branch != "cove/brave-otter-2" {
		t.Errorf("the second of the name has %s", other.Branch)
	}
	if got := origin.In(other.Directory).Run("log", "--format=%s", "-1"); got != "files" {
		t.Errorf("it begins at %s", got)
	}

	// Another sandbox begins where the first one ended.
	if _, err := s.Create(t.Context(), spec("x", workspace.Repository{Source: repo.URL, Branch: "cove/brave-otter"}),
		nil); cove.ErrorCode(err) != cove.Conflict {
		t.Errorf("another sandbox's branch: %v", err)
	}
	if err := s.Remove(t.Context(), w.ID, false); err != nil {
		t.Fatal(err)
	}
	next := create(t, s, spec("x", workspace.Repository{Source: repo.URL, Branch: "cove/brave-otter"}))
	if got := origin.In(next.Directory).Run("log", "--format=%s %D", "-1"); !strings.HasPrefix(got,
		"mine HEAD -> cove/brave-otter, origin/cove/brave-otter") {
		t.Errorf("it begins at %q", got)
	}
	if next.From != "cove/brave-otter" || origin.In(next.Directory).Run("status",
		"-sb") != "## cove/brave-otter...origin/cove/brave-otter" {
		t.Errorf("%+v", next.Checkout)
	}
	// The start is the sandbox's own, and not in the mirror.
	mirror := gittest.NewGit(t, s.mirror(keyOf(t, repo.URL)).dir)
	if got := mirror.Try("cat-file", "-e", next.Base); got.Code == 0 {
		t.Error("the branch is in the shared mirror")
	}
	if got := mirror.Run("for-each-ref", "--format=%(refname)"); strings.Contains(got, "secret") ||
		strings.Contains(got, "otter") {
		t.Errorf("the mirror has %s", got)
	}
	if n, err := s.disks.Used(t.Context(), next.ID); err != nil || n.Bytes < 4096 || n.Bytes > 4<<20 {
		t.Errorf("used %+v, %v", n, err)
	}
}

func keyOf(t testing.TB, url string) string {
	t.Helper()
	src, err := ParseSource(ci, url)
	if err != nil {
		t.Fatal(err)
	}
	return src.Key
}

func TestWhereToBegin(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds; make test runs it")
	}
	server := gittest.Start(t, gittest.Options{})
	repo := server.Create("project.git")
	c := server.Client()
	c.Run("clone", "-q", repo.URL, "work")
	work := c.In("work")
	first := work.Run("rev-parse", "HEAD")
	work.Run("tag", "-a", "-m", "one", "v1")
	second := work.Commit("second", "f", "2")
	work.Run("push", "-q", "origin", "main", "v1")
	work.Run("checkout", "-q", "-b", "topic")
	topic := work.Commit("topic", "t", "3")
	work.Run("push", "-q", "origin", "topic")
	work.Run("checkout", "-q", "--orphan", "lost")
	lost := work.Commit("lost", "l", "4")
	work.Run("push", "-q", "origin", "lost:refs/hidden/lost")
	s := newStore(t, server)
	for _, tt := range []struct {
		name, branch, from string
		base, said         string // or a code
	}{
		{"the default branch", "", "", second, "main"},
		{"a branch", "a1", "main", second, "main"},
		{"one that is not well known", "a2", "topic", topic, "topic"},
		{"as a remote's", "a3", "origin/topic", topic, "topic"},
		{"a tag", "a4", "v1", first, "v1"},
		{"a tag by its whole name", "a5", "refs/tags/v1", first, "v1"},
		{"an id", "a6", first, first, first},
		{"an id that no shared branch has", "a7", topic, topic, topic},
		{"a branch of its own that is there", "topic", "", topic, "topic"},
		{"nothing that is there", "b1", "missing", string(cove.NotFound), ""},
		{"an id that is not there", "b2", "1234567890123456789012345678901234567890", string(cove.NotFound), ""},
		{"another ref", "b3", "refs/hidden/lost", string(cove.NotFound), ""},
		{"a flag", "b4", "--upload-pack=x", string(cove.NotFound), ""},
		{"an expression", "b5", "main~1", string(cove.NotFound), ""},
		{"a bad branch", "-x", "", string(cove.InvalidArgument), ""},
		{"a ref as a branch", "refs/heads/x", "", string(cove.InvalidArgument), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w, err := s.Create(t.Context(), spec("x", workspace.Repository{Source: repo.URL, Branch: tt.branch, From: tt.from}),
				nil)
			if err != nil {
				if string(cove.ErrorCode(err)) != tt.base {
					t.Errorf("%v, want %s", err, tt.base)
				}
				return
			}
			if w.Base != tt.base || w.From != tt.said {
				t.Errorf("%+v; want %s from %s", w.Checkout, tt.base, tt.said)
			}
			git := c.In(w.Directory)
			if got := git.Run("rev-parse", "HEAD"); got != tt.base || git.Run("status", "--porcelain") != "" {
				t.Errorf("HEAD is %s", got)
			}
			git.Run("fsck")
		})
	}
	if names := names(t, s.workspaces); strings.Contains(names, coming) {
		t.Errorf("a failure left %s", names)
	}
	_ = lost
}

func TestParts(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds; make test runs it")
	}
	server := gittest.Start(t, gittest.Options{})
	repo := server.Create("project.git")
	c := server.Client()
	c.Run("clone", "-q", repo.URL, "work")
	work := c.In("work")
	for _, f := range []string{"top", "a/one", "a/deep/two", "b/three"} {
		work.Commit(f, f, f)
	}
	work.Run("push", "-q", "origin", "main")
	s := newStore(t, server)

	t.Run("sparse", func(t *testing.T) {
		w := create(t, s, spec("s", workspace.Repository{Source: repo.URL, Sparse: []string{"a"}}))
		if !exists(w.Directory, "a/deep/two") || !exists(w.Directory, "top") || exists(w.Directory, "b") {
			t.Errorf("it has %s", names(t, w.Directory))
		}
		git := c.In(w.Directory)
		if git.Run("status", "--porcelain") != "" || git.Run("sparse-checkout", "list") != "a" {
			t.Error(git.Run("status"))
		}
		git.Run("sparse-checkout", "add", "b")
		if !exists(w.Directory, "b/three") {
			t.Error("it cannot be widened")
		}
	})
	for _, bad := range []string{"", "..", "../x", "/etc", "-x", "a\nb", "a*", "!a"} {
		if _, err := s.Create(t.Context(), spec("s", workspace.Repository{Source: repo.URL, Sparse: []string{bad}}),
			nil); cove.ErrorCode(err) != cove.InvalidArgument {
			t.Errorf("the directory %q: %v", bad, err)
		}
	}
	t.Run("shallow", func(t *testing.T) {
		s := newStore(t, server)
		w := create(t, s, spec("s", workspace.Repository{Source: repo.URL, Depth: 2}))
		git := c.In(w.Directory)
		if got := git.Run("rev-list", "--count", "HEAD"); got != "2" || w.Borrowed != "" {
			t.Errorf("%s commits, objects %q", got, w.Borrowed)
		}
		git.Run("fsck")
		if mirrors, err := s.Mirrors(t.Context(), owner); err != nil || len(mirrors) != 0 {
			t.Errorf("it is in the store: %v, %v", mirrors, err)
		}
		git.Commit("mine", "m", "m")
		git.Run("push", "-q")
		git.Run("fetch", "-q", "--unshallow")
		if got := git.Run("rev-list", "--count", "HEAD"); got == "2" {
			t.Error("it cannot be deepened")
		}
	})
	t.Run("without commits", func(t *testing.T) {
		empty := filepath.Join(server.Root, "empty.git")
		c.Run("init", "-q", "--bare", empty)
		c.In(empty).Run("config", "http.receivepack", "true")
		w := create(t, s, spec("s", workspace.Repository{Source: server.URL("empty.git"), Branch: "main"}))
		git := c.In(w.Directory)
		git.Commit("first", "f", "f")
		git.Run("push", "-q")
		if w.Base != "" || !strings.Contains(c.In(empty).Run("for-each-ref"), "refs/heads/main") {
			t.Errorf("%+v", w.Checkout)
		}
		if _, err := s.Import(t.Context(), w.ID, 0, inside(t, w)); err != nil {
			t.Fatal(err)
		}
		var diff bytes.Buffer
		if err := s.Diff(t.Context(), w.ID, Work{}, DiffStyle{Names: true}, &diff); err != nil || diff.String() != "f\n" {
			t.Errorf("its work is %q, %v", &diff, err)
		}
	})
	t.Run("of another hash", func(t *testing.T) {
		path := filepath.Join(server.Root, "sha256.git")
		c.Run("init", "-q", "--bare", "--object-format=sha256", path)
		c.Run("init", "-q", "-b", "main", "--object-format=sha256", "long")
		c.In("long").Commit("x", "x", "x")
		c.In("long").Run("push", "-q", path, "main")
		w := create(t, s, spec("s", workspace.Repository{Source: server.URL("sha256.git")}))
		if got := c.In(w.Directory).Run("rev-parse", "HEAD"); len(got) != 64 || got != w.Base {
			t.Errorf("HEAD is %s", got)
		}
		c.In(w.Directory).Run("fsck")
	})
	t.Run("with submodules", func(t *testing.T) {
		sub := server.Create("sub.git")
		work.Run("submodule", "-q", "add", sub.URL, "sub")
		work.Run("commit", "-q", "-m", "sub")
		work.Run("push", "-q", "origin", "main")
		w := create(t, s, spec("m", workspace.Repository{Source: repo.URL}))
		if names(t, filepath.Join(w.Directory, "sub")) != "" {
			t.Error("the host fetched it")
		}
		git := c.In(w.Directory)
		git.Run("submodule", "-q", "update", "--init")
		if names(t, filepath.Join(w.Directory, "sub")) == "" || git.Run("status", "--porcelain") != "" {
			t.Error("it cannot be fetched from inside")
		}
	})
}

// TestBombs: a repository that expands beyond the machine's room is not unpacked.
func TestBombs(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds; make test runs it")
	}
	server := gittest.Start(t, gittest.Options{})
	repo := server.Create("project.git")
	blob := repo.RunWith("x", "hash-object", "-w", "--stdin")
	tree := repo.RunWith("100644 blob "+blob+"\tf\n", "mktree")
	for range 10 { // 10 to the power of 10 files
		var in strings.Builder
		for i := range 10 {
			fmt.Fprintf(&in, "040000 tree %s\td%d\n", tree, i)
		}
		tree = repo.RunWith(in.String(), "mktree")
	}
	repo.Run("update-ref", "refs/heads/files", repo.Run("commit-tree", "-m", "files", tree))
	large := repo.RunWith(strings.Repeat("0", 1<<20), "hash-object", "-w", "--stdin")
	var in strings.Builder
	for i := range 100 {
		fmt.Fprintf(&in, "100644 blob %s\tf%d\n", large, i)
	}
	repo.Run("update-ref", "refs/heads/bytes", repo.Run("commit-tree", "-m", "bytes", repo.RunWith(in.String(), "mktree")))

	s := open(t, Options{Home: t.TempDir(), Outlet: direct{server.CA}, MaxCheckout: 64 << 20})
	for _, from := range []string{"files", "bytes"} {
		_, err := s.Create(t.Context(), spec("x", workspace.Repository{Source: repo.URL, From: from}), nil)
		if cove.ErrorCode(err) != cove.TooLarge || cove.ErrorHint(err) == "" {
			t.Errorf("%s: %v", from, err)
		}
	}
}

// TestFields: fields are split in any pieces, and long ones are truncated.
func TestFields(t *testing.T) {
	long := strings.Repeat("long", maxField)
	text := "one\x00two words\x00\x00" + long + "\x00not ended"
	for _, size := range []int{1, 2, 3, 7, 100, len(text)} {
		var got []string
		f := &fields{each: func(s string) error { got = append(got, s); return nil }}
		for rest := text; rest != ""; {
			n := min(size, len(rest))
			if written, err := f.Write([]byte(rest[:n])); err != nil || written != n {
				t.Fatal(written, err)
			}
			rest = rest[n:]
		}
		if len(got) != 4 || got[0] != "one" || got[1] != "two words" || got[2] != "" || !strings.HasPrefix(long, got[3]) ||
			len(got[3]) < maxField {
			t.Fatalf("in parts of %d: %d fields, %.100q", size, len(got), got)
		}
	}
	stop := &fields{each: func(string) error { return errTooLarge }}
	if _, err := stop.Write([]byte("a\x00b")); err != errTooLarge {
		t.Error(err)
	}
}

// TestFailures: a failure at any step leaves nothing.
func TestFailures(t *testing.T) {
	secured := gittest.Start(t, gittest.Options{User: "robot", Password: "word"})
	private := secured.Create("private.git")
	server := gittest.Start(t, gittest.Options{})
	repo := server.Create("project.git")
	hints := map[string]string{
		"nothing there":               "check its spelling",
		"no account":                  "\"cove credentials check\" shows",
		"a certificate nobody trusts": "its certificate",
		"nobody listens":              "curl -I https://127.0.0.1:9",
	}
	for _, tt := range []struct {
		name string
		o    Options
		r    workspace.Repository
		code cove.Code
	}{
		{"no source", Options{}, workspace.Repository{}, cove.InvalidArgument},
		{"a directory of a stranger's", Options{}, workspace.Repository{Source: "/srv"}, cove.Forbidden},
		{"no repository", Options{}, workspace.Repository{Source: t.TempDir()}, cove.NotFound},
		{"no directory", Options{}, workspace.Repository{Source: "/nowhere/at/all"}, cove.NotFound},
		{"no way", Options{}, workspace.Repository{Source: repo.URL}, cove.Unavailable},
		{"a way that is refused", Options{Outlet: refusing{}}, workspace.Repository{Source: repo.URL}, cove.Forbidden},
		{"nothing there", Options{Outlet: direct{server.CA}}, workspace.Repository{Source: server.URL("missing.git")},
			cove.NotFound},
		{"no account", Options{Outlet: direct{secured.CA}}, workspace.Repository{Source: private.URL}, cove.Forbidden},
		{"a certificate nobody trusts", Options{Outlet: direct{secured.CA}}, workspace.Repository{Source: repo.URL},
			cove.Unavailable},
		{"nobody listens", Options{Outlet: direct{}}, workspace.Repository{Source: "https://127.0.0.1:9/SSL"},
			cove.Unavailable},
		{"a negative depth", Options{Outlet: direct{server.CA}}, workspace.Repository{Source: repo.URL, Depth: -1},
			cove.InvalidArgument},
		{"a shallow worktree", Options{Outlet: direct{server.CA}},
			workspace.Repository{Source: repo.URL, Depth: 1, Worktree: true}, cove.InvalidArgument},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.o.Home = t.TempDir()
			s := open(t, tt.o)
			ask := spec("x", tt.r)
			if tt.name == "no repository" || tt.name == "no directory" {
				ask.Owner = owner // who may name directories
			}
			_, err := s.Create(t.Context(), ask, nil)
			if cove.ErrorCode(err) != tt.code {
				t.Errorf("%v, want %s", err, tt.code)
			}
			if want := hints[tt.name]; !strings.Contains(cove.ErrorHint(err), want) {
				t.Errorf("%v: the hint has no %q", err, want)
			}
			if got := names(t, s.workspaces); got != ".creating.lock" && got != ".branches.lock .creating.lock" {
				t.Errorf("it left %s", got)
			}
		})
	}
	t.Run("canceled", func(t *testing.T) {
		waiting, released := make(chan struct{}), make(chan struct{})
		held := gittest.Start(t, gittest.Options{Wrap: gittest.Hold("git-upload-pack", waiting, released)})
		s := newStore(t, held)
		repo := held.Create("project.git")
		ctx, cancel := context.WithCancel(t.Context())
		go func() { <-waiting; cancel() }()
		_, err := s.Create(ctx, spec("x", workspace.Repository{Source: repo.URL}), nil)
		if cove.ErrorCode(err) != cove.Canceled || !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if got := names(t, s.workspaces); got != ".creating.lock" && got != ".branches.lock .creating.lock" {
			t.Errorf("it left %s", got)
		}
		close(released)
	})
}

type refusing struct{}

func (refusing) Open(context.Context, cove.Principal, string, bool) (Route, error) {
	return Route{}, cove.Errorf(cove.Forbidden, "the policy does not allow it")
}

// TestLocalSource: a directory's repository is read, and nothing of it is executed.
func TestLocalSource(t *testing.T) {
	git := gittest.NewGit(t, t.TempDir())
	git.Run("init", "-q", "-b", "main", "mine")
	mine := git.In("mine")
	mine.Commit("first", "dir/f", "1")
	canary := filepath.Join(git.Dir, "canary")
	script := filepath.Join(git.Dir, "evil")
	if err := os.WriteFile(script, []byte("#!/bin/sh\ntouch "+canary+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, kv := range [][2]string{{"core.fsmonitor", script}, {"uploadpack.packObjectsHook", script},
		{"core.alternateRefsCommand", script}, {"core.sshCommand", script}, {"filter.x.smudge", script},
		{"filter.x.clean", script}, {"core.hooksPath", git.Dir}} {
		mine.Run("config", kv[0], kv[1])
	}
	os.Remove(canary)
	for name, want := range map[string]string{"https://git.example/a/b.git": "https://git.example/a/b.git",
		"git@github.com:a/b": "https://github.com/a/b.git", "/srv/elsewhere": "", "https://u:p@git.example/a": ""} {
		mine.Run("config", "remote.origin.url", name)
		s := newStore(t, nil)
		w := create(t, s, ownSpec("x", workspace.Repository{Source: filepath.Join(mine.Dir, "dir")}))
		if w.Remote != want || read(t, w.Directory, "dir/f") == "" {
			t.Errorf("%s: %+v", name, w.Checkout)
		}
		inside := gittest.NewGit(t, w.Directory)
		inside.Run("fsck")
		if got := inside.Try("config", "remote.origin.url").Stdout; strings.TrimSpace(got) != want {
			t.Errorf("origin is %q", got)
		}
		mirrors, err := s.Mirrors(t.Context(), owner)
		if err != nil || len(mirrors) != 1 || mirrors[0].Address != filepath.Join(mine.Dir, ".git") {
			t.Errorf("%+v, %v", mirrors, err)
		}
	}
	// The next workspace gets later changes.
	s := newStore(t, nil)
	create(t, s, ownSpec("x", workspace.Repository{Source: mine.Dir}))
	os.Remove(canary)
	mine.Run("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "commit", "-q",
		"--allow-empty", "-m", "newer")
	os.Remove(canary)
	w := create(t, s, ownSpec("y", workspace.Repository{Source: mine.Dir}))
	if got := gittest.NewGit(t, w.Directory).Run("log", "-1", "--format=%s"); got != "newer" {
		t.Errorf("it begins at %s", got)
	}
	// A linked worktree leads to the same repository.
	mine.Run("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "worktree", "add", "-q", "../linked")
	linked := mine.In(filepath.Join(git.Dir, "linked"))
	linked.Run("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "commit", "-q",
		"--allow-empty", "-m", "newest")
	os.Remove(canary)
	w = create(t, s, ownSpec("z", workspace.Repository{Source: linked.Dir}))
	if got := gittest.NewGit(t, w.Directory).Run("log", "-1", "--format=%s"); got != "newest" || w.From != "linked" {
		t.Errorf("it begins at %s, %s", w.From, got)
	}
	// So does one that has no branch checked out.
	linked.Run("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "commit", "-q", "--allow-empty", "-m", "on")
	linked.Run("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "checkout", "-q", "--detach")
	linked.Run("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "commit", "-q",
		"--allow-empty", "-m", "detached")
	os.Remove(canary)
	for name, worktree := range map[string]bool{"own": false, "beside": true} {
		w = create(t, s, ownSpec(name, workspace.Repository{Source: linked.Dir, Worktree: worktree}))
		if id := linked.Run("rev-parse", "HEAD"); w.Base != id || w.From != id {
			t.Errorf("it begins at %s, %s, not at %s", w.From, w.Base, id)
		}
	}
	if mirrors, err := s.Mirrors(t.Context(), owner); err != nil || len(mirrors) != 1 || len(mirrors[0].Borrowers) != 4 {
		t.Errorf("%+v, %v", mirrors, err)
	}
	if exists(canary) {
		t.Error("a program of the repository ran")
	}
}

// TestCorruptRecord: a workspace with an unreadable record is listed and can be removed. It only prevents the removal
// of mirrors.
func TestCorruptRecord(t *testing.T) {
	server := gittest.Start(t, gittest.Options{})
	repo := server.Create("project.git")
	s := newStore(t, server)
	w := create(t, s, spec("x", workspace.Repository{Source: repo.URL}))
	if err := os.WriteFile(filepath.Join(s.directory(w.ID), recordFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Open(t.Context(), w.ID); cove.ErrorCode(err) != cove.Corrupt {
		t.Error(err)
	}
	if ids, err := s.List(t.Context()); err != nil || !slices.Contains(ids, w.ID) {
		t.Errorf("%v, %v", ids, err)
	}
	create(t, s, spec("y", workspace.Repository{Source: repo.URL}))
	if err := s.RemoveMirror(t.Context(), ci, repo.URL); cove.ErrorCode(err) != cove.Corrupt {
		t.Errorf("what it may borrow was removed: %v", err)
	}
	if err := s.Remove(t.Context(), w.ID, false); err != nil {
		t.Error(err)
	}
}

// TestLocalPointers: a directory by another author cannot substitute another repository of the person.
func TestLocalPointers(t *testing.T) {
	top := gittest.NewGit(t, t.TempDir())
	top.Run("init", "-q", "-b", "main", "secret")
	secret := top.In("secret")
	id := secret.Commit("secret", "key", "key")
	secretGit := filepath.Join(secret.Dir, ".git")
	evil := func(name string) gittest.Git {
		top.Run("init", "-q", "-b", "main", name)
		g := top.In(name)
		g.Commit("first", "f", "f")
		return g
	}
	s := newStore(t, nil)
	for name, plant := range map[string]func(git gittest.Git){
		"a link for objects": func(g gittest.Git) {
			os.RemoveAll(filepath.Join(g.Dir, ".git/objects"))
			os.Symlink(filepath.Join(secretGit, "objects"), filepath.Join(g.Dir, ".git/objects"))
			g.Write(".git/refs/heads/main", id+"\n")
		},
		"links among objects": func(g gittest.Git) {
			os.RemoveAll(filepath.Join(g.Dir, ".git/objects/pack"))
			os.Symlink(filepath.Join(secretGit, "objects/pack"), filepath.Join(g.Dir, ".git/objects/pack"))
		},
		"a link for .git": func(g gittest.Git) {
			os.RemoveAll(filepath.Join(g.Dir, ".git"))
			os.Symlink(secretGit, filepath.Join(g.Dir, ".git"))
		},
		"a .git file": func(g gittest.Git) {
			os.RemoveAll(filepath.Join(g.Dir, ".git"))
			g.Write(".git", "gitdir: "+secretGit+"\n")
		},
		"a common directory": func(g gittest.Git) { g.Write(".git/commondir", secretGit+"\n") },
		"a worktree that nobody added": func(g gittest.Git) {
			os.RemoveAll(filepath.Join(g.Dir, ".git"))
			g.Write(".git", "gitdir: admin\n")
			g.Write("admin/commondir", secretGit+"\n")
			g.Write("admin/gitdir", filepath.Join(g.Dir, ".git")+"\n")
			g.Write("admin/HEAD", "ref: refs/heads/main\n")
		},
	} {
		g := evil(strings.ReplaceAll(name, " ", "-"))
		plant(g)
		_, err := s.Create(t.Context(), ownSpec("x", workspace.Repository{Source: g.Dir}), nil)
		if code := cove.ErrorCode(err); code != cove.Forbidden && code != cove.NotFound {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Pointers made by git itself are accepted.
	sup := evil("super")
	sup.Run("-c", "protocol.file.allow=always", "submodule", "-q", "add", secret.Dir, "sub")
	sup.Run("worktree", "add", "-q", "../beside")
	for _, dir := range []string{"super/sub", "beside", "secret"} {
		create(t, s, ownSpec("x", workspace.Repository{Source: filepath.Join(top.Dir, dir)}))
	}
	// So is a checkout of Cove's own, which borrows from the store.
	kept := create(t, s, ownSpec("kept", workspace.Repository{Source: secret.Dir}))
	if err := s.Remove(t.Context(), kept.ID, true); err != nil {
		t.Fatal(err)
	}
	again := create(t, s, ownSpec("again", workspace.Repository{Source: kept.Directory}))
	if read(t, again.Directory, "key") != "key" {
		t.Error("it is another")
	}
}

// TestShallowSource: the history of a directory's sandbox begins where the directory's begins, when it is deepened too.
func TestShallowSource(t *testing.T) {
	git := gittest.NewGit(t, t.TempDir())
	git.Run("init", "-q", "-b", "main", "all")
	for _, name := range []string{"one", "two", "three", "four"} {
		git.In("all").Commit(name, name, name)
	}
	git.Run("clone", "-q", "--depth=1", "file://"+git.In("all").Dir, "mine")
	mine, s := git.In("mine"), newStore(t, nil)
	for i, step := range []struct {
		fetch   []string
		commits string
	}{{nil, "1"}, {[]string{"--depth=2"}, "2"}, {[]string{"--unshallow"}, "4"}} {
		if step.fetch != nil {
			mine.Run(append([]string{"fetch", "-q"}, step.fetch...)...)
		}
		for kind, r := range map[string]workspace.Repository{"own": {}, "beside": {Worktree: true}} {
			r.Source = mine.Dir
			w := create(t, s, ownSpec(fmt.Sprint(kind, i), r))
			inner := gittest.NewGit(t, w.Directory)
			if got := inner.Run("rev-list", "--count", "HEAD"); got != step.commits {
				t.Errorf("%s %q: %s commits, want %s", kind, step.fetch, got, step.commits)
			}
			inner.Run("fsck", "--no-dangling")
			work := inner.Commit("work", "work", kind)
			refs, err := s.Import(t.Context(), w.ID, 0, inside(t, w))
			if err != nil || !slices.Contains(refs, Ref{"HEAD", work}) {
				t.Errorf("%s %q: %v, %v", kind, step.fetch, refs, err)
			}
		}
	}
}

// TestFormats: a directory with SHA-256 ids is refused where its remote has SHA-1 ids, and else is not.
func TestFormats(t *testing.T) {
	server := gittest.Start(t, gittest.Options{Names: []string{policy.HostService}})
	old := server.Create("old.git")
	git := server.Client()
	for _, name := range []string{"same.git", "empty.git"} {
		git.Run("init", "-q", "--bare", "-b", "main", "--object-format=sha256", filepath.Join(server.Root, name))
	}
	git.Run("init", "-q", "-b", "main", "--object-format=sha256", "mine")
	mine := git.In("mine")
	mine.Commit("first", "file", "1")
	mine.Run("push", "-q", filepath.Join(server.Root, "same.git"), "main")
	mine.Run("remote", "add", "origin", old.URL)
	s := open(t, Options{Home: t.TempDir(), Outlet: named{server}})
	for of, code := range map[string]cove.Code{"old.git": cove.Unsupported, "same.git": "", "empty.git": "",
		"none.git": ""} {
		url := server.URLAt(policy.HostService, of) // not localhost, to which no sandbox pushes
		mine.Run("remote", "set-url", "origin", url)
		w, err := s.Create(t.Context(), ownSpec("x", workspace.Repository{Source: mine.Dir}), nil)
		if code == "" && (err != nil || w.Remote != url) || code != "" && cove.ErrorCode(err) != code {
			t.Errorf("%s: %+v, %v", url, w.Checkout, err)
		}
	}
}
