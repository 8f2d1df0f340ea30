// Package build makes images from Dockerfiles, without a container engine: the files of COPY go into layers, and each
// RUN runs in a sandbox of its own, as root inside, over what the steps before it have left.
//
// # Stacks and layers
//
// A stage has a stack of directories: those of its base, and a layer of each step that changes files (package
// image/layer). A step sees the stack below it, and so does the sandbox of a RUN, as an overlay. The layers of the last
// stage become those of the image, above its base. Layers are kept under a key of what they come from: the base, the
// instructions before, and for COPY the content of its files. A build with the same steps takes them from there. Notes
// of the store save it the reading of files that have not changed.
//
// # What comes from whom
//
// The Dockerfile and the context are data: nothing of them runs outside of a sandbox, and paths are resolved within
// their trees. What runs may reach what the policy of the build allows, which is nothing unless its user says so.
package build

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/build/origin"
	"github.com/cove-sandbox/cove/internal/build/progress"
	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/image"
	"github.com/cove-sandbox/cove/internal/image/dockerfile"
	"github.com/cove-sandbox/cove/internal/image/files"
	"github.com/cove-sandbox/cove/internal/image/layer"
	"github.com/cove-sandbox/cove/internal/rootfs"
	"github.com/cove-sandbox/cove/internal/secret"
)

// Store has the bases of builds, and takes what they make: image.Builds.
type Store interface {
	Base(ctx context.Context, ref string) (image.Base, func(), error)
	Name(as string) (string, error)
	Room(ctx context.Context) (dir string, done func(), err error)
	Draft(ctx context.Context, dir string) (*image.Draft, error)
	Find(key string) (image.Layer, error)
	Keep(ctx context.Context, key string, l image.Layer) (image.Layer, error)
	Settle(layers []image.Layer) error
	Noted(name string) (key string, err error)
	Note(name, key string) error
	Publish(ctx context.Context, built image.Built) (image.Image, error)
	Most() layer.Most
	Files() *files.Files
	Cache(ctx context.Context, id string, alone bool, fill func(dir string) error) (dir string, done func() error,
		err error)
}

// Runner runs the commands of RUN.
type Runner interface {
	// Run runs a command to its end. Errors: what kept it from running, or ended it.
	Run(ctx context.Context, c Command) (Ended, error)
}

// Ended describes the end of a command.
type Ended struct {
	Code int
	Hint string // what it may have lacked where Code is not 0, and what gives it that; may be empty
}

// Options hold the services that a build works with.
type Options struct {
	Store   Store
	Runner  Runner
	Origins origin.Getter // of the URLs of ADD
	Clock   clock.Clock
	Out     io.Writer  // progress, and the output of commands
	Columns func() int // of Out, if it is a terminal; nil: it is none
	// Pull gets an image that the store lacks from its registry, and says how far it is; nil: none is pulled. Calls may
	// overlap.
	Pull func(ctx context.Context, ref, platform string, say func(format string, args ...any)) error
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
	// ToolCaches names the project whose commands have the caches of compilers and package managers that its earlier
	// ones had; empty: they have none.
	ToolCaches string
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
		_ = o.Store.Settle(b.kept) // else they are kept until the machine is started again
		return img, err
	}
	part := b.says.Begin("exporting to image")
	img, err = o.Store.Publish(ctx, image.Built{Base: s.base, Config: s.config, Steps: s.steps, Layers: s.layers,
		Kept: b.kept, Stack: s.stack, Name: name})
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
	stack  rootfs.Stack  // all of its files; one tree at least
	layers []image.Layer // of its own
	key    string        // of all that its files come from
	config dockerfile.Config
	args   []string
	steps  []image.Step
	latest time.Time // of its layers
}

// builder builds the stages of a Dockerfile, side by side as far as none needs the other.
type builder struct {
	Options
	request  Request
	files    *files.Files
	file     *dockerfile.File
	says     *progress.Progress
	room     string // directory for layers, and for files of mounts
	made     atomic.Int64
	commands *semaphore.Weighted // that run at once
	running  sync.WaitGroup      // stages
	ending   sync.WaitGroup      // drafts of layers
	trees    trees
	cancel   context.CancelFunc // of all stages

	mu     sync.Mutex
	failed error // the first
	stages map[int]*future
	images map[string]image.Base
	shown  map[string]bind                // of the context, by their paths
	making map[string]*semaphore.Weighted // of layers, by their keys
	held   []func()
	kept   []image.Layer // by the store, until the build ends
}

func newBuilder(o Options, room string) *builder {
	b := &builder{Options: o, room: room, files: o.Store.Files(),
		commands: semaphore.NewWeighted(int64(max(2, runtime.NumCPU()))),
		stages:   map[int]*future{}, images: map[string]image.Base{}, shown: map[string]bind{},
		making: map[string]*semaphore.Weighted{}}
	b.trees = trees{files: b.files, fresh: b.fresh, made: map[string]string{}}
	return b
}

func (b *builder) release() {
	b.ending.Wait()
	for _, release := range b.held {
		release()
	}
	for _, l := range b.kept {
		l.Release()
	}
}

// fresh returns the path of a directory that is still to be made.
func (b *builder) fresh() string {
	return filepath.Join(b.room, strconv.FormatInt(b.made.Add(1), 10))
}

// image finds an image, once, and holds it until the build ends.
func (b *builder) image(ctx context.Context, part *progress.Part, ref, platform string) (image.Base, error) {
	done, err := b.alone(ctx, "image "+ref)
	if err != nil {
		return image.Base{}, err
	}
	defer done()
	b.mu.Lock()
	base, ok := b.images[ref]
	b.mu.Unlock()
	if ok {
		return base, nil
	}
	base, release, err := b.base(ctx, ref, platform, part.Line)
	if err != nil {
		return base, err
	}
	b.hold(release)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.images[ref] = base
	return base, nil
}

// hold calls a function when the build ends.
func (b *builder) hold(release func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held = append(b.held, release)
}

// base finds an image, which is pulled where the store lacks it and the user has said so, and holds it until release is
// called.
func (o Options) base(ctx context.Context, ref, platform string,
	say func(format string, args ...any)) (base image.Base, release func(), err error) {
	base, release, err = o.Store.Base(ctx, ref)
	if cove.ErrorCode(err) == cove.ImageMissing && o.Pull != nil {
		if err = o.Pull(ctx, ref, platform, say); err == nil {
			base, release, err = o.Store.Base(ctx, ref)
		}
	}
	if cove.ErrorCode(err) == cove.ImageMissing && o.Pull == nil {
		err = cove.Errorf(cove.ImageMissing, "the image %.200q is not in the store", ref).
			WithHint("cove image pull %s; a build with --pull does so by itself", ref)
	}
	return base, release, err
}

// alone returns when no other stage gets what a key stands for, which then is there to be found.
func (b *builder) alone(ctx context.Context, key string) (done func(), err error) {
	b.mu.Lock()
	one, ok := b.making[key]
	if !ok {
		one = semaphore.NewWeighted(1)
		b.making[key] = one
	}
	b.mu.Unlock()
	if err := one.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	return func() { one.Release(1) }, nil
}

// target builds the stage that the image is made of, and those that it needs. When it returns, none goes on. With
// several errors it returns the first.
func (b *builder) target(ctx context.Context) (*stage, error) {
	ctx, b.cancel = context.WithCancel(ctx)
	defer b.cancel()
	s, err := b.stage(ctx, b.file.Target())
	b.running.Wait()
	if err != nil {
		return nil, b.failed
	}
	return s, nil
}

// fails ends all stages, and the part that has an error, which it returns, as far as it is the first.
func (b *builder) fails(ctx context.Context, part *progress.Part, err error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.failed != nil {
		part.Cancel()
		return b.failed
	}
	if ctx.Err() != nil {
		err = cove.Errorf(cove.Canceled, "the build was ended: %w", err)
	}
	b.failed = err
	b.cancel()
	return part.Fail(err)
}

// future is a stage that is asked for.
type future struct {
	done  chan struct{} // closed when it is built, or not
	stage *stage
	err   error
}

// stage builds a stage, unless it is built already, or being built.
func (b *builder) stage(ctx context.Context, i int) (*stage, error) {
	b.mu.Lock()
	f, ok := b.stages[i]
	if !ok {
		f = &future{done: make(chan struct{})}
		b.stages[i] = f
	}
	b.mu.Unlock()
	if ok {
		<-f.done // it ends with the build at the latest
		return f.stage, f.err
	}
	defer close(f.done)
	if f.stage, f.err = b.make(ctx, i); f.err != nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.failed = cmp.Or(b.failed, f.err)
		b.cancel()
	}
	return f.stage, f.err
}

// needed builds stages side by side: one after the other where the user looks into failures, at the same terminal.
func (b *builder) needed(ctx context.Context, stages []int) error {
	if b.Inspect == nil {
		for _, n := range stages[min(1, len(stages)):] {
			b.running.Go(func() { b.stage(ctx, n) }) // which tells all that ask for it
		}
	}
	for _, n := range stages {
		if _, err := b.stage(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

// make builds a stage.
func (b *builder) make(ctx context.Context, i int) (*stage, error) {
	if err := b.needed(ctx, b.file.Needs(i)); err != nil {
		return nil, err
	}
	s, err := b.begin(ctx, i)
	if err != nil {
		return nil, err
	}
	steps, config, args, err := b.file.Steps(i, s.config, s.args)
	if err != nil {
		return nil, err
	}
	if err := b.needed(ctx, origins(i, steps)); err != nil { // of triggers
		return nil, err
	}
	for n, step := range steps {
		s.part = b.says.Begin("[%s %d/%d] %s", b.file.Stage(i).Name, n+2, len(steps)+1, step.Text)
		if err := b.step(ctx, s, step); err != nil {
			return nil, b.fails(ctx, s.part, atLine(step, err))
		}
		s.part.End()
	}
	s.config, s.args = config, args
	return s, nil
}

// origins lists the stages before one that its steps take files from.
func origins(before int, steps []dockerfile.Step) (stages []int) {
	add := func(from dockerfile.Source) {
		if from.Stage >= 0 && from.Stage < before {
			stages = append(stages, from.Stage)
		}
	}
	for _, step := range steps {
		if step.Copy != nil {
			add(step.Copy.From)
		}
		if step.Run != nil {
			for _, m := range step.Run.Mounts {
				add(m.From)
			}
		}
	}
	return stages
}

// atLine says where in the Dockerfile an error comes from.
func atLine(step dockerfile.Step, err error) error {
	if step.Line == 0 {
		return err
	}
	return cove.Errorf(cmp.Or(cove.ErrorCode(err), cove.Internal), "line %d of the Dockerfile: %w", step.Line, err)
}

// begin makes a stage with the files of its base.
func (b *builder) begin(ctx context.Context, i int) (*stage, error) {
	from := b.file.Stage(i)
	if from.From >= 0 {
		below, err := b.stage(ctx, from.From)
		if err != nil {
			return nil, err
		}
		s := *below
		s.number = i
		s.stack, s.layers, s.steps = slices.Clone(s.stack), slices.Clone(s.layers), slices.Clone(s.steps)
		return &s, nil
	}
	s := &stage{number: i}
	s.part = b.says.Begin("[%s 1] FROM %s", from.Name, from.Image)
	base, err := b.image(ctx, s.part, from.Image, from.Platform)
	if err == nil {
		base, err = base.For(from.Platform)
	}
	if err == nil {
		s.stack, err = filesOf(base, b.fresh)
	}
	if err != nil {
		return nil, b.fails(ctx, s.part, err)
	}
	s.part.End()
	s.base, s.key, s.config = base, keyOf("base", base.Digest, b.request.Epoch), base.Config.Config
	if base.Digest == "" && from.Platform != b.request.Host {
		s.key = keyOf(s.key, from.Platform)
	}
	s.latest = base.Config.Created.Time
	if b.request.Epoch != nil {
		s.latest = *b.request.Epoch
	}
	return s, nil
}

// filesOf returns the files of an image; those of one without any are an empty directory.
func filesOf(base image.Base, fresh func() string) (rootfs.Stack, error) {
	if base.Digest != "" {
		return slices.Clone(base.Stack), nil
	}
	empty := fresh()
	return rootfs.Stack{empty}, os.Mkdir(empty, 0o755)
}

// keyOf returns a key for what values tell apart.
func keyOf(values ...any) string {
	h := sha256.New()
	json.NewEncoder(h).Encode(values) // plain data, and a hash takes all
	return hex.EncodeToString(h.Sum(nil))
}

// Key returns a hash of what an image is built from: the instructions, the arguments, the images that they begin with
// and, where they copy from the context, its files. Errors: those of the Dockerfile and of Pull, ImageMissing.
func Key(ctx context.Context, o Options, r Request) (string, error) {
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
	for _, from := range images {
		base, release, err := o.base(ctx, from.Ref, from.Platform, func(format string, args ...any) {
			fmt.Fprintf(o.Out, format+"\n", args...)
		})
		if err != nil {
			return "", err
		}
		release()
		fmt.Fprintf(h, "%q %s\n", from.Ref, base.Digest)
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
func inputs(file *dockerfile.File) (images []dockerfile.Image, copies bool) {
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
	slices.SortFunc(images, func(a, b dockerfile.Image) int { return strings.Compare(a.Ref, b.Ref) })
	return slices.CompactFunc(images, func(a, b dockerfile.Image) bool { return a.Ref == b.Ref }), copies
}
