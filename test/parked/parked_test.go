//go:build linux

package parked

import (
	"archive/zip"
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/cove-sandbox/cove/internal/runtime"
)

// TestSame: programs say and do the same in a parked interpreter as in fresh ones. What differs is in
// testdata/differs.txt, with the reason, and has to differ.
func TestSame(t *testing.T) {
	if testing.Short() {
		t.Skip("runs hundreds of programs; make test runs it")
	}
	l := newLab(t)
	known, unparked := reasons(t, "testdata/differs.txt"), reasons(t, "testdata/unparked.txt")
	all := programs(t)
	if len(all) < 200 {
		t.Errorf("%d programs", len(all))
	}
	queue := make(chan program)
	var workers sync.WaitGroup
	for range 2 * goruntime.GOMAXPROCS(0) {
		workers.Go(func() {
			for p := range queue {
				t.Run(p.String(), func(t *testing.T) { l.compare(t, p, known, unparked) })
			}
		})
	}
	for _, p := range all {
		queue <- p
	}
	close(queue)
	workers.Wait()
	for _, name := range slices.AppendSeq(slices.Collect(maps.Keys(known)), maps.Keys(unparked)) {
		if !slices.ContainsFunc(all, func(p program) bool { return p.String() == name }) {
			t.Errorf("testdata names %s, which is no program", name)
		}
	}
}

// attempts is how often a program is compared at most: two processes of a program write to one pipe in an order that no
// run has to keep. What a parked interpreter does differently, it does each time.
const attempts = 3

func (l *lab) compare(t *testing.T, p program, known, unparked map[string]string) {
	reason := known[p.String()]
	var found []string
	var err error
	for range attempts {
		a, b := run(t, l.fresh, p), run(t, l.fresh, p)
		found, err = differences(a, b, l.pooled.run(t, p, unparked))
		if r, _ := runtime.Lookup(p.language); r.Trial != nil && err == nil {
			var more []string
			more, err = differences(a, b, l.copied.run(t, p, unparked))
			for _, m := range more {
				found = append(found, "from a zygote: "+m)
			}
		}
		if err == nil && (len(found) > 0) == (reason != "") {
			return
		}
	}
	switch {
	case err != nil:
		t.Error(err)
	case reason == "" && len(found) > 0:
		t.Error(strings.Join(found[:min(len(found), 20)], "\n"))
	case reason != "" && len(found) == 0:
		t.Errorf("it does not differ, although: %s", reason)
	}
}

// run runs a program parked, unless it is one that has to have an interpreter of its own.
func (s *pooled) run(t *testing.T, p program, unparked map[string]string) outcome {
	t.Helper()
	if unparked[p.String()] == "" {
		return s.parked(t, p)
	}
	if r, _ := runtime.Lookup(p.language); r.Parks([]byte(p.code)) {
		t.Errorf("a parked interpreter takes it, although: %s", unparked[p.String()])
	}
	return run(t, s.Client, p)
}

// reasons are programs of a file, with what it says of each.
func reasons(t *testing.T, file string) map[string]string {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	all := map[string]string{}
	for s := bufio.NewScanner(f); s.Scan(); {
		name, reason, ok := strings.Cut(s.Text(), " ")
		if strings.HasPrefix(name, "#") || s.Text() == "" {
			continue
		}
		if !ok {
			t.Errorf("%s has no reason", name)
		}
		all[name] = reason
	}
	return all
}

// programs are those of testdata, and those whose bytes an editor would not keep.
func programs(t *testing.T) (all []program) {
	t.Helper()
	for _, language := range languages {
		files, err := filepath.Glob("testdata/" + language + "/*")
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			code, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			name := strings.TrimSuffix(filepath.Base(f), filepath.Ext(f))
			all = append(all, program{language, name, string(code)})
		}
	}
	all = append(all, shaped(t)...)
	// Neighbours are of different languages, of which each has its own turn.
	slices.SortStableFunc(all, func(a, b program) int { return strings.Compare(a.name, b.name) })
	return all
}

const nul, bom = "\x00", "\ufeff"

// shaped are programs about the bytes of a file.
func shaped(t *testing.T) []program {
	all := []program{
		{"python", "bom", bom + "print(ascii(open(__file__).read(3)))\nraise ValueError('ü')\n"},
		{"python", "bom_and_cookie", bom + "# coding: utf-8\nprint(1)\n"},
		{"python", "bom_against_cookie", bom + "# coding: latin-1\nprint(1)\n"},
		{"python", "crlf", "print(1)\r\nx = '''a\r\nb'''\r\nprint(repr(x))\r\ndef f():\r\n    1 / 0\r\nf()\r\n"},
		{"python", "cr", "print(1)\rprint(2)\r1/0\r"},
		{"python", "no_newline", "print(1)\nraise ValueError('last line')"},
		{"python", "no_newline_block", "if True:\n    print(1)"},
		{"python", "nul_in_string", "print(1)\nx = 'a" + nul + "b'\nprint(len(x))\n"},
		{"python", "nul_first", nul + "print(1)\n"},
		{"python", "nul_last", "print(1)\n" + nul},
		{"python", "control_z", "print(1)\n\x1aprint(2)\n"},
		{"python", "long_line", "x = '" + strings.Repeat("y", 20000) + "'; print(len(x)); 1/0\n"},
		{"python", "only_newline", "\n"},
		{"node", "bom", bom + "console.log(require('fs').readFileSync(__filename)[0]); null.x"},
		{"node", "crlf", "console.log(`a\r\nb`.length);\r\nfunction f() {\r\n}\r\nconsole.log(f.toString());\r\nthrow 1\r\n"},
		{"node", "no_newline", "console.log(1)\nthrow new Error('last line')"},
		{"node", "nul", "console.log('a" + nul + "b'.length)\n"},
		{"node", "nul_in_code", "console.log(1)\n" + nul + "console.log(2)\n"},
		{"node", "line_separator", "console.log(1)\u2028throw new Error('second line')"},
		{"node", "long_line", "const x = '" + strings.Repeat("y", 20000) + "'; console.log(x.length); null.x"},
		{"node", "only_newline", "\n"},
		{"bash", "crlf", "echo one\r\nif true; then\r\necho two\r\nfi\r\n"},
		{"python", "zip", zipped(t)},
		{"bash", "bom", bom + "echo one\necho two\n"},
		{"bash", "no_newline", "echo one\necho \"$LINENO\""},
		{"bash", "nul_in_line", "echo one\necho a" + nul + "b\necho c\n"},
		{"bash", "nul_first_line", "echo a" + nul + "b\necho c\n"},
		{"bash", "elf", "\x7fELF\necho c\n"},
		{"bash", "long_line", "x='" + strings.Repeat("y", 3900) + "'; echo ${#x} $LINENO\n"},
		{"bash", "continued", "echo a \\\n b \\\n c; echo $LINENO\\"},
		{"sh", "crlf", "echo one\r\nif true; then\r\necho two\r\nfi\r\n"},
		{"sh", "bom", bom + "echo one\necho two\n"},
		{"sh", "no_newline", "echo one\necho \"$LINENO\""},
		{"sh", "nul_in_line", "echo one\necho a" + nul + "b\necho c\n"},
		{"sh", "nul_first_line", "echo a" + nul + "b\necho c\n"},
		{"sh", "long_line", "x='" + strings.Repeat("y", 20000) + "'; echo ${#x} $LINENO\n"},
		{"sh", "continued", "echo a \\\n b \\\n c\\"},
	}
	for language, code := range map[string]string{
		"python": "print(len(open(__file__).read()))\n#", "bash": "wc -c <$0\n#", "sh": "wc -c <$0\n#",
		"node": "console.log(require('fs').statSync(__filename).size)\n//",
	} {
		r, _ := runtime.Lookup(language)
		all = append(all, program{language, "largest", code + strings.Repeat("x", r.Parked-len(code)-1) + "\n"})
		all = append(all, program{language, "largest_of_lines",
			code + "\n" + strings.Repeat("\n", r.Parked-len(code)-1)})
	}
	return all
}

// zipped is an archive that python runs, and that is valid UTF-8, as all code has to be.
func zipped(t *testing.T) string {
	t.Helper()
	for n := range 1 << 16 {
		var archive bytes.Buffer
		z := zip.NewWriter(&archive)
		code := fmt.Appendf(nil, "print('from an archive') #%d", n)
		w, err := z.CreateRaw(&zip.FileHeader{Name: "__main__.py", CRC32: crc32.ChecksumIEEE(code), Method: zip.Store,
			CompressedSize64: uint64(len(code)), UncompressedSize64: uint64(len(code))})
		if err == nil {
			_, err = w.Write(code)
		}
		if err := errors.Join(err, z.Close()); err != nil {
			t.Fatal(err)
		}
		if utf8.Valid(archive.Bytes()) {
			return archive.String()
		}
	}
	t.Fatal("no archive is valid UTF-8")
	return ""
}

// TestLargerIsNotParked: a program with one byte more than a parked interpreter takes runs, in a sandbox without one.
func TestLargerIsNotParked(t *testing.T) {
	l := newLab(t)
	for _, p := range shaped(t) {
		if p.name != "largest" {
			continue
		}
		p.code += "\n"
		want, got := run(t, l.fresh, p), run(t, l.pooled.Client, p)
		if found, err := differences(want, want, got); err != nil || len(found) > 0 || got.Exit != 0 {
			t.Errorf("%s: %v %v", p, found, err)
		}
		if s := l.pooled.kind(t, p.language); s.Hits+s.Misses > 0 {
			t.Errorf("%s: %+v", p, s)
		}
	}
}
