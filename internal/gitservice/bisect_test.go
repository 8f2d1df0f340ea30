//go:build linux

package gitservice

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/gitservice/internal/command"
)

// newer gives the companions of a test a newer git than the machine's, and the test itself, too.
func (h *house) newer(t *testing.T) {
	t.Helper()
	dir := os.Getenv("COVE_TEST_GIT")
	if dir == "" {
		t.Skip("needs a newer git: COVE_TEST_GIT is a directory with one, as scripts/newer-git.sh makes it")
	}
	t.Setenv("PATH", filepath.Join(dir, "bin")+":"+os.Getenv("PATH"))
	libraries, err := filepath.Glob(filepath.Join(dir, "root/usr/lib/*-linux-gnu"))
	if err != nil || len(libraries) != 1 {
		t.Fatalf("%v, %v", libraries, err)
	}
	loader, err := filepath.Glob(filepath.Join(libraries[0], "ld-linux-*.so.*"))
	if err != nil || len(loader) != 1 {
		t.Fatalf("%v, %v", loader, err)
	}
	// Its libraries are elsewhere in a companion.
	if err := os.CopyFS(h.root.Dir+"/newer", os.DirFS(libraries[0])); err != nil {
		t.Fatal(err)
	}
	program := h.root.Dir + gitProgram
	os.Remove(program)
	if err := copyFile(filepath.Join(dir, "root/usr/bin/git"), program); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("patchelf", "--set-interpreter", "/newer/"+filepath.Base(loader[0]), "--set-rpath",
		"/newer", "--force-rpath", program).CombinedOutput(); err != nil {
		t.Skipf("needs patchelf, which scripts/newer-git.sh installs: %v\n%s", err, out)
	}
}

// twins are a workspace, and the same history in a worktree of plain git.
type twins struct {
	*place
	tree   string
	normal func(string) string
	n      int
}

// twins adds commits to both histories: the file n counts from 1 to 8.
func (h *house) twins(t *testing.T, p *place) *twins {
	t.Helper()
	name := strings.ReplaceAll(t.Name(), "/", "-") + "-twin"
	twin, tree := filepath.Join(h.dir, name), filepath.Join(h.dir, name+"-checkout")
	history(t, twin)
	plain(t, twin, "branch", "-qD", "secret")
	plain(t, twin, "worktree", "add", "-q", tree, "own")
	for i := range 8 {
		for _, at := range []string{p.w.Directory, tree} {
			write(t, filepath.Join(at, "n"), fmt.Sprintln(i+1))
			plain(t, at, "add", "n")
			plain(t, at, "commit", "-qm", fmt.Sprint("count ", i+1))
		}
	}
	return &twins{place: p, tree: tree,
		normal: strings.NewReplacer(tree, cove.Workspace, "bisect--helper", "bisect").Replace}
}

// same runs a command in both and compares what they say.
func (w *twins) same(args ...string) {
	w.t.Helper()
	w.n++
	wantOut, wantSaid, wantCode := try(w.tree, args...)
	out, said, code := w.git(args...)
	if out != w.normal(wantOut) || said != w.normal(wantSaid) || code != wantCode {
		w.t.Errorf("git %q: %d\n%s%s\nwant %d\n%s%s", args, code, out, said, wantCode, wantOut, wantSaid)
	}
}

var bisections = []string{
	"version", "bisect log", "bisect terms", "bisect next", "bisect reset", "bisect good", "bisect start",
	"bisect terms", "bisect terms --term-good", "status", "bisect bad", "bisect good v1.0", "status",
	"log -1 --format=%s", "bisect log", "rev-parse bisect/bad refs/bisect/bad", "log --bisect --format=%s",
	"rev-list --bisect-vars HEAD ^v1.0", "for-each-ref refs/bisect", "bisect bad", "bisect skip",
	"bisect good", "bisect bad", "bisect log", "bisect next", "bisect reset", "status",
	"for-each-ref refs/bisect", "bisect log", "bisect start HEAD v1.0", "bisect start HEAD~1 HEAD~3 -- n",
	"bisect good", "bisect reset own", "bisect start HEAD main --", "bisect skip HEAD~2..HEAD", "bisect skip",
	"bisect skip", "bisect skip", "bisect reset HEAD~1", "status", "switch own",
	"bisect start --term-old=few --term-new=many HEAD v1.0", "bisect terms", "bisect many",
	"bisect few HEAD~1", "bisect few", "bisect many", "bisect log", "bisect good", "bisect reset",
	"bisect start --no-checkout --first-parent HEAD v1.0", "rev-parse BISECT_HEAD", "status -sb",
	"bisect good", "show --format=%s -s BISECT_HEAD", "bisect reset", "bisect old HEAD~3", "bisect start",
	"bisect new", "bisect old HEAD~3", "bisect reset", "bisect start main own", "bisect reset",
	"bisect start none", "bisect bad HEAD HEAD~1",
}

var noted = []string{
	"notes", "notes list", "notes show", "notes get-ref", "notes add -m one", "notes", "notes show", "log -1",
	"notes add -m two", "notes add -f -m two", "notes append -m more", "notes show HEAD",
	"notes append -m on-first v1.0", "notes list", "notes list HEAD", "notes list HEAD~1",
	"notes copy HEAD HEAD~1", "notes copy HEAD HEAD~1", "notes copy -f v1.0 HEAD~1", "notes show HEAD~1",
	"notes --ref=review add -m reviewed -m twice", "notes --ref review list",
	"notes --ref refs/notes/review show", "notes --ref=notes/review get-ref", "log -1 --notes=review",
	"log -1 --no-notes", "log -2 --notes", "show -s", "for-each-ref", "notes add -C HEAD:n HEAD~2",
	"notes show HEAD~2", "notes add -C HEAD~3 HEAD~3", "notes remove HEAD~1", "notes remove HEAD~1",
	"notes remove --ignore-missing HEAD~1", "notes remove HEAD v1.0", "notes list", "notes prune -n",
	"notes prune", "notes --ref=review remove", "notes --ref=review list", "notes add --allow-empty -m ",
	"notes list", "log --format=%N -3",
}

// TestBisectAndNotes: git bisect and git notes print the same with Cove as without, in both kinds of repository, and no
// other checkout sees the bisection or the notes.
func TestBisectAndNotes(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds; make test runs it")
	}
	for _, which := range []string{"the machine's git", "a newer git"} {
		t.Run(which, func(t *testing.T) {
			h := newHouse(t)
			if which != "the machine's git" {
				h.newer(t)
			}
			t.Run("person", func(t *testing.T) { bisectAndNotes(t, h, h.ofPerson(t)) })
			if which == "the machine's git" {
				t.Run("workspace", func(t *testing.T) { bisectAndNotes(t, h, h.ofWorkspace(t)) })
			}
		})
	}
}

func bisectAndNotes(t *testing.T, h *house, p *place) {
	w := h.twins(t, p)
	person := filepath.Base(p.repo) == "person"
	if person { // who has some
		plain(t, p.repo, "notes", "add", "-m", "a note of secret things", "secret")
		plain(t, p.repo, "notes", "--ref=mine", "add", "-m", "a note of secret things", "main")
	}
	state := func() string { return plain(t, p.repo, "for-each-ref", "--format=%(refname) %(objectname)") }
	before := state()
	for _, line := range bisections {
		w.same(strings.Fields(line)...)
	}
	if got := state(); got != before {
		t.Errorf("refs were\n%sand are\n%s", before, got)
	}
	for _, line := range noted {
		words := strings.Fields(line)
		if strings.HasSuffix(line, " ") {
			words = append(words, "")
		}
		w.same(words...)
	}
	if got := state(); person && got != before {
		t.Errorf("refs were\n%sand are\n%s", before, got)
	}
	for _, args := range [][]string{{"notes", "add", "-F", "note.txt", "main"}, {"notes", "show", "main"}} {
		out, said, code := p.with(command.Run{Stdin: []byte("from a file\n")}, args...)
		if code != 0 || strings.Contains(args[1], "show") && out != "from a file\n" {
			t.Errorf("git %q: %d %s%s", args, code, out, said)
		}
	}
	plain(t, p.repo, "fsck", "--strict", "--no-dangling")
	// A commit that only a mark of the bisection keeps is there for a person, too.
	p.must("switch", "-q", "--detach", "own~1")
	p.must("commit", "-q", "--allow-empty", "-m", "aside")
	p.must("bisect", "start", "HEAD", "v1.0")
	id := strings.TrimSpace(p.must("rev-parse", "bisect/bad"))
	if got := strings.TrimSpace(plain(t, p.w.Directory, "rev-parse", "refs/bisect/bad")); got != id {
		t.Errorf("bad is %s inside, and %s outside", id, got)
	}
	plain(t, p.w.Directory, "cat-file", "-e", id)
	p.must("bisect", "reset", "own")
	if w.n < 100 {
		t.Errorf("%d commands were compared", w.n)
	}
}
