package terminal

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// peculiar are pieces on which terminals disagree.
var peculiar = map[string]bool{"\x1bc": true, "\x1b#8": true, "\x1b[!p": true, "\x1b[?47h": true, "\x1b[?47l": true,
	"\x1b[?1047h": true, "\x1b[?1047l": true, "\x1b[?1048h": true, "\x1b[?1048l": true,
	"\x1b[20h": true, "\x1b[20l": true, "\x1b[5b": true, "e\u0301": true, "😀": true, "\x1b7": true, "\x1b8": true,
	"\x1b[s": true, "\x1b[u": true, "\x1b[?6h": true, "\x1b[Z": true, "\x1b[I": true, "\x1b[2L": true, "\x1b[M": true,
	"\x1b(0": true, "\x1b)0": true, "\x0e": true, // tmux captures line drawing as letters
}

// TestAsTmux: tmux, an independent implementation, shows the same screen, for the model's input and for a viewer's
// output.
func TestAsTmux(t *testing.T) {
	tmux, err := exec.LookPath("tmux")
	if err != nil {
		t.Skip("tmux is not installed, so there is no other terminal to compare with: apt-get install tmux")
	}
	var common []string
	for _, p := range pieces {
		if !peculiar[p] {
			common = append(common, p)
		}
	}
	size := Size{Rows: 8, Columns: 20}
	r := rand.New(rand.NewPCG(5, 6))
	var inputs []string
	for range 12 {
		var b strings.Builder
		for range 40 {
			b.WriteString(common[r.IntN(len(common))])
		}
		inputs = append(inputs, b.String())
	}
	inputs = append(inputs, "\x1b[2J\x1b[5;3Htext\x1b[1J\x1b[31mred\x1b[Krest",
		"1\r\n2\r\n3\x1b[2;3r\x1b[3;1H\n4\x1bM5\x1bE6", "日本語日本語日本語日本語\r\nabc\x1b[2D本\x1b[1@x")
	for i, in := range inputs {
		model := New(size)
		show, _ := model.Write([]byte(in))
		want := screenText(model)
		for name, bytes := range map[string]string{"what was written": in, "what was shown": string(show),
			"what is drawn": string(model.Redraw(size, true))} {
			if got := inTmux(t, tmux, size, bytes); got != want {
				t.Errorf("%d: of %s, tmux shows\n%s\nand the model\n%s\nfor %q", i, name, got, want, in)
			}
		}
		if t.Failed() {
			return
		}
	}
}

// inTmux returns the text on tmux's screen after in.
func inTmux(t *testing.T, tmux string, s Size, in string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "tmux-") // a unix socket's path has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "in")
	if err := os.WriteFile(file, []byte(in), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) string {
		c := exec.Command(tmux, append([]string{"-S", filepath.Join(dir, "s"), "-f", "/dev/null", "-u"}, args...)...)
		c.Env = append(os.Environ(), "LC_ALL=C.UTF-8", "TERM=xterm-256color", "TMUX=")
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("tmux %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	// The title announces the end, since it comes after the output.
	run("new-session", "-d", "-x", fmt.Sprint(s.Columns), "-y", fmt.Sprint(s.Rows),
		fmt.Sprintf(`stty raw -echo; cat %s; printf '\033]2;it is all there\033\\'; exec sleep 1000`, file), ";", "set", "-g",
		"status", "off",
		";", "resize-window", "-x", fmt.Sprint(s.Columns), "-y", fmt.Sprint(s.Rows))
	defer run("kill-server")
	for deadline := time.Now().Add(time.Minute); !strings.Contains(run("display-message", "-p", "#{pane_title}"),
		"it is all there"); {
		if time.Now().After(deadline) {
			t.Fatal("tmux does not show it")
		}
	}
	var lines []string
	for l := range strings.Lines(run("capture-pane", "-p")) {
		lines = append(lines, strings.TrimRight(l, " \n"))
	}
	return strings.TrimRight(strings.Join(lines, "\n"), "\n")
}
