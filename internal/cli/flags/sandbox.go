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
)

// NewSandbox are the flags that say what a sandbox must be that is made for a person or an agent.
type NewSandbox struct {
	Spec

	Name, Agent          string
	IfExists             string
	Copies               []string
	Bind                 string
	Sparse               []string
	Depth                int
	Worktree, Empty, SSH bool
	Uncommitted          bool
	Ignored              []string
	AgentConfig          string // what of the user's own configuration of the agent is brought
	Source, Branch, From string // REPO [BRANCH [FROM]]
	Services             Services
	Volumes              Volumes
}

// AddSandbox adds the flags that say what a sandbox is made of, whatever it is for.
func (o *NewSandbox) AddSandbox(f *pflag.FlagSet) {
	o.AddMake(f, "`ENGINE` that supports long-lived sandboxes, or auto")
	o.AddMounts(f)
	f.StringArrayVar(&o.Env, "env", nil, "set `NAME=VALUE` inside, or NAME to this shell's value (repeatable)")
	f.StringVar(&o.AgentConfig, "agent-config", "",
		"bring your own configuration of the agent, without keys: all, none, or `KINDS` like skills,mcp")
	f.Lookup("agent-config").NoOptDefVal = "all"
	o.AddLimits(f)
	f.StringVar(&o.Disk, "disk", "", "`SIZE` of workspace and home together, and of everything else writable, like 8G")
}

// AddLimits defines the flags for the limits that any container has.
func (o *Spec) AddLimits(f *pflag.FlagSet) {
	f.StringVar(&o.Memory, "memory", "", "memory `SIZE`, writable files included, like 4G")
	f.Float64Var(&o.CPUs, "cpus", 0, "`CORES`, like 0.5")
	f.Int64Var(&o.PIDs, "pids", 0, "`COUNT` of processes and threads")
}

// Request builds what is sent.
func (o *NewSandbox) Request(getenv func(string) string) (api.SandboxRequest, error) {
	req := api.SandboxRequest{Name: o.Name, IfExists: o.IfExists, Agent: o.Agent, WorkDir: o.WorkDir,
		AllowPR: o.Policy.allowPR}
	var err error
	switch o.IfExists {
	case "", api.IfExistsError:
	case api.IfExistsReturn:
		if o.Name == "" {
			return req, cove.Errorf(cove.InvalidArgument, "--if-exists return is about a sandbox of a name").
				WithHint("add --name NAME")
		}
	default:
		return req, cove.Errorf(cove.InvalidArgument, "--if-exists %.80q is neither error nor return", o.IfExists).
			WithHint("use return for the sandbox that exists")
	}
	if req.Repository, err = o.repository(); err != nil {
		return req, err
	}
	if o.Bind != "" {
		if req.Bind, err = filepath.Abs(o.Bind); err != nil {
			return req, cove.Errorf(cove.InvalidArgument, "--bind %s: %w", o.Bind, err)
		}
	}
	o.forAgent = o.Agent != ""
	made, err := o.Resolve(getenv)
	if err != nil {
		return req, err
	}
	req.Spec, req.Network = made.Spec, made.Network
	if req.Services, err = o.Services.Request(getenv); err != nil {
		return req, err
	}
	if req.Volumes, err = o.Volumes.Request(); err != nil {
		return req, err
	}
	if req.Files, err = readCopies(o.Copies); err != nil {
		return req, err
	}
	if o.SSH {
		if req.SSHAgent = getenv("SSH_AUTH_SOCK"); req.SSHAgent == "" {
			return req, cove.Errorf(cove.InvalidArgument, "--with-ssh: this shell has no SSH agent").
				WithHint("start one: eval $(ssh-agent) && ssh-add")
		}
	}
	if req.Repository != nil {
		req.Git = GitIdentity(getenv, directoryOf(req.Repository))
	}
	return req, nil
}

// directoryOf is the directory of this machine that a repository is in, or empty.
func directoryOf(r *api.RepositoryRequest) string {
	if filepath.IsAbs(r.Source) {
		return r.Source
	}
	return ""
}

// AddIgnored adds the flag for ignored files of a directory.
func AddIgnored(f *pflag.FlagSet, to *[]string) {
	f.StringArrayVar(to, "with-ignored", nil,
		"copy `PATH` too, which git ignores in the directory, such as node_modules or .venv (repeatable)")
}

// repository is nil for a sandbox without one.
func (o *NewSandbox) repository() (*api.RepositoryRequest, error) {
	if o.Given("depth") && o.Depth < 1 {
		return nil, cove.Errorf(cove.InvalidArgument, "--depth %d: it must be at least 1", o.Depth).
			WithHint("leave the flag out for all of the history")
	}
	if o.Empty || o.Bind != "" {
		if o.Worktree || o.Uncommitted || len(o.Sparse)+len(o.Ignored) > 0 || o.Given("depth") {
			return nil, cove.Errorf(cove.InvalidArgument, "--worktree, --uncommitted, --with-ignored, --sparse and --depth are "+
				"about a repository, and --empty and --bind are without one").
				WithHint("leave one of them out")
		}
		return nil, nil
	}
	source, err := RepositorySource(o.Source, o.Uncommitted)
	if err != nil {
		return nil, err
	}
	return &api.RepositoryRequest{
		Source:      source,
		Branch:      o.Branch,
		From:        o.From,
		Sparse:      o.Sparse,
		Depth:       o.Depth,
		Uncommitted: o.Uncommitted,
		Ignored:     o.Ignored,
		Worktree:    o.Worktree,
	}, nil
}

// maxCopies is how many files the API takes.
const maxCopies = 256

// readCopies reads what is placed in the workspace: SOURCE[:TARGET], where
// TARGET is relative to it and a directory is copied with all that is in it.
func readCopies(copies []string) ([]api.File, error) {
	var files []api.File
	total := 0
	add := func(source, target string) error {
		data, mode, err := ReadFile(source, MaxFiles-total)
		if err != nil {
			return err
		}
		if len(files) == maxCopies {
			return cove.Errorf(cove.TooLarge, "--copy: more than %d files", maxCopies).
				WithHint("attach the directory with --mount")
		}
		total += len(data)
		files = append(files, File(target, data, mode))
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
			return nil, cove.Errorf(cove.InvalidArgument, "--copy %s is not SOURCE[:TARGET] with a TARGET in the workspace", c).
				WithHint("for example --copy notes.md:docs/notes.md")
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
				return cove.Errorf(cove.InvalidArgument, "--copy %s: %s is no regular file", c, p).
					WithHint("attach the directory with --mount")
			}
			return add(p, path.Join(target, filepath.ToSlash(rel)))
		})
		if err != nil {
			return nil, err
		}
	}
	return files, nil
}
