// Package build makes images from Dockerfiles, without a container engine: the files of COPY go into layers, and each
// RUN runs in a sandbox of its own, as root inside, over the tree that the steps before it have left.
//
// # Trees and layers
//
// A stage has a tree, whose files are hard links to those of its base. A step that changes files makes a layer (package
// image/layer), which then brings the tree up to date. The tree of the last stage becomes that of the image. Layers are
// kept under a key of what they come from: the base, the instructions before, and for COPY the content of its files. A
// build with the same steps takes them from there.
//
// # What comes from whom
//
// The Dockerfile and the context are data: nothing of them runs outside of a sandbox, and paths are resolved within
// their trees. What runs may reach what the policy of the build allows, which is nothing unless its user says so.
package build

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/build/origin"
	"github.com/cove-sandbox/cove/internal/build/progress"
	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/image"
	"github.com/cove-sandbox/cove/internal/image/dockerfile"
	"github.com/cove-sandbox/cove/internal/image/layer"
	"github.com/cove-sandbox/cove/internal/secret"
)

// Store has the bases of builds, and takes what they make: image.Builds.
type Store interface {
	Base(ctx context.Context, ref string) (image.Base, func(), error)
	Name(as string) (string, error)
	Room(ctx context.Context) (dir string, done func(), err error)
	Find(key string) (image.Layer, error)
	Keep(key string, l image.Layer) (image.Layer, error)
	Publish(ctx context.Context, built image.Built) (image.Image, error)
	Most() layer.Most
	Cache(ctx context.Context, id string, alone bool, fill func(dir string) error) (dir string, done func() error,
		err error)
}

// Runner runs the commands of RUN.
type Runner interface {
	// Run runs a command to its end, and returns its exit code. Errors: what kept it from running, or ended it.
	Run(ctx context.Context, c Command) (code int, err error)
}

// Options hold the services that a build works with.
type Options struct {
	Store   Store
	Runner  Runner
	Origins origin.Getter // of the URLs of ADD
	Clock   clock.Clock
	Out     io.Writer  // progress, and the output of commands
	Columns func() int // of Out, if it is a terminal; nil: it is none
	// Inspect has the user look into the state before a command that has failed, with a shell; nil does not.
	Inspect func(ctx context.Context, f Failed) error
}

// Request says what to build.
type Request struct {
	Context    *layer.Source
	Dockerfile []byte
	Name       string // of the image; empty: none
	Args       map[string]string
	Secrets    map[string]secret.Value // by their ids; MaxSecrets bytes at most together
	Target     string
	Platform   string // of the image, "linux/amd64"
	Host       string // this machine's, likewise
	Fresh      bool   // no layer of an earlier build is used
	Root       bool   // commands run as root, not as the user of the image
	// Epoch is the latest time of a file of the image, and that of the image; nil: files keep theirs.
	Epoch *time.Time
}

// Build makes an image. Errors: those of the Dockerfile, of the store and of the runner; Unsupported for what Cove does
// not do.
func Build(ctx context.Context, o Options, r Request) (img image.Image, err error) {
	file, err := dockerfile.Parse(r.Dockerfile, dockerfile.Options{Args: r.Args, Target: r.Target, Platform: r.Platform,
		Host: r.Host})
	if err != nil {
		return img, err
	}
	name := ""
	if r.Name != "" {
		if name, err = o.Store.Name(r.Name); err != nil {
			return img, err
		}
	}
	room, done, err := o.Store.Room(ctx)
	if err != nil {
		return img, err
	}
	defer done()
	b := newBuilder(o, room)
	b.request, b.file = r, file
	defer b.release()
	hides, err := hidden(r.Secrets)
	if err != nil {
		return img, err
	}
	if b.says = progress.New(o.Out, o.Clock, hides); o.Columns != nil {
		b.says = progress.NewScreen(o.Out, o.Clock, hides, o.Columns)
	}
	defer b.says.Pause()
	s, err := b.target(ctx)
	if err != nil {
		return img, err
	}
	part := b.says.Begin("exporting to image")
	img, err = o.Store.Publish(ctx, image.Built{Base: s.base, Config: s.config, Steps: s.steps, Tree: s.tree, Name: name})
	if err != nil {
		return img, part.Fail(err)
	}
	part.Line("writing image %s", img.Digest)
	if name != "" {
		part.Line("naming to %s", r.Name)
	}
	part.End()
	return img, nil
}

// stage is a stage that was built, or is being built.
type stage struct {
	number int
	part   *progress.Part // that goes on
	base   image.Base
	tree   string
	key    string // of all that its tree comes from
	config dockerfile.Config
	args   []string
	steps  []image.Step
	latest time.Time // of its layers
}

// keyOf returns a key for what values tell apart.
func keyOf(values ...any) string {
	h := sha256.New()
	json.NewEncoder(h).Encode(values) // plain data, and a hash takes all
	return hex.EncodeToString(h.Sum(nil))
}

// Key returns a hash of what an image is built from: the instructions, the arguments, the images that they begin with
// and, where they copy from the context, its files. Errors: those of the Dockerfile, ImageMissing.
func Key(ctx context.Context, s Store, r Request) (string, error) {
	file, err := dockerfile.Parse(r.Dockerfile, dockerfile.Options{Args: r.Args, Target: r.Target, Platform: r.Platform,
		Host: r.Host})
	if err != nil {
		return "", err
	}
	h := sha256.New()
	fmt.Fprintf(h, "1 %q %q %q\n", r.Dockerfile, r.Target, r.Platform)
	for _, name := range slices.Sorted(maps.Keys(r.Args)) {
		fmt.Fprintf(h, "%q=%q\n", name, r.Args[name])
	}
	images, copies := inputs(file)
	for _, name := range images {
		base, release, err := s.Base(ctx, name)
		if cove.ErrorCode(err) == cove.ImageMissing {
			err = missing(name)
		}
		if err != nil {
			return "", err
		}
		release()
		fmt.Fprintf(h, "%q %s\n", name, base.Digest)
		copies = copies || len(base.Config.Config.OnBuild) > 0
	}
	if copies {
		files, err := r.Context.Digest(ctx)
		if err != nil {
			return "", err
		}
		fmt.Fprintln(h, files)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// inputs returns the inputs of all stages that the target needs, the images in order.
func inputs(file *dockerfile.File) (images []string, copies bool) {
	seen := map[int]bool{}
	for rest := []int{file.Target()}; len(rest) > 0; {
		i := rest[0]
		rest = rest[1:]
		if seen[i] {
			continue
		}
		seen[i] = true
		rest = append(rest, file.Needs(i)...)
		of, context := file.Inputs(i)
		images, copies = append(images, of...), copies || context
	}
	slices.Sort(images)
	return slices.Compact(images), copies
}

func missing(ref string) error {
	return cove.Errorf(cove.ImageMissing, "the image %.200q is not in the store", ref).WithHint("cove image pull %s", ref)
}
