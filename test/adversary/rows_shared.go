package adversary

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/hostpath"
)

// sharedRows are attempts through what a mounted directory brings along: sockets, repositories, credentials and Cove's
// own directories in it, at any level (invariants H5 and G3).
func sharedRows() []row {
	return []row{
		{id: "F8.socket", invariant: "H5", what: "talk to a program of the host through a socket in a mount",
			test: mountedSocket},
		{id: "F8.git", invariant: "G3", what: "have the host's git execute something through .git of a mount",
			test: mountedGit},
		{id: "F8.hooks", invariant: "G3", what: "have the host's git execute something through a writable .git of a mount",
			test: mountedHooks},
		{id: "F8.executed", invariant: "G3", what: "change files in a mount that programs of its owner execute",
			test: mountedExecuted},
		{id: "F8.made", invariant: "G3", what: "make in a mount what programs of its owner execute, without its being named",
			test: mountedMade},
		{id: "H5.deep", invariant: "H5", what: "have a directory of credentials mounted with one far above it",
			test: deepCredentials},
		{id: "H5.own", invariant: "H5", what: "have Cove's own directories mounted, or one around them", test: ownPlaces},
		{id: "H5.system", invariant: "H5", what: "have programs of the machine mounted writable", test: systemPlaces},
	}
}

// Rules are the rules of host paths of an engine under attack whose state is in a directory.
func Rules(state string) hostpath.Rules {
	return hostpath.Rules{Own: []string{state}, Guarded: []string{".envrc", ".vscode/tasks.json", ".husky/**"}}
}

// barred makes a sandbox with a mount, which has to be refused, for a reason.
func (c *trial) barred(m cove.Mount, allow cove.MountAllow, why string) {
	c.Helper()
	b, err := c.suite.make(c, boxOptions{mounts: []cove.Mount{m}, allow: allow})
	switch {
	case err == nil:
		c.Errorf("HOLE: %s is mounted (%+v)", m.Source, allow)
		b.destroy(c)
	case cove.ErrorCode(err) != cove.Forbidden || !strings.Contains(err.Error(), why):
		c.Errorf("not tested: %s: %v", m.Source, err)
	}
}

func mountedSocket(c *trial) {
	dir := c.mountable(1234)
	deep := filepath.Join(dir, "a/b/c")
	must(c, os.MkdirAll(deep, 0o755))
	l, err := net.Listen("unix", filepath.Join(deep, "s"))
	must(c, err)
	must(c, os.Chmod(filepath.Join(deep, "s"), 0o666))
	defer serve(l)()
	c.give(dir)
	if r := c.suite.outside(c, "unix_connect "+filepath.Join(deep, "s")); r.Outcome != "succeeded" {
		c.Errorf("not tested: the socket does not answer on the host: %s", say(r))
	}
	for _, readOnly := range []bool{true, false} {
		m := cove.Mount{Source: dir, Target: cove.Workspace, ReadOnly: readOnly}
		c.barred(m, cove.MountAllow{System: true, Git: true}, "a/b/c/s")
		b := c.fresh(boxOptions{mounts: []cove.Mount{m}, allow: cove.MountAllow{Sockets: true}})
		c.works(b, "unix_connect /workspace/a/b/c/s") // why it is refused
	}
	for _, name := range []string{"docker.sock", "cove.sock", "cove-debug.sock"} {
		other := c.mountable(1234)
		must(c, os.MkdirAll(filepath.Join(other, "x"), 0o755))
		stop := listenUnix(c, filepath.Join(other, "x", name))
		c.barred(cove.Mount{Source: other, Target: cove.Workspace}, cove.MountAllow{Sockets: true}, name)
		stop()
	}
}

// checkouts makes a mountable directory that is a checkout, with another one in it, and trap, the configuration of a
// repository whose git executes something. fell reports whether it did, when a person asks for the state of both.
func (c *trial) checkouts() (dir, trap string, fell func() bool) {
	c.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		c.lacking("there is no git here")
	}
	dir = c.mountable(1234)
	mark := filepath.Join(c.TempDir(), "ran")
	git := func(in string, args ...string) {
		cmd := exec.Command("git", append([]string{"-c", "safe.directory=*"}, args...)...)
		cmd.Dir, cmd.Env = in, append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_COUNT=1",
			"GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*")
		if out, err := cmd.CombinedOutput(); err != nil {
			c.Fatalf("not tested: git %v: %v, %s", args, err, out)
		}
	}
	nested := filepath.Join(dir, "vendor/deep")
	must(c, os.MkdirAll(nested, 0o755))
	for _, repository := range []string{dir, nested} {
		git(repository, "init", "-q")
	}
	c.give(dir)
	trap = "[core]\n\trepositoryformatversion = 0\n\tfsmonitor = touch " + mark + ";false\n"
	return dir, trap, func() bool {
		c.Helper()
		git(dir, "status")
		git(nested, "status")
		_, err := os.Stat(mark)
		return err == nil
	}
}

// give makes the owner of a directory that of everything in it.
func (c *trial) give(dir string) {
	c.Helper()
	var owner unix.Stat_t
	must(c, unix.Stat(dir, &owner))
	must(c, filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if err != nil || !asRoot() {
			return err
		}
		return os.Lchown(path, int(owner.Uid), int(owner.Gid))
	}))
}

func mountedGit(c *trial) {
	dir, trap, fell := c.checkouts()
	m := []cove.Mount{{Source: dir, Target: cove.Workspace}}
	b := c.fresh(boxOptions{mounts: m})
	c.row.deny = append([]string{"EBUSY", "EROFS", "EXDEV"}, denied...)
	for _, git := range []string{"/workspace/.git", "/workspace/vendor/deep/.git"} {
		c.denied(b, "write "+git+"/config x")
		c.denied(b, "create "+git)
		c.denied(b, "mkdir "+git)
		c.denied(b, "rename "+git+"/config "+git+"/other")
		c.denied(b, "rename "+git+" /workspace/aside")
		ctx, cancel := c.fileAPI()
		if err := b.sandbox.Guest().WriteFile(ctx, git+"/config", 0o644, []byte(trap)); err == nil {
			c.Errorf("HOLE: the guest writes %s/config", git)
		}
		cancel()
		c.works(b, "read "+git+"/config")
	}
	c.denied(b, "rename /workspace/vendor/deep /workspace/vendor/aside")
	c.denied(b, "rename /workspace/vendor /workspace/aside")
	c.works(b, "write /workspace/vendor/deep/file x")
	c.works(b, "mkdir /workspace/vendor")
	if fell() {
		c.Error("HOLE: git on the host executed what the sandbox wrote")
	}
	writable := c.fresh(boxOptions{mounts: m, allow: cove.MountAllow{Git: true, Hooks: true}})
	ctx, cancel := c.fileAPI()
	defer cancel()
	must(c, writable.sandbox.Guest().WriteFile(ctx, "/workspace/vendor/deep/.git/config", 0o644, []byte(trap)))
	if !fell() {
		c.Error("not tested: git on the host executes nothing although .git was changed")
	}
}

// mountedHooks: in a repository that may be written to, what decides what git executes stays as it is.
func mountedHooks(c *trial) {
	dir, trap, fell := c.checkouts()
	m := []cove.Mount{{Source: dir, Target: cove.Workspace}}
	b := c.fresh(boxOptions{mounts: m, allow: cove.MountAllow{Git: true}})
	c.row.deny = append([]string{"EBUSY", "EROFS", "EXDEV"}, denied...)
	for _, git := range []string{"/workspace/.git", "/workspace/vendor/deep/.git"} {
		c.works(b, "write "+git+"/index.lock x") // as git does
		c.works(b, "rename "+git+"/index.lock "+git+"/index.aside")
		c.works(b, "mkdir "+git+"/refs")
		for _, attempt := range []string{"write " + git + "/config x", "write " + git + "/hooks/pre-commit x",
			"create " + git + "/hooks", "mkdir " + git + "/hooks", "rename " + git + "/config " + git + "/other",
			"rename " + git + "/hooks " + git + "/other", "rename " + git + " " + git + "-aside"} {
			c.denied(b, attempt)
		}
		c.works(b, "write "+git+"/new "+"x")
		c.denied(b, "rename "+git+"/new "+git+"/config")
		ctx, cancel := c.fileAPI()
		if err := b.sandbox.Guest().WriteFile(ctx, git+"/config", 0o644, []byte(trap)); err == nil {
			c.Errorf("HOLE: the guest writes %s/config", git)
		}
		cancel()
	}
	c.denied(b, "rename /workspace/vendor/deep /workspace/vendor/aside")
	c.denied(b, "rename /workspace/vendor /workspace/aside")
	if fell() {
		c.Error("HOLE: git on the host executed what the sandbox wrote")
	}
	writable := c.fresh(boxOptions{mounts: m, allow: cove.MountAllow{Git: true, Hooks: true}})
	c.works(writable, "write /workspace/.git/hooks/pre-commit x")
	ctx, cancel := c.fileAPI()
	defer cancel()
	must(c, writable.sandbox.Guest().WriteFile(ctx, "/workspace/vendor/deep/.git/config", 0o644, []byte(trap)))
	if !fell() {
		c.Error("not tested: git on the host executes nothing although its configuration was changed")
	}
	must(c, os.RemoveAll(filepath.Join(dir, "vendor/deep/.git/hooks")))
	c.barred(m[0], cove.MountAllow{Git: true}, "no vendor/deep/.git/hooks")
}

func mountedExecuted(c *trial) {
	dir := c.mountable(1234)
	for _, name := range []string{".vscode", ".husky"} {
		must(c, os.Mkdir(filepath.Join(dir, name), 0o755))
	}
	for _, name := range []string{".envrc", ".vscode/tasks.json", ".vscode/plain", ".husky/pre-commit"} {
		must(c, os.WriteFile(filepath.Join(dir, name), []byte("as it was"), 0o644))
	}
	c.give(dir)
	m := []cove.Mount{{Source: dir, Target: cove.Workspace}}
	b := c.fresh(boxOptions{mounts: m})
	c.row.deny = append([]string{"EBUSY", "EROFS"}, denied...)
	for _, attempt := range []string{"write /workspace/.envrc x", "rename /workspace/.envrc /workspace/e",
		"write /workspace/.vscode/tasks.json x", "rename /workspace/.vscode /workspace/v", "create /workspace/.husky",
		"write /workspace/.husky/pre-commit x", "rename /workspace/.husky /workspace/h"} {
		c.denied(b, attempt)
	}
	c.works(b, "write /workspace/.vscode/plain x")
	git := c.fresh(boxOptions{mounts: m, allow: cove.MountAllow{Git: true}})
	c.denied(git, "write /workspace/.envrc x")
	c.works(c.fresh(boxOptions{mounts: m, allow: cove.MountAllow{Hooks: true}}), "write /workspace/.envrc x")
}

// mountedMade: what a sandbox makes where nothing could be kept read-only is named when it has ended.
func mountedMade(c *trial) {
	dir := c.mountable(1234)
	must(c, os.MkdirAll(filepath.Join(dir, "was/.git/hooks"), 0o755))
	must(c, os.WriteFile(filepath.Join(dir, "was/.git/config"), nil, 0o644))
	c.give(dir)
	m := []cove.Mount{{Source: dir, Target: cove.Workspace}}
	b := c.fresh(boxOptions{mounts: m, allow: cove.MountAllow{Git: true}})
	c.works(b, "write /workspace/plain x")
	if len(b.marks) != 1 || b.marks[0].Made(c.Context()).Any() {
		c.Fatalf("not tested: %+v", b.marks)
	}
	ctx, cancel := c.fileAPI()
	defer cancel()
	for _, name := range []string{"deep/er/.git/config", "bare/HEAD", "bare/objects/x", "bare/refs/x", ".envrc",
		"was/.git/commondir", "was/.husky/x"} {
		must(c, b.sandbox.Guest().WriteFile(ctx, "/workspace/"+name, 0o644, []byte("x")))
	}
	made := b.marks[0].Made(c.Context())
	const want = "bare deep/er/.git was/.git/commondir .envrc was/.husky"
	if got := strings.Join(append(made.Git, made.Files...), " "); got != want || made.Beyond != "" {
		c.Errorf("HOLE: made are %s, named %+v", want, made)
	}
}

func deepCredentials(c *trial) {
	for _, name := range []string{".ssh/id", ".aws/credentials", ".config/gcloud/x", ".netrc"} {
		dir := c.mountable(os.Getuid())
		at := filepath.Join(dir, "a/b/c", name)
		must(c, os.MkdirAll(filepath.Dir(at), 0o755))
		must(c, os.WriteFile(at, []byte("x"), 0o600))
		m := cove.Mount{Source: dir, Target: cove.Workspace, ReadOnly: true}
		c.barred(m, cove.MountAllow{Sockets: true, Git: true, System: true}, "credentials")
		must(c, os.RemoveAll(filepath.Join(dir, "a")))
		c.works(c.mounted(dir, true), "stat /workspace")
	}
}

// ownPlaces names the state directory of the engine, what is in it, what is around it, and the same by another name.
func ownPlaces(c *trial) {
	around := c.mountable(os.Getuid())
	link := filepath.Join(around, "link")
	must(c, os.Symlink(c.suite.state, link))
	inside, err := os.MkdirTemp(c.suite.state, "x")
	must(c, err)
	defer os.RemoveAll(inside)
	all := cove.MountAllow{Sockets: true, Git: true, System: true}
	for _, source := range []string{c.suite.state, inside, filepath.Dir(c.suite.state)} {
		c.barred(cove.Mount{Source: source, Target: cove.Workspace, ReadOnly: true}, all, "Cove's own")
	}
	for _, try := range []string{link, filepath.Join(link, filepath.Base(inside)), c.suite.state + "/..", link + "/.."} {
		if got, err := Rules(c.suite.state).Check(try, nil); err == nil {
			c.Errorf("HOLE: %s may be mounted, as %s", try, got)
		}
	}
	c.works(c.mounted(around, true), "stat /workspace")
}

func systemPlaces(c *trial) {
	c.mountable(os.Getuid()) // or there is nothing to test
	for _, source := range []string{"/usr/bin", "/usr/lib", "/opt"} {
		m := cove.Mount{Source: source, Target: "/shown"}
		c.barred(m, cove.MountAllow{Sockets: true, Git: true}, "programs of the machine")
	}
	m := []cove.Mount{{Source: "/usr/bin", Target: "/shown", ReadOnly: true}}
	b := c.fresh(boxOptions{mounts: m})
	c.row.deny = hidden
	c.denied(b, "create /shown")
	c.works(b, "stat /shown/env")
}
