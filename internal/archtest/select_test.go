package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
	"testing"
)

// eitherExcuse begins the comment on the line of a timer's case that says why it does not matter which case is taken.
const eitherExcuse = "// either: "

// TestResultsBeforeTimers: of two cases that are ready a select takes either, so that a timer beside a result reports
// late what was in time: clock.Await looks at the result first.
func TestResultsBeforeTimers(t *testing.T) {
	var found []string
	excused := 0
	for _, file := range repositoryFiles(t) {
		if strings.HasSuffix(file, ".go") && !strings.HasSuffix(file, "_test.go") && !strings.Contains(file, "test/") {
			bare, excuses := timersBesideResults(t, file, read(t, file))
			found = append(found, bare...)
			excused += excuses
		}
	}
	if excused == 0 {
		t.Error("no select is excused; the search is wrong")
	}
	if len(found) > 0 {
		t.Errorf("%d timers beside a result: use clock.Await, or say why either will do after %q:\n%s", len(found),
			eitherExcuse, strings.Join(found, "\n"))
	}
}

// timersBesideResults returns the places where a select does something when a timer fires, and waits for another
// channel than the Done of a context, and how many of those have an excuse.
func timersBesideResults(t *testing.T, file, text string) (bare []string, excuses int) {
	t.Helper()
	files := token.NewFileSet()
	parsed, err := parser.ParseFile(files, file, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	excused := map[int]bool{}
	for _, group := range parsed.Comments {
		for _, c := range group.List {
			excused[files.Position(c.Pos()).Line] = strings.HasPrefix(c.Text, eitherExcuse)
		}
	}
	ast.Inspect(parsed, func(n ast.Node) bool {
		of, ok := n.(*ast.SelectStmt)
		if !ok {
			return true
		}
		var timer token.Pos
		result := false
		for _, clause := range of.Body.List {
			c := clause.(*ast.CommClause)
			switch from := received(c); {
			case from == "":
			case from != "After" && from != "C":
				result = result || from != "Done"
			case len(c.Body) > 0:
				timer = c.Pos()
			}
		}
		at := files.Position(timer)
		switch {
		case !timer.IsValid() || !result:
		case excused[at.Line]:
			excuses++
		default:
			bare = append(bare, at.String())
		}
		return true
	})
	return bare, excuses
}

// received returns the last name of what a case receives from; "" for a case that receives nothing.
func received(c *ast.CommClause) (name string) {
	if c.Comm == nil {
		return ""
	}
	ast.Inspect(c.Comm, func(n ast.Node) bool {
		from, ok := n.(*ast.UnaryExpr)
		if !ok || from.Op != token.ARROW {
			return true
		}
		channel := from.X
		if call, ok := channel.(*ast.CallExpr); ok {
			channel = call.Fun
		}
		switch channel := channel.(type) {
		case *ast.SelectorExpr:
			name = channel.Sel.Name
		case *ast.Ident:
			name = channel.Name
		}
		return false
	})
	return name
}

// TestTimersBesideResultsAreFound: the search sees them and their excuses, and nothing else.
func TestTimersBesideResultsAreFound(t *testing.T) {
	bare, excuses := timersBesideResults(t, "x.go", `package x
func f() {
	select {
	case <-done:
	case <-time.After(1):
		return
	}
	select {
	case v, ok := <-x.results:
	case <-timer.C: // either: a reason
		return
	}
	select { // a pause
	case <-done:
	case <-c.After(1):
	}
	select { // a bound of a wait for a context
	case <-ctx.Done():
	case <-c.After(1):
		return
	}
	select {
	case <-timer.C: // a reason
		return
	case v := <-results():
	}
}`)
	if want := "x.go:5:2 x.go:23:2"; strings.Join(bare, " ") != want || excuses != 1 {
		t.Errorf("%q, %d excused; want %q and 1", bare, excuses, want)
	}
}
