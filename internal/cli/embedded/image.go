package embedded

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/apispec"
	"github.com/cove-sandbox/cove/internal/build"
	"github.com/cove-sandbox/cove/internal/cli/flags"
	"github.com/cove-sandbox/cove/internal/cli/server"
	"github.com/cove-sandbox/cove/internal/cli/session"
	"github.com/cove-sandbox/cove/internal/cli/ui"
	"github.com/cove-sandbox/cove/internal/compose"
	"github.com/cove-sandbox/cove/internal/compose/merge"
	"github.com/cove-sandbox/cove/internal/daemon"
	"github.com/cove-sandbox/cove/internal/devcontainer"
	"github.com/cove-sandbox/cove/internal/image"
)

// Images implements server.Daemon.
func (d Daemon) Images() server.Images { return d }

// AddImage implements server.Images.
func (Daemon) AddImage(ctx context.Context, sess *session.Session, wanted server.NewImage) error {
	if wanted.Missing {
		s, err := openImages(sess)
		if err != nil {
			return err
		}
		if _, err := s.Resolve(ctx, wanted.From); cove.ErrorCode(err) != cove.ImageMissing {
			return sess.Show(ui.Result{Value: struct{}{}}, err)
		}
	}
	if wanted.Pull {
		o := image.PullOptions{Insecure: wanted.Insecure, Platform: wanted.Platform}
		return addImage(sess, &o.Progress, func(s *image.Store) (image.Image, error) { return s.Pull(ctx, wanted.From, o) })
	}
	o := image.ImportOptions{Platform: wanted.Platform}
	return addImage(sess, &o.Progress, func(s *image.Store) (image.Image, error) {
		return s.Import(ctx, wanted.From, wanted.Name, o)
	})
}

// BuildImage implements server.Images.
func (Daemon) BuildImage(ctx context.Context, sess *session.Session, wanted session.NewBuild) error {
	ctx, interrupts := ui.CoverSignals(ctx)
	defer interrupts.Stop()
	cfg, err := sess.Config()
	if err != nil {
		return err
	}
	d, err := daemon.New(ctx, daemon.Options{Config: cfg, Log: sess.QuietLogger(cfg)})
	if err != nil {
		return err
	}
	b := daemon.Build{Dir: wanted.Context, Dockerfile: wanted.Dockerfile, Name: wanted.Name, Args: wanted.Args,
		Secrets: wanted.Secrets, Target: wanted.Target, Platform: wanted.Platform, Fresh: wanted.NoCache,
		ToolCaches: wanted.ToolCaches, Network: apispec.Network(wanted.Network), Pull: wanted.Pull,
		Out: sess.Err, Below: wanted.Below, Text: wanted.Text, Ignore: wanted.Ignore}
	if ui.IsTerminal(sess.Err) && sess.Getenv("TERM") != "dumb" && !wanted.Once {
		b.Columns = func() int { return ui.Columns(sess.Err) }
	}
	if wanted.Inspect {
		b.Inspect = func(ctx context.Context, f build.Failed, open daemon.OpenShell) error {
			return inspect(ctx, sess, f, open)
		}
	}
	if wanted.Files != nil {
		if b.Dir, err = writeContext(wanted.Files); err != nil {
			return err
		}
		defer os.RemoveAll(b.Dir)
		b.Own, b.Root = true, true
	}
	if wanted.Limits != nil {
		b.Limits = apispec.Limits(*wanted.Limits)
	}
	var img image.Image
	name := ""
	if wanted.Once {
		name, err = d.EnsureImage(ctx, b)
	} else {
		img, err = d.Build(ctx, b)
	}
	closing, done := context.WithTimeout(context.WithoutCancel(ctx), session.CloseTimeout)
	defer done()
	if cerr := d.Close(closing); err == nil {
		err = cerr
	}
	if err == nil && wanted.Output != nil {
		wanted.Output.Ref = cmp.Or(wanted.Name, img.Digest)
		err = saveImage(ctx, sess, *wanted.Output)
	}
	if err == nil && wanted.Push {
		_, err = pushImage(ctx, sess, session.PushedImage{Ref: wanted.Name})
	}
	switch {
	case err != nil:
		return interrupts.Explain(err)
	case wanted.Once:
		return sess.Show(ui.Result{Value: map[string]string{"name": name}, Text: name + "\n"}, nil)
	}
	return sess.Show(imageTable(img, []image.Image{img}, time.Now()), nil)
}

// MergeCompose implements server.Images.
func (Daemon) MergeCompose(_ context.Context, sess *session.Session, files compose.Request) error {
	m, err := merge.Files(files)
	if err != nil {
		return err
	}
	return sess.PrintJSON(m)
}

// FetchArtifact implements server.Images.
func (Daemon) FetchArtifact(ctx context.Context, sess *session.Session, ref string) error {
	s, err := openImages(sess)
	if err != nil {
		return err
	}
	var a session.Artifact
	if a.Digest, a.Layer, err = image.Artifact(ctx, s, ref, devcontainer.MaxArchive); err != nil {
		return err
	}
	return sess.PrintJSON(a)
}

// SaveImage implements server.Images.
func (Daemon) SaveImage(ctx context.Context, sess *session.Session, wanted session.SavedImage) error {
	return saveImage(ctx, sess, wanted)
}

func saveImage(ctx context.Context, sess *session.Session, wanted session.SavedImage) (err error) {
	s, err := openImages(sess)
	if err != nil {
		return err
	}
	b := image.BuildsOf(s)
	if wanted.Format == "local" {
		return b.Export(ctx, wanted.Ref, wanted.To)
	}
	format := image.Format(wanted.Format)
	if wanted.To == "" {
		if ui.IsTerminal(sess.Out) {
			return cove.Errorf(cove.InvalidArgument, "an archive is not for a terminal").WithHint("name a file: -o FILE")
		}
		_, err = b.Save(ctx, sess.Out, wanted.Ref, format)
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(wanted.To), ".cove-save-")
	if err != nil {
		return cove.Errorf(cove.InvalidArgument, "cannot write %s: %w", wanted.To, err)
	}
	defer func() {
		if err != nil {
			os.Remove(f.Name())
		}
	}()
	n, err := b.Save(ctx, f, wanted.Ref, format)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), wanted.To); err != nil {
		return cove.Errorf(cove.InvalidArgument, "cannot write %s: %w", wanted.To, err)
	}
	fmt.Fprintf(sess.Err, "%s has %s, with %d layers\n", wanted.To, wanted.Ref, n)
	return nil
}

// PushImage implements server.Images.
func (Daemon) PushImage(ctx context.Context, sess *session.Session, wanted session.PushedImage) error {
	pushed, err := pushImage(ctx, sess, wanted)
	if err != nil {
		return err
	}
	return sess.Show(ui.Result{Value: pushed, Text: pushed.Digest + "\n"}, nil)
}

// pushImage shows the progress, and where the image is.
func pushImage(ctx context.Context, sess *session.Session, wanted session.PushedImage) (image.Pushed, error) {
	s, err := openImages(sess)
	if err != nil {
		return image.Pushed{}, err
	}
	p := newProgress(sess)
	pushed, err := image.BuildsOf(s).Push(ctx, wanted.Ref, wanted.As,
		image.PushOptions{Progress: p.take, Insecure: wanted.Insecure})
	p.end()
	if err == nil {
		sess.Say.Line("%s has %s, with %s", pushed.Name, wanted.Ref, ui.Counted(pushed.Layers, "layer", "layers"))
	}
	return pushed, err
}

// writeContext writes the files of a context into a directory of their own, which the caller removes.
func writeContext(files map[string][]byte) (dir string, err error) {
	if dir, err = os.MkdirTemp("", "cove-context-"); err != nil {
		return "", err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return dir, err
	}
	defer root.Close()
	for name, data := range files {
		err = root.MkdirAll(path.Dir(name), 0o755)
		if err == nil {
			err = root.WriteFile(name, data, 0o644)
		}
		if err != nil {
			os.RemoveAll(dir)
			return "", err
		}
	}
	return dir, nil
}

// ListImages implements server.Images.
func (Daemon) ListImages(ctx context.Context, sess *session.Session) (ui.Result, error) {
	s, err := openImages(sess)
	if err != nil {
		return ui.Result{}, err
	}
	all, err := s.List(ctx)
	value := map[string]any{"images": append([]image.Image{}, all...)}
	return imageTable(value, all, time.Now()), err
}

// RemoveImages implements server.Images.
func (Daemon) RemoveImages(ctx context.Context, sess *session.Session, names []string) (ui.Result, error) {
	s, err := openImages(sess)
	if err != nil {
		return ui.Result{}, err
	}
	done := removedImages{Untagged: []string{}, Removed: []string{}}
	for _, name := range names {
		ref, err := flags.AbsoluteImage(name)
		if err != nil {
			return ui.Result{}, err
		}
		removed, err := s.Remove(ctx, ref)
		if err != nil {
			return ui.Result{}, err
		}
		done.add(removed)
		text := removedText(removed)
		if slices.ContainsFunc(removed.Images, func(img image.Image) bool { return len(img.Kept) > 0 }) {
			text += "its layers stay for the next build; \"cove image prune\" removes those that no image has\n"
		}
		if err := sess.PrintText(text); err != nil {
			return ui.Result{}, err
		}
	}
	return ui.Result{Value: done}, nil
}

// PruneImages implements server.Images.
func (Daemon) PruneImages(ctx context.Context, sess *session.Session) (ui.Result, error) {
	s, err := openImages(sess)
	if err != nil {
		return ui.Result{}, err
	}
	removed, err := s.Prune(ctx, nil)
	done := removedImages{Untagged: []string{}, Removed: []string{}}
	done.add(removed)
	return ui.Result{Value: done, Text: removedText(removed) + "freed " + ui.SizeText(removed.Freed) + "\n"}, err
}

// addImage shows the progress of what adds an image to the store, and then the image.
func addImage(sess *session.Session, progress *image.Progress, add func(*image.Store) (image.Image, error)) error {
	s, err := openImages(sess)
	if err != nil {
		return err
	}
	p := newProgress(sess)
	*progress = p.take
	img, err := add(s)
	p.end()
	if err != nil {
		return err
	}
	return sess.Show(imageTable(img, []image.Image{img}, time.Now()), nil)
}

// imageTable returns a value with a table of images, each once for each name.
func imageTable(value any, all []image.Image, now time.Time) ui.Result {
	var rows [][]string
	for _, img := range all {
		names := img.Names
		if len(names) == 0 {
			names = []string{shortDigest(img.Digest)}
		}
		for _, name := range names {
			rows = append(rows,
				[]string{name, shortDigest(img.Digest), img.Platform, ui.SizeText(img.Size), ui.Ago(now.Sub(img.Added)),
					ui.Ago(now.Sub(img.Used))})
		}
	}
	return ui.TableOf(value, []string{"NAME", "DIGEST", "PLATFORM", "SIZE", "ADDED", "USED"}, rows)
}

// shortDigest returns the shortest prefix of a digest that "cove run --image" accepts.
func shortDigest(digest string) string {
	hex, ok := strings.CutPrefix(digest, "sha256:")
	if ok {
		return "sha256:" + hex[:min(12, len(hex))]
	}
	return digest
}

// removedImages lists removed names and digests, as JSON.
type removedImages struct {
	Untagged []string `json:"untagged"`
	Removed  []string `json:"removed"` // digests
	Freed    int64    `json:"freed"`   // bytes
}

func (r *removedImages) add(one image.Removed) {
	r.Untagged = append(r.Untagged, one.Names...)
	for _, img := range one.Images {
		r.Removed = append(r.Removed, img.Digest)
	}
	r.Freed += one.Freed
}

func removedText(r image.Removed) string {
	var b strings.Builder
	for _, name := range r.Names {
		b.WriteString("untagged " + ui.Printable(name) + "\n")
	}
	if r.Above > 0 {
		fmt.Fprintf(&b, "its files stay: %s built on it\n", ui.Counted(r.Above, "image is", "images are"))
	}
	for _, img := range r.Images {
		b.WriteString("removed " + ui.Printable(img.Digest) + "\n")
	}
	return b.String()
}

func openImages(sess *session.Session) (*image.Store, error) {
	cfg, err := sess.Config()
	if err != nil {
		return nil, err
	}
	return daemon.OpenImages(cfg, sess.QuietLogger(cfg))
}

// progress shows how far an image is: a bar on a terminal, otherwise one line for each layer that is done.
type progress struct {
	sess  *session.Session
	bar   bool
	drawn time.Time
	parts map[progressPart]image.Event
	said  map[progressPart]bool
}

type progressPart struct {
	stage image.Stage
	layer int
}

func newProgress(sess *session.Session) *progress {
	return &progress{sess: sess, bar: ui.IsTerminal(sess.Err) && sess.Getenv("TERM") != "dumb",
		parts: map[progressPart]image.Event{}, said: map[progressPart]bool{}}
}

// take is an image.Progress.
func (p *progress) take(e image.Event) {
	part := progressPart{e.Stage, e.Layer}
	p.parts[part] = e
	if p.bar {
		p.draw()
		return
	}
	if e.Total > 0 && e.Done >= e.Total && !p.said[part] {
		p.said[part] = true
		word := map[image.Stage]string{image.Download: "downloaded", image.Unpack: "unpacked", image.Pack: "compressed",
			image.Upload: "sent"}[e.Stage]
		p.sess.Say.Line("layer %d of %d: %s, %s", e.Layer+1, e.Layers, word, ui.SizeText(e.Total))
	}
}

// draw writes the bar over itself. The terminal may have another width by now.
func (p *progress) draw() {
	now := time.Now()
	if now.Sub(p.drawn) < ui.Redraw {
		return
	}
	p.drawn = now
	fmt.Fprint(p.sess.Err, "\r"+p.line(ui.Columns(p.sess.Err)-1)+"\x1b[K") // a full line would wrap
}

// line is the stage that is under way, all of its layers together.
func (p *progress) line(width int) string {
	if done, total := p.sum(image.Pack); total < 0 || done < total {
		return ui.BarText("compressing", done, total, width)
	}
	if done, total := p.sum(image.Upload); total > 0 {
		return ui.BarText("sending", done, total, width)
	}
	if done, total := p.sum(image.Download); total < 0 || done < total {
		return ui.BarText("downloading", done, total, width)
	}
	done, total := p.sum(image.Unpack)
	return ui.BarText("unpacking", done, total, width)
}

// sum is how far a stage is, in bytes; the total is -1 when it is not known.
func (p *progress) sum(s image.Stage) (done, total int64) {
	for part, e := range p.parts {
		if part.stage != s {
			continue
		}
		done += e.Done
		if e.Total < 0 || total < 0 {
			total = -1
		} else {
			total += e.Total
		}
	}
	return done, total
}

func (p *progress) end() {
	if p.bar {
		fmt.Fprint(p.sess.Err, "\r\x1b[K")
	}
}
