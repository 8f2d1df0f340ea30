package build

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/semaphore"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/build/progress"
	"github.com/cove-sandbox/cove/internal/image"
	"github.com/cove-sandbox/cove/internal/image/dockerfile"
	"github.com/cove-sandbox/cove/internal/image/layer"
)

// builder builds the stages of a Dockerfile, side by side as far as none needs the other.
type builder struct {
	Options
	request  Request
	file     *dockerfile.File
	says     *progress.Progress
	room     string // directory for trees and layers
	made     atomic.Int64
	commands *semaphore.Weighted // that run at once
	running  sync.WaitGroup      // stages
	cancel   context.CancelFunc  // of all stages

	mu     sync.Mutex
	failed error // the first
	stages map[int]*future
	images map[string]image.Base
	shown  map[string]bind                // of the context, by their paths
	making map[string]*semaphore.Weighted // of layers, by their keys
	held   []func()
}

func newBuilder(o Options, room string) *builder {
	return &builder{Options: o, room: room, commands: semaphore.NewWeighted(int64(max(2, runtime.NumCPU()))),
		stages: map[int]*future{}, images: map[string]image.Base{}, shown: map[string]bind{},
		making: map[string]*semaphore.Weighted{}}
}

func (b *builder) release() {
	for _, release := range b.held {
		release()
	}
}

// fresh returns the path of a directory that is still to be made.
func (b *builder) fresh() string {
	return filepath.Join(b.room, strconv.FormatInt(b.made.Add(1), 10))
}

// image finds an image, once, and holds it until the build ends.
func (b *builder) image(ctx context.Context, ref string) (image.Base, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if base, ok := b.images[ref]; ok {
		return base, nil
	}
	base, release, err := b.Store.Base(ctx, ref)
	if cove.ErrorCode(err) == cove.ImageMissing {
		return base, missing(ref)
	}
	if err != nil {
		return base, err
	}
	b.images[ref] = base
	b.held = append(b.held, release)
	return base, nil
}

// alone returns when no other stage makes the layer of a key, which then is there to be found.
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

// begin makes the tree of a stage from its base.
func (b *builder) begin(ctx context.Context, i int) (*stage, error) {
	from := b.file.Stage(i)
	s := &stage{number: i, tree: b.fresh()}
	if from.From >= 0 {
		below, err := b.stage(ctx, from.From)
		if err != nil {
			return nil, err
		}
		*s = stage{number: i, base: below.base, tree: s.tree, key: below.key, config: below.config, args: below.args,
			steps: append([]image.Step{}, below.steps...), latest: below.latest}
		return s, layer.Clone(below.tree, s.tree)
	}
	s.part = b.says.Begin("[%s 1] FROM %s", from.Name, from.Image)
	base, err := b.image(ctx, from.Image)
	if err == nil {
		base, err = base.For(from.Platform)
	}
	if err == nil && base.Tree == "" {
		err = os.Mkdir(s.tree, 0o755)
	} else if err == nil {
		err = layer.Clone(base.Tree, s.tree)
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
