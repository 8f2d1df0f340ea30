//go:build linux

package inside

import (
	"bufio"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
)

func TestSettings(t *testing.T) {
	s := parseSettings("[user]\n\tname = \"A ; B\" # who\n email=a@x.example\n[Alias] st = status -sb\n\tlg = \"log " +
		"--format='%h %s'\"\n" +
		"[color \"Diff\"]\n\tnew = green bold  ; yes\n[core]\n\tbare\n\teditor = vi \\\n-n\n[user]\n\tname = C\\tD\nbroken " +
		"line\n[open\n")
	for key, want := range map[string]string{
		"user.name": "C\tD", "user.email": "a@x.example", "alias.st": "status -sb", "alias.lg": "log --format='%h %s'",
		"color.Diff.new": "green bold", "core.bare": "true", "core.editor": "vi -n", "none.x": "",
	} {
		if got := s.get(key); got != want {
			t.Errorf("%s is %q, want %q", key, got, want)
		}
	}
	for _, kv := range s.list() {
		if strings.HasPrefix(kv[0], "alias.") || kv[0] == "core.editor" {
			t.Errorf("the API is told of %s", kv[0])
		}
	}
}

func TestAliases(t *testing.T) {
	s := parseSettings("[alias]\n st = status -sb\n two = st --long\n loop = pool\n pool = loop\n sh = !evil\n log = " +
		"status\n q = commit -m 'a b'\n open = log 'x\n")
	for line, want := range map[string]string{
		"st .":            "status|-sb|.",
		"-C x two":        "-C|x|status|-sb|--long",
		"log":             "log",
		"q":               "commit|-m|a b",
		"unknown":         "unknown",
		"loop":            "error",
		"sh":              "error",
		"open":            "error",
		"-c alias.x=!y x": "-c|alias.x=!y|x",
	} {
		c := &session{args: strings.Fields(line), settings: s}
		err := c.expandAliases()
		if got := strings.Join(c.args, "|"); err == nil && got != want || err != nil && want != "error" {
			t.Errorf("git %s is %q, %v, want %q", line, got, err, want)
		}
	}
}

func TestOwnSettingsAreWritten(t *testing.T) {
	file := filepath.Join(t.TempDir(), "gitconfig")
	t.Setenv("GIT_CONFIG_GLOBAL", file)
	t.Setenv("GIT_CONFIG_SYSTEM", "/nowhere")
	t.Setenv("HOME", "/nowhere")
	os.WriteFile(file, []byte("# mine\n[user]\n\tname = Old\n\temail = a@x.example\n"), 0o600)
	for _, args := range [][]string{{"config", "--global", "user.name", `A "B" \ C`},
		{"config", "--global", "alias.st", "status"}, {"config", "--global", "--unset", "user.email"}} {
		if code, done := (&session{args: args}).own(); !done || code != 0 {
			t.Errorf("git %q: %d, %v", args, code, done)
		}
	}
	s := readSettings()
	if s.get("user.name") != `A "B" \ C` || s.get("alias.st") != "status" || s.get("user.email") != "" {
		t.Errorf("%q", s)
	}
	if text, _ := os.ReadFile(file); !strings.HasPrefix(string(text), "# mine\n") {
		t.Errorf("%s", text)
	}
	if code, _ := (&session{args: []string{"config", "--global", "--unset", "user.email"}}).own(); code != 5 {
		t.Errorf("unsetting what is not set: %d", code)
	}
}

func TestAnswers(t *testing.T) {
	for in, want := range map[string]string{
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n": "abcde",
		"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcdef":                                    "abc",
		"HTTP/1.1 200 OK\r\n\r\nabc":                                                            "abc",
		"HTTP/1.1 401 Unauthorized\r\nContent-Length: 5\r\n\r\nnever":                           "error: never",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nabc":                        "error: a chunk has no size",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\nabc":                        "error: a chunk has no size",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab":                          "error: unexpected EOF",
		"HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", maxLine) + "\r\n\r":                      "error: a line is too long",
	} {
		for name, r := range map[string]io.Reader{"whole": strings.NewReader(in),
			"by bytes": iotest.OneByteReader(strings.NewReader(in))} {
			body, err := readAnswer(bufio.NewReader(r))
			var got []byte
			if err == nil {
				got, err = io.ReadAll(body)
			}
			if err != nil {
				got = []byte("error: " + err.Error())
			}
			if string(got) != want && !(strings.Contains(want, "EOF") && strings.HasSuffix(string(got), "EOF")) {
				t.Errorf("%q %s is %q, want %q", in, name, got, want)
			}
		}
	}
}

func TestHelp(t *testing.T) {
	for line, want := range map[string]string{
		"": "|true", "--help": "|true", "help": "|true", "help log": "log|true", "log --help": "log|true",
		"log -h":  "log|true",
		"grep -h": "grep|false", "log": "log|false", "commit -m -h": "commit|false",
	} {
		s := &session{args: strings.Fields(line)}
		name, asked := s.helpFor()
		if got := name + "|" + map[bool]string{true: "true", false: "false"}[asked]; got != want &&
			!(strings.HasSuffix(want, "false") && !asked) {
			t.Errorf("git %s: %s, want %s", line, got, want)
		}
	}
}
