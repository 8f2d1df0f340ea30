package real

import (
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/cove-sandbox/cove/test/await"
)

// uploads reports what a machine's server has of folders that were sent, beside its lock.
func (m *machine) uploads() string {
	m.t.Helper()
	return m.sh("/", "find "+m.state+"/uploads -type f ! -name .lock 2>/dev/null || true")
}

// TestUpload: folders of this machine go to the server of another one, over ssh and HTTP, and their work comes back, by
// the same commands as here. What goes wrong leaves nothing on either side.
func TestUpload(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: sshd in a mount namespace of its own")
	}
	if _, err := os.Stat("/usr/sbin/sshd"); err != nil {
		t.Skip("sshd is missing: apt-get install openssh-server")
	}
	t.Parallel()
	there, here := asRoot(t), asRoot(t)
	port := there.sshd("")
	here.sh("/", "mkdir -m 700 ~/.ssh")
	for _, name := range []string{"id_ed25519", "known_hosts"} {
		here.sh("/", "umask 077; cat >~/.ssh/"+name+" <<'END'\n"+there.sh("/", "cat ~/.ssh/"+name)+"END\n")
	}
	there.sh("/", "rm -r "+there.project) // the server has no directory of this name
	far := here.with("COVE_SERVER=ssh://root@127.0.0.1:" + port)

	// A sandbox of a checkout, with what is not committed, a program and a binary file.
	here.sh(far.project, `echo '*.log' >.gitignore; echo noise >x.log; echo two >>a.txt
		printf 'a\0b' >bin; echo new >new.txt`)
	before := here.sh(far.project, "find . -type f -exec sha1sum {} +")
	far.cove("new", ".", "--uncommitted", "--name", "otter", "--no-attach")
	if got := here.sh(far.project, "find . -type f -exec sha1sum {} +"); got != before {
		t.Errorf("the folder has changed:\n%s\n%s", before, got)
	}
	if got := far.cove("exec", "otter", "--", "sh", "-c", "git log --format=%s; ls; cat a.txt"); got !=
		"What was not committed\none\na.txt\nbin\nnew.txt\none\ntwo\n" {
		t.Errorf("inside: %q", got)
	}
	far.cove("exec", "otter", "--", "sh", "-c",
		`echo three >>a.txt; printf 'c\0d' >bin; rm new.txt; mkdir d; echo deep >d/e; chmod +x d/e
		git add a.txt; git commit -qm three`)
	// The sandbox is the one of this folder, without its name.
	if got := far.cove("diff", "--name-only"); got != "a.txt\nbin\nd/e\nnew.txt\n" {
		t.Errorf("diff: %q", got)
	}
	far.cove("apply", "--", "a.txt", "bin")
	if got := here.sh(far.project, "cat a.txt bin; ls"); got != "one\ntwo\nthree\nc\x00da.txt\nbin\nnew.txt\nx.log\n" {
		t.Errorf("a part of it: %q", got)
	}
	// What has changed in the way is refused, all of it, or merged.
	here.sh(far.project, "echo mine >d; echo mine >new.txt")
	for _, clash := range []string{"new.txt", "d"} {
		r := far.try(far.project, "cove", "apply", "otter")
		if r.code != 122 || !strings.Contains(r.errs, "cannot be changed") {
			t.Errorf("with a clash at %s: %+v", clash, r)
		}
		here.sh(far.project, "test ! -e d/e")
		if clash == "new.txt" {
			here.sh(far.project, "echo new >new.txt")
		} else {
			here.sh(far.project, "rm d")
		}
	}
	far.cove("apply", "otter")
	if got := here.sh(far.project, "test ! -e new.txt; test -x d/e; git status --porcelain"); got !=
		" M a.txt\n?? .gitignore\n?? bin\n?? d/\n" {
		t.Errorf("all of it: %q", got)
	}
	got := here.sh("/", "ls -A "+here.state+"/applying; ls -d "+here.state+
		"/applied-* /tmp/cove-folder-* 2>/dev/null || true")
	if got != "" {
		t.Errorf("left behind here: %s", got)
	}
	if got := there.uploads(); got != "" {
		t.Errorf("left behind there: %s", got)
	}

	// An origin on the loopback of this machine is none for the other one.
	here.sh(far.project, "git remote add origin ssh://git@127.0.0.1:2222/owner/app")
	far.cove("new", ".", "fix", "--name", "far", "--no-attach")
	if r := far.try(far.project, "cove", "push", "far"); r.code != 122 ||
		!strings.Contains(r.errs, "no remote to push to") {
		t.Errorf("an origin on the loopback: %+v", r)
	}
	far.cove("destroy", "--yes", "far")

	// A folder that is no repository; without git, and back.
	here.sh("/", "mkdir -p /srv/plain/sub && cd /srv/plain && echo one >sub/a && ln -s sub/a link")
	far.must("/srv/plain", "cove", "new", ".", "--uncommitted", "--name", "plain", "--no-attach")
	far.cove("exec", "plain", "--", "sh", "-c", "echo two >sub/a; test -L link")
	far.must("/srv/plain", "cove", "apply", "plain")
	if got := here.sh("/srv/plain", "cat link; ls -A"); got != "two\nlink\nsub\n" {
		t.Errorf("plain: %q", got)
	}

	// An agent's task, and its take-over.
	there.installAgent()
	there.env = append(there.env, "ANTHROPIC_API_KEY=sk-ant-of-nobody")
	there.must("/", "cove", "server", "stop")
	there.must("/", "cove", "list")
	far.cove("claude", "--apply", "leave a note")
	if got := here.sh(far.project, "cat note.txt"); got != "noted\n" {
		t.Errorf("taken over: %q", got)
	}

	// What is not possible says so, and is not begun: nothing is sent.
	sent := func() int {
		return strings.Count(there.sh("/", "cat "+filepath.Join(there.state, "logs/server.log")), "path=/uploads ")
	}
	uploads := sent()
	for _, c := range []struct{ args, text string }{
		{"new . --worktree --no-attach", "are not possible for a directory of this machine"},
		{"new . --depth 1 --no-attach", "are not possible for a directory of this machine"},
		{"new --bind . --no-attach", "is a directory of this machine, and the server is"},
		{"claude --bind do-it", "is a directory of this machine, and the server is"},
		{"new ./a.txt --no-attach", "nor a directory"},
		{"new /srv/plain --no-attach", "is not in a git repository"},
		{"new . b nowhere --no-attach", "has no branch or tag"},
		{"claude --model-provider nobody do-it", `no model provider "nobody"`},
		{"claude --model-provider anthropic,nobody do-it", `no model provider "nobody"`},
		{"claude --model-provider openai do-it", "cannot ask the model provider openai"},
		{"claude --profile nobody do-it", "nobody"},
		{"claude --credential nobody do-it", `no credential "nobody"`},
		{"codex do-it", "no key for its models"},
		{"new . --agent claude --model-provider nobody --no-attach", `no model provider "nobody"`},
		{"new . --agent codex --no-attach", "is not installed"},
		{"new . --model-provider nobody --no-attach", `no model provider "nobody"`},
		{"new . --profile nobody --no-attach", "nobody"},
		{"new . --engine nothing --no-attach", "nothing"},
	} {
		if r := far.try(far.project, append([]string{"cove"}, strings.Fields(c.args)...)...); r.code == 0 ||
			!strings.Contains(r.errs, c.text) {
			t.Errorf("%s: %+v", c.args, r)
		}
	}
	if n := sent() - uploads; n != 0 || uploads == 0 {
		t.Errorf("%d folders were sent in vain, after %d", n, uploads)
	}
	// One that is interrupted leaves nothing.
	here.sh(far.project, "head -c 300M /dev/urandom >big")
	broken := far.sendsInto(t, there)
	if got := there.sh("/", "ls "+there.state+"/workspaces"); strings.Contains(got, ".new-") || broken != "" {
		t.Errorf("interrupted: %q, %s", got, broken)
	}
	here.sh(far.project, "rm big")

	// Over HTTP with a key, which has sandboxes and uploads of its own.
	there.must("/", "cove", "server", "stop")
	said := there.sh("/srv", `umask 077; cove config new-key laptop | tee key; sed -n '/api_keys/,$p' key >keys.yaml`)
	key := regexp.MustCompile(`cove_[A-Za-z0-9_-]+`).FindString(said)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	there.sh("/srv", "cove --config keys.yaml serve --listen "+address+" >serve.txt 2>&1 &")
	await.That(t, "the server listens", func() bool {
		return strings.Contains(there.try("/", "cat", "/srv/serve.txt").out, "address="+address)
	})
	over := here.with("COVE_SERVER=http://" + address).with("COVE_API_KEY=" + key)
	over.cove("new", ".", "--uncommitted", "--name", "keyed", "--no-attach")
	over.cove("exec", "keyed", "--", "sh", "-c", "echo four >>a.txt")
	over.cove("apply", "keyed")
	if got := here.sh(far.project, "tail -n 1 a.txt"); got != "four\n" {
		t.Errorf("over HTTP: %q", got)
	}
	if r := here.with("COVE_SERVER=http://"+address).try(far.project, "cove", "new", ".", "--no-attach"); r.code == 0 {
		t.Errorf("without a key: %+v", r)
	}
	over.cove("destroy", "--yes", "keyed")
}

// sendsInto begins to send the project, interrupts that once the other machine has a part of it, and returns what
// stays.
func (m *machine) sendsInto(t *testing.T, there *machine) (left string) {
	t.Helper()
	c := m.command(t.Context(), m.project, "cove", "new", ".", "--uncommitted", "--name", "broken", "--no-attach")
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	await.That(t, "a part has been sent", func() bool { return there.uploads() != "" })
	if err := syscall.Kill(-c.Process.Pid, syscall.SIGINT); err != nil {
		t.Error(err)
	}
	if err := c.Wait(); err == nil {
		t.Error("it was not interrupted")
	}
	await.That(t, "nothing of it stays", func() bool { left = there.uploads(); return left == "" })
	return left + m.sh("/", "ls -d "+filepath.Join(os.TempDir(), "cove-folder-*")+" 2>/dev/null || true")
}
