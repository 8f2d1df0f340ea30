package build

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/egress/redact"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/hostpath"
	"github.com/cove-sandbox/cove/internal/image/dockerfile"
	"github.com/cove-sandbox/cove/internal/image/files"
	"github.com/cove-sandbox/cove/internal/image/layer"
	"github.com/cove-sandbox/cove/internal/rootfs"
	"github.com/cove-sandbox/cove/internal/secret"
)

// Mount is something that a command sees in its tree.
type Mount struct {
	Place    hostpath.Own   // on the host, with owners as those of a tree
	Memory   *engine.Memory // in place of Place
	Target   string         // absolute, and without symbolic links in the stack
	ReadOnly bool
}

// bind is a mount of files of the context, a stage or an image.
type bind struct {
	place hostpath.Own
	key   string // of their content
}

// binds finds the files of a RUN's bind mounts: they decide whether its layer is there already.
func (b *builder) binds(ctx context.Context, s *stage, all []dockerfile.Mount) (map[int]bind, []string, error) {
	found, keys := map[int]bind{}, []string{}
	for i, m := range all {
		if m.Kind != dockerfile.MountBind {
			continue
		}
		if slices.Contains(strings.Split(m.Path, "/"), "..") {
			return nil, nil, cove.Errorf(cove.InvalidArgument, "the source %.200q of a mount contains \"..\"", m.Path).
				WithHint("write a path below what is mounted")
		}
		at, err := b.bindOf(ctx, s, m)
		if err != nil {
			return nil, nil, err
		}
		found[i], keys = at, append(keys, at.key)
	}
	return found, keys, nil
}

// bindOf finds the files of a bind mount. Those of the context are copied, as far as it has them, and those that a
// command may write to, which end with it.
func (b *builder) bindOf(ctx context.Context, s *stage, m dockerfile.Mount) (bind, error) {
	if m.From.Context() {
		b.mu.Lock()
		at, ok := b.shown[m.Path]
		b.mu.Unlock()
		if ok && m.ReadOnly {
			return at, nil
		}
		dir, err := b.copied(ctx, b.request.Context, m.Path)
		if err != nil {
			return bind{}, err
		}
		key, err := b.files.Content(ctx, dir)
		at = bind{place: hostpath.Own{Dir: dir, Name: copiedName}, key: key}
		if err == nil && m.ReadOnly {
			b.mu.Lock()
			b.shown[m.Path] = at
			b.mu.Unlock()
		}
		return at, err
	}
	in, key, err := b.origin(ctx, s, m.From)
	if err != nil {
		return bind{}, err
	}
	if m.ReadOnly {
		return b.trees.bind(ctx, in, key, m.Path)
	}
	from, err := layer.OpenStack(in)
	if err != nil {
		return bind{}, err
	}
	defer from.Close()
	dir, err := b.copied(ctx, from, m.Path)
	return bind{place: hostpath.Own{Dir: dir, Name: copiedName}, key: key}, err
}

// trees finds what mounts show of stacks. A directory of several parts can be mounted from a tree of the whole stack
// alone, of which it makes one for each stack.
type trees struct {
	files *files.Files
	fresh func() string

	mu   sync.Mutex        // which others wait for while a tree is made
	made map[string]string // by the keys of stacks
}

// bind finds a file or directory of a stack, by the stack's key.
func (t *trees) bind(ctx context.Context, in rootfs.Stack, key, name string) (bind, error) {
	found, err := t.files.Find(ctx, in, name)
	if err == nil && found.Dir != "" && !found.Whole {
		var tree string
		if tree, err = t.of(ctx, in, key); err == nil {
			found, err = t.files.Find(ctx, rootfs.Stack{tree}, name)
		}
	}
	if err != nil {
		return bind{}, err
	}
	if found.Dir == "" {
		return bind{}, cove.Errorf(cove.NotFound, "%.200q is not there to mount", name)
	}
	return bind{place: hostpath.Own{Dir: found.Dir, Name: found.Name}, key: key}, nil
}

func (t *trees) of(ctx context.Context, in rootfs.Stack, key string) (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if tree, ok := t.made[key]; ok {
		return tree, nil
	}
	tree := t.fresh()
	if err := t.files.Clone(ctx, in, tree); err != nil {
		return "", err
	}
	t.made[key] = tree
	return tree, nil
}

// copiedName is the name of what copied has made in its directory.
const copiedName = "files"

// copied copies a file or directory into a new directory.
func (b *builder) copied(ctx context.Context, from *layer.Source, name string) (dir string, err error) {
	dir, none := b.fresh(), b.fresh()
	if err := errors.Join(os.Mkdir(dir, 0o700), os.Mkdir(none, 0o700)); err != nil {
		return "", cove.Errorf(cove.StorageFull, "make a directory for a mount: %w", err)
	}
	it := layer.Copy{From: from, Words: []string{literal(name)}, Dest: "/" + copiedName, Itself: true, Whole: true,
		Room: b.room}
	return dir, b.files.Copy(ctx, it, dir, rootfs.Stack{none})
}

// literal is a word of COPY that means a path as it is.
func literal(name string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(cmp.Or(name, "."))
}

// mount adds the mounts of a RUN to its command. done ends the use of its caches.
func (b *builder) mount(ctx context.Context, s *stage, c *Command, all []dockerfile.Mount,
	binds map[int]bind) (done func() error, err error) {
	caches, done, err := b.caches(ctx, s, all)
	if err != nil {
		return nil, err
	}
	for i, m := range all {
		shows := Mount{ReadOnly: m.ReadOnly}
		switch m.Kind {
		case dockerfile.MountBind:
			shows.Place = binds[i].place
		case dockerfile.MountCache:
			shows.Place = hostpath.Own{Dir: caches[m.ID], Name: "."}
		case dockerfile.MountTmpfs:
			shows.Memory = &engine.Memory{Mode: 0o1777, Size: m.Size}
		case dockerfile.MountSecret:
			if shows.Memory, err = b.secret(s, c, m); err != nil {
				return nil, errors.Join(err, done())
			}
			if shows.ReadOnly = true; shows.Memory == nil {
				continue
			}
		}
		real, err := b.files.Resolve(ctx, c.Stack, m.Target)
		if err != nil {
			return nil, errors.Join(err, done())
		}
		shows.Target = path.Join("/", real)
		c.Mounts = append(c.Mounts, shows)
	}
	return done, nil
}

// caches opens the caches of a RUN, in an order that is the same in every build.
func (b *builder) caches(ctx context.Context, s *stage, all []dockerfile.Mount) (dirs map[string]string,
	done func() error, err error) {
	dirs = map[string]string{}
	var open []func() error
	done = func() (err error) {
		for _, end := range open {
			err = errors.Join(err, end())
		}
		return err
	}
	all = slices.DeleteFunc(slices.Clone(all), func(m dockerfile.Mount) bool { return m.Kind != dockerfile.MountCache })
	slices.SortStableFunc(all, func(a, b dockerfile.Mount) int { return cmp.Compare(a.ID, b.ID) })
	for _, m := range all {
		if _, ok := dirs[m.ID]; ok {
			continue
		}
		alone := slices.ContainsFunc(all, func(o dockerfile.Mount) bool { return o.ID == m.ID && o.Alone })
		dir, end, err := b.Store.Cache(ctx, m.ID, alone, func(dir string) error { return b.fill(ctx, s, m, dir) })
		if err != nil {
			return nil, nil, errors.Join(err, done())
		}
		dirs[m.ID], open = dir, append(open, end)
	}
	return dirs, done, nil
}

// fill gives a new cache what it begins with.
func (b *builder) fill(ctx context.Context, s *stage, m dockerfile.Mount, dir string) error {
	if !m.From.Context() {
		in, _, err := b.origin(ctx, s, m.From)
		if err != nil {
			return err
		}
		from, err := layer.OpenStack(in)
		if err != nil {
			return err
		}
		defer from.Close()
		none := b.fresh()
		if err := os.Mkdir(none, 0o700); err != nil {
			return err
		}
		begins := layer.Copy{From: from, Words: []string{literal(m.Path)}, Dest: "/", Whole: true, Room: b.room}
		if err := b.files.Copy(ctx, begins, dir, rootfs.Stack{none}); err != nil {
			return err
		}
	}
	return b.files.Give(ctx, dir, layer.Owner{UID: m.UID, GID: m.GID}, m.Mode)
}

// secret gives a command a secret: in its environment, and as a file, which is returned.
func (b *builder) secret(s *stage, c *Command, m dockerfile.Mount) (*engine.Memory, error) {
	value, ok := b.request.Secrets[m.ID]
	if !ok && m.Required {
		return nil, cove.Errorf(cove.InvalidArgument, "the secret %.80q is required", m.ID).
			WithHint("give it: --secret id=%s,src=FILE", m.ID)
	}
	if !ok {
		return nil, nil
	}
	s.part.Line("the secret %.80s enters the sandbox of this command", m.ID)
	if m.Env != "" {
		c.Env = append(slices.Clip(c.Env), m.Env+"="+value.Reveal())
	}
	if !m.File {
		return nil, nil
	}
	return &engine.Memory{Data: append([]byte{}, value.Reveal()...), Mode: m.Mode, UID: m.UID, GID: m.GID}, nil
}

// stubs lists the places that the mounts of a command need, each after what is in it.
func stubs(mounts []Mount) (all []string) {
	for _, m := range mounts {
		for at := strings.TrimPrefix(m.Target, "/"); at != "." && at != ""; at = path.Dir(at) {
			all = append(all, filepath.FromSlash(at))
		}
	}
	slices.SortStableFunc(all, func(a, b string) int { return strings.Count(b, "/") - strings.Count(a, "/") })
	return slices.Compact(all)
}

// MaxSecrets is the most bytes of all secrets of a build.
const MaxSecrets = 64 << 10

// hidden finds secrets in lines. Of one with several lines it finds each; none of less than redact.MinLength bytes.
func hidden(secrets map[string]secret.Value) (*redact.Set, error) {
	var all []secret.Value
	sum := 0
	for _, s := range secrets {
		if sum += len(s.Reveal()); sum > MaxSecrets {
			return nil, cove.Errorf(cove.TooLarge, "the secrets of the build have more than %d bytes", MaxSecrets)
		}
		for line := range strings.Lines(s.Reveal()) {
			line = strings.TrimRight(line, "\r\n")
			for len(line) >= redact.MinLength {
				piece := line[:min(len(line), redact.MaxLength)]
				all, line = append(all, secret.New(piece)), line[len(piece):]
			}
		}
	}
	return redact.New(all...)
}
