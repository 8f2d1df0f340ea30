package tools

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cove-sandbox/cove/test/await"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/model"
)

// bench is a Set with its directory.
type bench struct {
	t   testing.TB
	dir string
	set *Set
}

func newBench(t testing.TB, files map[string]string) *bench {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	s, err := New(dir, os.Environ(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return &bench{t, dir, s}
}

// do calls a tool with a JSON input.
func (b *bench) do(tool, input string) (string, bool) {
	b.t.Helper()
	return b.set.Do(b.t.Context(), model.Part{Kind: model.Call, Tool: tool, Input: json.RawMessage(input)})
}

// want calls a tool and compares its answer; * matches anything.
func (b *bench) want(tool, input, output string, failed bool) {
	b.t.Helper()
	got, bad := b.do(tool, input)
	if bad != failed || !like(output, got) {
		b.t.Errorf("%s %s: failed %v\n%.500s\nwant:\n%s", tool, input, bad, got, output)
	}
}

func like(pattern, text string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == text
	}
	rest, begins := strings.CutPrefix(text, parts[0])
	rest, ends := strings.CutSuffix(rest, parts[len(parts)-1])
	for _, part := range parts[1 : len(parts)-1] {
		_, after, found := strings.Cut(rest, part)
		if !found {
			return false
		}
		rest = after
	}
	return begins && ends
}

func TestRead(t *testing.T) {
	b := newBench(t, map[string]string{
		"a.txt": "one\ntwo\r\nthree", "empty": "", "bin": "PNG\x00\x01", "latin": "caf\xe9\n",
		"long": strings.Repeat("x", 5000) + "\nend\n", "many": strings.Repeat("line\n", 5000),
		"wide": strings.Repeat(strings.Repeat("é", 900)+"\n", 100),
	})
	b.want("read", `{"path":"a.txt"}`, "     1\tone\n     2\ttwo\n     3\tthree", false)
	b.want("read", `{"path":"a.txt","offset":2,"limit":1}`, "     2\ttwo\n(lines 2 to 2 of 3; offset 3 goes on)", false)
	b.want("read", `{"path":"a.txt","offset":9}`, "a.txt has 3 lines", true)
	b.want("read", fmt.Sprintf(`{"path":%q}`, filepath.Join(b.dir, "a.txt")), "     1\tone*", false)
	b.want("read", `{"path":"empty"}`, "(the file is empty)", false)
	b.want("read", `{"path":"bin"}`, "bin, 5 bytes: it is a binary file*", true)
	b.want("read", `{"path":"latin"}`, "     1\tcaf\uFFFD", false)
	b.want("read", `{"path":"long"}`, "     1\t"+strings.Repeat("x", 2000)+" [3001 more bytes of this line]\n     2\tend",
		false)
	b.want("read", `{"path":"many"}`, "     1\tline\n*  2000\tline\n(lines 1 to 2000 of 5000; offset 2001 goes on)", false)
	b.want("read", `{"path":"wide"}`, "     1\té*(lines 1 to 16 of 100; offset 17 goes on)", false)
	b.want("read", `{"path":"none"}`, "*no such file*", true)
	b.want("read", `{"path":"."}`, "*is a directory: use list", true)
	b.want("read", `{"path":"/dev/zero"}`, "*is no regular file", true)
	if err := unix.Mkfifo(filepath.Join(b.dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	b.want("read", `{"path":"pipe"}`, "*is no regular file", true)
}

func TestWrite(t *testing.T) {
	b := newBench(t, map[string]string{"old": "before\n", "script": "#!/bin/sh\n", "linked": "x"})
	path := func(name string) string { return filepath.Join(b.dir, name) }
	must(t, os.Chmod(path("script"), 0o750))
	must(t, os.Symlink("old", path("symlink")))
	must(t, os.Symlink("later", path("dangling")))
	must(t, os.Link(path("linked"), path("other")))
	b.want("write", `{"path":"deep/er/new","content":"a\nb"}`, "created deep/er/new: 2 lines, 3 bytes", false)
	b.want("write", `{"path":"script","content":"#!/bin/bash\n"}`, "wrote script: 1 lines, 12 bytes", false)
	b.want("write", `{"path":"symlink","content":"through"}`, "wrote symlink*", false)
	b.want("write", `{"path":"dangling","content":"made"}`, "created dangling*", false)
	b.want("write", `{"path":"linked","content":"both"}`, "wrote linked*", false)
	b.want("write", `{"path":".","content":"x"}`, "*is no regular file", true)
	b.want("write", `{"path":"old/x","content":"x"}`, "*not a directory*", true)
	b.want("write", `{"path":"x"}`, "the input of this call is wrong: $: missing property 'content'", true)
	b.want("write", `{"path":"x","content":"y","mode":"z"}`,
		"the input of this call is wrong: $: additional properties 'mode' not allowed", true)
	for name, want := range map[string]string{"deep/er/new": "a\nb", "script": "#!/bin/bash\n", "old": "through",
		"later": "made", "other": "both"} {
		if data, err := os.ReadFile(path(name)); string(data) != want {
			t.Errorf("%s is %q, %v", name, data, err)
		}
	}
	if info, err := os.Stat(path("script")); err != nil || info.Mode().Perm() != 0o750 {
		t.Errorf("the script's mode is %v, %v", info.Mode(), err)
	}
	if info, err := os.Lstat(path("symlink")); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link is gone: %v", err)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestEdit(t *testing.T) {
	b := newBench(t, map[string]string{"a": "x = 1\ny = 1\nx = 2\nx = 3\n", "dos": "a\r\nb\r\nc\r\n", "overlap": "aaa",
		"bytes": "caf\xe9 x\n"})
	b.want("edit", `{"path":"a","old":"y = 1","new":"y = 7\nz = 8"}`, "replaced at line 2 of a: 1 lines by 2", false)
	b.want("edit", `{"path":"a","old":"x = ","new":"w = "}`,
		"old is in a 3 times, at lines 1, 4, 5: give more of the text around the one that is meant, or set all", true)
	b.want("edit", `{"path":"a","old":"x = ","new":"w = ","all":true}`, "replaced 3 occurrences in a", false)
	b.want("edit", `{"path":"a","old":"gone","new":"x"}`, "old is not in a: it must be the exact text*", true)
	b.want("edit", `{"path":"a","old":"w","new":"w"}`, "old and new are the same", true)
	b.want("edit", `{"path":"a","old":"","new":"w"}`, "the input of this call is wrong: $.old: *", true)
	b.want("edit", `{"path":"dos","old":"a\nb","new":"x"}`, "old is not in dos: lines end in CRLF*", true)
	b.want("edit", `{"path":"dos","old":"a\r\nb","new":"x"}`, "replaced at line 1 of dos: 2 lines by 1", false)
	b.want("edit", `{"path":"overlap","old":"aa","new":"b"}`, "replaced at line 1 of overlap: 1 lines by 1", false)
	b.want("edit", `{"path":"bytes","old":"x","new":"y"}`, "replaced at line 1 *", false)
	b.want("edit", `{"path":"none","old":"x","new":"y"}`, "*no such file*", true)
	for name, want := range map[string]string{"a": "w = 1\ny = 7\nz = 8\nw = 2\nw = 3\n", "dos": "x\r\nc\r\n",
		"overlap": "ba", "bytes": "caf\xe9 y\n"} {
		if data, _ := os.ReadFile(filepath.Join(b.dir, name)); string(data) != want {
			t.Errorf("%s is %q", name, data)
		}
	}
}

func TestList(t *testing.T) {
	b := newBench(t, map[string]string{"a": "xyz", "d/x": ""})
	must(t, os.Symlink("/nowhere", filepath.Join(b.dir, "l")))
	b.want("list", `{}`, "a (3 bytes)\nd/\nl -> /nowhere", false)
	b.want("list", `{"path":"d"}`, "x (0 bytes)", false)
	b.want("list", `{"path":"a"}`, "*not a directory", true)
	must(t, os.Mkdir(filepath.Join(b.dir, "e"), 0o755))
	b.want("list", `{"path":"e"}`, "(the directory is empty)", false)
	for i := range 600 {
		must(t, os.WriteFile(filepath.Join(b.dir, "e", fmt.Sprintf("%03d", i)), nil, 0o600))
	}
	b.want("list", `{"path":"e"}`, "000 (0 bytes)\n*499 (0 bytes)\n(100 more)", false)
}

func TestSearch(t *testing.T) {
	b := newBench(t, map[string]string{
		".gitignore": "*.log\n/out/\n", ".git/config": "needle", "a.go": "package a\n\n// needle\nfunc A() {}\n",
		"b/b.go":  "needle Needle\n",
		"b/c.log": "needle", "out/x.go": "needle", "bin": "needle\x00", "b/crlf.txt": "one\r\nneedle\r\n",
	})
	b.want("glob", `{"pattern":"**/*.go"}`, "a.go\nb/b.go", false)
	b.want("glob", `{"pattern":"**/*.go","ignored":true}`, "a.go\nb/b.go\nout/x.go", false)
	b.want("glob", `{"pattern":"*.go","path":"b"}`, "b/b.go", false)
	b.want("glob", `{"pattern":"*.{md,rs}"}`, "no file matches", false)
	b.want("glob", `{"pattern":"["}`, `"[" is no pattern`, true)
	b.want("glob", `{"pattern":"*","path":"none"}`, "*no such file*", true)
	b.want("grep", `{"pattern":"needle"}`, "a.go:3:// needle\nb/b.go:1:needle Needle\nb/crlf.txt:2:needle", false)
	b.want("grep", `{"pattern":"^NEEDLE$","ignore_case":true}`, "b/crlf.txt:2:needle", false)
	b.want("grep", `{"pattern":"needle","glob":"*.go","files_only":true}`, "a.go\nb/b.go", false)
	b.want("grep", `{"pattern":"needle","glob":"b/**"}`, "b/b.go:1:needle Needle\nb/crlf.txt:2:needle", false)
	b.want("grep", `{"pattern":"needle","path":"a.go","context":1}`,
		"a.go-2-\na.go:3:// needle\na.go-4-func A() {}", false)
	b.want("grep", `{"pattern":"needle","path":"b","ignored":true}`,
		"b/b.go:1:needle Needle\nb/c.log:1:needle\nb/crlf.txt:2:needle", false)
	b.want("grep", `{"pattern":"needle","path":"bin"}`, "it is a binary file*", true)
	b.want("grep", `{"pattern":"nothing like it"}`, "nothing matches*", false)
	b.want("grep", `{"pattern":"("}`, "*missing closing )*", true)
	must(t, os.WriteFile(filepath.Join(b.dir, "many.txt"),
		[]byte(strings.Repeat("needle "+strings.Repeat("y", 90)+"\n", 1000)), 0o600))
	out, failed := b.do("grep", `{"pattern":"needle","glob":"many.txt"}`)
	if failed || len(out) > maxOutput+100 || !like("many.txt:1:needle*more are left out; narrow the search)", out) {
		t.Errorf("%d bytes: %.100s … %s", len(out), out, out[len(out)-100:])
	}
}

// TestIgnored: search skips exactly the files that git ignores.
func TestIgnored(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("needs git")
	}
	b := newBench(t, map[string]string{
		".gitignore": strings.Join([]string{"# comment", "", "*.log", "!keep.log", "/top", "build/", "docs/*.txt", "a/**/z",
			"**/deep", "space\\ ", "trailing   ",
			"\\#hash", "\\!bang", "{x,y}", "[ab].c", "q?", "**/foo/bar", "only/**", "!only/this", "nest", "literal\\*",
			"dir-and-file", "x/", "/*.top", "!/", "/"}, "\n") + "\n",
		"sub/.gitignore": "*.tmp\n!*.log\n/anchored\nmid/dle\n",
	})
	names := []string{"x.log", "keep.log", "sub/y.log", "sub/keep.log", "top", "sub/top", "build/x", "sub/build/x",
		"sub/builder", "docs/a.txt", "docs/b/a.txt", "a/z", "a/b/z", "a/b/c/z",
		"deep", "e/deep/x", "space ", "space", "trailing", "trailing   ", "#hash", "!bang", "{x,y}", "x2", "x", "y", "a.c",
		"b.c", "c.c", "sub/a.c", "q1", "q12", "m/foo/bar", "foo/bar/baz",
		"only/this", "only/that", "nest/x/y", "sub/nest", "literal*", "literalx", "sub/a.tmp", "b.tmp", "sub/s/a.tmp",
		"sub/anchored", "sub/s/anchored", "anchored", "sub/mid/dle", "mid/dle",
		"dir-and-file", "sub/dir-and-file/x", "w/x/file", "one.top", "sub/one.top", "é.log", "plain"}
	for _, name := range names {
		path := filepath.Join(b.dir, name)
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			continue
		}
		if os.MkdirAll(filepath.Dir(path), 0o755) == nil {
			os.WriteFile(path, nil, 0o644)
		}
	}
	git := func(args ...string) string {
		cmd := exec.Command("git",
			append([]string{"-C", b.dir, "-c", "core.excludesFile=/dev/null", "-c", "core.quotePath=false"}, args...)...)
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("git %v: %v: %s", args, err, out)
		}
		return string(out)
	}
	git("init", "-q")
	for _, below := range []string{".", "sub", "sub/s"} {
		var got []string
		must(t, walk(t.Context(), filepath.Join(b.dir, below), false, func(name string) error {
			got = append(got, filepath.ToSlash(filepath.Join(below, name)))
			return nil
		}))
		want := strings.Split(strings.TrimSuffix(git("ls-files", "-z", "--others", "--exclude-standard", below), "\x00"),
			"\x00")
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("below %s:\n%q\ngit:\n%q", below, got, want)
		}
	}
}

func TestBash(t *testing.T) {
	b := newBench(t, map[string]string{"f": "content\n"})
	b.want("bash", `{"command":"cat f; echo err >&2"}`, "content\nerr", false)
	b.want("bash", `{"command":"true"}`, "(no output)", false)
	b.want("bash", `{"command":"echo x; exit 7"}`, "x\n[exit code 7]", true)
	b.want("bash", `{"command":"kill -9 $$"}`, "[ended by signal 9, killed]", true)
	b.want("bash", `{"command":"cat; tty; echo $TERM"}`, "not a tty\ndumb", false)
	b.want("bash", `{"command":"echo before; sleep 100","timeout":1}`, "before\n[ended after 1 seconds*", true)
	b.want("bash", `{"command":"printf 'a\\xffb'"}`, "a\uFFFDb", false)
	b.want("bash", `{"command":"sleep 1000 & sleep 1000 & echo started"}`,
		"started\n[2 processes that it left running were ended; start those in the background]", false)
	b.want("bash", `{"command":"yes | head -c 10000000"}`,
		"y\ny\n*[… 9970000 bytes are left out: put output into a file to see all of it …]\n*y", false)
	b.want("bash", `{"command":""}`, "the input of this call is wrong*", true)
	b.want("bash", `{"command":"x","timeout":100000}`, "the input of this call is wrong*", true)
	// A process that holds the output open does not delay the result.
	began := time.Now()
	b.want("bash",
		`{"command":"setsid -f sh -c ': >apart; exec sleep 1000'; until [ -e apart ]; do sleep 0.01; done; echo done"}`,
		"done", false)
	if took := time.Since(began); took > 100*time.Second {
		t.Errorf("it took %s", took)
	}
}

// TestInterruptedCommand: a command's children end with it.
func TestInterruptedCommand(t *testing.T) {
	b := newBench(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	begun := filepath.Join(b.dir, "begun")
	if err := syscall.Mkfifo(begun, 0o600); err != nil {
		t.Fatal(err)
	}
	go func() {
		os.ReadFile(begun) // returns when the command has opened and closed it
		cancel()
	}()
	out, failed := b.set.Do(ctx, model.Part{Tool: "bash",
		Input: json.RawMessage(`{"command":"echo said; trap '' TERM; : > begun; sleep 1000 & wait; sleep 1000"}`)})
	if !failed || out != "said\ninterrupted: context canceled" {
		t.Errorf("%v %q", failed, out)
	}
	if left := living(); len(left) > 0 {
		t.Errorf("processes are left: %v", left)
	}
}

// living returns the descendants of this process.
func living() []stat {
	return slices.DeleteFunc(descendants(everyProcess(), os.Getpid()), func(s stat) bool { return s.zombie })
}

func TestBackground(t *testing.T) {
	b := newBench(t, nil)
	b.want("bash_output", `{}`, "no command is in the background", false)
	b.want("bash", `{"command":"echo one; while [ ! -e go ]; do sleep 0.02; done; echo two; exit 3","background":true}`,
		"b1 runs in the background*", false)
	said := ""
	for !strings.Contains(said, "one") {
		out, failed := b.do("bash_output", `{"id":"b1"}`)
		if said += out; failed {
			t.Fatal(out)
		}
	}
	b.want("bash_output", `{"id":"b1"}`, "[still running]", false)
	b.want("bash_output", `{}`, "b1 running: echo one*", false)
	b.want("write", `{"path":"go","content":""}`, "created go*", false)
	b.want("bash_output", `{"id":"b1","wait":60}`, "two\n[exit code 3]", true)
	b.want("bash_output", `{}`, "b1 ended: echo one*", false)
	b.want("bash_kill", `{"id":"b1"}`, "[it had ended]", false)
	b.want("bash", `{"command":"echo x; sleep 1000 & sleep 1000","background":true}`, "b2 *", false)
	b.want("bash_kill", `{"id":"b2"}`, "*[ended]", false)
	b.want("bash_output", `{"id":"b9"}`, `there is no command "b9" in the background`, true)
	if left := living(); len(left) > 0 {
		t.Errorf("processes are left: %v", left)
	}
	for range maxProcesses {
		b.do("bash", `{"command":"setsid -f sleep 1000; sleep 1000","background":true}`)
	}
	b.want("bash", `{"command":"sleep 1000","background":true}`, "16 commands run in the background already*", true)
	b.set.Close()
	if left := descendants(everyProcess(), os.Getpid()); len(left) > 0 {
		t.Errorf("processes are left: %v", left)
	}
}

// TestOrphansAreReaped: orphans leave no zombie.
func TestOrphansAreReaped(t *testing.T) {
	b := newBench(t, nil)
	// the last one may still run, and is killed then
	if out, failed := b.do("bash", `{"command":"for i in $(seq 20); do setsid -f true; done"}`); failed {
		t.Fatal(out)
	}
	await.That(t, "no descendant is left", func() bool {
		b.want("bash", `{"command":"true"}`, "(no output)", false)
		return len(descendants(everyProcess(), os.Getpid())) == 0
	})
}

// TestSetsLeaveCommandsOfOthers: a set of tools neither waits for what another one of this program has started, nor
// ends it.
func TestSetsLeaveCommandsOfOthers(t *testing.T) {
	one, another := newBench(t, nil), newBench(t, nil)
	one.want("bash", `{"command":"while [ ! -e go ]; do sleep 0.02; done; exit 3","background":true}`, "b1 runs*", false)
	another.set.Close()
	one.want("write", `{"path":"go","content":""}`, "created go*", false)
	one.want("bash_output", `{"id":"b1","wait":60}`, "[exit code 3]", true)
	ended := make(chan struct{})
	var reaps sync.WaitGroup
	reaps.Go(func() {
		for {
			select {
			case <-ended:
				return
			default:
				reap()
			}
		}
	})
	defer reaps.Wait()
	defer close(ended)
	for range 50 {
		one.want("bash", `{"command":"exit 4"}`, "[exit code 4]", true)
	}
}

// TestAPromptIsNoCommand: text that passes through tools is never executed.
func TestAPromptIsNoCommand(t *testing.T) {
	b := newBench(t, nil)
	hostile := "$(touch pwned)`touch pwned`'; touch pwned #\n\x1b]0;x\x07 -rf"
	input, _ := json.Marshal(map[string]string{"path": "a " + hostile[:20], "content": hostile})
	if out, failed := b.do("write", string(input)); failed {
		t.Error(out)
	}
	for tool, in := range map[string]map[string]string{
		"read": {"path": hostile}, "grep": {"pattern": "touch", "path": hostile, "glob": "x"},
		"glob": {"pattern": "**", "path": hostile}, "list": {"path": hostile}, "bash_kill": {"id": hostile},
	} {
		input, _ := json.Marshal(in)
		if out, failed := b.do(tool, string(input)); !failed {
			t.Errorf("%s: %s", tool, out)
		}
	}
	if _, err := os.Stat(filepath.Join(b.dir, "pwned")); err == nil {
		t.Error("it was run")
	}
}

func TestTodo(t *testing.T) {
	b := newBench(t, nil)
	b.want("todo",
		`{"items":[{"text":"a","status":"done"},{"text":"b","status":"doing"},{"text":"c","status":"pending"}]}`,
		"[x] a\n[>] b\n[ ] c", false)
	b.want("todo", `{"items":[{"text":"a","status":"maybe"}]}`, "the input of this call is wrong: $.items[0].status: *",
		true)
	if got := b.set.Todo(); len(got) != 3 || got[1].Text != "b" {
		t.Errorf("%v", got)
	}
	b.want("todo", `{"items":[]}`, "nothing is to be done", false)
}

func TestChosen(t *testing.T) {
	s, err := New(t.TempDir(), nil, []string{"read", "bash"})
	must(t, err)
	defer s.Close()
	var names []string
	for _, d := range s.Declared() {
		names = append(names, d.Name)
		if !json.Valid(d.Input) || d.Description == "" {
			t.Errorf("%+v", d)
		}
	}
	if want := []string{"read", "bash", "bash_output", "bash_kill"}; !slices.Equal(names, want) {
		t.Errorf("%v", names)
	}
	if out, failed := s.Do(t.Context(), model.Part{Tool: "write", Input: json.RawMessage(`{}`)}); !failed ||
		!strings.Contains(out, "there is no tool") {
		t.Error(out)
	}
	if out, failed := s.Do(t.Context(), model.Part{Tool: "read", Input: json.RawMessage(`{}`), Cut: true}); !failed ||
		!strings.Contains(out, "cut off") {
		t.Error(out)
	}
	if _, err := New(t.TempDir(), nil, []string{"fly"}); cove.ErrorCode(err) != cove.InvalidArgument {
		t.Errorf("%v", err)
	}
}

func FuzzCapture(f *testing.F) {
	f.Add([]byte("some output\n"), 3, uint16(1000))
	f.Fuzz(func(t *testing.T, piece []byte, times int, rest uint16) {
		times = max(0, min(times, 200))
		var c capture
		var all []byte
		for range times {
			c.Write(piece)
			all = append(all, piece...)
		}
		tail := make([]byte, rest)
		c.Write(tail)
		all = append(all, tail...)
		got := c.take()
		if len(all) <= maxOutput {
			if want := strings.TrimRight(strings.ToValidUTF8(string(all), "\uFFFD"), "\n"); got != want {
				t.Fatalf("%q, want %q", got, want)
			}
		} else if !strings.Contains(got, fmt.Sprintf("%d bytes are left out", len(all)-maxOutput)) {
			t.Fatalf("%d of %d bytes, and nothing is said of it", len(got), len(all))
		}
		if again := c.take(); again != "" {
			t.Fatalf("%q comes again", again)
		}
	})
}

func FuzzParseIgnore(f *testing.F) {
	for _, s := range []string{"*.log", "!/a/**/b/", "\\#", "[a-", "{", "a\\ ", "**", "/"} {
		f.Add(s, "x/y")
	}
	f.Fuzz(func(t *testing.T, text, name string) {
		for _, below := range []string{".", "a{b"} {
			if r, ok := parseIgnore(text, below); ok {
				ignored{r}.leavesOut(name, true)
			}
		}
	})
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("12 (a) b (c) S 1 12 12 0 -1 4194560"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if s, ok := parseStat(data); ok && strings.Contains(string(data), ")") && s.pid == 0 && data[0] != '0' &&
			data[0] != '+' && data[0] != '-' {
			t.Errorf("%+v of %q", s, data)
		}
	})
}
