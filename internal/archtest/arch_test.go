package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// pkg is one package of the repository, read from its files: every build
// constraint at once, so that no platform escapes.
type pkg struct {
	path    string // below the module, "" for the root
	name    string
	doc     string
	imports map[string]string // import path to the file that has it
	tests   int               // test files
	files   int               // other Go files
}

func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "go.mod")); err != nil {
		t.Fatalf("the repository's root is expected two directories up: %v", err)
	}
	return dir
}

// packages reads every package of the module.
func packages(t *testing.T) []pkg {
	t.Helper()
	base := root(t)
	byPath := map[string]*pkg{}
	err := filepath.WalkDir(base, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			return skipDir(base, file, d.Name())
		}
		if !strings.HasSuffix(file, ".go") {
			return nil
		}
		rel, err := filepath.Rel(base, filepath.Dir(file))
		if err != nil {
			return err
		}
		if rel == "." {
			rel = ""
		}
		p := byPath[rel]
		if p == nil {
			p = &pkg{path: filepath.ToSlash(rel), imports: map[string]string{}}
			byPath[rel] = p
		}
		return p.read(file)
	})
	if err != nil {
		t.Fatal(err)
	}
	var all []pkg
	for _, p := range byPath {
		all = append(all, *p)
	}
	slices.SortFunc(all, func(a, b pkg) int { return strings.Compare(a.path, b.path) })
	if len(all) < 10 {
		t.Fatalf("only %d packages were found; the walk is wrong", len(all))
	}
	return all
}

// skipDir leaves out what the go tool leaves out, and modules of their own.
func skipDir(base, dir, name string) error {
	if dir == base {
		return nil
	}
	if name == "testdata" || name == "vendor" || name == "bin" || strings.HasPrefix(name, ".") ||
		strings.HasPrefix(name, "_") {
		return filepath.SkipDir
	}
	if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
		return filepath.SkipDir
	}
	return nil
}

func (p *pkg) read(file string) error {
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly|parser.ParseComments)
	if err != nil {
		return err
	}
	if strings.HasSuffix(file, "_test.go") {
		p.tests++
		return nil
	}
	if ignored(f) {
		return nil
	}
	p.files++
	p.name = f.Name.Name
	if f.Doc != nil {
		p.doc = f.Doc.Text()
	}
	for _, spec := range f.Imports {
		name, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return err
		}
		p.imports[name] = file
	}
	return nil
}

// ignored reports a file that no build takes: a generator run by hand.
func ignored(f *ast.File) bool {
	for _, group := range f.Comments {
		for _, c := range group.List {
			if c.Pos() < f.Package && strings.TrimSpace(c.Text) == "//go:build ignore" {
				return true
			}
		}
	}
	return false
}

// below turns an import path of this module into the path below it.
func below(importPath string) (string, bool) {
	if importPath == module {
		return "", true
	}
	return strings.CutPrefix(importPath, module+"/")
}

func standard(importPath string) bool {
	first, _, _ := strings.Cut(importPath, "/")
	return !strings.Contains(first, ".")
}

func TestEveryPackageIsInTheTable(t *testing.T) {
	for _, p := range packages(t) {
		if _, ok := roomOf(p.path); !ok {
			t.Errorf("package %s is in no layer: give it a line in internal/archtest/table_test.go and a row in "+
				"ARCHITECTURE.md, "+
				"or put its code where it belongs", p.path)
		}
	}
}

func TestImportsGoDownward(t *testing.T) {
	for _, p := range packages(t) {
		for imported, file := range p.imports {
			to, ours := below(imported)
			if !ours {
				if p.path == "" && !standard(imported) {
					t.Errorf("%s imports %s: the root package is vocabulary and imports the standard library only", file, imported)
				}
				continue
			}
			if why := objection(p.path, to); why != "" {
				t.Errorf("%s imports %s: %s", file, imported, why)
			}
		}
	}
}

func TestFencesHold(t *testing.T) {
	for _, p := range packages(t) {
		for imported, file := range p.imports {
			for _, f := range fences {
				if !matches(f.imported, imported) || inside(p.path, f) {
					continue
				}
				t.Errorf("%s imports %s: only %s may: %s", file, imported, strings.Join(f.by, ", "), f.reason)
			}
		}
	}
}

func inside(from string, f fence) bool {
	if matches(f.imported, module+"/"+from) || from == "internal/deps" { // deps pins versions and is linked by nobody
		return true
	}
	return slices.ContainsFunc(f.by, func(by string) bool { return matches(by, from) }) || matches("test/...", from)
}

func TestObjections(t *testing.T) {
	for _, c := range []struct {
		name, from, to string
		refused        bool
	}{
		{"down", "internal/sandbox", "internal/engine", false},
		{"up", "internal/engine", "internal/sandbox", true},
		{"contract on contract, declared", "internal/engine", "internal/guest", false},
		{"contract on contract, undeclared", "internal/guest", "internal/engine", true},
		{"adapter on sibling", "internal/engine/native", "internal/image", true},
		{"adapter on its own part", "internal/engine/native", "internal/engine/native/plan", false},
		{"guest on its protocol", "internal/guest/guestd", "internal/guest", false},
		{"heart on adapter", "internal/sandbox", "internal/store/sqlite", false}, // the fence refuses it
		{"edge on edge", "internal/httpapi", "client", true},
		{"wiring", "internal/cli/embedded", "internal/daemon", false},
		{"what all programs link on the daemon", "internal/cli/session", "internal/daemon", true},
		{"a room of the command line on another", "internal/cli/agent", "internal/cli/sandbox", true},
		{"wiring backwards", "internal/daemon", "internal/cli", true},
		{"words on a leaf", "", "internal/clock", true},
		{"leaf on words", "internal/clock", "", false},
		{"leaf on leaf", "internal/clock", "internal/atomicfile", true},
		{"product on test tooling", "internal/sandbox", "internal/engine/enginetest/fake", true},
		{"a process on test tooling", "cmd/cove", "test/adversary", true},
		{"a program on the scripted model", "internal/cli/server", "test/modeltest", true},
		{"test tooling on a contract", "internal/engine/enginetest", "internal/engine", false},
		{"test tooling on an adapter", "internal/engine/enginetest", "internal/engine/native", true},
		{"attacks on the table of requests", "test/adversary", "internal/egress/policy/policytest", false},
		{"a test of the whole on test tooling", "test/bench", "test/modeltest", false},
		{"a test of the whole", "internal/cli", "test/adversarial", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if why := objection(c.from, c.to); (why != "") != c.refused {
				t.Errorf("objection(%q, %q) = %q", c.from, c.to, why)
			}
		})
	}
}

func TestEveryPackageSaysWhatItOwns(t *testing.T) {
	for _, p := range packages(t) {
		if p.files == 0 {
			continue // tests only
		}
		want := "Package " + p.name + " "
		if p.name == "main" {
			want = "Command " + path.Base(p.path) + " "
		}
		if !strings.HasPrefix(p.doc, want) {
			t.Errorf("package %s: its doc comment should begin with %q and say in that sentence what it owns; it is %.60q",
				p.path, want, p.doc)
		}
	}
}

func TestNamesSayWhatIsInside(t *testing.T) {
	vague := []string{"util", "utils", "common", "misc", "helper", "helpers", "shared", "base", "lib"}
	for _, p := range packages(t) {
		if name := path.Base(p.path); slices.Contains(vague, name) {
			t.Errorf("package %s: %q says nothing about what is inside; name the idea", p.path, name)
		}
	}
	for _, file := range repositoryFiles(t) {
		name, isGo := strings.CutSuffix(path.Base(file), ".go")
		name = strings.TrimSuffix(name, "_test")
		if isGo && slices.Contains(vague, name) {
			t.Errorf("%s: %q says nothing about what is inside; name the idea", file, name)
		}
	}
}

// initAllowed: cove-guest locks its main thread, which only init can do.
const initAllowed = "cmd/cove-guest/main.go"

// TestNoSideEffectsOnImport keeps wiring explicit: no init function.
func TestNoSideEffectsOnImport(t *testing.T) {
	base := root(t)
	for _, file := range repositoryFiles(t) {
		if !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") || strings.Contains(file, "testdata/") ||
			file == initAllowed {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(base, file), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
				t.Errorf("%s has an init function: wiring is explicit, in internal/daemon", file)
			}
		}
	}
}

func goTool(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.Output()
	if err != nil {
		stderr := ""
		if e, ok := err.(*exec.ExitError); ok {
			stderr = string(e.Stderr)
		}
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, stderr)
	}
	return string(out)
}

func TestGuestLinksLittle(t *testing.T) {
	base := root(t)
	args := append([]string{"list", "-deps"}, guestRoots...)
	for _, dep := range strings.Fields(goTool(t, base, args...)) {
		if why, refused := guestRefuses[dep]; refused {
			t.Errorf("cove-guest links %s: %s", dep, why)
		}
		_, ours := below(dep)
		if ours || standard(dep) {
			continue
		}
		if !slices.ContainsFunc(guestModules, func(m string) bool { return strings.HasPrefix(dep, m) }) {
			t.Errorf("cove-guest links %s: it lives in every sandbox and links %s only", dep,
				strings.Join(guestModules, " and "))
		}
	}
}

// TestCommandLinksLittle: cove, which people wait for at each command, has nothing of the daemon's.
func TestCommandLinksLittle(t *testing.T) {
	deps := strings.Fields(goTool(t, root(t), "list", "-deps", "./cmd/cove"))
	if len(deps) < 100 {
		t.Fatalf("only %d packages were found", len(deps))
	}
	for _, dep := range deps {
		for refused, why := range commandRefuses {
			if matches(refused, dep) {
				t.Errorf("cove links %s: %s", dep, why)
			}
		}
	}
	all := goTool(t, root(t), "list", "-deps", "./cmd/cove-server")
	for refused := range commandRefuses {
		if !strings.Contains(all, strings.TrimSuffix(refused, "/...")) {
			t.Errorf("cove-server does not link %s either: the row refuses nothing", refused)
		}
	}
}

func TestProgramsAreSmall(t *testing.T) {
	for program, most := range map[string]int64{"cove": commandMaxSize, "cove-guest": guestMaxSize,
		"cove-worker": workerMaxSize} {
		bin := filepath.Join(t.TempDir(), program)
		goTool(t, root(t), "build", "-trimpath", "-ldflags=-s -w", "-o", bin, "./cmd/"+program)
		info, err := os.Stat(bin)
		if err != nil {
			t.Fatal(err)
		}
		if info.Size() > most {
			t.Errorf("%s weighs %.1f MiB, at most %d are allowed", program,
				float64(info.Size())/(1<<20), most>>20)
		}
	}
}
