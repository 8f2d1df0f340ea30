package cli_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// cgroupParent holds the sandboxes of these tests, apart from all others.
const cgroupParent = "cove-cli-test"

// TestSandboxTranscripts runs testdata/sandbox/*.txt: sessions with real
// sandboxes and real servers, each with a state of its own.
func TestSandboxTranscripts(t *testing.T) {
	if testing.Short() {
		t.Skip("runs real sandboxes for seconds; make test runs it")
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root: control groups are not this user's to make (the test VM runs sandboxes as other users)")
	}
	guest := buildGuest(t)
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/sandbox",
		RequireExplicitExec: true,
		UpdateScripts:       *update,
		Setup: func(env *testscript.Env) error {
			dir, err := os.MkdirTemp("", "cove-cli-") // short: a unix socket's path has 107 bytes
			if err != nil {
				return err
			}
			env.Defer(func() { os.RemoveAll(dir) })
			if err := os.Chmod(dir, 0o755); err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(env.WorkDir, "big.py"), make([]byte, 2<<20), 0o644); err != nil {
				return err
			}
			env.Setenv("COVE_HOME", filepath.Join(dir, "home"))
			env.Setenv("COVE_RUN_DIR", filepath.Join(dir, "run"))
			env.Setenv("COVE_GUEST", guest)
			env.Setenv("COVE_LISTEN", "")
			env.Setenv("COVE_SANDBOX_CGROUP_PARENT", cgroupParent)
			env.Setenv("NO_COLOR", "1")
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){"waitfor": waitFor},
	})
}

// buildGuest builds cove-guest where sandboxes, whose ids are their own, can reach it.
func buildGuest(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, d := range []string{dir, filepath.Dir(dir)} {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	guest := filepath.Join(dir, "cove-guest")
	build := exec.Command("go", "build", "-o", guest, "../../cmd/cove-guest")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("cannot build cove-guest: %v\n%s", err, out)
	}
	return guest
}

// TestReadmeTour runs the commands of README.md's console blocks, in order and
// in one directory, and compares what they print with what is written there.
func TestReadmeTour(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds; make test runs it")
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root: control groups are not this user's to make (the test VM runs sandboxes as other users)")
	}
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "cove-cli-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	env := append(os.Environ(), "COVE_HOME="+filepath.Join(dir, "home"), "COVE_RUN_DIR="+filepath.Join(dir, "run"),
		"COVE_GUEST="+buildGuest(t), "COVE_SANDBOX_CGROUP_PARENT="+cgroupParent, "NO_COLOR=1", "COVE_SERVER=", "LC_ALL=C")
	commands := tour(string(readme))
	if len(commands) < 5 {
		t.Fatalf("only %d commands were found in README.md", len(commands))
	}
	for _, c := range commands {
		cmd := exec.Command("sh", "-c", c.line)
		cmd.Dir, cmd.Env = dir, env
		out, err := cmd.CombinedOutput()
		if string(out) != c.output {
			t.Errorf("$ %s\nprints (%v)\n%swhere README.md has\n%s", c.line, err, out, c.output)
		}
	}
}

// TestSandboxesTour runs the commands of docs/sandboxes.md's console blocks and
// compares what they print with what is written there, but for times and ids.
func TestSandboxesTour(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds; make test runs it")
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root: control groups are not this user's to make (the test VM runs sandboxes as other users)")
	}
	text, err := os.ReadFile("../../docs/sandboxes.md")
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "cove-cli-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	env := append(os.Environ(), "COVE_HOME="+filepath.Join(dir, "home"),
		"COVE_RUN_DIR="+filepath.Join(dir, "run"), "HOME="+dir,
		"GIT_AUTHOR_NAME=Ada", "GIT_AUTHOR_EMAIL=ada@site.example", "GIT_COMMITTER_NAME=Ada",
		"GIT_COMMITTER_EMAIL=ada@site.example",
		"COVE_GUEST="+buildGuest(t), "COVE_SANDBOX_CGROUP_PARENT="+cgroupParent, "NO_COLOR=1", "COVE_SERVER=", "LC_ALL=C")
	run := func(line string) (string, error) {
		cmd := exec.Command("sh", "-c", line)
		cmd.Dir, cmd.Env = dir, env
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	t.Cleanup(func() { // whatever has failed
		run("cove list -q | xargs -r cove destroy --yes; cove server stop")
	})
	commands := tour(string(text))
	if len(commands) < 12 {
		t.Fatalf("only %d commands were found", len(commands))
	}
	for _, c := range commands {
		out, err := run(c.line)
		if got, want := steady(strings.ReplaceAll(out, dir+"/", "/tmp/")), steady(c.output); err != nil || got != want {
			t.Errorf("$ %s\nprints (%v)\n%swhere docs/sandboxes.md has\n%s", c.line, err, got, want)
		}
	}
}

var (
	aTime = regexp.MustCompile(`\([0-9.]+ (µs|ms|s)\)`)
	anAgo = regexp.MustCompile(`(?m)(  )(now|[0-9]+ s ago)$`)
	aGap  = regexp.MustCompile(` {2,}`) // of a table, as wide as what is in it
	anID  = regexp.MustCompile(`\b[0-9a-f]{7,40}\b`)
)

// steady is a text without what differs each time.
func steady(text string) string {
	text = anAgo.ReplaceAllString(aTime.ReplaceAllString(text, "(TIME)"), "${1}AGO")
	return aGap.ReplaceAllString(anID.ReplaceAllString(text, "ID"), "  ")
}

type command struct{ line, output string }

// tour takes the console blocks of a Markdown file apart.
func tour(text string) []command {
	var all []command
	inside := false
	for line := range strings.Lines(text) {
		switch {
		case strings.HasPrefix(line, "```"):
			inside = strings.TrimSpace(line) == "```console"
		case !inside:
		case strings.HasPrefix(line, "$ "):
			all = append(all, command{line: strings.TrimSpace(line[2:])})
		case len(all) > 0:
			all[len(all)-1].output += line
		}
	}
	return all
}
