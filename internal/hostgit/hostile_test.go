package hostgit

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// trap is a repository that makes an ordinary git start an attacker's program.
type trap struct {
	name string
	// plant changes a repository with one commit. canary is the program: a path without spaces.
	plant func(t *testing.T, repo, canary string)
	// spring are the arguments with which an ordinary git, run in the working files, triggers it.
	spring []string
	env    []string // of the ordinary git
}

func config(lines ...string) func(*testing.T, string, string) {
	return func(t *testing.T, repo, canary string) {
		for i := 0; i < len(lines); i += 2 {
			plain(t, repo, nil, "config", "--add", strings.ReplaceAll(lines[i], "CANARY", canary),
				strings.ReplaceAll(lines[i+1], "CANARY", canary))
		}
	}
}

func hook(name string) func(*testing.T, string, string) {
	return func(t *testing.T, repo, canary string) {
		write(t, filepath.Join(repo, ".git/hooks", name), "#!/bin/sh\nexec "+canary+"\n", 0o755)
	}
}

func all(plants ...func(*testing.T, string, string)) func(*testing.T, string, string) {
	return func(t *testing.T, repo, canary string) {
		for _, p := range plants {
			p(t, repo, canary)
		}
	}
}

// attributes returns a plant that commits attributes, with a changed file that they cover.
func attributes(line string) func(*testing.T, string, string) {
	return func(t *testing.T, repo, canary string) {
		write(t, filepath.Join(repo, ".gitattributes"), line+"\n", 0o644)
		write(t, filepath.Join(repo, "a.txt"), "one\n", 0o644)
		plain(t, repo, []string{"GIT_CONFIG_COUNT=0"}, "add", ".")
		plain(t, repo, nil, "commit", "-q", "-m", "attributes")
		write(t, filepath.Join(repo, "a.txt"), "two\n", 0o644)
	}
}

// otherBranch makes a branch whose change to a.txt conflicts with the checkout.
func otherBranch(t *testing.T, repo, _ string) {
	plain(t, repo, nil, "checkout", "-q", "-f", "-b", "other")
	write(t, filepath.Join(repo, "a.txt"), "other\n", 0o644)
	plain(t, repo, nil, "commit", "-q", "-a", "-m", "other")
	plain(t, repo, nil, "checkout", "-q", "-f", "main")
	write(t, filepath.Join(repo, "a.txt"), "mine\n", 0o644)
	plain(t, repo, nil, "commit", "-q", "-a", "-m", "mine")
}

var traps = []trap{
	{"fsmonitor", config("core.fsmonitor", "CANARY"), []string{"status"}, nil},
	{"clean filter", all(attributes("*.txt filter=x"), config("filter.x.clean", "CANARY")), []string{"add", "a.txt"}, nil},
	{"smudge filter", all(attributes("*.txt filter=x"), config("filter.x.smudge", "CANARY")),
		[]string{"checkout", "-f", "HEAD"}, nil},
	{"filter process", all(attributes("*.txt filter=x"), config("filter.x.process", "CANARY")),
		[]string{"checkout", "-f", "HEAD"}, nil},
	{"required filter of an odd name", all(attributes("*.txt filter=a.b.c"),
		config("filter.a.b.c.clean", "CANARY", "filter.a.b.c.required", "true")), []string{"add", "a.txt"}, nil},
	{"filter of an included file", all(attributes("*.txt filter=x"), func(t *testing.T, repo, canary string) {
		write(t, filepath.Join(repo, ".git/more"), "[filter \"x\"]\n\tsmudge = "+canary+"\n", 0o644)
	}, config("include.path", "more")), []string{"checkout", "-f", "HEAD"}, nil},
	{"filter included for the place", all(attributes("*.txt filter=x"), func(t *testing.T, repo, canary string) {
		write(t, filepath.Join(repo, ".git/more"), "[filter \"x\"]\n\tclean = "+canary+"\n", 0o644)
	}, config("includeIf.gitdir:/.path", "more")), []string{"add", "a.txt"}, nil},
	{"filter of info/attributes", all(attributes("*.md text"), config("filter.x.clean", "CANARY"),
		func(t *testing.T, repo, _ string) {
			write(t, filepath.Join(repo, ".git/info/attributes"), "* filter=x\n", 0o644)
		}), []string{"add", "a.txt"}, nil},
	{"attributes file elsewhere", all(config("filter.x.clean", "CANARY", "core.attributesFile", ".git/attributes"),
		func(t *testing.T, repo, _ string) {
			write(t, filepath.Join(repo, ".git/attributes"), "* filter=x\n", 0o644)
			write(t, filepath.Join(repo, "a.txt"), "x\n", 0o644)
		}), []string{"add", "a.txt"}, nil},
	{"external diff", all(attributes("*.md text"), config("diff.external", "CANARY")), []string{"diff", "HEAD"}, nil},
	{"external diff of a driver", all(attributes("*.txt diff=x"), config("diff.x.command", "CANARY")),
		[]string{"diff", "HEAD"}, nil},
	{"textconv", all(attributes("*.txt diff=x"), config("diff.x.textconv", "CANARY")), []string{"diff", "HEAD"}, nil},
	{"textconv of a log", all(attributes("*.txt diff=x"), config("diff.x.textconv", "CANARY")),
		[]string{"log", "-p", "-1"}, nil},
	{"textconv of show", all(attributes("*.txt diff=x"), config("diff.x.textconv", "CANARY")),
		[]string{"show", "HEAD"}, nil},
	{"merge driver", all(attributes("*.txt merge=x"), otherBranch, config("merge.x.driver", "CANARY")),
		[]string{"merge", "--no-edit", "other"}, nil},
	{"pager", config("core.pager", "CANARY"), []string{"--paginate", "log"}, nil},
	{"pager of a command", config("pager.log", "CANARY"), []string{"log"}, nil},
	{"editor", config("core.editor", "CANARY"), []string{"commit", "--allow-empty"}, nil},
	{"sequence editor", config("sequence.editor", "CANARY"), []string{"rebase", "-i", "--root"}, nil},
	{"gpg", config("gpg.program", "CANARY", "commit.gpgSign", "true"),
		[]string{"commit", "--allow-empty", "-m", "x"}, nil},
	{"ssh command", config("core.sshCommand", "CANARY", "remote.r.url", "ssh://git.example/x"),
		[]string{"fetch", "r"}, nil},
	{"git proxy", config("core.gitProxy", "CANARY", "remote.r.url", "git://git.example/x"), []string{"fetch", "r"}, nil},
	{"credential helper", config("credential.helper", "!CANARY"), []string{"credential", "fill"}, nil},
	{"askpass", config("core.askPass", "CANARY"), []string{"credential", "fill"}, []string{"GIT_TERMINAL_PROMPT=0"}},
	{"ext", config("remote.r.url", "ext::CANARY", "protocol.ext.allow", "always", "protocol.allow", "always"),
		[]string{"fetch", "r"}, nil},
	{"ext by insteadOf", config("url.ext::CANARY .insteadOf", "https://git.example/", "protocol.ext.allow", "always"),
		[]string{"ls-remote", "https://git.example/x"}, nil},
	{"upload-pack of a remote", config("remote.r.url", "/", "remote.r.uploadpack", "CANARY"), []string{"fetch", "r"}, nil},
	{"upload-pack by file", config("remote.r.url", "file:///", "remote.r.uploadpack", "CANARY"),
		[]string{"fetch", "r"}, nil},
	{"receive-pack of a remote", config("remote.r.url", "/", "remote.r.receivepack", "CANARY"),
		[]string{"push", "r", "main"}, nil},
	{"vcs of a remote", func(t *testing.T, repo, canary string) {
		write(t, filepath.Join(filepath.Dir(canary), "git-remote-canary"), "#!/bin/sh\nexec "+canary+"\n", 0o755)
		config("remote.r.url", "x", "remote.r.vcs", "canary")(t, repo, canary)
	}, []string{"fetch", "r"}, nil},
	{"promisor remote", all(config("remote.r.url", "ext::CANARY", "remote.r.promisor", "true", "extensions.partialClone",
		"r", "protocol.ext.allow", "always", "core.repositoryFormatVersion", "1")),
		[]string{"cat-file", "-p", "1234567890123456789012345678901234567890"}, nil},
	{"alternate refs command", func(t *testing.T, repo, canary string) {
		other := filepath.Join(filepath.Dir(repo), "other")
		plain(t, filepath.Dir(repo), nil, "clone", "-q", "--no-hardlinks", repo, other)
		write(t, filepath.Join(repo, ".git/objects/info/alternates"), filepath.Join(other, ".git/objects")+"\n", 0o644)
		plain(t, other, nil, "commit", "-q", "--allow-empty", "-m", "newer")
		config("core.alternateRefsCommand", "CANARY", "remote.r.url", other)(t, repo, canary)
	}, []string{"fetch", "r"}, nil},
	{"alias", config("alias.harmless", "!CANARY"), []string{"harmless"}, nil},
	{"hooks path", func(t *testing.T, repo, canary string) {
		write(t, filepath.Join(repo, "evil/post-checkout"), "#!/bin/sh\nexec "+canary+"\n", 0o755)
		config("core.hooksPath", "evil")(t, repo, canary)
	}, []string{"checkout", "-q", "-b", "new"}, nil},
	{"pre-commit hook", hook("pre-commit"), []string{"commit", "--allow-empty", "-m", "x"}, nil},
	{"commit-msg hook", hook("commit-msg"), []string{"commit", "--allow-empty", "-m", "x"}, nil},
	{"prepare-commit-msg hook", hook("prepare-commit-msg"), []string{"commit", "--allow-empty", "-m", "x"}, nil},
	{"post-commit hook", hook("post-commit"), []string{"commit", "--allow-empty", "-m", "x"}, nil},
	{"post-checkout hook", hook("post-checkout"), []string{"checkout", "-q", "-b", "new"}, nil},
	{"post-checkout hook of a worktree", hook("post-checkout"), []string{"worktree", "add", "-b", "new", "../linked"},
		nil},
	{"post-index-change hook", hook("post-index-change"), []string{"read-tree", "HEAD"}, nil},
	{"post-merge hook", all(attributes("*.md text"), otherBranch, hook("post-merge")),
		[]string{"merge", "--no-edit", "-s", "ours", "other"}, nil},
	{"pre-rebase hook", hook("pre-rebase"), []string{"rebase", "--root"}, nil},
	{"pre-push hook", all(config("remote.r.url", "../other.git"), func(t *testing.T, repo, _ string) {
		plain(t, filepath.Dir(repo), nil, "init", "-q", "--bare", "other.git")
	}, hook("pre-push")), []string{"push", "r", "main"}, nil},
	{"reference-transaction hook", hook("reference-transaction"), []string{"update-ref", "refs/heads/new", "HEAD"}, nil},
	{"pre-auto-gc hook", all(hook("pre-auto-gc"), config("gc.auto", "1", "gc.autoPackLimit", "1"), packs),
		[]string{"gc", "--auto"}, nil},
	{"update command of a submodule", func(t *testing.T, repo, canary string) {
		other := filepath.Join(filepath.Dir(repo), "sub")
		plain(t, filepath.Dir(repo), nil, "clone", "-q", "--no-hardlinks", repo, other)
		plain(t, repo, nil, "-c", "protocol.file.allow=always", "submodule", "-q", "add", other, "sub")
		plain(t, repo, nil, "commit", "-q", "-m", "sub")
		plain(t, filepath.Join(repo, "sub"), nil, "commit", "-q", "--allow-empty", "-m", "ahead")
		config("submodule.sub.update", "!CANARY")(t, repo, canary)
	}, []string{"submodule", "update"}, nil},
	{"hooks by a .git file", func(t *testing.T, repo, canary string) {
		hook("post-checkout")(t, repo, canary)
		if err := os.Rename(filepath.Join(repo, ".git"), filepath.Join(repo, "elsewhere")); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(repo, ".git"), "gitdir: elsewhere\n", 0o644)
	}, []string{"checkout", "-q", "-b", "new"}, nil},
	{"hooks of a common directory elsewhere", func(t *testing.T, repo, canary string) {
		hook("reference-transaction")(t, repo, canary)
		common := filepath.Join(filepath.Dir(repo), "common")
		if err := os.Rename(filepath.Join(repo, ".git"), common); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(repo, ".git/commondir"), common+"\n", 0o644)
		write(t, filepath.Join(repo, ".git/HEAD"), "ref: refs/heads/main\n", 0o644)
	}, []string{"update-ref", "refs/heads/new", "HEAD"}, nil},
	{"worktree elsewhere", all(config("core.worktree", "../../victim"), func(t *testing.T, repo, canary string) {
		write(t, filepath.Join(filepath.Dir(repo), "victim/.gitattributes"), "* filter=x\n", 0o644)
		write(t, filepath.Join(filepath.Dir(repo), "victim/a.txt"), "x\n", 0o644)
		config("filter.x.clean", "CANARY")(t, repo, canary)
	}), []string{"add", "--all"}, nil},
}

// packs makes more packs than an automatic gc tolerates.
func packs(t *testing.T, repo, _ string) {
	for range 2 {
		plain(t, repo, nil, "commit", "-q", "--allow-empty", "-m", "more")
		plain(t, repo, nil, "repack", "-q")
	}
}

// TestHostileRepositories: in each of these repositories an ordinary git starts the attacker's program. Cove's git does
// not, for the same commands and for Cove's own.
func TestHostileRepositories(t *testing.T) {
	g := find(t)
	for _, tt := range traps {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for _, who := range []string{"an ordinary git", "Cove's"} {
				base := t.TempDir()
				repo, canary, sang := filepath.Join(base, "repo"), filepath.Join(base, "bin/canary"), filepath.Join(base, "sang")
				write(t, canary, "#!/bin/sh\necho \"$0 $*\" >>"+sang+"\nexit 1\n", 0o755)
				newRepository(t, repo)
				tt.plant(t, repo, canary)
				os.Remove(sang) // by plant
				if who == "an ordinary git" {
					cmd := ordinary(repo, append(tt.env, "PATH="+filepath.Dir(canary)+":"+os.Getenv("PATH")), tt.spring...)
					cmd.Stdin = strings.NewReader("protocol=https\nhost=git.example\n\n")
					var out bytes.Buffer
					cmd.Stdout, cmd.Stderr = &out, &out
					if strings.Contains(tt.name, "pager") {
						cmd.Stdout = terminal(t)
					}
					cmd.Run()
					if _, err := os.Stat(sang); err != nil {
						t.Errorf("an ordinary git does not walk into it, so it proves nothing; it says %s", &out)
					}
					continue
				}
				everything(t, g, repo, tt.spring)
				if said, err := os.ReadFile(sang); err == nil {
					t.Errorf("the program ran: %s", said)
				}
			}
		})
	}
}

// everything runs the trigger, and Cove's own operations on repositories.
func everything(t *testing.T, g *Git, repo string, spring []string) {
	dir := filepath.Join(repo, ".git")
	same := Run{Dir: dir, WorkTree: repo, Stdin: strings.NewReader("protocol=https\nhost=git.example\n\n"), Env: identity}
	same.Command = slices.DeleteFunc(slices.Clone(spring), func(w string) bool { return w == "--paginate" })
	runs := []Run{
		same,
		{Command: []string{"status"}, WorkTree: repo},
		{Command: []string{"add"}, Flags: []string{"--all"}, WorkTree: repo},
		{Command: []string{"read-tree"}, Flags: []string{"-m", "-u", "--reset"}, Args: []string{"HEAD"}, WorkTree: repo},
		{Command: []string{"checkout-index"}, Flags: []string{"--all", "--force"}, WorkTree: repo},
		{Command: []string{"diff"}, Args: []string{"HEAD"}, WorkTree: repo},
		{Command: []string{"log"}, Flags: []string{"-p", "--stat"}},
		{Command: []string{"for-each-ref"}},
		{Command: []string{"rev-parse"}, Flags: []string{"--verify"}, Args: []string{"HEAD"}},
		{Command: []string{"commit"}, Flags: []string{"--allow-empty", "--message=x"}, WorkTree: repo, Env: identity},
		{Command: []string{"update-ref"}, Args: []string{"refs/heads/cove", "HEAD"}},
		{Command: []string{"worktree", "add"}, Flags: []string{"--no-checkout", "-bcove2"},
			Args: []string{filepath.Join(filepath.Dir(repo), "tree")}},
		{Command: []string{"fetch"}, Args: []string{"r"}},
		{Command: []string{"fetch"}, Args: []string{"r"}, Transport: []string{"https"}},
		{Command: []string{"ls-remote"}, Args: []string{"https://git.example/x"}},
		{Command: []string{"gc"}, Flags: []string{"--auto"}},
		{Command: []string{"repack"}, Flags: []string{"-a", "-d"}},
		{Command: []string{"upload-pack"}, Args: []string{dir}, Stdin: strings.NewReader("0000"),
			Settings: []Setting{{"safe.directory", "*"}}},
	}
	for _, r := range runs {
		if r.Dir == "" && r.Command[0] != "upload-pack" {
			r.Dir = dir
		}
		// Success is irrelevant here.
		var out bytes.Buffer
		r.Stdout = &out
		run := g.run // without the list of commands, which would prevent most traps
		if r.Command[0] == "harmless" {
			run = g.Run // the list excludes aliases
		}
		if err := run(t.Context(), r); err != nil && testing.Verbose() {
			t.Logf("git %v: %v %.100s", r.Command, err, out.Bytes())
		}
	}
}

var identity = []string{"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b.example", "GIT_COMMITTER_NAME=a",
	"GIT_COMMITTER_EMAIL=a@b.example"}

func find(t testing.TB) *Git {
	t.Helper()
	g, err := Find()
	if err != nil {
		t.Skip(err)
	}
	return g
}

func newRepository(t *testing.T, repo string) {
	t.Helper()
	if err := os.MkdirAll(repo, 0o755); err != nil {
		t.Fatal(err)
	}
	plain(t, repo, nil, "init", "-q", "-b", "main")
	write(t, filepath.Join(repo, "README"), "read me\n", 0o644)
	plain(t, repo, nil, "add", ".")
	plain(t, repo, nil, "commit", "-q", "-m", "first")
}

// ordinary runs git as a person does, with an empty user configuration.
func ordinary(dir string, env []string, args ...string) *exec.Cmd {
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = slices.Concat([]string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "GIT_CONFIG_NOSYSTEM=1",
		"GIT_CONFIG_GLOBAL=/dev/null", "GIT_PAGER_IN_USE=1"}, identity, env)
	return cmd
}

// terminal returns a terminal, which git requires before it starts a pager.
func terminal(t *testing.T) *os.File {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { master.Close() })
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { slave.Close() })
	return slave
}

func plain(t *testing.T, dir string, env []string, args ...string) string {
	t.Helper()
	out, err := ordinary(dir, env, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v: %s", args, err, out)
	}
	return string(bytes.TrimSpace(out))
}

func write(t *testing.T, path, content string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
}
