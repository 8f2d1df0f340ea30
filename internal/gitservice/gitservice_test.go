//go:build linux

package gitservice_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engine/enginetest"
	"github.com/cove-sandbox/cove/internal/engine/native"
	"github.com/cove-sandbox/cove/internal/gitservice"
	"github.com/cove-sandbox/cove/internal/gitservice/internal/wire"
	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/hostgit"
	"github.com/cove-sandbox/cove/internal/instance"
	"github.com/cove-sandbox/cove/internal/rootfs"
	"github.com/cove-sandbox/cove/internal/workspace"
)

// scene is a sandbox on a worktree of a person's repository.
type scene struct {
	t       *testing.T
	sandbox engine.Sandbox
	dir     string
	repo    string
	tree    string
	end     func()
}

func plain(t testing.TB, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=P",
		"GIT_AUTHOR_EMAIL=p@x.example",
		"GIT_COMMITTER_NAME=P", "GIT_COMMITTER_EMAIL=p@x.example", "LC_ALL=C", "GIT_EDITOR=:"}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %q: %v\n%s", args, err, out)
	}
	return string(out)
}

func write(t testing.TB, name, text string) {
	t.Helper()
	if err := errorsOf(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o755)); err != nil {
		t.Fatal(err)
	}
}

func errorsOf(all ...error) error {
	for _, err := range all {
		if err != nil {
			return err
		}
	}
	return nil
}

func newScene(t *testing.T) *scene {
	t.Helper()
	if testing.Short() {
		t.Skip("makes sandboxes")
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root: a root filesystem of another owner")
	}
	git, err := hostgit.Find()
	if err != nil {
		t.Skip(err)
	}
	s := &scene{t: t, dir: t.TempDir()}
	for d := s.dir; d != "/tmp" && d != "/"; d = filepath.Dir(d) {
		os.Chmod(d, 0o755)
	}
	run := filepath.Join(s.dir, "run")
	if err := os.Mkdir(run, 0o755); err != nil {
		t.Fatal(err)
	}
	in, err := instance.Hold(run)
	if err != nil {
		t.Fatal(err)
	}
	program := enginetest.BuildGuest(t)
	log := slog.New(slog.DiscardHandler)
	e, err := native.New(native.Options{Guest: program, RunDir: run, Instance: in.ID,
		CgroupParent: "cove-test-" + strconv.Itoa(os.Getpid()), Log: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close(); in.Release() })
	root, err := gitservice.MakeRoot(filepath.Join(s.dir, "root"), program)
	if err != nil {
		t.Fatal(err)
	}

	s.repo, s.tree = filepath.Join(s.dir, "person"), filepath.Join(s.dir, "ws", "checkout")
	plain(t, s.dir, "init", "-q", "-b", "main", s.repo)
	write(t, s.repo+"/a.txt", "one\ntwo\n")
	write(t, s.repo+"/src/b.go", "package b\n")
	plain(t, s.repo, "add", ".")
	plain(t, s.repo, "commit", "-qm", "first")
	plain(t, s.repo, "tag", "v1.0")
	plain(t, s.repo, "branch", "own")
	plain(t, s.repo, "checkout", "-q", "-b", "secret")
	write(t, s.repo+"/secret.txt", "hush\n")
	plain(t, s.repo, "add", ".")
	plain(t, s.repo, "commit", "-qm", "hush hush")
	plain(t, s.repo, "checkout", "-q", "main")
	if err := os.Mkdir(filepath.Dir(s.tree), 0o755); err != nil {
		t.Fatal(err)
	}
	plain(t, s.repo, "worktree", "add", "-q", s.tree, "own")

	w := workspace.Workspace{ID: cove.NewSandboxID(), Root: s.dir, Directory: s.tree, Hidden: s.repo + "/.git",
		Worktree: "checkout",
		Checkout: workspace.Checkout{Branch: "own", Shared: []string{"main"}}}
	o := gitservice.Options{Guest: program,
		NewMeter: func() func(context.Context, engine.Sandbox) { return func(context.Context, engine.Sandbox) {} }}
	o.Engine, o.Root, o.Workspace, o.Dir, o.Git, o.Clock, o.Log = e, root, w, filepath.Join(s.dir, "git"), git,
		clock.Real(), log
	ctx, cancel := context.WithCancel(context.Background())
	service, err := gitservice.Open(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	binding := engine.Binding{Hostname: "sandbox", Mounts: []cove.Mount{{Source: s.tree, Target: cove.Workspace}},
		Listeners: []guest.Listen{(*gitservice.Service)(nil).Listen()}}
	err = service.Bind(&binding)
	t.Cleanup(binding.Close)
	if err != nil {
		t.Fatal(err)
	}
	limits := cove.Limits{Memory: 512 << 20, CPUs: 2, PIDs: 100, Disk: 100 << 20, Inodes: 20000, OpenFiles: 1024}
	s.sandbox, err = e.Prepare(ctx, engine.Template{ID: w.ID, Shape: cove.Shape{Limits: limits, User: cove.AgentUser},
		Rootfs: engine.Rootfs{Kind: engine.RootfsHost}, Network: cove.NetworkNone})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.sandbox.Destroy(context.Background()) })
	if err := s.sandbox.Bind(ctx, binding); err != nil {
		t.Fatal(err)
	}
	socket := s.sandbox.Listeners()[0]
	ln, err := net.FileListener(socket)
	socket.Close()
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() { service.Serve(ctx, ln); close(served) }()
	s.end = sync.OnceFunc(func() { cancel(); <-served })
	t.Cleanup(s.end)
	return s
}

// sh runs a script in the sandbox's workspace.
func (s *scene) sh(script string) (out string, code int) {
	s.t.Helper()
	return s.process(guest.ProcessSpec{Args: []string{"bash", "-c", script}})
}

func (s *scene) process(spec guest.ProcessSpec) (out string, code int) {
	s.t.Helper()
	ctx := context.Background()
	spec.Env = append(rootfs.Env(cove.AgentUser), "GIT_AUTHOR_NAME=A", "GIT_AUTHOR_EMAIL=a@x.example",
		"GIT_COMMITTER_NAME=A", "GIT_COMMITTER_EMAIL=a@x.example", "TERM=xterm")
	spec.Env = slices.DeleteFunc(spec.Env, func(v string) bool { return strings.HasPrefix(v, "PATH=") })
	spec.Env = append(spec.Env, "PATH="+wire.Programs+":"+rootfs.Path)
	spec.Dir = cove.Workspace
	p, err := s.sandbox.Guest().Start(ctx, spec)
	if err != nil {
		s.t.Fatal(err)
	}
	var b bytes.Buffer
	var mu sync.Mutex
	var streams sync.WaitGroup
	for _, r := range []io.Reader{p.Stdout(), p.Stderr()} {
		streams.Go(func() {
			buf := make([]byte, 4096)
			for {
				n, err := r.Read(buf)
				mu.Lock()
				b.Write(buf[:n])
				mu.Unlock()
				if err != nil {
					return
				}
			}
		})
	}
	streams.Wait()
	exit, err := p.Wait(ctx)
	if err != nil {
		s.t.Fatal(err)
	}
	return b.String(), exit.Code
}

// TestInside: git in the sandbox is git, as far as its user can tell.
func TestInside(t *testing.T) {
	s := newScene(t)
	write(t, s.tree+"/editor", "#!/bin/sh\necho typed > \"$1.new\"; cat \"$1\" >> \"$1.new\"; mv \"$1.new\" \"$1\"\n")
	for _, c := range []struct{ script, want string }{
		{"git status -s", "?? editor\n"},
		{"cd src && git rev-parse --show-prefix --show-toplevel", "src/\n/workspace\n"},
		{"git -C src log -1 --format=%s", "first\n"},
		{"git log -1 --format=%s | cat", "first\n"},
		{"git rev-parse --verify -q nothing; echo $?", "1\n"},
		{"git diff --exit-code HEAD; echo $?", "0\n"},
		{"echo x >> a.txt; git diff --exit-code >/dev/null; echo $?", "1\n"},
		{
			"git config --global alias.st 'status -s'; git config --global alias.last 'log -1 --format=%an:%s'; git st; git last", " M a.txt\n?? editor\nP:first\n"},
		{"git config --global alias.evil '!id'; git evil 2>&1; echo $?",
			"fatal: the alias 'evil' runs a shell command, which git in this sandbox does not do\n128\n"},
		{"git add a.txt && git commit -qm 'from inside' && git log -1 --format='%an <%ae> %s'",
			"A <a@x.example> from inside\n"},
		{"echo 'read from a file' > /tmp/m && git commit -q --allow-empty -F /tmp/m && git log -1 --format=%s",
			"read from a file\n"},
		{"echo 'read from a pipe' | git commit -q --allow-empty -F - && git log -1 --format=%s", "read from a pipe\n"},
		{"GIT_EDITOR=/workspace/editor git commit -q --allow-empty && git log -1 --format=%s", "typed\n"},
		{"GIT_EDITOR=false git commit -q --allow-empty 2>&1 | grep -o 'problem with the editor' | sort -u; git log -1 " +
			"--format=%s", "problem with the editor\ntyped\n"},
		{"GIT_EDITOR=/workspace/editor git commit -q --amend --allow-empty && git log -1 --format=%B | head -2",
			"typed\ntyped\n"},
		{"unset GIT_AUTHOR_NAME GIT_COMMITTER_NAME; git config --global user.name Global; git commit -q --allow-empty -m " +
			"x; git log -1 --format=%an; git config user.name", "Global\nGlobal\n"},
		{"git stash list; echo y >> a.txt; git stash -q; git stash list; git stash pop -q; git diff --stat | cat",
			"stash@{0}: On own: x\n a.txt | 1 +\n 1 file changed, 1 insertion(+)\n"},
		{"git diff > /tmp/p; git checkout -q a.txt; git apply /tmp/p; git diff --numstat; git checkout -q a.txt",
			"1\t0\ta.txt\n"},
		{"git branch", "  main\n* own\n"},
		{"git switch -q --detach main && git branch --show-current && git switch -q - && git branch --show-current", "own\n"},
		{"cd /tmp && git status 2>&1 | grep -o 'fatal: not a git repository'; git status >/dev/null 2>&1; echo $?",
			"fatal: not a git repository\n128\n"},
		{"mkdir -p /tmp/other && cd /tmp/other && git init -q && git commit -q --allow-empty -m 'a repository of its own' " +
			"&& git log --format=%s", "a repository of its own\n"},
		{"mkdir -p nested && cd nested && git init -q . && git rev-parse --show-toplevel && cd .. && rm -rf nested",
			"/workspace/nested\n"},
		{"git help | head -1", "git in this sandbox works on the repository of /workspace, which is kept outside.\n"},
		{"git help commit | grep -c -e --message=", "1\n"},
		{"git unknown 2>&1; echo $?",
			"fatal: 'git unknown' is not among the commands that this sandbox may use (\"git help\" lists them)\n128\n"},
		{"git log -n 2>&1; echo $?", "fatal: switch `n' requires a value\n129\n"},
		{"cat .git | wc -c; (echo x > .git) 2>/dev/null; rm -f .git 2>/dev/null; mv .git x 2>/dev/null; ls -a | grep -c " +
			"'^.git$'", "0\n1\n"},
		{"stat -c '%a %U' " + wire.KeyFile, "400 cove\n"},
		{"for i in 1 2 3 4 5 6; do git log -1 --format=%h >/tmp/out.$i & done; wait; cat /tmp/out.* | sort -u | wc -l",
			"1\n"},
		{"git log --format=%s | head -1 >/dev/null; echo ${PIPESTATUS[1]}", "0\n"},
	} {
		out, code := s.sh(c.script)
		out = strings.ReplaceAll(out, "stash@{0}: WIP on own: "+
			strings.TrimSpace(plain(t, s.repo, "rev-parse", "--short", "own"))+" x", "stash@{0}: On own: x")
		if out != c.want || code != 0 {
			t.Errorf("%s: %d\n%s\nwant\n%s", c.script, code, out, c.want)
		}
	}
	if got := plain(t, s.repo, "log", "-1", "--format=%s", "own"); got != "x\n" {
		t.Errorf("outside own is at %q", got)
	}
	plain(t, s.repo, "fsck", "--strict", "--no-dangling")
}

// TestTerminal: on a terminal there are colours, the user's pager and width.
func TestTerminal(t *testing.T) {
	s := newScene(t)
	tty := func(script string) string {
		t.Helper()
		out, _ := s.process(guest.ProcessSpec{Args: []string{"bash", "-c", script}, TTY: true, Rows: 24, Cols: 60})
		return strings.ReplaceAll(out, "\r\n", "\n")
	}
	if out := tty("GIT_PAGER='sed s/^/paged:/' git log -1 --format='%C(red)%s'"); out != "paged:\x1b[31mfirst\x1b[m\n" &&
		out != "paged:\x1b[31mfirst\n" {
		t.Errorf("%q", out)
	}
	if out := tty("git -c color.ui=never --no-pager log -1 --format='%C(auto,red)%s'"); out != "first\n" {
		t.Errorf("%q", out)
	}
	if out := tty("git config --global core.pager 'tr a-z A-Z'; git log -1 --format=%s; git branch --show-current; git " +
		"--no-pager log -1 --format=%s"); out != "FIRST\nOWN\nfirst\n" {
		t.Errorf("%q", out)
	}
	if out := tty("git config --global pager.log false; git log -1 --format=%s"); out != "first\n" {
		t.Errorf("%q", out)
	}
	if out := tty("GIT_PAGER='head -1' git log -p; echo end"); !strings.HasSuffix(out, "end\n") {
		t.Errorf("%q", out)
	}
}

// TestInterrupted: Ctrl-C ends git outside, too, and leaves no lock.
func TestInterrupted(t *testing.T) {
	s := newScene(t)
	write(t, s.tree+"/wait", "#!/bin/sh\n: > /tmp/waiting; sleep 600\n")
	out, _ := s.sh("GIT_EDITOR=/workspace/wait git commit --allow-empty & pid=$!; while [ ! -e /tmp/waiting ]; do sleep " +
		"0.05; done; kill -KILL $pid; wait $pid 2>/dev/null; pkill sleep; git commit -qm after --allow-empty && git log -1 " +
		"--format=%s")
	if !strings.HasSuffix(out, "after\n") {
		t.Errorf("%q", out)
	}
}

// TestAttempts: what somebody in the sandbox tries who knows its key, and wants
// more than its branch. Nothing of it shows or changes another branch, runs a
// program, or touches what is the person's.
func TestAttempts(t *testing.T) {
	s := newScene(t)
	secret := strings.TrimSpace(plain(t, s.repo, "rev-parse", "secret"))
	blob := strings.TrimSpace(plain(t, s.repo, "rev-parse", "secret:secret.txt"))
	config, _ := os.ReadFile(s.repo + "/.git/config")
	write(t, s.tree+"/evil", "#!/bin/sh\ntouch /workspace/ran\ncat\n")
	write(t, s.tree+"/.gitattributes", "* filter=evil diff=evil merge=evil\n")
	write(t, s.tree+"/.lfsconfig", "[lfs]\n\turl = ext::/workspace/evil\n")
	attempts := []string{
		// Names, ids and listings of another branch.
		"git log secret", "git log --all -p", "git branch -a", "git show " + secret, "git show " + secret[:7],
		"git cat-file -p " + blob, "git cat-file blob " + blob[:5], "git diff main " + secret, "git log refs/heads/secret --",
		"git for-each-ref", "git rev-parse secret", "git merge " + secret, "git cherry-pick " + secret,
		"git reset --hard " + secret, "git checkout " + secret, "git switch -C own " + secret, "git rebase " + secret,
		"git show :/hush", "git log --grep=hush --all",
		"git restore -s " + secret + " secret.txt", "git checkout " + secret + " -- secret.txt", "git name-rev " + secret,
		"git grep hush " + secret, "git rev-list --objects --all", "git describe --all " + secret,
		"git blame " + secret + " -- secret.txt", "git stash show " + secret,
		"git worktree list", "git log --reflog", "git reflog show secret", "git fsck --lost-found",
		"git cat-file --batch-all-objects --batch-check", "git bundle create /tmp/b --all && strings /tmp/b",
		"git archive secret | tar t", "git archive " + secret + " | tar xO", "git fast-export --all",
		"git format-patch --stdout " + secret, "git format-patch --stdout main.." + secret,
		"git format-patch --base=" + secret + " --stdout -1",
		// Changing other branches, tags and settings.
		"git branch -f main own", "git branch -D main", "git branch new", "git tag new", "git tag -d v1.0",
		"git update-ref refs/heads/main own", "git switch -c new", "git checkout -b new",
		"git symbolic-ref HEAD refs/heads/main", "git checkout main", "git switch main",
		"git config core.hooksPath /workspace/hooks", "git config --file /workspace/.git/config a.b c",
		"git config alias.x '!touch /workspace/ran'; git x", "git remote add x https://x.example/", "git push . own:main",
		"git fetch . own:main", "git notes add -m x", "git replace main own",
		// Programs.
		"git -c core.fsmonitor=/workspace/evil status", "git -c core.pager=/workspace/evil log",
		"git -c core.editor=/workspace/evil commit --allow-empty", "git -c diff.external=/workspace/evil diff",
		"git -c filter.evil.clean=/workspace/evil add .", "git -c alias.x='!/workspace/evil' x",
		"git -c core.sshCommand=/workspace/evil fetch", "git rebase -x /workspace/evil main",
		"git fetch --upload-pack=/workspace/evil", "git push --receive-pack=/workspace/evil",
		"git grep -O/workspace/evil one", "git difftool -x /workspace/evil", "git bisect run /workspace/evil",
		"git add . && git commit -m attributes && git checkout HEAD~1 -- . ; git reset --hard",
		"git fetch ext::/workspace/evil", "git ls-remote ext::/workspace/evil", "git --exec-path=/workspace status",
		"git diff --ext-diff", "git log --textconv -p", "git submodule add ext::/workspace/evil x",
		"GIT_EXTERNAL_DIFF=/workspace/evil git diff", "GIT_SSH_COMMAND=/workspace/evil git fetch",
		"GIT_PROXY_COMMAND=/workspace/evil git fetch", "GIT_ASKPASS=/workspace/evil git push",
		// Places.
		"git add /etc/passwd", "git add ../../etc/passwd", "git -C / status", "git --work-tree=/ status",
		"git --git-dir=" + s.repo + "/.git log secret", "GIT_DIR=" + s.repo + "/.git git log secret",
		"GIT_DIR=/git git log secret", "git log --output=/workspace/out", "git diff --no-index /etc/passwd /dev/null",
		"git blame --contents /etc/shadow a.txt", "git archive --add-file=/etc/passwd HEAD", "git archive -o /git/x HEAD",
		"ln -s /git out; git format-patch -o out -1", "git format-patch -o /git/refs/heads -1",
		"git format-patch --suffix=/../../git/refs/heads/new -1", "git format-patch --signature-file=/etc/passwd --stdout -1",
		"ln -s /etc/passwd mail; git am mail", "git am -i mail", "git submodule status --recursive",
		"git apply --unsafe-paths -", "mkdir -p x/.git; echo 'gitdir: /git' > x/.git/y; git add x",
		"ln -s /git link; git add link; git show :link", "ln -s / root; git add root/etc/passwd",
		"ln -s /objects o; git -C o diff . pack; git -C o diff --text --binary --stat -- . ; git -C o status",
		"ln -s /git g; git -C g diff packed-refs config; git -C g grep --untracked .; git -C g ls-files -o",
		"ln -s / r; git -C r/etc diff passwd group",
		"git clean -fdx ../..", "git mv a.txt ../../x", "git ls-files ../..",
	}
	if len(attempts) < 60 {
		t.Errorf("%d attempts, want at least 60", len(attempts))
	}
	refs := func() string {
		var kept []string
		for line := range strings.Lines(plain(t, s.repo, "for-each-ref", "--format=%(refname) %(objectname)")) {
			if !strings.HasPrefix(line, "refs/heads/own ") {
				kept = append(kept, line)
			}
		}
		return strings.Join(kept, "")
	}
	before := refs()
	for _, a := range attempts {
		out, _ := s.sh(a)
		shown := strings.ReplaceAll(strings.ReplaceAll(out, a, ""), "hush'", "")
		for _, word := range strings.Fields(a) {
			shown = strings.ReplaceAll(shown, strings.Trim(word, "'"), "")
		}
		if strings.Contains(shown, "hush") || strings.Contains(shown, "secret") || strings.Contains(shown, blob[:7]) &&
			!strings.Contains(a, blob[:5]) || strings.Contains(shown, "root:x:0") {
			t.Errorf("%s shows\n%s", a, out)
		}
		if _, err := os.Lstat(s.tree + "/ran"); err == nil {
			// Programs of the sandbox may run in the sandbox: there is nothing
			// to gain. This one would have to run without being asked for.
			t.Errorf("%s ran a program\n%s", a, out)
			os.Remove(s.tree + "/ran")
		}
		if _, err := os.Lstat(s.tree + "/secret.txt"); err == nil {
			t.Errorf("%s wrote a file of another branch\n%s", a, out)
			os.Remove(s.tree + "/secret.txt")
		}
	}
	if now := refs(); now != before {
		t.Errorf("refs were\n%s and are\n%s", before, now)
	}
	if now, _ := os.ReadFile(s.repo + "/.git/config"); !bytes.Equal(now, config) {
		t.Errorf("the configuration is\n%s", now)
	}
	plain(t, s.repo, "fsck", "--strict", "--no-dangling")
}

// TestKey: requests of others than the sandbox's user, and after its end, are
// not answered.
func TestKey(t *testing.T) {
	s := newScene(t)
	ask := func(key string) string {
		body, err := json.Marshal(wire.Request{Args: []string{"log", "-1", "--format=%s"}, Dir: cove.Workspace})
		if err != nil {
			t.Fatal(err)
		}
		k, err := hex.DecodeString(key)
		if err != nil {
			t.Fatal(err)
		}
		now, nonce := strconv.FormatInt(clock.Real().Now().Unix(), 10), strings.Repeat("ab", wire.NonceSize)
		script := "exec 3<>/dev/tcp/127.0.0.1/" + strconv.Itoa(wire.Port) + "; printf '%b' '" + strings.Join([]string{
			"POST " + wire.CommandPath + " HTTP/1.1", "Host: x", "Content-Length: " + strconv.Itoa(len(body)),
			wire.HeaderTime + ": " + now, wire.HeaderNonce + ": " + nonce,
			wire.HeaderSignature + ": " + wire.Sign(k, "POST", wire.CommandPath, body, now, nonce), "", ""},
			`\r\n`) + "' >&3; printf '%s' '" + string(body) + "' >&3; cat <&3"
		out, _ := s.sh(script)
		return out
	}
	key, _ := s.sh("cat " + wire.KeyFile)
	key = strings.TrimSpace(key)
	if out := ask(strings.Repeat("00", wire.KeySize)); !strings.HasPrefix(out, "HTTP/1.1 401") {
		t.Errorf("another key: %q", out)
	}
	if out := ask(key); !strings.HasPrefix(out, "HTTP/1.1 200") || !strings.Contains(out, "first") {
		t.Errorf("its key: %q", out)
	}
	if out := ask(key); !strings.HasPrefix(out, "HTTP/1.1 401") {
		t.Errorf("the same again: %q", out)
	}
	s.end()
	if out := ask(key); strings.Contains(out, "HTTP/1.1") {
		t.Errorf("after the end: %q", out)
	}
}
