package sandbox

import (
	"path"
	"strings"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine/provision"
	"github.com/cove-sandbox/cove/internal/pattern"
	"github.com/cove-sandbox/cove/internal/rootfs"
	"github.com/cove-sandbox/cove/internal/runtime"
	"github.com/cove-sandbox/cove/internal/workspace"
)

// Request describes a new long-lived sandbox.
type Request struct {
	Name string // made up when empty
	// Ensure asks for the caller's sandbox of this name: the existing one, made to run, or else a new one; see ensure.
	Ensure bool
	// Spec describes the sandbox. Host paths in it have been checked; WorkDir is relative to the workspace; without a
	// network the sandbox reaches only the hosts that its repository needs.
	cove.Spec
	Repository *workspace.Repository
	Files      []provision.File // below the workspace
	Home       []provision.File // below the home
	Trial      Trial            `json:"-"` // of its agent in the image
	Tasks      bool             `json:"-"` // its agent is given tasks, and need have no screen
	// Shared asks for a checkout of its own in a sandbox that others of the same
	// request work in, too, which is made where there is none; see share.
	Shared bool
	// Services are its neighbours, which run before it does.
	Services []cove.Service `json:",omitempty"`
	// SharedName is the name of the shared sandbox; it is made up when empty. Requests with different ones share none.
	SharedName string `json:",omitempty"` // requests without one keep their key
}

// Trial is a program that has to run in the image of a sandbox.
type Trial struct {
	Title string   // of the agent
	Needs []string // programs that it cannot do without
	Args  []string // print its version; nil tries nothing
}

// defaults are the least specific layer of a sandbox's spec.
var defaults = cove.Spec{Shape: cove.Shape{User: cove.AgentUser, Lifetime: cove.LifetimeDetached,
	Limits: runtime.Lasting}}

// agentFiles is the most files that Cove adds to a home for an agent.
const agentFiles = 64

var sandboxName = pattern.New(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// CheckName refuses a text that cannot name a sandbox.
func CheckName(name string) error {
	if !sandboxName.MatchString(name) || strings.HasPrefix(name, "sb-") {
		return cove.Errorf(cove.InvalidArgument, "%.80q is not a name for a sandbox", name).
			WithHint("use small letters, digits and hyphens within, at most 63")
	}
	return nil
}

// check refuses a malformed request.
func (q *Request) check() error {
	if q.Name != "" {
		if err := CheckName(q.Name); err != nil {
			return err
		}
	} else if q.Ensure {
		return cove.Errorf(cove.InvalidArgument, "a sandbox that may exist already needs a name").WithHint("give its name")
	}
	if q.SharedName != "" {
		if err := CheckName(q.SharedName); err != nil {
			return err
		}
	}
	if strings.IndexByte(q.WorkDir, 0) >= 0 || len(q.WorkDir) > 1024 {
		return cove.Errorf(cove.InvalidArgument, "%.100q is not a directory", q.WorkDir)
	}
	if err := provision.CheckFiles(q.Files, provision.MaxFiles); err != nil {
		return err
	}
	if err := provision.CheckFiles(q.Home, provision.MaxHomeFiles+agentFiles); err != nil {
		return err
	}
	for _, mount := range q.Mounts {
		if err := rootfs.ValidateTarget(mount.Target); err != nil {
			return err
		}
		for _, own := range []string{cove.Workspace, cove.Home} {
			if target := path.Clean(mount.Target); target == own || strings.HasPrefix(own, target+"/") {
				return cove.Errorf(cove.InvalidArgument, "a mount at %q is not possible: it would hide %s", mount.Target, own).
					WithHint("mount below %s, or at a directory of your own such as /data", own)
			}
		}
	}
	if err := checkVolumes(q.Volumes, q.Mounts); err != nil {
		return err
	}
	if err := cove.CheckLabels(q.Labels); err != nil {
		return err
	}
	if q.Git != nil && strings.ContainsFunc(q.Git.Name+q.Git.Email, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return cove.Errorf(cove.InvalidArgument, "the name or address for commits has control characters")
	}
	if err := cove.CheckServices(q.Services); err != nil {
		return err
	}
	for _, s := range q.Services {
		if err := checkCommand(s.Args, s.Env); err != nil {
			return err
		}
		if err := checkVolumes(s.Volumes, nil); err != nil {
			return err
		}
	}
	return runtime.CheckEnv(q.Env)
}
