// Package patch splits git's patch of a file into the changes that a user can choose, and builds what a choice of them
// makes: a patch, or the content of the file. It keeps every byte of what git wrote.
package patch

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/pattern"
)

// Mode is the number of the change of a file's mode, beside those of its lines.
const Mode = 0

// File is the patch of one file.
type File struct {
	// Modes are the lines about a changed mode; empty without one, and where the file comes or goes.
	Modes string
	Hunks []Hunk
	text  string
	head  string // the lines before those about the mode
	rest  string // the lines between those about the mode and the first hunk
	parts int
}

// Hunk is a part of a file with the lines around it. Its lines lie in runs of changed ones, each of which is a part
// that can be chosen by its number: from 1, through all hunks of the file.
type Hunk struct {
	Head     string // "@@ -1,3 +1,4 @@ heading", with its newline
	Lines    []Line
	oldStart int
	heading  string // behind the second @@
}

// Line is a line of a hunk.
type Line struct {
	Sign byte   // ' ', '-' or '+'
	Text string // with its newline, if it has one
	Part int    // the number of the change; 0 for a line that stays
	mark string // "\ No newline at end of file", if git wrote that behind it
}

// First and Last are the numbers of the changes in a hunk.
func (h Hunk) First() int { return h.bound(func(a, b int) bool { return a < b }) }

// Last is the number of the last change.
func (h Hunk) Last() int { return h.bound(func(a, b int) bool { return a > b }) }

func (h Hunk) bound(better func(a, b int) bool) (n int) {
	for _, l := range h.Lines {
		if l.Part != 0 && (n == 0 || better(l.Part, n)) {
			n = l.Part
		}
	}
	return n
}

// Parts is how many changes of lines there are to choose from; 0 where the file is taken whole, or not: one that comes,
// goes or has another name, and one that is binary.
func (f File) Parts() int { return f.parts }

// begin is how the patch of a file begins: content lines begin with a sign, and those of binary files have no blanks.
const begin = "diff --git "

// Split splits a patch into those of its files. Errors: InvalidArgument.
func Split(text string) ([]string, error) {
	var all []string
	for text != "" {
		if !strings.HasPrefix(text, begin) {
			return nil, malformed("it does not begin with a file")
		}
		end := strings.Index(text, "\n"+begin) + 1
		if end == 0 {
			end = len(text)
		}
		all, text = append(all, text[:end]), text[end:]
	}
	return all, nil
}

func malformed(why string) error {
	return cove.Errorf(cove.InvalidArgument, "this is no patch of git's: %s", why)
}

var hunkHead = pattern.New(`^@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@(.*\n)$`)

// Parse parses the patch of one file. Errors: InvalidArgument.
func Parse(text string) (File, error) {
	f := File{text: text}
	if !strings.HasPrefix(text, begin) || !strings.HasSuffix(text, "\n") {
		return f, malformed("it has no file")
	}
	lines := strings.SplitAfter(text, "\n")
	lines = lines[:len(lines)-1]
	whole, at := false, 0
	for ; at < len(lines) && !strings.HasPrefix(lines[at], "@@ "); at++ {
		switch l := lines[at]; {
		case strings.HasPrefix(l, "old mode "), strings.HasPrefix(l, "new mode "):
			f.Modes += l
		case f.Modes == "":
			f.head += l
		default:
			f.rest += l
		}
		for _, w := range []string{"new file mode ", "deleted file mode ", "rename from ", "copy from ", "GIT binary patch",
			"Binary files "} {
			whole = whole || strings.HasPrefix(lines[at], w)
		}
	}
	if f.Modes == "" {
		// The file's own line comes first, then those that go with its content.
		first := strings.IndexByte(f.head, '\n') + 1
		f.head, f.rest = f.head[:first], f.head[first:]
	}
	for at < len(lines) {
		h, n, err := parseHunk(lines[at:], &f.parts)
		if err != nil {
			return f, err
		}
		f.Hunks, at = append(f.Hunks, h), at+n
	}
	if whole {
		f.parts, f.Modes = 0, ""
	}
	return f, nil
}

// parseHunk parses the hunk at the beginning of lines, and returns how many belong to it.
func parseHunk(lines []string, parts *int) (h Hunk, n int, err error) {
	m := hunkHead.FindStringSubmatch(lines[0])
	if m == nil {
		return h, 0, malformed("a hunk has no lines")
	}
	number := func(s string) int {
		if s == "" {
			return 1
		}
		n, _ := strconv.Atoi(s)
		return n
	}
	h.Head, h.oldStart, h.heading = lines[0], number(m[1]), m[5]
	before, after, inRun := number(m[2]), number(m[4]), false
	for n = 1; before > 0 || after > 0; n++ {
		if n == len(lines) {
			return h, n, malformed("a hunk ends early")
		}
		l := Line{Sign: lines[n][0], Text: lines[n][1:]}
		switch l.Sign {
		case ' ':
			before, after = before-1, after-1
		case '-':
			before--
		case '+':
			after--
		case '\\':
			if !h.mark(lines[n]) {
				return h, n, malformed("a line is marked twice")
			}
			continue
		default:
			return h, n, malformed("a line has no sign")
		}
		if changed := l.Sign != ' '; changed {
			if !inRun {
				*parts++
			}
			l.Part, inRun = *parts, true
		} else {
			inRun = false
		}
		h.Lines = append(h.Lines, l)
	}
	if n < len(lines) && lines[n][0] == '\\' {
		if !h.mark(lines[n]) {
			return h, n, malformed("a line is marked twice")
		}
		n++
	}
	if before < 0 || after < 0 || len(h.Lines) == 0 {
		return h, n, malformed("a hunk has other lines than it says")
	}
	return h, n, nil
}

// mark takes the line that says that the one before has no newline.
func (h *Hunk) mark(text string) bool {
	if len(h.Lines) == 0 || h.Lines[len(h.Lines)-1].mark != "" {
		return false
	}
	last := &h.Lines[len(h.Lines)-1]
	last.mark, last.Text = text, strings.TrimSuffix(last.Text, "\n")
	return true
}

// String is the hunk as git wrote it.
func (h Hunk) String() string {
	var b strings.Builder
	b.WriteString(h.Head)
	for _, l := range h.Lines {
		l.write(&b, l.Sign)
	}
	return b.String()
}

func (l Line) write(b *strings.Builder, sign byte) {
	b.WriteByte(sign)
	b.WriteString(l.Text)
	if l.mark != "" {
		b.WriteString("\n" + l.mark)
	}
}

// Split returns the hunk as several ones with one change each, in which the lines between two changes are in both.
func (h Hunk) Split() []Hunk {
	var all []Hunk
	for part := h.First(); part <= h.Last() && part > 0; part++ {
		one := Hunk{oldStart: h.oldStart, heading: h.heading}
		old := 0 // lines of the old file so far
		for _, l := range h.Lines {
			if l.Part == part || l.Part == 0 {
				if len(one.Lines) == 0 {
					one.oldStart = h.oldStart + old
				}
				one.Lines = append(one.Lines, l)
			} else if l.Part < part {
				one.Lines = nil
			} else {
				break
			}
			if l.Sign != '+' {
				old++
			}
		}
		// Lines of a part before count for where this one begins.
		one.Head = header(one, one.oldStart, one.oldStart)
		all = append(all, one)
	}
	return all
}

// Choose returns the patch of the chosen changes; empty when there are none. The number 0 is that of the mode. A file
// that is taken whole is so if all of it is chosen.
func (f File) Choose(chosen func(part int) bool) string {
	mode := f.Modes != "" && chosen(Mode)
	all := f.Modes == "" || mode
	for i := 1; i <= f.parts; i++ {
		all = all && chosen(i)
	}
	switch {
	case f.parts == 0 && f.Modes == "":
		if chosen(Mode) {
			return f.text
		}
		return ""
	case all:
		return f.text
	}
	var hunks strings.Builder
	shift := 0
	for _, h := range f.Hunks {
		text, by := h.choose(chosen, shift)
		hunks.WriteString(text)
		shift += by
	}
	head := f.head
	if mode {
		head += f.Modes
	}
	switch {
	case hunks.Len() > 0:
		return head + f.rest + hunks.String()
	case mode:
		return head
	}
	return ""
}

// choose returns the hunk with the chosen changes alone, where lines before it have shifted by a number, and how many
// lines it adds. It is empty without any.
func (h Hunk) choose(chosen func(part int) bool, shift int) (text string, by int) {
	one := Hunk{oldStart: h.oldStart, heading: h.heading}
	changes := false
	for _, l := range h.Lines {
		taken := l.Part != 0 && chosen(l.Part)
		changes = changes || taken
		switch {
		case l.Sign == '-' && !taken:
			l.Sign, l.Part = ' ', 0
		case l.Sign == '+' && !taken:
			continue
		}
		one.Lines = append(one.Lines, l)
		switch l.Sign {
		case '-':
			by--
		case '+':
			by++
		}
	}
	if !changes {
		return "", 0
	}
	// A hunk without lines of one side is said to begin at the line before.
	first := h.oldStart
	if h.count('+') == 0 {
		first++
	}
	one.Head = header(one, h.oldStart, first+shift)
	return one.String(), by
}

// count is how many lines of a side a hunk has: of the old one without '+', and of the new one without '-'.
func (h Hunk) count(without byte) (n int) {
	for _, l := range h.Lines {
		if l.Sign != without {
			n++
		}
	}
	return n
}

// header returns the first line of a hunk; first is where the new side begins.
func header(h Hunk, oldStart, first int) string {
	side := func(start, count int) string {
		if count == 1 {
			return strconv.Itoa(start)
		}
		return strconv.Itoa(start) + "," + strconv.Itoa(count)
	}
	before, after := h.count('+'), h.count('-')
	if after == 0 {
		first--
	}
	return "@@ -" + side(oldStart, before) + " +" + side(first, after) + " @@" + h.heading
}

// Apply returns the old content with the chosen changes of its lines. Errors: Conflict when the patch is of another
// content.
func (f File) Apply(old []byte, chosen func(part int) bool) ([]byte, error) {
	lines := bytes.SplitAfter(old, []byte("\n"))
	if len(lines[len(lines)-1]) == 0 {
		lines = lines[:len(lines)-1]
	}
	other := cove.Errorf(cove.Conflict, "the patch is of another content")
	var out bytes.Buffer
	at := 0
	for _, h := range f.Hunks {
		begin := h.oldStart - 1
		if h.count('+') == 0 {
			begin = h.oldStart
		}
		if begin < at || begin > len(lines) {
			return nil, other
		}
		for ; at < begin; at++ {
			out.Write(lines[at])
		}
		for _, l := range h.Lines {
			taken := l.Part != 0 && chosen(l.Part)
			if l.Sign == '+' {
				if taken {
					out.WriteString(l.Text)
				}
				continue
			}
			if at == len(lines) || string(lines[at]) != l.Text {
				return nil, other
			}
			if at++; !taken {
				out.WriteString(l.Text)
			}
		}
	}
	for ; at < len(lines); at++ {
		out.Write(lines[at])
	}
	return out.Bytes(), nil
}

// Lines returns how many lines a choice adds and removes.
func (f File) Lines(chosen func(part int) bool) (added, removed int) {
	for _, h := range f.Hunks {
		for _, l := range h.Lines {
			switch {
			case l.Part == 0 || !chosen(l.Part):
			case l.Sign == '+':
				added++
			default:
				removed++
			}
		}
	}
	return added, removed
}
