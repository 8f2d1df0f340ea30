//go:build linux

package git

import (
	"bytes"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove/test/modeltest"
)

// withoutGit is what a model does in a sandbox whose image has a shell, and no git.
const withoutGit = `
prompts:
  - when: push what is not mine
    turns:
      - do: [{write: {path: .github/workflows/x.yml, content: "on: push\n"}}]
      - say: There is a workflow.
  - when: look for git
    turns:
      - do:
          - shell: "echo work >work.txt; git status; echo git $?"
          - write: {path: docs/NOTES.md, content: "# Notes\n"}
      - say: I have worked without git.
`

// TestImageWithoutGit: an image without git works from beginning to end, on each engine: git runs in a companion, under
// the sandbox's own policy, and never on this machine. What an agent lacks in an image is said before anything is made.
func TestImageWithoutGit(t *testing.T) {
	t.Run("native", func(t *testing.T) { testImageWithoutGit(t, "native") })
	t.Run("docker", func(t *testing.T) {
		if os.Getenv("DOCKER_HOST") == "" {
			t.Skip("needs a Docker daemon of its own: DOCKER_HOST=$(scripts/start-docker.sh)")
		}
		testImageWithoutGit(t, "docker")
	})
}

func testImageWithoutGit(t *testing.T, engine string) {
	l := newLabOn(t, engine, account)
	l.lasting()
	r := l.world("repo.git")
	script, err := modeltest.Parse("script", []byte(withoutGit))
	if err != nil {
		t.Fatal(err)
	}
	models := modeltest.New(modeltest.Options{Script: script})
	answers := httptest.NewServer(models)
	t.Cleanup(answers.Close)
	if os.Getenv("COVE_TEST_BIN") == "" {
		build := exec.Command("go", "build", "-C", "../..", "-trimpath", "-o", l.bin+"/", "./cmd/cove-worker")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	l.write("providers.yaml", fmt.Sprintf("providers:\n  - {name: scripted, kind: anthropic, base_url: %q}\n",
		strings.Replace(answers.URL, "127.0.0.1", "localhost", 1)+"/v1"))
	l.write(".gitconfig", "[credential]\n\thelper = store\n[user]\n\tname = Me\n\temail = me@git.test\n")
	l.write(".git-credentials", fmt.Sprintf("https://robot:%s@%s:%d\n", password, host, l.server.Addr().Port))
	l.write("cove.yaml", fmt.Sprintf(`engine: %s
gateway: {extra_cas: [%s], providers: %s}
agents:
  - {name: needy, title: Needy, program: sh, version: [sh, -c, "echo 1"], needs: [node], prompt: argument,
     output: text, headless: [sh, -c, "{prompt}"]}
  - {name: stranger, title: Stranger, program: other, version: [other, --version], prompt: argument,
     output: text, headless: [other, "{prompt}"]}
`, engine, l.server.CA, l.path("providers.yaml")))
	image := "dir:" + smallImage(t, "sh", "cat")
	said := func(code int, stdin string, args ...string) string {
		t.Helper()
		cmd := l.command(args...)
		cmd.Stdin = strings.NewReader(stdin)
		out, _ := cmd.CombinedOutput()
		if got := cmd.ProcessState.ExitCode(); got != code {
			t.Errorf("cove %q: exit code %d, want %d\n%s\n%s", args, got, code, out, l.log)
		}
		return string(out)
	}
	worker := []string{"--image", image, "--model-provider", "scripted"}

	author := l.author(r)
	project := author.Run("rev-parse", "--show-toplevel")
	for agent, want := range map[string]string{"needy": "Needy needs node, which is not in the image",
		"stranger": "Stranger does not run in the image"} {
		got := said(127, "", "agent", agent, "--dir", project, "--image", image, "echo")
		if !strings.Contains(got, want) {
			t.Errorf("%s: %s", agent, got)
		}
	}
	if left := l.cove("list", "-q"); left != "" {
		t.Errorf("there is %s", left)
	}

	// An agent in a directory, with what is not committed.
	os.WriteFile(filepath.Join(project, "mine.txt"), []byte("not committed\n"), 0o644)
	got := said(0, "", append([]string{"worker", "--dir", project, "--keep", "look for git"}, worker...)...)
	if !strings.Contains(got, "it has changed 2 files") || !strings.Contains(got, "docs/NOTES.md") {
		t.Errorf("%s", got)
	}
	name := strings.TrimSpace(l.cove("list", "-q"))
	if got := l.cove("diff", name, "--name-only"); got != "docs/NOTES.md\nwork.txt\n" {
		t.Errorf("diff: %q", got)
	}
	l.cove("apply", name, "--to", project)
	if got, _ := os.ReadFile(filepath.Join(project, "work.txt")); string(got) != "work\n" {
		t.Errorf("applied: %q", got)
	}
	l.cove("stop", name)
	if got := l.cove("diff", name, "--name-only"); got != "docs/NOTES.md\nwork.txt\n" {
		t.Errorf("diff of the stopped one: %q", got)
	}
	l.cove("destroy", "--yes", name)

	// A sandbox of its own, without an agent.
	l.cove("new", l.remote("repo.git"), "own", "--name", "own", "--no-attach", "--image", image)
	l.cove("exec", "own", "--", "sh", "-c", "echo more >>README")
	if got := l.cove("diff", "own", "--name-only"); got != "README\n" {
		t.Errorf("diff: %q", got)
	}
	l.cove("log", "own")

	// An issue, from beginning to end.
	start := func(code int, issue, text string) string {
		return said(code, text, append([]string{"start", issue, "--repo", l.remote("repo.git"), "--agent", "worker",
			"--prompt-file", "-"}, worker...)...)
	}
	if got := start(0, "7", "# A good thing\n\nlook for git"); !strings.Contains(got, "cove: pushed ") {
		t.Errorf("%s", got)
	}
	if got := r.Run("log", "--format=%s by %an", "issue-7-a-good-thing", "--not", "main"); got != "A good thing by Me" {
		t.Errorf("the branch has %q", got)
	}
	if got := r.Run("show", "issue-7-a-good-thing:work.txt"); got != "work" {
		t.Errorf("the branch has %q", got)
	}
	got = start(126, "8", "push what is not mine")
	if !regexp.MustCompile(`✗ .*workflows/x.yml of commit [0-9a-f]{12}, which the policy`).MatchString(got) {
		t.Errorf("%s", got)
	}
	if left := strings.Fields(l.cove("list", "-q")); len(left) != 2 {
		t.Errorf("there is %q", left)
	}
	if got := l.cove("exec", "own", "--", "sh", "-c", "git status 2>&1 || echo none"); !strings.Contains(got, "none") {
		t.Errorf("the image has git: %s", got) // then nothing was tried here
	}
}

// smallImage makes a root filesystem with programs of this machine, the libraries that they need, and nothing else.
func smallImage(t *testing.T, programs ...string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "cove-image-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	os.Chmod(dir, 0o755)
	place := func(from, to string) {
		text, err := os.ReadFile(from)
		if err == nil {
			err = os.MkdirAll(filepath.Dir(dir+to), 0o755)
		}
		if err == nil {
			err = os.WriteFile(dir+to, text, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range []string{"/etc", "/tmp", "/proc", "/dev", "/sys", "/run", "/root", "/home/cove"} {
		if err := os.MkdirAll(dir+d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{"/etc/passwd": "root:x:0:0:root:/root:/bin/sh\n",
		"/etc/group": "root:x:0:\n"} {
		if err := os.WriteFile(dir+name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	library := regexp.MustCompile(`(/\S+) \(0x`)
	for _, p := range programs {
		at, err := exec.LookPath(p)
		if err != nil {
			t.Fatal(err)
		}
		place(at, "/bin/"+p)
		out, err := exec.Command("ldd", at).Output()
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range library.FindAllSubmatch(bytes.TrimSpace(out), -1) {
			place(string(m[1]), string(m[1]))
		}
	}
	return dir
}
