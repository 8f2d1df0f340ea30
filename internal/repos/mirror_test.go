package repos

import (
	"bufio"
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/filelock"
	"github.com/cove-sandbox/cove/internal/git/gittest"
	"github.com/cove-sandbox/cove/internal/workspace"
)

// TestParallel: concurrent fetches, by several lock holders, end in one complete mirror.
func TestParallel(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds; make test runs it")
	}
	server := gittest.Start(t, gittest.Options{})
	repo := server.Create("project.git")
	home := t.TempDir()
	var all sync.WaitGroup
	made := make(chan workspace.Workspace, 16)
	for i := range 8 {
		s := open(t, Options{Home: home, Outlet: direct{server.CA}})
		all.Go(func() {
			repo.Branch(fmt.Sprintf("release/%d", i), "main")
			w, err := s.Create(t.Context(), spec("same", workspace.Repository{Source: repo.URL}), nil)
			if err != nil {
				t.Error(err)
				return
			}
			made <- w
		})
	}
	all.Wait()
	close(made)
	branches := map[string]bool{}
	for w := range made {
		branches[w.Branch] = true
		git := server.Client().In(w.Directory)
		if git.Run("status", "--porcelain") != "" {
			t.Errorf("%s is not clean", w.ID)
		}
		git.Run("fsck")
	}
	if len(branches) != 8 {
		t.Errorf("8 workspaces share branches: %v", branches)
	}
	s := open(t, Options{Home: home})
	mirrors, err := s.Mirrors(t.Context(), owner)
	if err != nil || len(mirrors) != 1 || len(mirrors[0].Borrowers) != 8 || mirrors[0].Size < 1<<12 ||
		mirrors[0].Address != repo.URL {
		t.Fatalf("%+v, %v", mirrors, err)
	}
	gittest.NewGit(t, s.mirror(mirrors[0].Key).dir).Run("fsck", "--full")
}

// TestBorrowed: borrowed objects stay, whatever happens to the remote and the store.
func TestBorrowed(t *testing.T) {
	server := gittest.Start(t, gittest.Options{})
	repo := server.Create("project.git")
	old := repo.Run("rev-parse", "main")
	s := newStore(t, server)
	w := create(t, s, spec("x", workspace.Repository{Source: repo.URL}))
	git, mirror := server.Client().In(w.Directory), gittest.NewGit(t, s.mirror(keyOf(t, repo.URL)).dir)

	// The remote's history is rewritten.
	tree := repo.Run("commit-tree", "-m", "rewritten", repo.Run("rev-parse", "main^{tree}"))
	repo.Run("update-ref", "refs/heads/main", tree)
	repo.Run("update-ref", "refs/heads/develop", tree)
	fetched, err := s.FetchMirror(t.Context(), ci, repo.URL, false, nil)
	if err != nil || fetched.Size == 0 {
		t.Fatalf("%+v, %v", fetched, err)
	}
	repo.Run("update-ref", "-d", "refs/heads/develop")
	if _, err := s.FetchMirror(t.Context(), ci, repo.URL, false, nil); err != nil {
		t.Fatal(err)
	}
	if got := mirror.Run("for-each-ref", "--format=%(refname) %(objectname)"); got != "refs/heads/main "+tree {
		t.Errorf("the mirror has %s", got)
	}
	for range 2 {
		if err := s.CollectMirror(t.Context(), ci, repo.URL); err != nil {
			t.Fatal(err)
		}
	}
	git.Run("fsck", "--full")
	if got := git.Run("rev-parse", "HEAD"); got != old || git.Run("show", "HEAD:README") != "first" {
		t.Errorf("HEAD is %s", got)
	}
	if err := s.RemoveMirror(t.Context(), ci, repo.URL); cove.ErrorCode(err) != cove.Conflict {
		t.Errorf("a mirror that is borrowed from was removed: %v", err)
	}

	// Kept work still borrows.
	if err := s.Remove(t.Context(), w.ID, true); err != nil {
		t.Fatal(err)
	}
	if ids, err := s.List(t.Context()); err != nil || len(ids) != 0 {
		t.Errorf("%v, %v", ids, err)
	}
	if err := s.RemoveMirror(t.Context(), ci, repo.URL); cove.ErrorCode(err) != cove.Conflict {
		t.Errorf("a mirror that kept work borrows from was removed: %v", err)
	}
	git.Run("log")
	if mirrors, err := s.Mirrors(t.Context(), owner); err != nil || len(mirrors) != 1 ||
		!slices.Equal(mirrors[0].Kept, []string{w.Directory}) {
		t.Errorf("%+v, %v", mirrors, err)
	}

	// The user removes the kept checkout.
	if err := os.RemoveAll(w.Directory); err != nil {
		t.Fatal(err)
	}
	if err := s.CollectMirror(t.Context(), ci, repo.URL); err != nil {
		t.Fatal(err)
	}
	if left := names(t, s.workspaces); strings.Contains(left, string(w.ID)) {
		t.Errorf("there is still %s", left)
	}
	if mirror.Try("cat-file", "-e", old).Code == 0 {
		t.Error("what nobody needs is still there")
	}
	if err := s.RemoveMirror(t.Context(), ci, repo.URL); err != nil {
		t.Fatal(err)
	}
	if err := s.RemoveMirror(t.Context(), ci, repo.URL); cove.ErrorCode(err) != cove.NotFound {
		t.Errorf("again: %v", err)
	}
	if mirrors, err := s.Mirrors(t.Context(), owner); err != nil || len(mirrors) != 0 {
		t.Errorf("%v, %v", mirrors, err)
	}
}

// TestLeftovers: the remains of a dead git process are no obstacle.
func TestLeftovers(t *testing.T) {
	server := gittest.Start(t, gittest.Options{})
	repo := server.Create("project.git")
	s := newStore(t, server)
	m := s.mirror(keyOf(t, repo.URL))
	// An incomplete mirror: without a description.
	if err := os.MkdirAll(filepath.Join(m.dir, "objects/pack"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(m.dir, "config"), []byte("[nonsense"), 0o644); err != nil {
		t.Fatal(err)
	}
	create(t, s, spec("x", workspace.Repository{Source: repo.URL}))
	left := []string{"packed-refs.lock", "refs/heads/main.lock", "HEAD.lock", "objects/pack/tmp_pack_x", "shallow.lock",
		"objects/pack/.tmp-1-pack-x"}
	for _, f := range left {
		if err := os.WriteFile(filepath.Join(m.dir, f), []byte("x"), 0o444); err != nil {
			t.Fatal(err)
		}
	}
	want := repo.Branch("release/1", "main")
	create(t, s, spec("y", workspace.Repository{Source: repo.URL}))
	if got := gittest.NewGit(t, m.dir).Run("rev-parse", "release/1"); got != want {
		t.Errorf("it was not fetched: %s", got)
	}
	for _, f := range left {
		if exists(m.dir, f) {
			t.Errorf("%s is still there", f)
		}
	}
}

// unreachable is an Outlet without a server.
type unreachable struct{}

func (unreachable) Open(context.Context, cove.Principal, string, bool) (Route, error) {
	return Route{Proxy: "http://127.0.0.1:9", Close: func() error { return nil }}, nil
}

func TestDone(t *testing.T) {
	for line, want := range map[string]float64{
		"Receiving objects:   0% (0/3)": 0, "Receiving objects:  50% (1/2), 1.00 MiB | 2 MiB/s": 0.4,
		"Receiving objects: 100% (3/3), done.": 0.8,
		"Resolving deltas: 100% (1/1), done.":  1, "Updating files:  25% (1/4)": 0.25,
		"remote: Counting objects:  50%": -1, "Receiving objects: 500%": -1, "Receiving objects: -1%": -1,
		"Receiving objects: x%": -1, "Receiving objects": -1, "": -1,
	} {
		got, ok := done(line)
		if ok != (want >= 0) || ok && got != want {
			t.Errorf("%q: %v, %v", line, got, ok)
		}
	}
	server := gittest.Start(t, gittest.Options{})
	repo := server.Create("project.git")
	var last workspace.Step
	if _, err := newStore(t, server).FetchMirror(t.Context(), ci, repo.URL, false, func(s workspace.Step) {
		last = s
	}); err != nil || last.Done < 0.8 || last.Text != "fetching "+repo.URL {
		t.Errorf("the last step is %+v, %v", last, err)
	}
}

// TestDefaultBranch: the default branch is remembered until it is deleted or asked for.
func TestDefaultBranch(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds; make test runs it")
	}
	server := gittest.Start(t, gittest.Options{})
	repo := server.Create("project.git")
	s := newStore(t, server)
	from := func() string {
		return create(t, s, spec("x", workspace.Repository{Source: repo.URL})).From
	}
	if got := from(); got != "main" {
		t.Errorf("it begins at %s", got)
	}
	repo.Branch("next", "main")
	repo.Run("symbolic-ref", "HEAD", "refs/heads/next")
	if got := from(); got != "main" {
		t.Errorf("it begins at %s", got)
	}
	if _, err := s.FetchMirror(t.Context(), ci, repo.URL, false, nil); err != nil {
		t.Fatal(err)
	}
	if got := from(); got != "next" {
		t.Errorf("after it was fetched it begins at %s", got)
	}
	repo.Run("branch", "-m", "next", "newest")
	if got := from(); got != "newest" {
		t.Errorf("after it was renamed it begins at %s", got)
	}
}

func TestWithoutTheRemote(t *testing.T) {
	server := gittest.Start(t, gittest.Options{})
	repo := server.Create("project.git")
	topic := repo.Branch("topic", "main")
	home := t.TempDir()
	first := create(t, open(t, Options{Home: home, Outlet: direct{server.CA}}),
		spec("x", workspace.Repository{Source: repo.URL}))
	s := open(t, Options{Home: home, Outlet: unreachable{}})
	w := create(t, s, ownSpec("y", workspace.Repository{Source: repo.URL}))
	if w.Base != first.Base || w.From != "main" {
		t.Errorf("%+v", w.Checkout)
	}
	if _, err := s.Create(t.Context(), spec("y", workspace.Repository{Source: repo.URL}),
		nil); cove.ErrorCode(err) != cove.Unavailable {
		t.Errorf("a stranger, of whom nobody knows what he may read: %v", err)
	}
	if _, err := s.Create(t.Context(), ownSpec("z", workspace.Repository{Source: repo.URL, From: topic}),
		nil); cove.ErrorCode(err) != cove.Unavailable {
		t.Errorf("what was never fetched: %v", err)
	}
	if _, err := s.FetchMirror(t.Context(), ci, repo.URL, false, nil); cove.ErrorCode(err) != cove.Unavailable {
		t.Errorf("fetching: %v", err)
	}
}

// TestKilled: the git process of a killed maker keeps its lock as long as it lives; afterwards nothing is left.
func TestKilled(t *testing.T) {
	waiting, released := make(chan struct{}), make(chan struct{})
	server := gittest.Start(t, gittest.Options{Wrap: gittest.Hold("git-upload-pack", waiting, released)})
	repo := server.Create("project.git")
	home := t.TempDir()
	maker := exec.Command(os.Args[0], "-test.run=^TestMakeWorkspace$")
	maker.Env = append(os.Environ(), "COVE_TEST_MAKE="+home+" "+server.CA+" "+repo.URL)
	out, err := maker.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := maker.Start(); err != nil {
		t.Fatal(err)
	}
	id, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	id = strings.TrimSpace(id)
	<-waiting
	maker.Process.Kill()
	maker.Wait()
	go func() {
		for { // the waits below are short
			select {
			case <-waiting:
			case <-t.Context().Done():
				return
			}
		}
	}()

	s := open(t, Options{Home: home, Outlet: direct{server.CA}})
	m := s.mirror(keyOf(t, repo.URL))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := m.hold(ctx); err == nil {
		t.Error("the mirror's lock is free while git writes")
	}
	close(released)
	// The lock is free when the last git that inherited it has ended.
	release, err := m.hold(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	release()
	l, err := lock(t.Context(), s.creating(), filelock.Exclusive)
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	s = open(t, Options{Home: home, Outlet: direct{server.CA}})
	if exists(s.workspaces, coming+id) {
		t.Error("what was half made is still there")
	}
	w := create(t, s, workspace.Spec{ID: cove.SandboxID(id), Name: "again",
		Repository: &workspace.Repository{Source: repo.URL}})
	server.Client().In(w.Directory).Run("fsck")
	if mirrors, err := s.Mirrors(t.Context(), owner); err != nil || len(mirrors) != 1 || len(mirrors[0].Borrowers) != 1 {
		t.Errorf("%+v, %v", mirrors, err)
	}
}

// TestMakeWorkspace is the process that TestKilled kills.
func TestMakeWorkspace(t *testing.T) {
	told := strings.Fields(os.Getenv("COVE_TEST_MAKE"))
	if len(told) != 3 {
		t.Skip("a part of TestKilled")
	}
	s := open(t, Options{Home: told[0], Outlet: direct{told[1]}})
	sp := spec("killed", workspace.Repository{Source: told[2]})
	fmt.Println(sp.ID)
	s.Create(context.Background(), sp, nil)
	t.Error("it was not killed")
}

// TestRemoveHostile: a sandbox cannot prevent the removal of its workspace, and targets of its symlinks stay.
func TestRemoveHostile(t *testing.T) {
	s := newStore(t, nil)
	w := create(t, s, workspace.Spec{ID: cove.NewSandboxID(), Name: "x"})
	precious := filepath.Join(t.TempDir(), "precious")
	if err := os.WriteFile(precious, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Dir(precious), filepath.Join(w.Directory, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(w.Directory, "locked/inner"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(w.Directory, "locked"), 0); err != nil {
		t.Fatal(err)
	}
	// Far deeper than the maximum length of a path, as a descending program makes it.
	deep, err := os.OpenRoot(w.Directory)
	if err != nil {
		t.Fatal(err)
	}
	for range 3000 {
		if err := deep.Mkdir("deeper", 0o755); err != nil {
			t.Fatal(err)
		}
		next, err := deep.OpenRoot("deeper")
		if err != nil {
			t.Fatal(err)
		}
		deep.Close()
		deep = next
	}
	deep.Close()
	if _, err := s.disks.Used(t.Context(), w.ID); err != nil {
		t.Error(err)
	}
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	few := limit
	few.Cur = 256
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	defer syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit)
	if err := s.Remove(t.Context(), w.ID, false); err != nil {
		t.Error(err)
	}
	if got := names(t, s.workspaces); got != ".creating.lock" && got != ".branches.lock .creating.lock" {
		t.Errorf("it left %s", got)
	}
	if !exists(precious) {
		t.Error("it removed what a link led to")
	}
}

// BenchmarkCreate makes a workspace of a mirrored repository with 5,000 commits and 2,000 files.
func BenchmarkCreate(b *testing.B) {
	server := gittest.Start(b, gittest.Options{})
	repo := server.Create("large.git")
	var in strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&in, "commit refs/heads/main\ncommitter c <c@git.test> %d +0000\ndata 1\nx\n", 1700000000+i)
		for j := range 2 {
			text := strings.Repeat(fmt.Sprintf("line %d %d\n", i, j), 50)
			fmt.Fprintf(&in, "M 100644 inline d%d/f%d\ndata %d\n%s\n", i%40, (i*2+j)%2000, len(text), text)
		}
		if i%50 == 0 {
			fmt.Fprintf(&in, "\nreset refs/tags/v%d\nfrom refs/heads/main\n\n", i)
		}
	}
	repo.RunWith(in.String(), "fast-import", "--quiet", "--force")
	s := newStore(b, server)
	if _, err := s.FetchMirror(b.Context(), ci, repo.URL, false, nil); err != nil {
		b.Fatal(err)
	}
	var used int64
	for b.Loop() {
		w := create(b, s, spec("x", workspace.Repository{Source: repo.URL}))
		b.StopTimer()
		of, _ := s.disks.Used(b.Context(), w.ID)
		used = of.Bytes
		if err := s.Remove(b.Context(), w.ID, false); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	b.ReportMetric(float64(used)/(1<<20), "MiB")
}

// TestRefspecs: changed refs are asked for one by one, and tags at once where there are many.
func TestRefspecs(t *testing.T) {
	tags := func(n int) map[string]string {
		all := map[string]string{"refs/heads/main": "b"}
		for i := range n {
			all[fmt.Sprintf("refs/tags/v%d", i)] = "a"
		}
		return all
	}
	const head, every = "+refs/heads/main:refs/heads/main", "+refs/tags/*:refs/tags/*"
	for _, c := range []struct {
		have, want map[string]string
		specs      []string
	}{
		{nil, tags(0), []string{head}},
		{nil, tags(1), []string{head, "+refs/tags/v0:refs/tags/v0"}},
		{tags(1), tags(1), nil},
		{tags(1), tags(2), []string{"+refs/tags/v1:refs/tags/v1"}},
		{nil, tags(manyTags + 1), []string{head, every}},
		{tags(manyTags), tags(2*manyTags + 1), []string{every}},
	} {
		if got := refspecs(c.have, c.want); !slices.Equal(got, c.specs) {
			t.Errorf("%d to %d refs: %q, want %q", len(c.have), len(c.want), got, c.specs)
		}
	}
}

// TestMirrorsLeaveTheFloor: a repository is not fetched into what Cove leaves free of the host's disk, and one that did
// not fit leaves nothing.
func TestMirrorsLeaveTheFloor(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("a file system of its own needs root")
	}
	server := gittest.Start(t, gittest.Options{})
	large := server.Create("large.git")
	work := gittest.NewGit(t, t.TempDir())
	work.Run("clone", "-q", large.Dir, ".")
	content := make([]byte, 20<<20)
	rand.Read(content)
	work.Commit("large", "blob", string(content))
	work.Run("push", "-q", large.Dir, "HEAD:main")

	home := t.TempDir()
	if err := unix.Mount("tmpfs", home, "tmpfs", 0, "size=20m"); err != nil { // of which one is left alone
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(home, 0) })
	s := open(t, Options{Home: home, Outlet: direct{server.CA}})
	_, err := s.FetchMirror(t.Context(), ci, large.URL, false, nil)
	if cove.ErrorCode(err) != cove.StorageFull || !strings.Contains(err.Error(), "leaves 1 alone") {
		t.Errorf("what does not fit: %v", err)
	}
	if room, err := s.Disks().Free(); err != nil || room.Free < 18<<20 {
		t.Errorf("after it: %+v, %v", room, err)
	}
	if err := unix.Mount("", home, "", unix.MS_REMOUNT, "size=200m"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.FetchMirror(t.Context(), ci, large.URL, false, nil); err != nil {
		t.Errorf("what fits: %v", err)
	}
}
