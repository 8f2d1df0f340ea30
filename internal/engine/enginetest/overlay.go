package enginetest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/hostpath"
)

const overlaid = cove.Home + "/.kept"

// lowers makes the lower directories of an overlay, the uppermost first, and returns what tells whether they changed.
func (x *env) lowers(t *testing.T) (dirs []string, changed func() string) {
	t.Helper()
	if !x.caps.Overlay {
		t.Skip("the engine has no overlays: " + x.caps.Missing["overlay"])
	}
	for _, name := range []string{"one", "two"} {
		dir := filepath.Join(x.shared(t), name)
		if err := os.MkdirAll(filepath.Join(dir, "deep", "er"), 0o700); err != nil {
			t.Fatal(err)
		}
		for _, file := range []string{name, "both", "deep/er/" + name} {
			if err := os.WriteFile(filepath.Join(dir, file), []byte("of "+name+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		dirs = append(dirs, dir)
	}
	state := func() string {
		var all strings.Builder
		for _, dir := range dirs {
			err := filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
				if err != nil {
					return err
				}
				var st unix.Stat_t
				data, _ := os.ReadFile(path)
				err = unix.Lstat(path, &st)
				fmt.Fprintf(&all, "%s %v %q %d\n", path, info.Mode(), data, st.Nlink)
				return err
			})
			if err != nil {
				t.Error(err)
			}
		}
		return all.String()
	}
	before := state()
	return dirs, func() string {
		if now := state(); now != before {
			return now
		}
		return ""
	}
}

// overlay makes a sandbox with an overlay of directories, with what keeps its changes, and with a home of the host's;
// the last two may be "".
func (x *env) overlay(t *testing.T, dirs []string, changes, home string) engine.Sandbox {
	t.Helper()
	b := engine.Binding{Hostname: "sandbox", Overlay: &engine.Overlay{Name: filepath.Base(overlaid)}}
	defer func() { b.Close() }()
	place := func(dir string) *os.File {
		f, err := hostpath.Own{Dir: filepath.Dir(dir), Name: filepath.Base(dir)}.Open()
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	for _, dir := range dirs {
		b.Overlay.Lower = append(b.Overlay.Lower, place(dir))
	}
	if changes != "" {
		b.Changes = place(changes)
	}
	if home != "" {
		b.Attachments = append(b.Attachments, engine.Attachment{Place: place(home), Target: cove.Home})
	}
	sb := x.prepare(t)
	if err := sb.Bind(x.ctx, b); err != nil {
		t.Fatalf("Bind: %v", err)
	}
	return sb
}

// overlayApart: a sandbox has what is in the directories, changes all of it as its own, and nothing changes there.
func overlayApart(t *testing.T, x *env) {
	dirs, changed := x.lowers(t)
	sb := x.overlay(t, dirs, "", "")
	x.want(t, sb, shell("cd "+overlaid+" && cat one two both deep/er/*"), "of one\nof two\nof one\nof one\nof two\n")
	const script = `cd ` + overlaid + ` && test -O one && test -O deep && ln one linked && echo more >> linked &&
		chmod 777 two && rm both && rm -r deep && mkdir -p deep/er && ls -A deep/er && mv two deep/er/moved &&
		echo new > deep/new && cat one deep/er/moved deep/new && ls -A`
	x.want(t, sb, shell(script), "of one\nmore\nof two\nnew\ndeep\nlinked\none\n")
	if now := changed(); now != "" {
		t.Errorf("the directories have changed:\n%s", now)
	}
	again := x.overlay(t, dirs, "", "")
	x.want(t, again, shell("cd "+overlaid+" && ls -A && cat one"), "both\ndeep\none\ntwo\nof one\n")
}

// overlayCounts: what is written counts for the sandbox's disk limit.
func overlayCounts(t *testing.T, x *env) {
	dirs, _ := x.lowers(t)
	if !x.caps.DiskLimit {
		t.Skip("the engine has no disk limit")
	}
	sb := x.overlay(t, dirs, "", "")
	r := x.output(t, sb, shell("cd "+overlaid+" && head -c 20000000 /dev/zero > one && head -c 20000000 /dev/zero > new"))
	if r.exit.Code == 0 || !strings.Contains(r.stderr, "No space left") {
		t.Errorf("more than the limit is written: %+v", r)
	}
}

// overlayKept: a directory keeps what is changed for the next sandbox, which sees nothing else of it.
func overlayKept(t *testing.T, x *env) {
	dirs, changed := x.lowers(t)
	home := x.shared(t)
	if err := os.Mkdir(filepath.Join(home, filepath.Base(overlaid)), 0o755); err != nil {
		t.Fatal(err)
	}
	changes := filepath.Join(x.shared(t), "changes")
	if err := engine.MakeLayer(changes); err != nil {
		t.Fatal(err)
	}
	first := x.overlay(t, dirs, changes, home)
	script := "cd " + overlaid + " && rm two && echo mine > mine && rm -r deep && mkdir deep && echo done"
	x.want(t, first, shell(script), "done\n")
	x.destroy(t, first)
	second := x.overlay(t, dirs, changes, home)
	x.want(t, second, shell("cd "+overlaid+" && ls -A . deep && cat mine && ls -A "+cove.Home),
		".:\nboth\ndeep\nmine\none\n\ndeep:\nmine\n.kept\ngiven\n")
	if now := changed(); now != "" {
		t.Errorf("the directories have changed:\n%s", now)
	}
}

// overlayLater: files that come and go while a sandbox runs do it no harm.
func overlayLater(t *testing.T, x *env) {
	dirs, _ := x.lowers(t)
	sb := x.overlay(t, dirs, "", "")
	x.want(t, sb, command("cat", overlaid+"/one"), "of one\n")
	for _, dir := range dirs {
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
	script := "cd " + overlaid + " && mkdir -p new/deep && echo mine > new/deep/file && cat new/deep/file && " +
		"(mkdir -p deep/er/x || true) 2> /dev/null"
	x.want(t, sb, shell(script), "mine\n")
}

// overlayWithout: where something else is in its place, a sandbox goes without.
func overlayWithout(t *testing.T, x *env) {
	dirs, _ := x.lowers(t)
	home := x.shared(t)
	if err := os.Mkdir(filepath.Join(home, "elsewhere"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("elsewhere", filepath.Join(home, filepath.Base(overlaid))); err != nil {
		t.Fatal(err)
	}
	sb := x.overlay(t, dirs, "", home)
	x.want(t, sb, shell("ls -A "+overlaid+"/; cat "+cove.Home+"/given"), "by the host")
}

// overlayUnsupported: an engine that has none refuses, and says what is missing.
func overlayUnsupported(t *testing.T, x *env) {
	if x.caps.Overlay {
		t.Skip("the engine has overlays")
	}
	sb := x.prepare(t)
	err := sb.Bind(x.ctx, engine.Binding{Hostname: "sandbox", Overlay: &engine.Overlay{Name: ".kept"}})
	wantCode(t, "Bind", err, cove.Unsupported)
}
