//go:build linux

package git

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove/internal/git/gittest"
)

// TestSubmodule: a submodule whose repository is on the same server is out of the sandbox's reach, and the message says
// which repository and what to do; with a policy that has it and a credential, "git submodule update --init" works as
// with plain git. The first sandbox is made of a bare repository.
func TestSubmodule(t *testing.T) {
	l := newLab(t, gittest.Options{User: "robot", Password: password})
	l.lasting()
	lib := l.server.Create("owner/lib.git")
	r := l.server.Create("owner/repo.git")
	author := l.author(r)
	author.Write(".gitmodules", "[submodule \"lib\"]\n\tpath = vendor/lib\n\turl = ../lib.git\n")
	author.Run("add", ".gitmodules")
	author.Run("update-index", "--add", "--cacheinfo", "160000,"+lib.Run("rev-parse", "main")+",vendor/lib")
	author.Run("commit", "-q", "-m", "submodule")
	author.Run("push", "-q", "origin", "HEAD:main")
	l.write("cove.yaml", fmt.Sprintf("gateway: {extra_cas: [%s], credentials: %s}\n", l.server.CA,
		l.path("credentials.yaml")))
	l.write(".gitconfig", "[credential]\n\thelper = store\n")
	l.write(".git-credentials", fmt.Sprintf("https://robot:%s@%s:%d\n", password, host, l.server.Addr().Port))

	bare := l.path("bare.git")
	author.Run("clone", "-q", "--bare", r.Dir, bare)
	author.In(bare).Run("remote", "set-url", "origin", l.remote(r.Path))
	l.cove("new", bare, "own", "--name", "box", "--no-attach")
	out, code := l.in("box", fixed+"git commit -q --allow-empty -m work && git submodule update --init")
	for _, want := range []string{"/owner/lib.git", "policy"} {
		if code == 0 || !strings.Contains(out, want) {
			t.Errorf("without a policy, no %q: %d\n%s", want, code, out)
		}
	}
	l.cove("push", "box", "--yes")
	if got, want := r.Run("log", "-1", "--format=%s", "refs/heads/own"), "work"; got != want {
		t.Errorf("pushed from a bare repository is %q", got)
	}
	policy := l.write("lib.yaml", fmt.Sprintf("rules: [{hosts: %s, ports: %d}]\ngit:\n- remote: %s\n"+
		"- {remote: %s, push: own2}\n", host, l.server.Addr().Port, l.remote(lib.Path), l.remote(r.Path)))
	l.cove("new", l.remote(r.Path), "own2", "--name", "with", "--no-attach", "--policy", policy,
		"--credential", "forge") // the machine's own login is for the sandbox's repository alone
	out, code = l.in("with", "git submodule --quiet update --init && cat vendor/lib/README && git submodule status")
	if want := "first\n " + lib.Run("rev-parse", "main") + " vendor/lib"; code != 0 || !strings.HasPrefix(out, want) {
		t.Errorf("with a policy: %d\n%s", code, out)
	}
	if t.Failed() {
		log, _ := os.ReadFile(filepath.Join(l.dir, home, "logs/server.log"))
		t.Logf("%s", log[max(0, len(log)-4<<10):])
	}
}
