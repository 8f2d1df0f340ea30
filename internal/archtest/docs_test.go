package archtest

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// documents are the repository's Markdown files with their text.
func documents(t *testing.T) map[string]string {
	t.Helper()
	docs := map[string]string{}
	for _, file := range repositoryFiles(t) {
		if path.Ext(file) == ".md" {
			docs[file] = read(t, file)
		}
	}
	for _, want := range []string{"README.md", "ARCHITECTURE.md", "SECURITY.md", "CONTRIBUTING.md"} {
		if docs[want] == "" {
			t.Fatalf("%s is missing", want)
		}
	}
	return docs
}

func read(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root(t), file))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

var (
	testName = regexp.MustCompile("`((?:Test|Fuzz|Benchmark)[A-Z]\\w*)((?:/[^`\\s]+)?)`")
	testFunc = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)[A-Z]\w*)\(`)
)

// TestDocumentedTestsExist: a document that says which test holds a promise
// must not outlive the test.
func TestDocumentedTestsExist(t *testing.T) {
	functions := map[string]bool{}
	var code strings.Builder // where the names of subtests come from
	for _, file := range repositoryFiles(t) {
		if path.Ext(file) == ".go" {
			text := read(t, file)
			if !strings.Contains(text, `"testing"`) { // suites are not only in _test.go
				continue
			}
			code.WriteString(text)
			for _, m := range testFunc.FindAllStringSubmatch(text, -1) {
				functions[m[1]] = true
			}
		}
		if strings.Contains(file, "testdata/") {
			code.WriteString("\"" + strings.TrimSuffix(path.Base(file), path.Ext(file)) + "\"\n")
		}
	}
	named := 0
	for file, text := range documents(t) {
		for _, m := range testName.FindAllStringSubmatch(text, -1) {
			named++
			if !functions[m[1]] {
				t.Errorf("%s names %s, which does not exist", file, m[1])
			}
			for _, sub := range strings.FieldsFunc(m[2], func(r rune) bool { return r == '/' }) {
				if !strings.Contains(code.String(), sub) && !strings.Contains(code.String(), strings.ReplaceAll(sub, "_", " ")) {
					t.Errorf("%s names the subtest %s%s, which does not exist", file, m[1], m[2])
				}
			}
		}
	}
	if named == 0 {
		t.Error("no document names a test; the search is wrong")
	}
}

// TestEveryInvariantHasItsTest: each numbered invariant of this version names
// at least one test, and each of a later one says that it is not built.
func TestEveryInvariantHasItsTest(t *testing.T) {
	rows := map[string]string{}
	for line := range strings.Lines(read(t, "SECURITY.md")) {
		if m := regexp.MustCompile(`^\| \*\*([HAECG][0-9])\*\* \|`).FindStringSubmatch(line); m != nil {
			rows[m[1]] = line
		}
	}
	for letter, count := range map[string]int{"H": 7, "A": 5, "E": 8, "C": 5, "G": 5} {
		for n := 1; n <= count; n++ {
			id := fmt.Sprintf("%s%d", letter, n)
			switch row := rows[id]; {
			case row == "":
				t.Errorf("SECURITY.md has no row for %s", id)
			case !testName.MatchString(row) && !strings.Contains(row, "not built"):
				t.Errorf("SECURITY.md names no test for %s, and does not say that it is not built", id)
			}
		}
	}
}

// TestArchitectureNamesEveryRoom keeps the document and the table the same.
func TestArchitectureNamesEveryRoom(t *testing.T) {
	text := read(t, "ARCHITECTURE.md")
	for _, r := range rooms {
		name := strings.TrimSuffix(r.path, "/...")
		if name == "" || name == "internal/deps" {
			continue
		}
		if dir := filepath.Join(root(t), name); !exists(dir) {
			continue // its turn comes
		}
		if !strings.Contains(text, "`"+strings.TrimPrefix(name, "internal/")+"`") && !strings.Contains(text, "`"+name+"`") {
			t.Errorf("ARCHITECTURE.md does not name %s", name)
		}
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

var link = regexp.MustCompile(`\]\(([^)\s]+)\)`)

// TestLinksLeadSomewhere: relative links of documents.
func TestLinksLeadSomewhere(t *testing.T) {
	base := root(t)
	for file, text := range documents(t) {
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			to, fragment, _ := strings.Cut(m[1], "#")
			if strings.Contains(to, "://") || strings.HasPrefix(to, "mailto:") {
				continue
			}
			target := path.Join(path.Dir(file), to)
			if to == "" {
				target = file
			}
			if !exists(filepath.Join(base, target)) {
				t.Errorf("%s links to %s, which is not there", file, m[1])
				continue
			}
			if fragment != "" && path.Ext(target) == ".md" && !slices.Contains(anchors(read(t, target)), fragment) {
				t.Errorf("%s links to %s, but %s has no such heading", file, m[1], target)
			}
		}
	}
}

// anchors are the fragments of a Markdown file's headings.
func anchors(text string) []string {
	var all []string
	for line := range strings.Lines(text) {
		if heading := strings.TrimLeft(line, "#"); heading != line {
			heading = strings.ToLower(strings.TrimSpace(heading))
			heading = regexp.MustCompile(`[^\p{L}\p{N}\s_-]`).ReplaceAllString(heading, "")
			all = append(all, strings.ReplaceAll(heading, " ", "-"))
		}
	}
	return all
}
