package execution

import (
	"errors"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine/provision"
	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/rootfs"
)

// outputCapFactor: a program that writes this many times what is kept is
// ended, since it would go on until its time is up.
const outputCapFactor = 16

// files returns the code and what comes beside it.
func (e *execution) files() []provision.File {
	return append([]provision.File{{Path: e.runtime.File, Mode: codeMode, Data: e.request.Code}}, e.request.Files...)
}

const codeMode = 0o644

func (e *execution) codePath() string { return cove.WorkDir + "/" + e.runtime.File }

// program returns the process to start. The code is a file, never part of a command line.
func (e *execution) program() guest.ProcessSpec {
	args := make([]string, 0, len(e.runtime.Command)+len(e.request.Args))
	for _, a := range e.runtime.Command {
		if a == e.runtime.File {
			a = e.codePath()
		}
		args = append(args, a)
	}
	dir := cove.WorkDir
	if e.request.Bind != "" {
		dir = cove.Workspace
	}
	return guest.ProcessSpec{
		Args: append(args, e.request.Args...), Env: e.environment(), Dir: dir, Stdin: e.request.Stdin != nil, Alone: true,
		StdoutLimit: e.limits.Stdout, StderrLimit: e.limits.Stderr,
		OutputCap: outputCapFactor * (e.limits.Stdout + e.limits.Stderr),
	}
}

// environment: what comes later wins.
func (e *execution) environment() []string {
	env := append(rootfs.Env(e.request.User), e.rootfs.Env...)
	env = append(env, e.runtime.Env...)
	if route := e.currentRoute(); route != nil {
		for k, v := range route.Env() {
			env = append(env, k+"="+v)
		}
	}
	for k, v := range e.request.Env {
		env = append(env, k+"="+v)
	}
	return rootfs.LastWins(env)
}

func (e *execution) startError(err error) error {
	var failure *guest.Failure
	if !errors.As(err, &failure) {
		return err
	}
	switch failure.Kind {
	case guest.FailNotFound:
		return e.runtime.Missing(e.request.Image)
	case guest.FailNoProcess:
		return cove.Errorf(cove.Overloaded, "the sandboxes of this machine have as many processes as they may have together").
			WithHint("wait for sandboxes to end, or raise kernel.pid_max; see docs/limits.md")
	}
	return cove.Errorf(cove.Internal, "cannot start %s: %w", e.runtime.Command[0], failure)
}
