package cli

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
)

// newOptions are the flags of "cove new" as they were written.
type newOptions struct {
	options // those that "cove run" has, too

	name, agent          string
	copies               []string
	bind                 string
	sparse               []string
	depth                int
	worktree, empty, ssh bool
	uncommitted          bool
	ide                  string
	noAttach             bool
	saveAs, preset       string
	last                 bool

	source, branch, from string // REPO [BRANCH] [FROM]
}

func (a *app) newCommand() *cobra.Command {
	var o newOptions
	c := &cobra.Command{
		Use:   "new [REPO [BRANCH [FROM]]]",
		Short: "Make a sandbox to work in, with a checkout of a repository",
		Long: `Make a sandbox that lasts, with a checkout of a repository at /workspace, on a
branch of its own. REPO is OWNER/REPO of GitHub, an HTTPS address, or a directory
of this machine, such as "."; BRANCH is made up when it is left out, and FROM is
where it begins: the default branch, or BRANCH where the repository has it.
Without arguments, at a terminal, it asks.

The sandbox has a repository of its own, which borrows objects from Cove's store
("cove repo list"): nothing in it reaches the repository it was made from, other
sandboxes, or this machine. There is no credential in it. What it may reach, and
what it may push, is in its policy; without --network, --allow, --policy or
--model-provider it reaches the remote of its repository, and nothing else.

At a terminal it attaches to the sandbox when it is ready (--no-attach does not).
Else it prints the sandbox's name. "cove diff", "cove apply" and "git fetch
cove::NAME" bring the work back.`,
		Example: `  cove new owner/repo
  cove new . fix-login main --no-attach
  cove new https://git.example/owner/repo.git --allow git.example --memory 4G
  cove new owner/big --sparse docs --sparse src/api --depth 1
  cove new . --save-as careful --network limited --cpus 2
  cove new ../other --preset careful
  cove new --empty --copy notes.md:notes.md`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 3 {
				return usageError(cmd, "%q is one argument too many", args[3])
			}
			for i, to := range []*string{&o.source, &o.branch, &o.from} {
				if i < len(args) {
					*to = args[i]
				}
			}
			switch {
			case (o.empty || o.bind != "") && len(args) > 0:
				return usageError(cmd, "--empty and --bind are without a repository, and %q names one", args[0])
			case o.preset != "" && o.last:
				return usageError(cmd, "--preset and --last exclude each other")
			case o.json && o.ide != "":
				return usageError(cmd, "--json and --ide exclude each other")
			}
			return nil
		},
		ValidArgsFunction: a.completeRepository,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.given = cmd.Flags().Changed
			return a.create(cmd, &o)
		},
	}
	o.add(c.Flags())
	a.addProfile(c, &o.profile)
	c.RegisterFlagCompletionFunc("preset", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		names, _ := a.presetNames() // whoever completes cannot be told
		return names, cobra.ShellCompDirectiveNoFileComp
	})
	return c
}

func (o *newOptions) add(f *pflag.FlagSet) {
	f.StringVar(&o.name, "name", "", "`NAME` of the sandbox (default: made up)")
	f.BoolVar(&o.empty, "empty", false, "no repository: an empty workspace")
	f.StringVar(&o.bind, "bind", "", "no repository: `DIR` itself is the workspace, and what is done in it is done")
	f.StringVar(&o.agent, "agent", "", "`AGENT` of its terminal, or a program of the image, instead of a shell")
	o.addSandbox(f)
	f.StringArrayVar(&o.copies, "copy", nil, "copy the file or directory `SOURCE[:TARGET]` into the workspace (repeatable)")
	f.StringVar(&o.workDir, "wd", "", "`DIR` in which its programs begin, relative to the workspace or absolute")
	f.StringArrayVar(&o.sparse, "sparse", nil, "check out `DIR` only (repeatable)")
	f.IntVar(&o.depth, "depth", 0, "fetch `COUNT` commits of history only")
	f.BoolVar(&o.uncommitted, "uncommitted", false, "begin at what is in the directory now, committed or not; it need not be a repository")
	f.BoolVar(&o.worktree, "worktree", false, "a worktree to edit from this machine: .git is not inside, where git is a service")
	f.BoolVar(&o.ssh, "with-ssh", false, "let this shell's SSH agent sign for the sandbox, which sees no key")
	f.StringVar(&o.ide, "ide", "", "open the checkout with `PROGRAM` of this machine, such as code, zed, idea or vim")
	f.BoolVar(&o.noAttach, "no-attach", false, "do not attach to it")
	f.StringVar(&o.preset, "preset", "", "flags of the preset `NAME`; those that are written here win")
	f.StringVar(&o.saveAs, "save-as", "", "keep these flags as the preset `NAME`")
	f.BoolVar(&o.last, "last", false, "flags, and without REPO the repository, of the last \"cove new\"")
	f.BoolVar(&o.json, "json", false, "print one JSON object; do not attach")
	f.SortFlags = false
}

// addSandbox adds the flags that say what a sandbox is made of, whatever it is
// for.
func (o *newOptions) addSandbox(f *pflag.FlagSet) {
	f.StringVar(&o.image, "image", "", "root filesystem `IMAGE`: host, dir:PATH, tar:PATH, or a reference")
	f.StringVar(&o.engine, "engine", "", "`ENGINE` that has lasting sandboxes, or auto")
	o.policy.add(f)
	f.StringArrayVar(&o.credentials, "credential", nil, "set the credential `NAME` on its requests, outside the sandbox (repeatable)")
	o.models.add(f)
	f.StringArrayVar(&o.mounts, "mount", nil, "attach `SOURCE:TARGET[:ro]` (repeatable)")
	f.StringArrayVar(&o.env, "env", nil, "set `NAME=VALUE` inside, or NAME to this shell's value (repeatable)")
	f.StringVar(&o.memory, "memory", "", "memory `SIZE`, writable files included, like 4G")
	f.Float64Var(&o.cpus, "cpus", 0, "`CORES`, like 0.5")
	f.Int64Var(&o.pids, "pids", 0, "`COUNT` of processes and threads")
	f.StringVar(&o.disk, "disk", "", "`SIZE` of everything writable beside the workspace, like 1G")
}

func (a *app) create(cmd *cobra.Command, o *newOptions) error {
	if err := a.applyPreset(cmd, o); err != nil {
		return err
	}
	if o.source == "" && !o.empty && o.bind == "" {
		if o.json || !isTerminal(a.In) || !isTerminal(a.Err) {
			return usageError(cmd, "REPO is missing: OWNER/REPO, an address, or a directory; --empty is without one")
		}
		if err := a.askNew(cmd.Context(), o); err != nil {
			return err
		}
	}
	req, err := a.sandboxRequest(o)
	if err != nil {
		return err
	}
	req.Profile, err = a.resolveProfile(o.profile)
	if err != nil {
		return err
	}
	if o.saveAs != "" {
		if err := a.savePreset(cmd, o, o.saveAs); err != nil {
			return err
		}
	}
	if err := a.trustIDE(o.ide); err != nil {
		return err
	}
	s, err := a.createSandbox(cmd.Context(), req)
	if err != nil {
		if o.json && cove.ErrorCode(err) != cove.Canceled {
			a.printJSON(api.Error{Error: err.Error(), Code: string(cove.ErrorCode(err)), Hint: cove.ErrorHint(err)})
		}
		return err
	}
	if err := a.saveLast(cmd, o); err != nil {
		a.say.fail(err) // the sandbox is there
	}
	if o.json {
		return a.printJSON(s)
	}
	a.sayReady(s)
	attach := !o.noAttach && o.ide == "" && isTerminal(a.In) && isTerminal(a.Out)
	if !attach {
		if err := a.print(s.Name + "\n"); err != nil {
			return err
		}
	}
	if o.ide != "" {
		return a.openIDE(o.ide, s.Directory)
	}
	if attach {
		return a.attachTerminal(cmd, pick{name: s.ID}, defaultDetachKeys, client.TerminalOptions{})
	}
	return nil
}

// createSandbox asks for a sandbox and shows its steps. A signal takes back
// what was made.
func (a *app) createSandbox(ctx context.Context, req api.SandboxRequest) (api.Sandbox, error) {
	interrupts := watchSignals(a.Out, a.Err)
	defer interrupts.stop()
	ctx, cancel := interrupts.cover(ctx)
	defer cancel()
	b, err := a.lasting(ctx)
	if err != nil {
		return api.Sandbox{}, interrupts.explain(err)
	}
	defer b.close()
	shown := a.newSteps()
	s, err := b.client.CreateSandbox(ctx, req, shown.take)
	if err != nil {
		shown.fail()
		if interrupts.first() != 0 {
			a.say.line("what was made of the sandbox is taken back")
		}
		return s, interrupts.explain(err)
	}
	shown.finish()
	a.sayExposed(s.Exposes)
	return s, nil
}

// sayReady says what there is now, and what to do with it.
func (a *app) sayReady(s api.Sandbox) {
	a.say.line("the sandbox %s is ready", s.Name)
	rows := [][2]string{}
	if r := s.Repository; r != nil {
		rows = append(rows, [2]string{"branch", r.Branch + ", from " + cmp.Or(r.From, shortID(r.Base))})
	}
	rows = append(rows, [2]string{"network", s.Network}, [2]string{"attach", a.command("attach", s.Name)})
	if r := s.Repository; r != nil {
		if r.Worktree {
			rows = append(rows, [2]string{"edit", s.Directory})
		}
		rows = append(rows, [2]string{"review", a.command("diff", s.Name) + ", or: git fetch cove::" + s.Name}, [2]string{"bring back", a.command("apply", s.Name)})
		if branchOutside(r) {
			rows[len(rows)-1][1] += ", or in " + r.Source + ": git merge " + r.Branch
		}
	}
	rows = append(rows, [2]string{"end", a.command("stop", s.Name) + ", " + a.command("destroy", s.Name)})
	a.sayFacts(rows)
}

// sayExposed says that there are real tokens in a sandbox. It is always said.
func (a *app) sayExposed(variables []string) {
	if len(variables) > 0 {
		a.say.line("the real token of %s is in the sandbox, because its profile says so: whatever runs there can read it, and send it wherever its network leads", strings.Join(variables, " and "))
	}
}

// sayFacts says names and values below a line that was said.
func (a *app) sayFacts(rows [][2]string) {
	for line := range strings.Lines(facts(rows)) {
		fmt.Fprint(a.Err, "      "+line)
	}
}

// sandboxRequest builds what is sent.
func (a *app) sandboxRequest(o *newOptions) (api.SandboxRequest, error) {
	req := api.SandboxRequest{Name: o.name, Spec: api.Spec{Engine: o.engine}, Agent: o.agent, WorkDir: o.workDir, AllowPR: o.policy.allowPR}
	var err error
	if req.Repository, err = o.repository(); err != nil {
		return req, err
	}
	if o.bind != "" {
		if req.Bind, err = filepath.Abs(o.bind); err != nil {
			return req, cove.Errorf(cove.InvalidArgument, "--bind %s: %w", o.bind, err)
		}
	}
	if req.Image, err = absoluteImage(o.image); err != nil {
		return req, err
	}
	if req.Limits, _, err = o.limits(); err != nil {
		return req, err
	}
	if req.Env, err = environment(o.env, a.getenv); err != nil {
		return req, err
	}
	for name, value := range req.Env {
		if err := checkText("the variable "+name, name+value); err != nil {
			return req, err
		}
	}
	for _, m := range o.mounts {
		mount, err := parseMount(m)
		if err != nil {
			return req, err
		}
		req.Mounts = append(req.Mounts, mount)
	}
	if req.Files, err = readCopies(o.copies); err != nil {
		return req, err
	}
	permissions, err := o.permissions()
	switch {
	case err != nil:
		return req, err
	case permissions != nil:
		req.Network = permissions.Network
	case o.policy.network != "": // none, which wins over a profile's
		req.Network = &api.NetworkPermission{}
	}
	if o.ssh {
		if req.SSHAgent = a.getenv("SSH_AUTH_SOCK"); req.SSHAgent == "" {
			return req, cove.Errorf(cove.InvalidArgument, "--with-ssh: this shell has no SSH agent").WithHint("start one: eval $(ssh-agent) && ssh-add")
		}
	}
	if req.Repository != nil {
		req.Git = a.gitIdentity()
	}
	return req, nil
}

// repository is nil for a sandbox without one.
func (o *newOptions) repository() (*api.RepositoryRequest, error) {
	if o.given("depth") && o.depth < 1 {
		return nil, cove.Errorf(cove.InvalidArgument, "--depth %d: it must be at least 1", o.depth).WithHint("leave the flag out for all of the history")
	}
	if o.empty || o.bind != "" {
		if o.worktree || o.uncommitted || len(o.sparse) > 0 || o.given("depth") {
			return nil, cove.Errorf(cove.InvalidArgument, "--worktree, --uncommitted, --sparse and --depth are about a repository, and --empty and --bind are without one").WithHint("leave one of them out")
		}
		return nil, nil
	}
	source, err := repositorySource(o.source, o.uncommitted)
	if err != nil {
		return nil, err
	}
	return &api.RepositoryRequest{Uncommitted: o.uncommitted, Source: source, Branch: o.branch, From: o.from, Sparse: o.sparse, Depth: o.depth, Worktree: o.worktree}, nil
}

// ownerRepo is a repository of GitHub; a directory is written with a dot or a
// slash at its beginning.
var ownerRepo = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9-]*/[A-Za-z0-9_][A-Za-z0-9._-]*$`)

// repositorySource is REPO for a server, which knows no current directory:
// OWNER/REPO and addresses as they are, of a directory the top of the
// repository that it is in. With plain, a directory that is in none is one, too.
func repositorySource(s string, plain bool) (string, error) {
	switch {
	case strings.Contains(s, "://") || ownerRepo.MatchString(s):
		return s, nil
	case !strings.HasPrefix(s, "/") && !strings.HasPrefix(s, ".") && scpAddress.MatchString(s):
		return s, nil
	}
	info, err := os.Stat(s)
	if err != nil || !info.IsDir() {
		return "", cove.Errorf(cove.InvalidArgument, "%.200q is neither OWNER/REPO, an address, nor a directory", s).
			WithHint("for example owner/repo, https://git.example/owner/repo.git, or .")
	}
	dir, err := realDirectory(s)
	if err != nil {
		return "", err
	}
	if top := repositoryTop(dir); top != "" || plain {
		return cmp.Or(top, dir), nil
	}
	return "", cove.Errorf(cove.InvalidArgument, "%s is not in a git repository", s).WithHint("copy it as it is: cove new %s --uncommitted; or attach it: cove new --empty --mount %s:/data", s, s)
}

// scpAddress is USER@HOST:PATH, as ssh writes it.
var scpAddress = regexp.MustCompile(`^([A-Za-z0-9._-]+@)?[A-Za-z0-9.-]+:[^:]+$`)

// repositoryTop is the directory at or above dir that is a git repository, or
// nothing. No git is asked: it would read the repository's configuration.
func repositoryTop(dir string) string {
	for {
		if exists(filepath.Join(dir, ".git")) || exists(filepath.Join(dir, "HEAD")) && exists(filepath.Join(dir, "objects")) && exists(filepath.Join(dir, "refs")) {
			return dir
		}
		up := filepath.Dir(dir)
		if up == dir {
			return ""
		}
		dir = up
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// gitIdentity is whose commits are made, as git on this machine would say it.
func (a *app) gitIdentity() *api.GitIdentity {
	id := api.GitIdentity{
		Name:  cmp.Or(a.getenv("GIT_AUTHOR_NAME"), globalGitConfig("user.name")),
		Email: cmp.Or(a.getenv("GIT_AUTHOR_EMAIL"), globalGitConfig("user.email"), a.getenv("EMAIL")),
	}
	if id == (api.GitIdentity{}) || checkText("", id.Name+id.Email) != nil {
		return nil
	}
	return &id
}

// globalGitConfig reads the user's own configuration, and not that of a
// repository. Without git, or without the key, it is empty.
func globalGitConfig(key string) string {
	c := exec.Command("git", "config", "--global", "--get", key)
	c.Dir = "/"
	out, err := c.Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// maxCopies is how many files the API takes.
const maxCopies = 256

// readCopies reads what is placed in the workspace: SOURCE[:TARGET], where
// TARGET is relative to it and a directory is copied with all that is in it.
func readCopies(copies []string) ([]api.File, error) {
	var files []api.File
	total := 0
	add := func(source, target string) error {
		data, mode, err := readFile(source, maxFiles-total)
		if err != nil {
			return err
		}
		if len(files) == maxCopies {
			return cove.Errorf(cove.TooLarge, "--copy: more than %d files", maxCopies).WithHint("attach the directory with --mount")
		}
		total += len(data)
		files = append(files, fileOf(target, data, mode))
		return nil
	}
	for _, c := range copies {
		source, target, ok := strings.Cut(c, ":")
		if !ok || target == "" {
			target = filepath.Base(filepath.Clean(source))
		}
		if strings.HasSuffix(target, "/") {
			target += filepath.Base(filepath.Clean(source))
		}
		target = path.Clean(filepath.ToSlash(target))
		if source == "" || !filepath.IsLocal(target) || slices.Contains(strings.Split(target, "/"), ".git") {
			return nil, cove.Errorf(cove.InvalidArgument, "--copy %s is not SOURCE[:TARGET] with a TARGET in the workspace", c).WithHint("for example --copy notes.md:docs/notes.md")
		}
		err := filepath.WalkDir(source, func(p string, d fs.DirEntry, err error) error {
			if err != nil {
				return fileError(p, err)
			}
			rel, err := filepath.Rel(source, p)
			if err != nil {
				return fileError(p, err)
			}
			switch {
			case d.IsDir() && d.Name() == ".git" && p != source:
				return filepath.SkipDir
			case d.IsDir():
				return nil
			case !d.Type().IsRegular() && p != source:
				return cove.Errorf(cove.InvalidArgument, "--copy %s: %s is no regular file", c, p).WithHint("attach the directory with --mount")
			}
			return add(p, path.Join(target, filepath.ToSlash(rel)))
		})
		if err != nil {
			return nil, err
		}
	}
	return files, nil
}

// completeRepository completes REPO with directories, and the repositories of
// sandboxes that are there.
func (a *app) completeRepository(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return nil, cobra.ShellCompDirectiveFilterDirs
}
