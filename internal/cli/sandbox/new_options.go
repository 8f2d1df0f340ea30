package sandbox

import (
	"github.com/spf13/pflag"

	"github.com/cove-sandbox/cove/internal/cli/flags"
)

// newOptions are the flags of "cove new" as they were written.
type newOptions struct {
	flags.NewSandbox

	ide            string
	noAttach       bool
	saveAs, preset string
	last           bool
	json           bool
}

func (o *newOptions) add(f *pflag.FlagSet) {
	f.StringVar(&o.Name, "name", "", "`NAME` of the sandbox (default: made up)")
	f.BoolVar(&o.Empty, "empty", false, "no repository: an empty workspace")
	f.StringVar(&o.Bind, "bind", "", "no repository: `DIR` itself is the workspace, and what is done in it is done")
	f.StringVar(&o.Agent, "agent", "", "`AGENT` of its terminal, or a program of the image, instead of a shell")
	o.AddSandbox(f)
	f.StringArrayVar(&o.Copies, "copy", nil,
		"copy the file or directory `SOURCE[:TARGET]` into the workspace (repeatable)")
	f.StringVar(&o.WorkDir, "wd", "", "`DIR` in which its programs begin, relative to the workspace or absolute")
	f.StringArrayVar(&o.Sparse, "sparse", nil, "check out `DIR` only (repeatable)")
	f.IntVar(&o.Depth, "depth", 0, "fetch `COUNT` commits of history only")
	f.BoolVar(&o.Uncommitted, "uncommitted", false,
		"begin at what is in the directory now, committed or not; it need not be a repository")
	f.BoolVar(&o.Worktree, "worktree", false,
		"check out a git worktree to edit from this machine; inside, git uses a service instead of .git")
	f.BoolVar(&o.SSH, "with-ssh", false, "let this shell's SSH agent sign for the sandbox, which sees no key")
	f.StringVar(&o.ide, "ide", "", "open the checkout with `PROGRAM` of this machine, such as code, zed, idea or vim")
	f.BoolVar(&o.noAttach, "no-attach", false, "do not attach to it")
	f.StringVar(&o.preset, "preset", "", "flags of the preset `NAME`; those that are written here win")
	f.StringVar(&o.saveAs, "save-as", "", "keep these flags as the preset `NAME`")
	f.BoolVar(&o.last, "last", false, "flags, and without REPO the repository, of the last \"cove new\"")
	f.BoolVar(&o.json, "json", false, "print one JSON object; do not attach")
	f.SortFlags = false
}
