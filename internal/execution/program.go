package execution

import (
	"errors"
	"path"
	"slices"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engine/process"
	"github.com/cove-sandbox/cove/internal/engine/provision"
	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/rootfs"
)

// outputCapFactor: a program that writes this many times what is kept is
// ended, since it would go on until its time is up.
const outputCapFactor = 16

// files returns the code and what comes beside it.
func (e *execution) files() []provision.File {
	if e.runtime.OfImage() {
		return e.request.Files
	}
	return append([]provision.File{{Path: e.runtime.File, Mode: codeMode, Data: e.request.Code}}, e.request.Files...)
}

const codeMode = 0o644

func (e *execution) codePath() string { return cove.WorkDir + "/" + e.runtime.File }

// program returns the process to start. The code is a file, never part of a command line.
func (e *execution) program() guest.ProcessSpec {
	if e.runtime.OfImage() {
		return e.process(e.command(), e.imageDir())
	}
	args := make([]string, 0, len(e.runtime.Command)+len(e.request.Args))
	for _, a := range e.runtime.Command {
		if a == e.runtime.File {
			a = e.codePath()
		}
		args = append(args, a)
	}
	return e.process(append(args, e.request.Args...), cove.WorkDir)
}

// process returns the process for a command, which begins in a directory unless one of the host is attached.
func (e *execution) process(args []string, dir string) guest.ProcessSpec {
	if e.request.Bind != "" {
		dir = cove.Workspace
	}
	return guest.ProcessSpec{
		Args: args, Env: e.environment(), Dir: dir, Stdin: e.request.Stdin != nil, Alone: true,
		StdoutLimit: e.limits.Stdout, StderrLimit: e.limits.Stderr,
		OutputCap: outputCapFactor * (e.limits.Stdout + e.limits.Stderr),
	}
}

// command returns the command of the image. As with other programs of images, arguments take the place of Cmd, and so
// does another entrypoint.
func (e *execution) command() []string {
	switch q := e.request; {
	case len(q.Entrypoint) > 0:
		return slices.Concat(q.Entrypoint, q.Args)
	case len(q.Args) > 0:
		return slices.Concat(e.rootfs.Entrypoint, q.Args)
	}
	return slices.Concat(e.rootfs.Entrypoint, e.rootfs.Cmd)
}

// imageDir returns where the program of the image begins: in its directory where it has one.
func (e *execution) imageDir() string {
	dir := path.Join("/", e.rootfs.WorkDir)
	if e.rootfs.Kind == engine.RootfsDir && !rootfs.HasDir(e.rootfs.Stack(), dir) {
		return "/"
	}
	return dir
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
	if foreign := process.Foreign(e.program().Args[0], err); foreign != nil {
		return foreign
	}
	if e.runtime.OfImage() && failure.Kind != guest.FailNoProcess {
		return e.imageFailure(failure)
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

// imageFailure is the error for the program of an image that cannot be started.
func (e *execution) imageFailure(failure *guest.Failure) error {
	program := e.command()[0]
	err := cove.Errorf(cove.RuntimeMissing, "the image %.200q cannot start %.200q: %w", e.request.Image, program, failure)
	if failure.Kind == guest.FailNotFound {
		err = cove.Errorf(cove.RuntimeMissing, "the image %.200q has no program %.200q", e.request.Image, program)
	}
	return err.WithHint("name one that it has: --entrypoint PROGRAM; one that is linked needs its loader in the image, " +
		"too, and a script the program of its first line")
}
