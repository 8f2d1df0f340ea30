package flags

import (
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/cli/session"
)

// NewSandbox are the flags of "cove new" as they were written.
type NewSandbox struct {
	Spec // those that "cove run" has, too

	name, Agent          string
	copies               []string
	Bind                 string
	sparse               []string
	depth                int
	worktree, Empty, SSH bool
	Uncommitted          bool
	IDE                  string
	NoAttach             bool
	SaveAs, Preset       string
	Last                 bool

	Source, Branch, From string // REPO [BRANCH] [FROM]
}

func (o *NewSandbox) Add(f *pflag.FlagSet) {
	f.StringVar(&o.name, "name", "", "`NAME` of the sandbox (default: made up)")
	f.BoolVar(&o.Empty, "empty", false, "no repository: an empty workspace")
	f.StringVar(&o.Bind, "bind", "", "no repository: `DIR` itself is the workspace, and what is done in it is done")
	f.StringVar(&o.Agent, "agent", "", "`AGENT` of its terminal, or a program of the image, instead of a shell")
	o.AddSandbox(f)
	f.StringArrayVar(&o.copies, "copy", nil, "copy the file or directory `SOURCE[:TARGET]` into the workspace (repeatable)")
	f.StringVar(&o.WorkDir, "wd", "", "`DIR` in which its programs begin, relative to the workspace or absolute")
	f.StringArrayVar(&o.sparse, "sparse", nil, "check out `DIR` only (repeatable)")
	f.IntVar(&o.depth, "depth", 0, "fetch `COUNT` commits of history only")
	f.BoolVar(&o.Uncommitted, "uncommitted", false, "begin at what is in the directory now, committed or not; it need not be a repository")
	f.BoolVar(&o.worktree, "worktree", false, "a worktree to edit from this machine: .git is not inside, where git is a service")
	f.BoolVar(&o.SSH, "with-ssh", false, "let this shell's SSH agent sign for the sandbox, which sees no key")
	f.StringVar(&o.IDE, "ide", "", "open the checkout with `PROGRAM` of this machine, such as code, zed, idea or vim")
	f.BoolVar(&o.NoAttach, "no-attach", false, "do not attach to it")
	f.StringVar(&o.Preset, "preset", "", "flags of the preset `NAME`; those that are written here win")
	f.StringVar(&o.SaveAs, "save-as", "", "keep these flags as the preset `NAME`")
	f.BoolVar(&o.Last, "last", false, "flags, and without REPO the repository, of the last \"cove new\"")
	f.BoolVar(&o.JSON, "json", false, "print one JSON object; do not attach")
	f.SortFlags = false
}

// AddSandbox adds the flags that say what a sandbox is made of, whatever it is
// for.
func (o *NewSandbox) AddSandbox(f *pflag.FlagSet) {
	f.StringVar(&o.Image, "image", "", "root filesystem `IMAGE`: host, dir:PATH, tar:PATH, or a reference")
	f.StringVar(&o.Engine, "engine", "", "`ENGINE` that has lasting sandboxes, or auto")
	o.Policy.Add(f)
	f.StringArrayVar(&o.Credentials, "credential", nil, "set the credential `NAME` on its requests, outside the sandbox (repeatable)")
	o.Models.Add(f)
	f.StringArrayVar(&o.Mounts, "mount", nil, "attach `SOURCE:TARGET[:ro]` (repeatable)")
	f.StringArrayVar(&o.Env, "env", nil, "set `NAME=VALUE` inside, or NAME to this shell's value (repeatable)")
	f.StringVar(&o.Memory, "memory", "", "memory `SIZE`, writable files included, like 4G")
	f.Float64Var(&o.CPUs, "cpus", 0, "`CORES`, like 0.5")
	f.Int64Var(&o.PIDs, "pids", 0, "`COUNT` of processes and threads")
	f.StringVar(&o.Disk, "disk", "", "`SIZE` of everything writable beside the workspace, like 1G")
}

// SandboxRequest builds what is sent.
func SandboxRequest(sess *session.Session, o *NewSandbox) (api.SandboxRequest, error) {
	req := api.SandboxRequest{Name: o.name, Engine: o.Engine, Agent: o.Agent, WorkDir: o.WorkDir, AllowPR: o.Policy.allowPR}
	var err error
	if req.Repository, err = o.repository(); err != nil {
		return req, err
	}
	if o.Bind != "" {
		if req.Bind, err = filepath.Abs(o.Bind); err != nil {
			return req, cove.Errorf(cove.InvalidArgument, "--bind %s: %w", o.Bind, err)
		}
	}
	if req.Image, err = AbsoluteImage(o.Image); err != nil {
		return req, err
	}
	if req.Limits, _, err = o.Limits(); err != nil {
		return req, err
	}
	if req.Env, err = Environment(o.Env, sess.Getenv); err != nil {
		return req, err
	}
	for name, value := range req.Env {
		if err := CheckText("the variable "+name, name+value); err != nil {
			return req, err
		}
	}
	for _, m := range o.Mounts {
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
	case o.Policy.Network != "": // none, which wins over a profile's
		req.Network = &api.NetworkPermission{}
	}
	if o.SSH {
		if req.SSHAgent = sess.Getenv("SSH_AUTH_SOCK"); req.SSHAgent == "" {
			return req, cove.Errorf(cove.InvalidArgument, "--with-ssh: this shell has no SSH agent").WithHint("start one: eval $(ssh-agent) && ssh-add")
		}
	}
	if req.Repository != nil {
		req.Git = GitIdentity(sess)
	}
	return req, nil
}

// repository is nil for a sandbox without one.
func (o *NewSandbox) repository() (*api.RepositoryRequest, error) {
	if o.Given("depth") && o.depth < 1 {
		return nil, cove.Errorf(cove.InvalidArgument, "--depth %d: it must be at least 1", o.depth).WithHint("leave the flag out for all of the history")
	}
	if o.Empty || o.Bind != "" {
		if o.worktree || o.Uncommitted || len(o.sparse) > 0 || o.Given("depth") {
			return nil, cove.Errorf(cove.InvalidArgument, "--worktree, --uncommitted, --sparse and --depth are about a repository, and --empty and --bind are without one").WithHint("leave one of them out")
		}
		return nil, nil
	}
	source, err := RepositorySource(o.Source, o.Uncommitted)
	if err != nil {
		return nil, err
	}
	return &api.RepositoryRequest{Uncommitted: o.Uncommitted, Source: source, Branch: o.Branch, From: o.From, Sparse: o.sparse, Depth: o.depth, Worktree: o.worktree}, nil
}

// maxCopies is how many files the API takes.
const maxCopies = 256

// readCopies reads what is placed in the workspace: SOURCE[:TARGET], where
// TARGET is relative to it and a directory is copied with all that is in it.
func readCopies(copies []string) ([]api.File, error) {
	var files []api.File
	total := 0
	add := func(source, target string) error {
		data, mode, err := ReadFile(source, maxFiles-total)
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
