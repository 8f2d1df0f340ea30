package daemon

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strconv"
	"strings"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/build"
	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/config"
	"github.com/cove-sandbox/cove/internal/egress"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/image"
	"github.com/cove-sandbox/cove/internal/image/dockerfile"
	"github.com/cove-sandbox/cove/internal/image/layer"
	"github.com/cove-sandbox/cove/internal/runtime"
	"github.com/cove-sandbox/cove/internal/secret"
)

// Build says what image to build.
type Build struct {
	Dir        string // context
	Dockerfile string // path on the host; empty: "Dockerfile" of the context
	Name       string
	Args       map[string]string
	Secrets    map[string]secret.Value // by their ids
	Target     string
	Platform   string // empty: this machine's
	Fresh      bool
	ToolCaches bool          // commands have the caches of compilers and package managers of builds of Dir
	Network    *cove.Network // of its commands; nil is none
	Limits     cove.Limits   // of each of them, as far as they are stated
	Out        io.Writer     // progress
	Columns    func() int    // of Out, if it is a terminal; nil: it is none
	// Below is the directory of Dir that is the context, without a link that leads out of Dir; empty is Dir.
	Below string
	// Root has the commands run as root, not as the user of the image.
	Root bool
	// Pull has images that the Dockerfile begins with or copies from pulled, where the store lacks them.
	Pull bool
	// Own says that Dir is no directory of a user's.
	Own bool
	// Inspect has the user look into the state before a command that has failed. open begins a shell there, which
	// ends with the return. nil does not.
	Inspect func(ctx context.Context, f build.Failed, open OpenShell) error
	// Text are the instructions, and Ignore what is left out of the context; nil: both are files.
	Text, Ignore []byte
}

// epochArg is the build argument that says the latest time of a file of the image, in seconds since 1970.
const epochArg = "SOURCE_DATE_EPOCH"

// Build builds an image, whose commands run in sandboxes of the native engine. Errors: those of Builds.CheckOwners and
// of build.Build.
func (d *Daemon) Build(ctx context.Context, b Build) (img image.Image, err error) {
	if err := image.BuildsOf(d.images).CheckOwners(); err != nil {
		return img, err
	}
	r, err := buildRequest(d.cfg, b)
	if err != nil {
		return img, err
	}
	defer r.Context.Close()
	id := cove.NewExecutionID() // by which the gateway's decisions are found
	run, err := d.buildRunner(b, id)
	if err != nil {
		return img, err
	}
	o := buildOptions(d.images, b)
	o.Runner, o.Origins = run, origins{d.outlet, run.Network, id}
	if b.Inspect != nil {
		o.Inspect = func(ctx context.Context, f build.Failed) error { return d.inspect(ctx, run, f, b.Inspect) }
	}
	return build.Build(ctx, o, r)
}

// buildOptions are the services of a build that runs nothing.
func buildOptions(images *image.Store, b Build) build.Options {
	o := build.Options{Store: image.BuildsOf(images), Clock: clock.Real(), Out: b.Out, Columns: b.Columns}
	if b.Pull {
		o.Pull = func(ctx context.Context, ref, platform string, say func(format string, args ...any)) error {
			say("pulling %.200s", ref)
			_, err := images.Pull(ctx, ref, image.PullOptions{Platform: platform, Progress: func(e image.Event) {
				if e.Stage == image.Unpack && e.Total > 0 && e.Done >= e.Total {
					say("layer %d of %d is unpacked", e.Layer+1, e.Layers)
				}
			}})
			return err
		}
	}
	return o
}

// EnsureImage builds an image as Build does, unless the store has one of the same. Its name is that of b, with a tag
// for all that it is built from; images of that name with other tags go, unless something runs on them. Of several who
// ask at once one builds, and the others wait.
func (d *Daemon) EnsureImage(ctx context.Context, b Build) (name string, err error) {
	r, err := buildRequest(d.cfg, b)
	if err != nil {
		return "", err
	}
	defer r.Context.Close()
	builds := image.BuildsOf(d.images)
	if err := builds.CheckOwners(); err != nil {
		return "", err
	}
	key, err := build.Key(ctx, buildOptions(d.images, b), r)
	if err != nil {
		return "", err
	}
	name = b.Name + ":" + key[:keyDigits]
	done, err := builds.Alone(ctx, name)
	if err != nil {
		return "", err
	}
	defer done()
	if _, err := d.images.Get(ctx, name); cove.ErrorCode(err) != cove.ImageMissing {
		return name, err
	}
	formerly := b.Name + ":"
	b.Name = name
	if _, err := d.Build(ctx, b); err != nil {
		return "", err
	}
	return name, removeOthers(ctx, d.images, formerly, name)
}

// keyDigits of a key are in the name of an image.
const keyDigits = 32

// removeOthers removes the images whose names begin in the same way as one, unless something runs on them.
func removeOthers(ctx context.Context, s *image.Store, prefix, but string) error {
	all, err := s.List(ctx)
	if err != nil {
		return err
	}
	for _, img := range all {
		for _, name := range img.Names {
			if name == but || !strings.HasPrefix(name, prefix) {
				continue
			}
			_, err := s.Remove(ctx, name)
			if code := cove.ErrorCode(err); err != nil && code != cove.Conflict && code != cove.ImageMissing {
				return err
			}
		}
	}
	return nil
}

// buildRequest reads what a build is of. The caller closes its context.
func buildRequest(cfg *config.Config, b Build) (r build.Request, err error) {
	r = build.Request{Name: b.Name, Args: b.Args, Secrets: b.Secrets, Target: b.Target, Fresh: b.Fresh, Root: b.Root,
		Host: "linux/" + goruntime.GOARCH}
	if b.ToolCaches {
		if r.ToolCaches, err = filepath.EvalSymlinks(b.Dir); err != nil {
			return r, cove.Errorf(cove.InvalidArgument, "the context: %w", err)
		}
	}
	if r.Platform, err = image.ParsePlatform(b.Platform); err != nil {
		return r, err
	}
	if text, ok := b.Args[epochArg]; ok {
		seconds, err := strconv.ParseInt(text, 10, 64)
		if err != nil || seconds < 0 {
			return r, cove.Errorf(cove.InvalidArgument, "%s=%.40s is not a number of seconds", epochArg, text)
		}
		r.Epoch = new(time.Unix(seconds, 0))
	}
	r.Context, r.Dockerfile, err = buildFiles(cfg, b)
	return r, err
}

// buildFiles opens the context of a build, and reads its Dockerfile.
func buildFiles(cfg *config.Config, b Build) (from *layer.Source, text []byte, err error) {
	dir := b.Dir
	if !b.Own {
		if dir, err = pathRules(cfg).Check(b.Dir, nil); err != nil {
			return nil, nil, err
		}
	}
	if b.Text != nil {
		from, err = layer.OpenContext(dir, b.Below, append([]byte{}, b.Ignore...))
		return from, b.Text, err
	}
	var ignore []byte
	if b.Dockerfile != "" {
		if text, err = readDockerfile(b.Dockerfile); err != nil {
			return nil, nil, err
		}
		ignore, err = readDockerfile(b.Dockerfile + ".dockerignore")
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, nil, err
		}
	}
	if from, err = layer.OpenContext(dir, b.Below, ignore); err != nil {
		return nil, nil, err
	}
	if b.Dockerfile == "" {
		text, err = from.ReadFile("Dockerfile", dockerfile.MaxSize)
	}
	if err != nil {
		from.Close()
	}
	return from, text, err
}

func readDockerfile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, cove.Errorf(cove.NotFound, "there is no file %s: %w", path, err)
	}
	if err != nil {
		return nil, cove.Errorf(cove.InvalidArgument, "cannot read %s: %w", path, err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, dockerfile.MaxSize+1))
	if err != nil {
		return nil, cove.Errorf(cove.InvalidArgument, "cannot read %s: %w", filepath.Base(path), err)
	}
	return data, nil
}

// buildRunner makes the runner of a build's commands.
func (d *Daemon) buildRunner(b Build, id cove.ExecutionID) (s build.Sandboxes, err error) {
	if s.Network, err = egress.NetworkOf(b.Network); err != nil {
		return s, err
	}
	limits := b.Limits.Over(d.cfg.LastingSpec().Limits)
	if s.Limits, err = d.cfg.Bounds().ForOwner().Resolve(runtime.Runtime{}, limits); err != nil {
		return s, err
	}
	if s.Engine, err = d.engines.Get(engine.Native); err != nil {
		return s, err
	}
	s.Clock, s.Files = clock.Real(), image.BuildsOf(d.images).Files()
	s.OpenRoute = func(of cove.SandboxID, n egress.Network) (egress.Route, error) {
		return d.openRoute(cove.MachineOwner(), of, id, n)
	}
	return s, nil
}
