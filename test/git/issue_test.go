//go:build linux

package git

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/cove-sandbox/cove/internal/git/gittest"
)

// TestIssue: an agent works on issues from beginning to end, several at once. What it does is on a branch of the
// server's then, what is not committed too, and nothing is left here. What fails, and what may not be pushed, stays in
// its sandbox.
func TestIssue(t *testing.T) {
	l := newLab(t, account)
	l.lasting()
	r := l.world("repo.git")
	l.write(".gitconfig", "[credential]\n\thelper = store\n") // whose login it is, on this machine
	l.write(".git-credentials", fmt.Sprintf("https://robot:%s@%s:%d\n", password, host, l.server.Addr().Port))
	l.write("cove.yaml", fmt.Sprintf(`gateway: {extra_cas: [%s]}
agents:
  - name: scripted
    program: sh
    prompt: argument
    output: text
    headless:
      - sh
      - -c
      - |
        case "$1" in
        *idle*) ;;
        *good*) echo fixed >fix.txt; git add . && git -c user.name=A -c user.email=a@git.test commit -q -m 'Fix it'; echo left >left.txt ;;
        *workflow*) mkdir -p .github/workflows; echo x >.github/workflows/x.yml ;;
        *bad*) echo half >half.txt; exit 3 ;;
        esac
        echo "I have seen to it"
      - sh
      - "{prompt}"
`, l.server.CA))
	start := func(issue, text string) (string, int) {
		cmd := l.command("start", issue, "--repo", l.remote("repo.git"), "--agent", "scripted", "--prompt-file", "-")
		cmd.Stdin = strings.NewReader(text)
		var said bytes.Buffer
		cmd.Stdout, cmd.Stderr = &said, &said
		err := cmd.Run()
		if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
			t.Error(err)
		}
		return said.String(), cmd.ProcessState.ExitCode()
	}

	var all sync.WaitGroup
	for _, issue := range []string{"7", "8", "TEAM-9"} {
		all.Go(func() {
			if out, code := start(issue, "# A good thing\n\nDo it.\n"); code != 0 ||
				!strings.Contains(out, "I have seen to it") || !strings.Contains(out, "cove: pushed ") {
				t.Errorf("issue %s: exit code %d\n%s\n%s", issue, code, out, l.log)
			}
		})
	}
	all.Wait()
	for _, branch := range []string{"issue-7-a-good-thing", "issue-8-a-good-thing", "team-9-a-good-thing"} {
		if got := r.Run("log", "--format=%s", branch, "--not", "main"); got != "A good thing\nFix it" {
			t.Errorf("%s has %q", branch, got)
		}
		if got := r.Run("show", branch+":left.txt") + r.Run("show", branch+":fix.txt"); got != "leftfixed" {
			t.Errorf("%s has %q", branch, got)
		}
	}
	if left := l.cove("list", "-q"); left != "" {
		t.Errorf("there is still %s", left)
	}

	before := r.Refs()
	for _, c := range []struct {
		text  string
		code  int
		says  string
		stays bool
	}{
		{"nothing to do: idle", 0, "it has changed nothing", false},
		{"a workflow", 126, ".github/workflows/x.yml", true},
		{"a bad one", 1, "exit code 3", true},
	} {
		out, code := start("10", c.text)
		if code != c.code || !strings.Contains(out, c.says) ||
			strings.Contains(out, "stays, with the work in it") != c.stays {
			t.Errorf("%s: exit code %d\n%s", c.text, code, out)
		}
		left := strings.Fields(l.cove("list", "-q"))
		if len(left) == 1 != c.stays {
			t.Errorf("%s: there is %q", c.text, left)
		}
		for _, name := range left {
			l.cove("destroy", "--yes", name)
		}
	}
	if after := r.Refs(); after != before {
		t.Errorf("the server has changed:\n%s", after)
	}
}

// TestNamedCredential: a credential that is named for the host of a sandbox's own repository takes the place of the
// machine's where both would be set, and the machine's is set elsewhere.
func TestNamedCredential(t *testing.T) {
	const token = "canary-of-this-machine-5b1e"
	for name, c := range map[string]struct{ paths, pushes string }{
		"for the whole host": {"/**", "robot"},
		"for other paths":    {"/api/**", "owner"},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, gittest.Options{User: "robot", Password: password, Token: token})
			l.lasting()
			r := l.world("repo.git")
			l.write(".gitconfig", "[credential]\n\thelper = store\n")
			l.write(".git-credentials", fmt.Sprintf("https://owner:%s@%s:%d\n", token, host, l.server.Addr().Port))
			l.write("credentials.yaml", fmt.Sprintf(`credentials:
  - name: forge
    source: env:FORGE_PASSWORD
    to:
      - {form: basic, user: robot, hosts: %s, ports: %d, paths: %s}
`, host, l.server.Addr().Port, c.paths))
			l.cove("new", l.remote("repo.git"), "own", "--name", "named", "--no-attach", "--credential", "forge")
			l.server.Forget()
			l.cove("exec", "named", "--", "sh", "-ec", `
git ls-remote -q origin
git config user.name A; git config user.email a@git.test
echo 1 >work; git add work; git commit -q -m Work
git push -q origin HEAD`)
			if got := r.Run("log", "-1", "--format=%s", "own"); got != "Work" {
				t.Errorf("own has %q", got)
			}
			for _, asked := range l.server.Received() {
				if user, _, _ := (&http.Request{Header: asked.Header}).BasicAuth(); user != c.pushes {
					t.Errorf("%s came from %q, not from %s", asked, user, c.pushes)
				}
			}
		})
	}
}
