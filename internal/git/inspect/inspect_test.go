package inspect

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cove-sandbox/cove/internal/git/gittest"
	"github.com/cove-sandbox/cove/internal/git/policy"
)

// here is a box that is this machine. What is in the packs of these tests is their own.
type here struct{}

func (here) run(ctx context.Context, stdin io.Reader, read func(io.Reader) error, args ...string) error {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = append(environment, "PATH="+os.Getenv("PATH"))
	cmd.Stdin = stdin
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return err
	}
	said := read(out)
	io.Copy(io.Discard, out)
	err = cmd.Wait()
	if said != nil {
		return said
	}
	if err != nil {
		return &failed{cmd.ProcessState.ExitCode(), stderr.String()}
	}
	return nil
}

func (here) write(_ context.Context, path string, data []byte) error {
	return os.WriteFile(path, data, 0o644)
}

// beside is a server that is a repository on this machine.
type beside struct {
	gittest.Git
	asked []Query
	none  bool             // it gives nothing
	gives func(Query) bool // nil: it gives everything
	other string           // it gives this object where it is asked for others
}

func (b *beside) Fetch(ctx context.Context, q Query) (io.ReadCloser, []string, error) {
	b.asked = append(b.asked, q)
	if b.none || b.gives != nil && !b.gives(q) {
		return nil, nil, defect("it gives nothing")
	}
	in := strings.Join(q.Wants, "\n") + "\n"
	filter, shallow := "tree:0", []string(nil)
	if q.Trees {
		filter, shallow = "blob:none", q.Wants
	}
	if q.All {
		filter = "blob:none"
	}
	for _, id := range q.Haves {
		in += "^" + id + "\n"
	}
	args := []string{"pack-objects", "-q", "--stdout", "--revs", "--filter=" + filter}
	if q.Objects {
		args = args[:3]
		if b.other != "" {
			in = b.other + "\n"
		}
	}
	if q.Trees {
		args = append(args, "--shallow")
		for _, id := range q.Wants {
			in = "--shallow " + id + "\n" + in
		}
	}
	r := b.TryWith(in, args...)
	if r.Code != 0 {
		return nil, nil, defect(r.Stderr)
	}
	return io.NopCloser(strings.NewReader(r.Stdout)), shallow, nil
}

// scene is a repository on a server, and one of a client.
type scene struct {
	t      *testing.T
	server *beside
	client gittest.Git
	main   string
}

func newScene(t *testing.T) *scene {
	dir := t.TempDir()
	s := &scene{t: t, server: &beside{Git: gittest.NewGit(t, filepath.Join(dir, "server"))},
		client: gittest.NewGit(t, filepath.Join(dir, "client"))}
	top := gittest.NewGit(t, dir)
	top.Run("init", "-q", "-b", "main", "client")
	s.client.Commit("first", "README", "first\n", ".github/workflows/ci.yml", "on: push\n", "src/a.go", "package a\n")
	s.main = s.client.Commit("second", "src/b.go", "package b\n")
	top.Run("clone", "-q", "--bare", "client", "server")
	return s
}

// upload is something the server gets to have as a branch.
func (s *scene) upload(id, branch string) string {
	s.client.Run("push", "-q", "-f", s.server.Dir, id+":refs/heads/"+branch)
	return id
}

// look inspects what a client pushes that knows the branches of the server.
func (s *scene) look(new, from string, change ...func(*Job)) policy.Facts {
	s.t.Helper()
	pack := s.client.Pack(new+"\n^"+s.main+"\n", "--revs")
	return s.lookInto(pack, new, from, change...)
}

func (s *scene) lookInto(pack, new, from string, change ...func(*Job)) policy.Facts {
	s.t.Helper()
	old := from
	if old == "" {
		old = strings.Repeat("0", len(new))
	}
	job := Job{Pack: strings.NewReader(pack), Max: 64 << 20,
		Compare: []Compare{{policy.Update{Ref: "refs/heads/own", Old: old, New: new}, from}},
		Visible: []string{s.main}, Settled: []string{s.main},
		Watch: func(c policy.Change) bool { return strings.HasPrefix(c.Path, ".github") }, Server: s.server}
	for _, f := range change {
		f(&job)
	}
	g, err := create(s.t.Context(), here{}, filepath.Join(s.t.TempDir(), "r"), len(new) == 64)
	if err != nil {
		s.t.Fatal(err)
	}
	facts, err := inspect(s.t.Context(), g, job)
	if err != nil {
		s.t.Fatal(err)
	}
	return facts
}

func ancestry(f policy.Facts) policy.Ancestry {
	for _, a := range f.Ancestry {
		return a
	}
	return -1
}

func paths(f policy.Facts) (all []string) {
	for _, c := range f.Changes {
		all = append(all, c.Path)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// TestChanges: what new commits change is found, compared to each parent; what
// comes from a settled branch is no change.
func TestChanges(t *testing.T) {
	s := newScene(t)
	c := s.client
	plain := c.Commit("plain", "src/c.go", "package c\n")
	if f := s.look(plain, ""); len(f.Defects) > 0 || len(f.Changes) > 0 || f.Commits != 1 {
		t.Errorf("plain: %+v", f)
	}
	c.Commit("workflow", ".github/workflows/ci.yml", "on: pull_request_target\n")
	undone := c.Commit("undone", ".github/workflows/ci.yml", "on: push\n")
	if f := s.look(undone, ""); !slices.Equal(paths(f), []string{".github/workflows/ci.yml"}) || f.Commits != 3 {
		t.Errorf("changed and changed back: %+v", f)
	}
	c.Run("checkout", "-q", plain)
	c.Run("rm", "-q", ".github/workflows/ci.yml")
	if f := s.look(c.Commit("removed"), ""); len(f.Changes) != 1 || !f.Changes[0].Delete {
		t.Errorf("removed: %+v", f)
	}
	c.Run("checkout", "-q", "--orphan", "root")
	if f := s.look(c.Commit("a root", ".github/x", "x"), ""); !slices.Contains(paths(f), ".github/x") ||
		len(f.Defects) > 0 {
		t.Errorf("a root: %+v", f)
	}
	c.Run("checkout", "-q", "-f", plain)

	// Somebody else changes the workflow on main, and main is merged.
	c.Run("checkout", "-q", "-b", "next", s.main)
	next := s.upload(c.Commit("next", ".github/workflows/ci.yml", "on: [push, workflow_call]\n"), "main")
	c.Run("checkout", "-q", plain)
	c.Run("merge", "-q", "-m", "merge", "next")
	merged := c.Run("rev-parse", "HEAD")
	pack := c.Pack(merged+"\n^"+s.main+"\n^"+next+"\n", "--revs")
	known := func(j *Job) { j.Visible, j.Settled = []string{s.main, next}, []string{next} }
	if f := s.lookInto(pack, merged, "", known); len(f.Defects) > 0 || len(f.Changes) > 0 || f.Commits != 2 {
		t.Errorf("merged: %+v", f)
	}
	if f := s.lookInto(pack, merged, "", known, func(j *Job) { j.Shallow = []string{merged} }); len(f.Defects) == 0 {
		t.Errorf("a new commit without a history: %+v", f)
	}
	if f := s.lookInto(pack, merged, "", known, func(j *Job) { j.Shallow = []string{s.main} }); len(f.Defects) > 0 {
		t.Errorf("pushed from a shallow clone: %+v", f)
	}
	// The same from a branch that is not settled is a change.
	if f := s.lookInto(pack, merged, "",
		func(j *Job) { j.Visible = []string{s.main, next}; j.Settled = []string{s.main} }); len(f.Changes) == 0 {
		t.Errorf("merged from elsewhere: %+v", f)
	}
	// A merge that says something neither side says.
	c.Write(".github/workflows/ci.yml", "on: issue_comment\n")
	c.Run("commit", "-q", "-a", "--amend", "-m", "evil")
	evil := c.Run("rev-parse", "HEAD")
	pack = c.Pack(evil+"\n^"+next+"\n", "--revs")
	if f := s.lookInto(pack, evil, "", known); !slices.Equal(paths(f), []string{".github/workflows/ci.yml"}) {
		t.Errorf("evil: %+v", f)
	}
}

// TestAncestry: a force push is told from one that is none, however the commits come to be where they are.
func TestAncestry(t *testing.T) {
	s := newScene(t)
	c := s.client
	own := s.upload(c.Commit("own", "own", "1"), "own")
	further := c.Commit("further", "own", "2")
	see := func(ids ...string) func(*Job) { return func(j *Job) { j.Visible = append(j.Visible, ids...) } }
	only := func(new string, without ...string) string {
		return c.Pack(new+"\n^"+strings.Join(without, "\n^")+"\n", "--revs")
	}
	c.Run("checkout", "-q", s.main)
	aside := c.Commit("aside", "own", "3")
	c.Run("checkout", "-q", "-B", "merge", own)
	c.Run("merge", "-q", "-s", "ours", "-m", "merge", aside)
	merge := c.Run("rev-parse", "HEAD")
	// main has moved on, over own
	ahead := s.upload(further, "main")
	for name, x := range map[string]struct {
		pack, new, from string
		want            policy.Ancestry
	}{
		"on top":                  {only(further, own), further, own, policy.Descends},
		"the same":                {only(own, own), own, own, policy.Descends},
		"a merge of both":         {only(merge, own, s.main), merge, own, policy.Descends},
		"aside":                   {only(aside, s.main), aside, own, policy.Diverges},
		"back":                    {only(s.main, s.main), s.main, own, policy.Diverges},
		"to what main has become": {only(ahead, ahead), ahead, own, policy.Descends},
		"everything sent again":   {c.Pack(further+"\n", "--revs"), further, own, policy.Descends},
		"from what nobody has":    {only(further, own), further, strings.Repeat("1", 40), policy.Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			f := s.lookInto(x.pack, x.new, x.from, see(own, ahead))
			if len(f.Defects) > 0 || ancestry(f) != x.want {
				t.Errorf("%+v", f)
			}
		})
	}
	s.server.none = true
	if f := s.lookInto(only(s.main, s.main), s.main, own, see(own)); ancestry(f) != policy.Unknown {
		t.Errorf("a server that gives nothing: %+v", f)
	}
}

// TestUnanswered: where the server does not say whether a push is built on the history of what the sandbox sees, the
// push is refused for that, and not taken for one that is built on something else.
func TestUnanswered(t *testing.T) {
	s := newScene(t)
	s.client.Run("checkout", "-q", "main^")
	older := s.client.Commit("built on the first", "src/c.go", "package c\n")
	if f := s.look(older, ""); len(f.Defects) > 0 {
		t.Errorf("built on the first commit: %+v", f)
	}
	s.server.gives = func(q Query) bool { return len(q.Haves) == 0 }
	f := s.look(older, "")
	if len(f.Defects) != 1 || !strings.Contains(f.Defects[0], "does not say whether") ||
		!strings.Contains(f.Defects[0], "it gives nothing") {
		t.Errorf("without an answer: %+v", f)
	}
}

// TestDefects: what cannot be told to be in order is refused, and why is said in words of ours (PROBES G4, G8).
func TestDefects(t *testing.T) {
	s := newScene(t)
	c := s.client
	hidden := s.upload(c.Commit("hidden", "secret", "the secret\n"), "hidden")
	onHidden := c.Commit("on top", "own", "1")
	blob := c.Run("rev-parse", hidden+":secret")
	c.Run("checkout", "-q", s.main)
	tree := c.RunWith("100644 blob "+blob+"\tgot\n", "mktree")
	thief := c.Run("commit-tree", "-p", s.main, "-m", "thief", tree)
	good := c.Commit("good", "large", strings.Repeat("a line of many\n", 5000))
	small := c.Commit("small", "large", strings.Repeat("a line of many\n", 5001))
	pack := c.Pack(good+"\n^"+s.main+"\n", "--revs")
	empty := c.RunWith("", "hash-object", "-w", "--stdin")
	tree0 := c.RunWith("", "mktree")
	// raw is a commit whose tree has an entry that git itself would not write.
	raw := func(name string) (id, pack string) {
		binary, err := hex.DecodeString(empty)
		if err != nil {
			t.Fatal(err)
		}
		mode := "100644 "
		if strings.HasPrefix(strings.ToLower(name), ".git") && !strings.HasPrefix(name, ".gitm") {
			mode = "40000 "
			binary, _ = hex.DecodeString(tree0)
		}
		tree := c.RunWith(mode+name+"\x00"+string(binary), "hash-object", "-t", "tree", "-w", "--literally", "--stdin")
		id = c.Run("commit-tree", "-p", s.main, "-m", "raw", tree)
		return id, c.Pack(strings.Join([]string{id, tree, tree0, empty}, "\n") + "\n")
	}
	dotGit, dotGitPack := raw(".git")
	capital, capitalPack := raw(".GIT")
	dots, dotsPack := raw("..")
	short, shortPack := raw("git~1")
	slash, slashPack := raw("a/b")
	for name, x := range map[string]struct{ pack, new, says string }{
		"good": {pack, good, ""},
		"on top of what is hidden": {c.Pack(onHidden+"\n^"+hidden+"\n", "--revs"), onHidden,
			"does not see|not in the history"},
		"what is hidden itself": {c.Pack(""), hidden, "not in the history"},
		"an object of another":  {c.Pack(thief + "\n" + tree + "\n"), thief, "lacks objects"},
		"cut short":             {pack[:len(pack)-30], good, "refused"},
		"another checksum":      {pack[:len(pack)-1] + "x", good, "corrupt|refused"},
		"something after it":    {pack + "x", good, "follows"},
		"itself after it":       {pack + pack, good, "follows"},
		"no pack":               {"PACKnot one", good, "refused"},
		"nothing":               {"", good, "refused"},
		"thin": {c.Pack(small+"\n^"+good+"\n", "--revs", "--thin", "--delta-base-offset"), small,
			"deltas of objects"},
		"a ref at a blob":       {c.Pack(empty + "\n"), empty, "no commit"},
		"an entry .git":         {dotGitPack, dotGit, "dangerous"},
		"an entry .GIT":         {capitalPack, capital, "dangerous"},
		"an entry ..":           {dotsPack, dots, "dangerous"},
		"an entry git~1":        {shortPack, short, "dangerous"},
		"an entry with a slash": {slashPack, slash, "dangerous"},
	} {
		t.Run(name, func(t *testing.T) {
			f := s.lookInto(x.pack, x.new, "")
			if said := strings.Join(f.Defects, "\n"); (said == "") != (x.says == "") ||
				!regexp.MustCompile(x.says).MatchString(said) {
				t.Errorf("%q", f.Defects)
			}
		})
	}
}

// TestTidy: what is old goes, and nothing else does.
func TestTidy(t *testing.T) {
	dir := t.TempDir()
	for name, age := range map[string]time.Duration{"inspect-old": 2 * abandoned, "inspect-new": 0,
		"other-old": 2 * abandoned} {
		if err := os.MkdirAll(filepath.Join(dir, name, "r"), 0o755); err != nil {
			t.Fatal(err)
		}
		then := time.Now().Add(-age)
		if err := os.Chtimes(filepath.Join(dir, name), then, then); err != nil {
			t.Fatal(err)
		}
	}
	Tidy(dir)
	if left, err := filepath.Glob(dir + "/*"); err != nil ||
		strings.Join(left, " ") != dir+"/inspect-new "+dir+"/other-old" {
		t.Errorf("left: %q, %v", left, err)
	}
}

// TestSecrets: added lines are looked at, and no others.
func TestSecrets(t *testing.T) {
	s := newScene(t)
	c := s.client
	key := func(j *Job) { j.Secrets = []policy.Secret{{Name: "key", Pattern: regexp.MustCompile("KEY-[0-9]{4}")}} }
	first := c.Commit("added", "conf", "a\nkey=KEY-1234\nb\n")
	if f := s.look(first, "", key); len(f.Secrets) != 1 || f.Secrets[0].Path != "conf" || f.Secrets[0].Line != 2 ||
		f.Secrets[0].Secret != "key" {
		t.Errorf("%+v", f)
	}
	second := c.Commit("removed", "conf", "a\nb\n")
	if f := s.look(second, "", key); len(f.Secrets) != 1 {
		t.Errorf("added and removed again: %+v", f)
	}
	c.Run("checkout", "-q", s.main)
	c.Commit("binary", "bin", strings.Repeat("\x00", 3<<20)+"KEY-1234")
	if f := s.look(c.Run("rev-parse", "HEAD"), "", key); len(f.Secrets) != 1 {
		t.Errorf("far in a line: %+v", f)
	}
}

// TestUnreachable: what a tip has is found in its trees alone, what is older in
// all of the history, and what is in neither is not.
func TestUnreachable(t *testing.T) {
	s := newScene(t)
	near, first := s.client.Run("rev-parse", "HEAD:src/b.go"), s.client.Run("rev-parse", "HEAD:README")
	s.client.Run("rm", "-q", "README")
	s.main = s.upload(s.client.Commit("third"), "main")
	s.client.Run("checkout", "-q", "--orphan", "other")
	other := s.upload(s.client.Commit("other", "secret", "secret\n"), "other")
	secret := s.client.Run("rev-parse", "HEAD:secret")
	for _, c := range []struct {
		wants   []string
		missing []string
		asked   int
	}{
		{[]string{near}, nil, 1}, {[]string{s.main}, nil, 1}, {[]string{near, first}, nil, 2},
		{[]string{secret}, []string{secret}, 2}, {[]string{near, other, first}, []string{other}, 2},
	} {
		s.server.asked = nil
		g, err := create(t.Context(), here{}, filepath.Join(t.TempDir(), "r"), false)
		if err != nil {
			t.Fatal(err)
		}
		missing, err := unreachable(t.Context(), g, []string{s.main}, c.wants, 64<<20, s.server)
		if err != nil || !slices.Equal(missing, c.missing) || len(s.server.asked) != c.asked {
			t.Errorf("of %q missing are %q, %v, in %d questions", c.wants, missing, err, len(s.server.asked))
		}
	}
	s.server.none = true
	g, err := create(t.Context(), here{}, filepath.Join(t.TempDir(), "r"), false)
	if err != nil {
		t.Fatal(err)
	}
	if missing, err := unreachable(t.Context(), g, []string{s.main}, []string{near}, 64<<20, s.server); err == nil &&
		len(missing) == 0 {
		t.Error("a server that says nothing says that it is there")
	}
}

// TestManyLines: a file of many lines is searched, and the lines of its earlier version are not remembered.
func TestManyLines(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds; make test runs it")
	}
	s := newScene(t)
	var b bytes.Buffer
	for i := range 1_000_010 {
		fmt.Fprintln(&b, i)
	}
	many := s.client.Commit("many", "file", b.String())
	more := s.client.Commit("more", "file", b.String()+"secret\n")
	secret := func(j *Job) { j.Secrets = []policy.Secret{{Name: "x", Pattern: regexp.MustCompile("^secret$")}} }
	if f := s.look(many, "", secret); len(f.Defects) > 0 || len(f.Secrets) > 0 {
		t.Errorf("new lines: %+v", f)
	}
	if f := s.look(more, "", secret); len(f.Defects) > 0 || len(f.Secrets) != 1 || f.Secrets[0].Line != 1_000_011 {
		t.Errorf("changed: %+v", f)
	}
}

// TestEarlierSecrets: what a file, or another one that the commit changes, had before is not added by a commit.
func TestEarlierSecrets(t *testing.T) {
	const old, new = "ghp_q7Rk2ZpWv9LdXe4TnHb8MyCs3GfJ6uAa5Ki1", "ghp_Nt0QoVxYwPzEhUgBjDmSrFlIcq7Rk2ZpWv9Ld"
	s := newScene(t)
	c := s.client
	s.main = s.upload(c.Commit("a test key", "testdata/keys", "key: "+old+"\n"), "main")
	known := func(j *Job) { j.Known = true }
	lines := func(f policy.Facts) (all []string) {
		for _, s := range f.Secrets {
			all = append(all, fmt.Sprintf("%s %d %s", s.Path, s.Line, s.Commit))
		}
		slices.Sort(all)
		return all
	}
	check := func(name, id string, want ...string) {
		t.Helper()
		f := s.look(id, "", known)
		if len(f.Defects) > 0 || !slices.Equal(lines(f), want) {
			t.Errorf("%s: %q, want %q, %q", name, lines(f), want, f.Defects)
		}
	}
	edited := c.Commit("edit", "testdata/keys", "# used in tests\nkey = "+old+"\n")
	check("the file is edited", edited)
	check("another key", c.Commit("another", "testdata/keys", "key = "+old+"\nkey = "+new+"\n"),
		"testdata/keys 2 "+c.Run("rev-parse", "HEAD"))
	c.Run("checkout", "-q", "-f", edited)
	c.Run("mv", "testdata/keys", "keys.txt")
	check("it is moved and edited", c.Commit("move", "keys.txt", "moved\nkey = "+old+"\n"))
	c.Run("checkout", "-q", "-f", s.main)
	added := c.Commit("add", "x", new+"\n")
	more := c.Commit("more", "x", new+"\nmore\n")
	check("added, and edited", more, "x 1 "+added)
	c.Run("checkout", "-q", "-f", added)
	c.Commit("a line", "x", new+"\nmore\n")
	check("there, changed, and back", c.Commit("and back", "x", new+"\n"), "x 1 "+added)
	s.server.gives = func(q Query) bool { return !q.Objects }
	check("a server that does not say", edited, "testdata/keys 2 "+edited)
}

// TestDeleted: files that a push deletes are counted, and not those that it moves, or that others have deleted.
func TestDeleted(t *testing.T) {
	s := newScene(t)
	c := s.client
	var files []string
	for i := range 20 {
		files = append(files, fmt.Sprintf("pkg/f%d.go", i), fmt.Sprintf("package pkg // %d\n", i))
	}
	s.main = s.upload(c.Commit("files", files...), "main")
	check := func(name, id string, want int, change ...func(*Job)) {
		t.Helper()
		if f := s.look(id, "", change...); len(f.Defects) > 0 || f.Deleted != want {
			t.Errorf("%s: %d deleted, want %d; %q", name, f.Deleted, want, f.Defects)
		}
	}
	start := func() { c.Run("checkout", "-q", "-f", s.main) }
	c.Run("rm", "-q", "-r", "pkg")
	deleted := c.Commit("all")
	check("all are deleted", deleted, 20)
	check("and come back", c.Commit("back", files...), 0)
	start()
	c.Run("mv", "pkg", "internal")
	moved := c.Commit("moved", "internal/f1.go", "package internal\n", "internal/f2.go", "package internal // 2\n")
	check("they are moved, and some are edited", moved, 0)
	c.Run("rm", "-q", "-r", "internal")
	check("and deleted there", c.Commit("gone"), 20)
	start()
	c.Commit("rubbish", "out/a", "1", "out/b", "2")
	c.Run("rm", "-q", "-r", "out")
	check("what the push itself has added", c.Commit("tidy"), 0)
	start()
	for i := range 10 {
		c.Run("rm", "-q", fmt.Sprintf("pkg/f%d.go", i))
		c.Commit("one by one")
	}
	check("one by one", c.Run("rev-parse", "HEAD"), 10)
	start()
	var many []string
	for i := range 150 {
		many = append(many, fmt.Sprintf("many/%d", i), fmt.Sprintln(i))
	}
	s.main = s.upload(c.Commit("many", many...), "main")
	c.Run("rm", "-q", "-r", "many")
	few := c.Commit("few are left")
	check("many", few, 150)
	if f := s.look(few, ""); f.Files != 174 {
		t.Errorf("there were %d files", f.Files)
	}
	start()
	own := c.Commit("own", "own", "1")
	c.Run("checkout", "-q", "-f", deleted)
	s.upload(deleted, "main")
	c.Run("checkout", "-q", own)
	c.Run("merge", "-q", "-m", "merge", deleted)
	merged := c.Run("rev-parse", "HEAD")
	pack := c.Pack(merged+"\n^"+deleted+"\n", "--revs")
	f := s.lookInto(pack, merged, "", func(j *Job) { j.Visible = append(j.Visible, deleted) })
	if len(f.Defects) > 0 || f.Deleted != 0 {
		t.Errorf("merged: %d deleted, %q", f.Deleted, f.Defects)
	}
}
