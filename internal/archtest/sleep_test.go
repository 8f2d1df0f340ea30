package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
	"testing"
)

// sleepExcuse begins the comment that excuses a call on its line and says why nothing else can be waited for.
const sleepExcuse = "// sleep: "

// TestTestsSleepLittle: a test that sleeps is slow on every machine, and fails on a machine that is slower than its
// author's. It waits for an event instead.
func TestTestsSleepLittle(t *testing.T) {
	var found []string
	excused := 0
	for _, file := range repositoryFiles(t) {
		if !strings.HasSuffix(file, "_test.go") {
			continue
		}
		calls, excuses := sleeps(t, file, read(t, file))
		found = append(found, calls...)
		excused += excuses
	}
	if excused == 0 {
		t.Error("no call is excused; the search is wrong")
	}
	if len(found) > 0 {
		t.Errorf("%d calls of time.Sleep in tests: wait for the event, by test/await if nothing reports it, or say why not"+
			" after %q:\n%s", len(found), sleepExcuse, strings.Join(found, "\n"))
	}
}

// sleeps returns the places of the calls in a file that have no excuse, and the number of those that have one.
func sleeps(t *testing.T, file, text string) (calls []string, excuses int) {
	t.Helper()
	files := token.NewFileSet()
	parsed, err := parser.ParseFile(files, file, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	excused := map[int]bool{}
	for _, group := range parsed.Comments {
		for _, c := range group.List {
			if reason, ok := strings.CutPrefix(c.Text, sleepExcuse); ok && strings.TrimSpace(reason) != "" {
				excused[files.Position(c.Pos()).Line] = true
			}
		}
	}
	ast.Inspect(parsed, func(n ast.Node) bool {
		call, ok := n.(*ast.SelectorExpr)
		if !ok || call.Sel.Name != "Sleep" {
			return true
		}
		if in, ok := call.X.(*ast.Ident); !ok || in.Name != "time" {
			return true
		}
		if at := files.Position(call.Pos()); excused[at.Line] {
			excuses++
		} else {
			calls = append(calls, at.String())
		}
		return true
	})
	return calls, excuses
}

// TestSleepsAreFound: the search sees calls and excuses, and nothing else.
func TestSleepsAreFound(t *testing.T) {
	calls, excuses := sleeps(t, "x_test.go", `package x
import "time"
func f() {
	time.Sleep(1) // because
	time.Sleep(2) // sleep: a reason
	time.Sleep(3) // sleep: 
	clock.Sleep(4)
	_ = "time.Sleep(5)" // time.Sleep(6)
	for ; ; time.Sleep(7) {
	}
}`)
	if want := "x_test.go:4:2 x_test.go:6:2 x_test.go:9:10"; strings.Join(calls, " ") != want || excuses != 1 {
		t.Errorf("%q, %d excused; want %q and 1", calls, excuses, want)
	}
}
