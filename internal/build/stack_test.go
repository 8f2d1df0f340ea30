package build

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/image"
	"github.com/cove-sandbox/cove/internal/image/layer"
)

// names lists the images of the store by their names; one without a name is "-".
func (l *lab) names() (all []string) {
	l.t.Helper()
	images, err := l.store.List(l.t.Context())
	if err != nil {
		l.t.Fatal(err)
	}
	for _, img := range images {
		all = append(all, strings.Join(append(slices.Clone(img.Names), "-")[:max(1, len(img.Names))], " "))
	}
	slices.Sort(all)
	return all
}

func (l *lab) named(name, dockerfile string) image.Image {
	l.t.Helper()
	img, err := l.build(dockerfile, func(r *Request) { r.Name = name })
	if err != nil {
		l.t.Fatalf("%v\n%s", err, l.said.String())
	}
	return img
}

// place returns the path on the host of a file of an image.
func place(root engine.Rootfs, name string) string {
	found := layer.Find(root.Stack(), name)
	return filepath.Join(found.Dir, found.Name)
}

// TestStacked: an image that is built on another shares its files, which stay as long as it does.
func TestStacked(t *testing.T) {
	l := newLab(t)
	l.write("one", "1")
	l.write("two", "22")
	base := l.named("base", "FROM scratch\nCOPY one /etc/one\nCOPY one /gone\n")
	above := l.named("above", "FROM base\nCOPY two /etc/\nRUN three=333\n")
	top := l.named("top", "FROM above\nCMD [\"x\"]\n")
	if base.Base != "" || base.Layers != 2 || above.Base != base.Digest || above.Layers != 2 ||
		top.Base != above.Digest || top.Layers != 0 {
		t.Errorf("%+v\n%+v\n%+v", base, above, top)
	}
	if above.Size != base.Size+2+3 || above.Files != base.Files+2 || top.Size != above.Size {
		t.Errorf("%d bytes in %d files, above %d in %d, %d", base.Size, base.Files, above.Size, above.Files, top.Size)
	}
	root, err := l.store.Resolve(t.Context(), "top")
	if err != nil || len(root.Stack()) != 4 {
		t.Fatalf("%+v, %v", root, err)
	}
	for name, want := range map[string]string{"etc/one": "1", "etc/two": "22", "three": "333", "gone": "1"} {
		if data, err := os.ReadFile(place(root, name)); err != nil || string(data) != want {
			t.Errorf("%s is %q, %v", name, data, err)
		}
	}
	var saved bytes.Buffer
	if n, err := image.BuildsOf(l.store).Save(t.Context(), &saved, "top", image.FormatOCI); err != nil || n != 4 {
		t.Errorf("saved %d layers, %v", n, err)
	}
	for r := tar.NewReader(&saved); ; {
		if _, err := r.Next(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}

	for _, name := range []string{"base", "above"} {
		removed, err := l.store.Remove(t.Context(), name)
		if err != nil || len(removed.Images) != 0 || len(removed.Names) != 1 || removed.Above != 1 {
			t.Errorf("%s: %+v, %v", name, removed, err)
		}
	}
	if removed, err := l.store.Prune(t.Context(), nil); err != nil || len(removed.Images) != 0 {
		t.Errorf("pruned: %+v, %v", removed, err)
	}
	if got := l.names(); !slices.Equal(got, []string{"-", "-", "top:latest"}) {
		t.Errorf("there are %q", got)
	}
	if data, err := os.ReadFile(place(root, "etc/one")); err != nil || string(data) != "1" {
		t.Errorf("without the name of its base: %q, %v", data, err)
	}
	removed, err := l.store.Remove(t.Context(), "top")
	if err != nil || len(removed.Images) != 1 || removed.Freed != 0 {
		t.Errorf("%+v, %v", removed, err)
	}
	removed, err = l.store.Prune(t.Context(), nil)
	if err != nil || len(removed.Images) != 2 || removed.Freed < above.Size {
		t.Errorf("pruned: %+v, %v", removed, err)
	}
	if got := l.names(); len(got) != 0 {
		t.Errorf("there are %q", got)
	}
}

// TestBaseIsMissing: an image whose base was taken from the store by hand is refused by name.
func TestBaseIsMissing(t *testing.T) {
	l := newLab(t)
	l.write("one", "1")
	base := l.named("base", "FROM scratch\nCOPY one /one\n")
	l.named("above", "FROM base\nRUN two=2\n")
	root, err := l.store.Resolve(t.Context(), "base")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(root.Dir, "../..")); err != nil {
		t.Fatal(err)
	}
	if _, err := l.store.Resolve(t.Context(), "above"); cove.ErrorCode(err) != cove.Corrupt {
		t.Errorf("%v, of %s", err, base.Digest)
	}
}

// TestManyLayers: a stage of more layers than a sandbox can have is built, and an image of many is one tree.
func TestManyLayers(t *testing.T) {
	l := newLab(t)
	text := strings.Builder{}
	text.WriteString("FROM scratch AS many\n")
	const layers = 90
	for i := range layers {
		fmt.Fprintf(&text, "RUN f%d=%[1]d\n", i)
	}
	text.WriteString("FROM many\nCOPY --from=many f0 /first\nCMD [\"x\"]\n")
	img := l.named("many", text.String())
	if img.Base != "" || img.Layers != 0 {
		t.Errorf("%+v", img)
	}
	for _, c := range l.commands {
		if len(c.Stack) > 81 {
			t.Errorf("a command has %d directories", len(c.Stack))
		}
	}
	root, err := l.store.Resolve(t.Context(), "many")
	if err != nil || len(root.Layers) != 0 {
		t.Fatalf("%+v, %v", root, err)
	}
	for i := range layers {
		data, err := os.ReadFile(filepath.Join(root.Dir, fmt.Sprint("f", i)))
		if err != nil || string(data) != fmt.Sprint(i) {
			t.Errorf("%d: %q, %v", i, data, err)
		}
	}
	if data, err := os.ReadFile(filepath.Join(root.Dir, "first")); err != nil || string(data) != "0" {
		t.Errorf("%q, %v", data, err)
	}
}

// TestKeptOrNot: an image has the same digest and files whether its layers are kept for other builds or its own.
func TestKeptOrNot(t *testing.T) {
	l := newLab(t)
	l.write("one", "1")
	epoch := time.Unix(1_600_000_000, 0)
	at := func(r *Request) { r.Epoch = &epoch }
	const dockerfile = "FROM scratch AS other\nRUN other=O\nFROM scratch\nWORKDIR /etc\nCOPY one /etc/one\n" +
		"RUN two=22\nCOPY --from=other other /etc/\n"
	own, err := l.build(dockerfile, at, func(r *Request) { r.Fresh = true })
	if err != nil || len(own.Kept) != 0 || own.Layers != 4 {
		t.Fatalf("%+v, %v", own, err)
	}
	root, err := l.store.Resolve(t.Context(), own.Digest)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"etc/one": "1", "two": "22", "etc/other": "O"} {
		if data, err := os.ReadFile(place(root, name)); err != nil || string(data) != want {
			t.Errorf("%s is %q, %v", name, data, err)
		}
	}
	if _, err := l.store.Remove(t.Context(), own.Digest); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		kept, err := l.build(dockerfile, at)
		if err != nil || len(kept.Kept) != 4 {
			t.Fatalf("%+v, %v", kept, err)
		}
		if kept.Digest != own.Digest || kept.Size != own.Size || kept.Files != own.Files {
			t.Errorf("%+v, and kept %+v", own, kept)
		}
	}
}

// TestLayersOfAFailure: the layers before a command that fails are kept, and so are they after the machine was started
// again.
func TestLayersOfAFailure(t *testing.T) {
	l := newLab(t)
	if _, err := l.build("FROM scratch\nRUN one=1\nRUN exit"); err == nil {
		t.Fatal("a command that fails does not")
	}
	kept, err := filepath.Glob(filepath.Join(l.images, "build/*/synced"))
	if err != nil || len(kept) != 1 {
		t.Errorf("on the disk are %q, %v", kept, err)
	}
	if _, err := l.build("FROM scratch\nRUN one=1\nRUN two=2"); err != nil || len(l.commands) != 1 {
		t.Errorf("%d commands ran: %v", len(l.commands), err)
	}
	if kept, err = filepath.Glob(filepath.Join(l.images, "build/*/synced")); err != nil || len(kept) != 2 {
		t.Errorf("on the disk are %q, %v", kept, err)
	}
}
