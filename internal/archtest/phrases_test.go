package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// phrases are turns of speech that leave out the noun a reader would search for.
// CONTRIBUTING.md has the rules for words that these follow from.
var phrases = []*regexp.Regexp{
	regexp.MustCompile(`\b(is|are|be|was|were|been) had\b`),          // is available, obtained
	regexp.MustCompile(`\bit is looked\b`),                           // checks
	regexp.MustCompile(`\bbut for\b`),                                // except
	regexp.MustCompile(`(?i)\b(some|no|any|every)body\b`),            // the caller, the user, no goroutine
	regexp.MustCompile(`(?i)\bwhoever\b`),                            // the caller, the client
	regexp.MustCompile(`\bsa(y|ys|id|ying) of\b`),                    // describes
	regexp.MustCompile(`\b(is|are|was|were) (said|meant) (of|by)\b`), // means
}

// openings are the same at the beginning of a comment.
var openings = []*regexp.Regexp{
	regexp.MustCompile(`^(Who|Those|What) `),
	regexp.MustCompile(`(?i)^those (of|that|which|who)\b`),
	regexp.MustCompile(`^\w+ (is|are|was|were) (what|who|those|that which|of what|where)\b`), // returns, reports, holds
}

// banned lists the banned phrases of a text, as they stand there.
func banned(text string) []string {
	text = strings.Join(strings.Fields(text), " ")
	var all []string
	for _, p := range phrases {
		all = append(all, p.FindAllString(text, -1)...)
	}
	return all
}

// bannedOpening is the banned phrase that a comment begins with, or empty.
func bannedOpening(comment string) string {
	comment = strings.Join(strings.Fields(comment), " ")
	for _, p := range openings {
		if found := p.FindString(comment); found != "" {
			return found
		}
	}
	return ""
}

// TestPlainWords bounds the banned phrases in comments and texts of the product by tree, and those of each document.
func TestPlainWords(t *testing.T) {
	found := findings{}
	for _, file := range repositoryFiles(t) {
		switch {
		case isProduct(file):
			phrasesOfCode(t, file, found)
		case path.Ext(file) == ".md" && !strings.Contains(file, "testdata/"):
			number := 0
			for paragraph := range strings.SplitSeq(read(t, file), "\n\n") {
				for _, phrase := range banned(paragraph) {
					found.add(file, site(file, number+1, phrase))
				}
				number += strings.Count(paragraph, "\n") + 2
			}
		}
	}
	found.hold(t, "phrases")
}

func phrasesOfCode(t *testing.T, file string, found findings) {
	t.Helper()
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, filepath.Join(root(t), file), nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	add := func(pos token.Pos, phrase string) {
		found.add(treeOf(file), site(file, set.Position(pos).Line, phrase))
	}
	for _, group := range f.Comments {
		if opening := bannedOpening(group.Text()); opening != "" {
			add(group.Pos(), opening)
		}
		for _, phrase := range banned(group.Text()) {
			add(group.Pos(), phrase)
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		literal, ok := n.(*ast.BasicLit)
		if !ok || literal.Kind != token.STRING {
			return true
		}
		text, err := strconv.Unquote(literal.Value)
		if err != nil {
			t.Fatal(err)
		}
		for _, phrase := range banned(text) {
			add(literal.Pos(), phrase)
		}
		return true
	})
}

func site(file string, line int, what string) string {
	return fmt.Sprintf("%s:%d: %.100s", file, line, what)
}

func TestBanned(t *testing.T) {
	for _, c := range []struct {
		comment string
		count   int
	}{
		{"recorded asks who keeps what a terminal shows that nobody has yet.", 1},
		{"an image that is\nhad by one process at a time, but for tests", 2},
		{"startRecording attaches a Recorder if the terminal has none.", 0},
		{"agentErrors are those of installs.", 1},
		{"Who asks for one waits.", 1},
		{"Package prewarm keeps values ready, so that callers need not wait.", 0},
	} {
		count := len(banned(c.comment))
		if bannedOpening(c.comment) != "" {
			count++
		}
		if count != c.count {
			t.Errorf("%q has %d banned phrases, want %d", c.comment, count, c.count)
		}
	}
}
