//go:build linux

package git

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/cove-sandbox/cove/api"
)

// TestShared: with a profile that says so, several workflows are under way at once in one sandbox, each on a branch and
// in a checkout of its own, which goes when its work is pushed. The sandbox stays, for those of the same profile alone.
func TestShared(t *testing.T) {
	l := newLab(t, account)
	l.lasting()
	r := l.server.Create("repo.git")
	l.write(".gitconfig", "[credential]\n\thelper = store\n")
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
        mkdir -p ~/here && touch ~/here/$$
        case "$1" in *Concert*)
          n=0; until [ $(ls ~/here | wc -l) -ge 3 ]; do sleep 0.1; n=$((n+1)); [ $n -lt 600 ] || exit 9; done ;;
        esac
        case "$1" in
        *bad*) echo half >half.txt; exit 3 ;;
        *reach*) echo mine >reach.txt; git add . && git -c user.name=A -c user.email=a@git.test commit -q -m 'Reach'
          if git push -q origin HEAD:refs/heads/issue-1-concert; then echo "it went through"; else echo "it was not let"; fi ;;
        *) pwd >where.txt; git branch --show-current >branch.txt; git add branch.txt && git -c user.name=A -c user.email=a@git.test commit -q -m 'Branch' ;;
        esac
        echo "I have seen to it in $(pwd)"
      - sh
      - "{prompt}"
`, l.server.CA))
	profiles := "profiles:\n  - {name: crew, agent: scripted, shared: true%s}\n  - {name: other, agent: scripted, " +
		"shared: true}\n"
	if err := os.MkdirAll(l.path(home), 0o700); err != nil {
		t.Fatal(err)
	}
	l.write(home+"/profiles.yaml", fmt.Sprintf(profiles, ""))
	start := func(issue, text, profile string) (string, int) {
		cmd := l.command("start", issue, "--repo", l.remote("repo.git"), "--profile", profile, "--prompt-file", "-")
		cmd.Stdin = strings.NewReader(text)
		var said bytes.Buffer
		cmd.Stdout, cmd.Stderr = &said, &said
		err := cmd.Run()
		if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
			t.Error(err)
		}
		return said.String(), cmd.ProcessState.ExitCode()
	}
	sandboxes := func() (shared, within []api.Sandbox) {
		t.Helper()
		var list api.SandboxList
		if err := json.Unmarshal([]byte(l.cove("list", "--json")), &list); err != nil {
			t.Fatal(err)
		}
		for _, s := range list.Sandboxes {
			if s.Within != "" {
				within = append(within, s)
			} else {
				shared = append(shared, s)
			}
		}
		return shared, within
	}

	var all sync.WaitGroup
	for _, issue := range []string{"1", "2", "3"} {
		all.Go(func() {
			if out, code := start(issue, "# Concert\n", "crew"); code != 0 ||
				!strings.Contains(out, "I have seen to it in /home/cove/work-") || !strings.Contains(out, "cove: pushed ") {
				t.Errorf("issue %s: exit code %d\n%s\n%s", issue, code, out, l.log)
			}
		})
	}
	all.Wait()
	places := map[string]bool{}
	for _, branch := range []string{"issue-1-concert", "issue-2-concert", "issue-3-concert"} {
		if got := r.Run("log", "--format=%s", branch, "--not", "main"); got != "Concert\nBranch" {
			t.Errorf("%s has %q", branch, got)
		}
		if got := r.Run("show", branch+":branch.txt"); got != branch {
			t.Errorf("%s was worked on as %q", branch, got)
		}
		places[r.Run("show", branch+":where.txt")] = true
	}
	if len(places) != 3 {
		t.Errorf("they worked in %v", places)
	}
	crew, within := sandboxes()
	if len(crew) != 1 || len(within) != 0 {
		t.Fatalf("there are %+v, and within %+v", crew, within)
	}
	if left := l.cove("exec", crew[0].Name, "--", "sh", "-c",
		"cd && ls -d work-* 2>/dev/null || echo none"); left != "none\n" {
		t.Errorf("left in it is %s", left)
	}

	t.Log("what fails stays, as work of its own")
	out, code := start("4", "# A bad one\n", "crew")
	if code != 1 || !strings.Contains(out, "stays, with the work in it") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	same, within := sandboxes()
	if len(same) != 1 || same[0].ID != crew[0].ID || len(within) != 1 || within[0].Within != crew[0].ID {
		t.Fatalf("there are %+v, and within %+v", same, within)
	}
	bad := within[0].Name
	if got := l.cove("diff", bad, "--name-only"); got != "half.txt\n" {
		t.Errorf("its work is %q", got)
	}
	if got := l.cove("exec", bad, "--", "cat", "half.txt"); got != "half\n" {
		t.Errorf("in it is %q", got)
	}
	if got := l.cove("diff", crew[0].Name, "--name-only"); got != "" {
		t.Errorf("the work of the sandbox itself is %q", got)
	}
	if out, err := l.command("stop", bad).CombinedOutput(); err == nil ||
		!strings.Contains(string(out), "not possible to stop it alone") {
		t.Errorf("%v: %s", err, out)
	}
	l.cove("stop", crew[0].Name)
	if got := l.cove("diff", bad, "--name-only"); got != "half.txt\n" {
		t.Errorf("its work, when the sandbox is stopped, is %q", got)
	}

	t.Log("a branch is pushed for as long as somebody works on it")
	r.Run("update-ref", "-d", "refs/heads/issue-1-concert") // whoever may push it makes it anew
	before := r.Refs()
	if out, code := start("5", "# To reach out\n", "crew"); code != 0 || !strings.Contains(out, "it was not let") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	if after := r.Refs(); strings.Contains(after, "issue-1-concert") || !strings.Contains(after, "issue-5-to-reach-out") {
		t.Errorf("the branches were\n%s\nand are\n%s", before, after)
	}

	t.Log("another profile, and one that has changed, have sandboxes of their own")
	if out, code := start("6", "# Alone\n", "other"); code != 0 {
		t.Errorf("exit code %d\n%s", code, out)
	}
	l.write(home+"/profiles.yaml", fmt.Sprintf(profiles, ", env: {A: b}"))
	if out, code := start("7", "# Alone\n", "crew"); code != 0 {
		t.Errorf("exit code %d\n%s", code, out)
	}
	if three, _ := sandboxes(); len(three) != 3 {
		t.Errorf("there are %+v", three)
	}

	t.Log("what is within a sandbox goes with it, and comes back with its server")
	l.cove("server", "stop")
	if _, within := sandboxes(); len(within) != 1 || within[0].Name != bad || within[0].State != "running" {
		t.Errorf("within are %+v", within)
	}
	if got := l.cove("diff", bad, "--name-only"); got != "half.txt\n" {
		t.Errorf("its work, with the next server, is %q", got)
	}
	l.cove("destroy", "--yes", crew[0].Name, bad)
	rest, within := sandboxes()
	if len(rest) != 2 || len(within) != 0 {
		t.Errorf("there are %+v, and within %+v", rest, within)
	}
	if left, _ := filepath.Glob(l.path(home + "/workspaces/sb_*")); len(left) != 2 {
		t.Errorf("on the disk are %v", left)
	}
	for _, s := range rest {
		l.cove("destroy", "--yes", s.Name)
	}
}
