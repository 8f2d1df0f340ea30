package archtest

import (
	"path"
	"strings"
	"testing"
	"unicode/utf8"
)

const (
	maxFileLines  = 600 // of a product file
	maxLineLength = 120 // characters; a tab is one
	maxRoomShare  = 8   // percent of the product
)

// TestFilesAreShort bounds the product's files of more than 600 lines by their length.
func TestFilesAreShort(t *testing.T) {
	found := findings{}
	for _, file := range repositoryFiles(t) {
		if !isProduct(file) {
			continue
		}
		if lines := strings.Count(read(t, file), "\n"); lines > maxFileLines {
			found[file] = finding{count: lines}
		}
	}
	found.hold(t, "long-files")
}

// TestLinesAreShort bounds the lines of more than 120 characters by tree, those of tests apart from those of programs.
func TestLinesAreShort(t *testing.T) {
	found := findings{}
	for _, file := range repositoryFiles(t) {
		if path.Ext(file) != ".go" || strings.Contains(file, "testdata/") {
			continue
		}
		subject := treeOf(file)
		if strings.HasSuffix(file, "_test.go") {
			subject += ":tests"
		}
		number := 0
		for line := range strings.Lines(read(t, file)) {
			number++
			if utf8.RuneCountInString(strings.TrimSuffix(line, "\n")) > maxLineLength {
				found.add(subject, site(file, number, strings.TrimSpace(line)))
			}
		}
	}
	found.hold(t, "long-lines")
}

// TestProductIsSmall bounds the product's lines, in hundreds that have begun, and
// those of each room of more than 8 % of it.
func TestProductIsSmall(t *testing.T) {
	total, rooms := 0, map[string]int{}
	for _, file := range repositoryFiles(t) {
		if isProduct(file) {
			lines := strings.Count(read(t, file), "\n")
			total += lines
			rooms[treeOf(file)] += lines
		}
	}
	hundreds := func(lines int) finding { return finding{count: (lines + 99) / 100} }
	findings{"hundreds-of-lines": hundreds(total)}.hold(t, "product-size")

	large := findings{}
	for room, lines := range rooms {
		if strings.HasPrefix(room, "internal/") && lines*100 > total*maxRoomShare {
			t.Logf("%s is %.1f %% of the product", room, float64(lines)*100/float64(total))
			large[room] = hundreds(lines)
		}
	}
	large.hold(t, "large-rooms")
}
