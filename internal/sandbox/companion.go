package sandbox

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engine/job"
	"github.com/cove-sandbox/cove/internal/engine/process"
	"github.com/cove-sandbox/cove/internal/engine/provision"
	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/rootfs"
	"github.com/cove-sandbox/cove/internal/store"
	"github.com/cove-sandbox/cove/internal/workspace"
)

// A sandbox whose image has no git works on a checkout nevertheless: git runs in a companion, a sandbox of its own on
// the same files, with the toolchain of this machine and the same limits. The companion has the policy of the sandbox,
// so that a push from it is judged as one from the sandbox, and a repository that attacks git reaches nothing else.

// trialTime bounds each program that is tried in an image.
const trialTime = 30 * time.Second

// settleUser gives a record the account of its programs: Cove's own, root inside, or a user of the image. Errors: those
// of provision.User and of the image.
func settleUser(ctx context.Context, o Options, record *store.Sandbox) error {
	if image := record.Spec.Image; record.Spec.UserName == "" && (image == "" || image == hostImage) {
		return nil
	}
	eng, err := o.Engines.Get(record.Spec.Engine)
	if err != nil {
		return err
	}
	root, release, err := provision.Rootfs(ctx, o.Images, eng, record.Spec.Image)
	if err != nil {
		return err
	}
	defer release()
	record.Spec.User, err = provision.User(eng, root, record.Spec.Spec)
	return err
}

// tryImage tries in an image of the request's own what the sandbox will need of it, before anything is made: the
// program of its agent, and git, whose absence is recorded. Errors: RuntimeMissing, and those of the image.
func (v *supervisor) tryImage(ctx context.Context, record *store.Sandbox, q Request,
	progress func(workspace.Step)) error {
	git := q.Repository != nil && !q.Repository.Worktree
	if image := record.Spec.Image; image == "" || image == "host" || !git && q.Trial.Args == nil {
		return nil
	}
	eng, err := v.o.Engines.Get(record.Spec.Engine)
	if err != nil {
		return err
	}
	root, release, err := provision.Rootfs(ctx, v.o.Images, eng, record.Spec.Image)
	if err != nil {
		return err
	}
	defer release()
	progress(workspace.Step{Text: "trying the image"})
	var b engine.Binding
	defer func() { b.Close() }()
	for _, l := range record.Spec.Layers {
		place, err := v.host.Layers.Place(l.Name)
		if err == nil {
			err = b.Attach(place, engine.Attachment{Target: l.Target, ReadOnly: true})
		}
		if err != nil {
			return err
		}
	}
	shape := record.Spec.Shape
	shape.Lifetime = cove.LifetimeAttached
	j, err := job.Open(ctx, eng, v.o.Clock, provision.Plan{Rootfs: root, Shape: shape, Binding: b})
	if err != nil {
		return err
	}
	cpu := v.newCPUMeter(record.Owner, 0)
	defer func() {
		cpu.count(context.WithoutCancel(ctx), j)
		if err := j.Close(); err != nil {
			v.o.Log.Warn("cannot end what tried an image", "image", record.Spec.Image, "error", err)
		}
	}()
	env := rootfs.InFront(append(rootfs.Env(record.Spec.User), root.Env...), record.Spec.Path)
	t := imageTrial{job: j, env: rootfs.LastWins(rootfs.WithVariables(env, record.Spec.Env))}
	if err := t.agent(ctx, record.Spec.Image, q.Trial); err != nil || !git {
		return err
	}
	record.Spec.GitBeside, err = t.withoutGit(ctx)
	if record.Spec.GitBeside {
		progress(workspace.Step{Text: "the image has no git: it runs beside the sandbox"})
	}
	return err
}

// imageTrial tries programs in an image.
type imageTrial struct {
	job *job.Job
	env []string
}

// run runs a program to its end, and returns its exit code, or -1 if the image lacks it.
func (t imageTrial) run(ctx context.Context, args ...string) (code int, said string, err error) {
	ctx, cancel := context.WithTimeout(ctx, trialTime)
	defer cancel()
	var out tail
	o, err := t.job.Run(ctx, guest.ProcessSpec{Args: args, Env: t.env, Dir: "/"},
		process.Attendance{Stdout: &out, Stderr: &out})
	if foreign := process.Foreign(args[0], err); foreign != nil {
		return 0, "", foreign
	}
	var failure *guest.Failure
	switch {
	case errors.As(err, &failure) && (failure.Kind == guest.FailNotFound || failure.Kind == guest.FailPermission ||
		failure.Kind == guest.FailInvalid):
		return -1, escaped(failure.Message), nil
	case err != nil:
		return 0, "", err
	case o.Lost != nil:
		return 0, "", cove.Errorf(cove.Unavailable, "the image could not be tried: %w", o.Lost).WithHint("try again")
	}
	return o.Code, escaped(out.text()), nil
}

// agent tries the program of an agent.
func (t imageTrial) agent(ctx context.Context, image string, of Trial) error {
	if of.Args == nil {
		return nil
	}
	for _, name := range of.Needs {
		code, _, err := t.run(ctx, name, "--version")
		if err != nil {
			return err
		}
		if code < 0 {
			return cove.Errorf(cove.RuntimeMissing, "%s needs %s, which is not in the image %s", of.Title, name, image).
				WithHint("use an image with %s, or leave the image out: then it is this machine's own toolchain", name)
		}
	}
	code, said, err := t.run(ctx, of.Args...)
	if err == nil && code != 0 {
		err = cove.Errorf(cove.RuntimeMissing, "%s does not run in the image %s: %s: %s", of.Title, image,
			strings.Join(of.Args, " "), said).
			WithHint("use an image with what it needs, or leave the image out: then it is this machine's own toolchain")
	}
	return err
}

// withoutGit reports whether the image lacks git, or what git's part in bringing work back is written in.
func (t imageTrial) withoutGit(ctx context.Context) (bool, error) {
	code, _, err := t.run(ctx, "sh", "-c",
		"git --version && command -v mktemp && command -v cp && command -v rm")
	return code != 0, err
}

// companion is a sandbox of its own on the files of another one.
type companion struct {
	*job.Job
	env   []string // of every process
	cpu   *cpuMeter
	close func()
}

// besides makes a companion for a sandbox or a checkout, with the root filesystem of an image. online gives it a route
// under the policy of the sandbox. The caller closes it.
func (v *supervisor) besides(ctx context.Context, of store.Sandbox, image string, online bool) (*companion, error) {
	if image == hostImage && (of.Spec.User.IsRoot() || of.Spec.User.IsOfImage()) { // the host's toolchain has neither
		of.Spec.User = cove.AgentUser
	}
	ws, err := v.host.Workspaces.Open(ctx, of.ID)
	if err != nil {
		return nil, err
	}
	eng, err := v.o.Engines.Get(of.Spec.Engine)
	if err != nil {
		return nil, err
	}
	shape := of.Spec.Shape
	shape.Lifetime = cove.LifetimeAttached
	plan := provision.Plan{Shape: shape}
	var route egress.Route
	if online {
		n, err := v.networkOf(of)
		if err != nil {
			return nil, err
		}
		if plan.Network = n.Mode; n.Mode != cove.NetworkNone {
			plan.OpenRoute = func(id cove.SandboxID) (_ provision.Route, err error) {
				route, err = v.host.Routes.OpenBeside(of.Owner, id, of, n)
				return route, err
			}
		}
	}
	root, release, err := provision.Rootfs(ctx, v.o.Images, eng, image)
	if err != nil {
		return nil, err
	}
	plan.Rootfs = root
	if plan.Binding, err = v.binding(of, ws); err != nil {
		plan.Binding.Close()
		release()
		return nil, err
	}
	j, err := job.Open(ctx, eng, v.o.Clock, plan)
	if err != nil {
		release()
		return nil, err
	}
	env := append(append(rootfs.Env(of.Spec.User), root.Env...), gitEnv...)
	if route != nil {
		env = rootfs.WithVariables(env, route.Env())
	}
	cpu := v.newCPUMeter(of.Owner, 0)
	return &companion{Job: j, env: rootfs.LastWins(env), cpu: cpu, close: func() {
		cpu.count(context.WithoutCancel(ctx), j)
		err := j.Close()
		if route != nil {
			route.Close()
			err = errors.Join(err, v.host.Routes.ForgetRoute(j.ID()))
		}
		if err != nil {
			v.o.Log.Warn("cannot end what showed a sandbox's work", "sandbox", of.ID, "error", err)
		}
		release()
	}}, nil
}

// hostImage is the image of this machine's own toolchain.
const hostImage = "host"

// gitImage returns the image that git of a sandbox runs in, when it does not run in the sandbox itself.
func gitImage(of store.SandboxSpec) string {
	if of.GitBeside {
		return hostImage
	}
	return of.Image
}

// aside returns the running sandbox with a companion in its place, for commands of git. done ends the companion.
func (v *supervisor) aside(ctx context.Context, who cove.Principal, in Inside) (_ Inside, done func(), err error) {
	box := in.Sandbox
	if in.Within != "" {
		if box, err = v.current(ctx, who, in.Within); err != nil {
			return in, nil, err
		}
	}
	c, err := v.besides(ctx, box, hostImage, true)
	if err != nil {
		return in, nil, err
	}
	in.Guest, in.cpu = c.Job.Sandbox, c.cpu
	in.Env = rootfs.LastWins(rootfs.WithVariables(slices.Clone(c.env), in.Spec.Env))
	return in, c.close, nil
}
