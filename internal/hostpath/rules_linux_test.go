package hostpath

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
)

// tree makes directories (names that end in "/"), sockets (names that end in "=", or in "~" if no program listens any
// more), empty files (in "0") and other files below a new directory.
func tree(t testing.TB, names ...string) string {
	t.Helper()
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	grow(t, base, names...)
	return base
}

// grow makes more in a tree.
func grow(t testing.TB, base string, names ...string) {
	t.Helper()
	for _, name := range names {
		var err error
		at := filepath.Join(base, strings.TrimRight(name, "/=~0"))
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		switch {
		case strings.HasSuffix(name, "/"):
			err = os.MkdirAll(at, 0o755)
		case strings.HasSuffix(name, "="), strings.HasSuffix(name, "~"):
			var ln *net.UnixListener
			if ln, err = net.ListenUnix("unix", &net.UnixAddr{Name: at, Net: "unix"}); err != nil {
				break
			}
			t.Cleanup(func() { ln.Close() })
			if strings.HasSuffix(name, "~") {
				ln.SetUnlinkOnClose(false)
				ln.Close()
			}
		case strings.HasSuffix(name, "0"):
			err = os.WriteFile(at, nil, 0o644)
		default:
			err = os.WriteFile(at, []byte("x"), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestOwnPlaces: Cove's own directories are refused as themselves, in what is mounted and above it, by any name.
func TestOwnPlaces(t *testing.T) {
	base := tree(t, "state/workspaces/one/", "state/cove.db", "run/instances/", "beside/", "up/deep/")
	in := func(name string) string { return filepath.Join(base, name) }
	if err := os.Symlink(in("state"), in("link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(in("run"), in("up/deep/run")); err != nil {
		t.Fatal(err)
	}
	rules := Rules{Own: []string{in("link"), in("up/deep/run"), in("nothing")}}
	for name, want := range map[string]string{
		"state": "is", "link": "is", "state/workspaces": "lies in", "state/cove.db": "lies in",
		"link/workspaces/one": "lies in", "": "contains", "up": "contains", "up/deep/run/instances": "lies in",
		"beside": "",
	} {
		_, err := rules.Check(in(name), nil)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", name, err, want)
		}
		if _, err := (Rules{}).Check(in(name), nil); err != nil {
			t.Errorf("%q is refused for another reason: %v", name, err)
		}
	}
}

// TestConfiguredFiles: a file with a key is in no mount, and one that Cove obeys in no writable one, nor is a link that
// leads there. A token is attached by itself, for the sandbox that is to have it.
func TestConfiguredFiles(t *testing.T) {
	base := tree(t, "project/deep/key", "project/cove.yaml", "other/", "elsewhere/real.yaml")
	in := func(name string) string { return filepath.Join(base, name) }
	for link, to := range map[string]string{"link": in("project/deep/key"), "other/conf": "../elsewhere",
		"loop": "loop"} {
		if err := os.Symlink(to, in(link)); err != nil {
			t.Fatal(err)
		}
	}
	keys := Files{Keys: []string{in("link"), in("missing"), in("loop"), in("project/cove.yaml/below")}}
	tokens := Files{Tokens: []string{in("project/deep/key")}}
	obeyed := Files{Obeyed: []string{in("project/cove.yaml")}}
	linked := Files{Obeyed: []string{in("other/conf/real.yaml")}}
	reads, writes, token := Wish{ReadOnly: true}, Wish{}, Wish{ReadOnly: true, Token: true}
	for _, c := range []struct {
		files Files
		name  string
		wish  Wish
		want  string
	}{
		{keys, "project", reads, "contains"}, {keys, "project/deep", reads, "contains"},
		{keys, "project/deep/key", reads, "it is"}, {keys, "project/cove.yaml", writes, ""}, {keys, "other", writes, ""},
		{tokens, "project/deep/key", reads, "it is"}, {tokens, "project/deep/key", token, ""},
		{tokens, "project/deep/key", Wish{Token: true}, "it is"}, {tokens, "project/deep", token, "contains"},
		{keys, "project/deep/key", token, "it is"},
		{obeyed, "project", writes, "Cove obeys"}, {obeyed, "project/cove.yaml", writes, "Cove obeys"},
		{obeyed, "project", reads, ""}, {obeyed, "project/deep", writes, ""},
		{linked, "other", writes, "leads to what Cove obeys"}, {linked, "elsewhere", writes, "Cove obeys"},
		{linked, "other", reads, ""}, {linked, "project", writes, ""},
	} {
		rules := Rules{Files: func() (Files, error) { return c.files, nil }}
		o, err := rules.Open(t.Context(), in(c.name), c.wish)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s, %+v: %v, want %q", c.name, c.wish, err, c.want)
		}
		if err == nil {
			o.Close()
		}
	}
	broken := Rules{Files: func() (Files, error) { return obeyed, errors.New("line 3") }}
	if _, err := broken.Open(t.Context(), in("elsewhere"), writes); err == nil {
		t.Error("a mount is allowed although the configured files are not known")
	}
	o, err := broken.Open(t.Context(), in("elsewhere"), Wish{Again: true})
	if err != nil {
		t.Fatal(err)
	}
	o.Close()
	if _, err := broken.Open(t.Context(), in("project"), Wish{Again: true}); err == nil {
		t.Error("what is known of the configured files does not count")
	}
}

// TestOwnPlacesByBindMount: a bind mount is another way to the same place, from which and to which no name leads.
func TestOwnPlacesByBindMount(t *testing.T) {
	base := tree(t, "state/workspaces/", "elsewhere/", "usr/", "shown/")
	in := func(name string) string { return filepath.Join(base, name) }
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // ends with this function, and the namespace with it
		err := unix.Unshare(unix.CLONE_NEWNS)
		for _, m := range [][3]string{{"", "/", ""}, {in("state"), in("elsewhere"), "bind"}, {"/usr/bin", in("usr"), "bind"},
			{in("state/workspaces"), in("shown"), "bind"}} {
			flags := uintptr(unix.MS_REC | unix.MS_PRIVATE)
			if m[2] != "" {
				flags = unix.MS_BIND
			}
			if err == nil {
				err = unix.Mount(m[0], m[1], "", flags, "")
			}
		}
		if err != nil {
			done <- err
			return
		}
		for _, c := range []struct{ own, path, want string }{
			{"elsewhere", "state", "contains"}, {"state", "elsewhere", "contains"}, {"state", "elsewhere/workspaces", "lies in"},
			{"state", "shown", "lies in"}, {"shown", "state", "contains"}, {"shown", "elsewhere", "contains"},
		} {
			_, err := Rules{Own: []string{in(c.own)}}.Check(in(c.path), nil)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s, with Cove's own at %s: %v, want %q", c.path, c.own, err, c.want)
			}
		}
		if _, err := (Rules{}).Open(t.Context(), in("usr"), Wish{}); err == nil || !strings.Contains(err.Error(), "/usr") {
			t.Errorf("a bind mount of /usr/bin: %v", err)
		}
		done <- nil
	}()
	if err := <-done; err != nil {
		t.Skipf("no bind mounts: %v", err)
	}
}

// TestSystemTrees: the machine's programs are not written to, unless it is said.
func TestSystemTrees(t *testing.T) {
	for _, path := range []string{"/usr/bin", "/usr/lib", "/opt"} {
		for _, c := range []struct {
			wish Wish
			ok   bool
		}{{Wish{}, false}, {Wish{ReadOnly: true}, true}, {Wish{Allow: cove.MountAllow{System: true, Sockets: true}}, true},
			{Wish{Allow: cove.MountAllow{Sockets: true, Git: true}}, false}} {
			o, err := Rules{}.Open(t.Context(), path, c.wish)
			if (err == nil) != c.ok || err != nil && !strings.Contains(cove.ErrorHint(err), "--system-dirs") {
				t.Errorf("%s %+v: %v (%s)", path, c.wish, err, cove.ErrorHint(err))
			}
			if err == nil {
				o.Close()
			}
		}
	}
}

// TestStartTrees: a directory from which the user's shell or login starts programs is attached as those of the system.
func TestStartTrees(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("PATH", "/usr/bin:"+home+"/tools/bin:"+home+"/project/venv/bin")
	for _, dir := range []string{"bin/sub", ".local/bin", ".cargo/bin", ".cargo/registry", ".config/systemd/user",
		"tools/bin", "project/venv/bin", "other"} {
		if err := os.MkdirAll(filepath.Join(home, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(home+"/bin", home+"/other/link"); err != nil {
		t.Fatal(err)
	}
	for name, refused := range map[string]bool{"bin": true, "bin/sub": true, "other/link": true, ".local/bin": true,
		".local": true, ".cargo": true, ".config": true, ".config/systemd/user": true, "tools/bin": true,
		"project/venv/bin": true, "project": false, "tools": false, ".cargo/registry": false, "other": false} {
		path, err := Rules{}.Check(filepath.Join(home, name), nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range []Wish{{}, {ReadOnly: true}, {Allow: cove.MountAllow{System: true}}} {
			o, err := Rules{}.Open(t.Context(), path, w)
			if err == nil {
				o.Close()
			}
			if (err != nil) != (refused && !w.ReadOnly && !w.Allow.System) ||
				err != nil && !strings.Contains(cove.ErrorHint(err), "--system-dirs") {
				t.Errorf("%s, %+v: %v", name, w, err)
			}
		}
	}
}

// TestSearch states what refuses a mount, at whatever level it is, and what does not.
func TestSearch(t *testing.T) {
	for _, c := range []struct {
		holds []string
		wish  Wish
		want  string
	}{
		{[]string{"a/b/file", "a/.dockerignore", "ssh/id", ".config/app/x", "src/.claude/settings.json"}, Wish{}, ""},
		{[]string{"a/b/c/s="}, Wish{}, "a/b/c/s: a socket"},
		{[]string{"a/b/c/s="}, Wish{ReadOnly: true}, "a/b/c/s: a socket"},
		{[]string{"a/b/c/s="}, Wish{Allow: cove.MountAllow{Git: true, System: true}}, "a/b/c/s: a socket"},
		{[]string{"a/b/c/s="}, Wish{Allow: cove.MountAllow{Sockets: true}}, ""},
		{[]string{".git/fsmonitor--daemon.ipc="}, Wish{}, "a socket"},
		{[]string{"x/docker.sock="}, Wish{Allow: cove.MountAllow{Sockets: true}}, "container engine"},
		{[]string{"x/y/cove.sock="}, Wish{Allow: cove.MountAllow{Sockets: true}}, "x/y/cove.sock"},
		{[]string{"a/b/.ssh/id"}, Wish{ReadOnly: true}, "a/b/.ssh: .ssh holds credentials"},
		{[]string{"a/.config/gcloud/x"}, Wish{}, ".config/gcloud holds credentials"},
		{[]string{"a/gcloud/x"}, Wish{}, ""},
		{[]string{"a/b/.local/share/cove/cove.db"}, Wish{}, ".local/share/cove"},
		{[]string{"a/.netrc"}, Wish{}, ".netrc"},
		{[]string{"a/.docker/Dockerfile"}, Wish{}, ""},
		{[]string{"a/.docker/config.json"}, Wish{}, ".docker"},
		{[]string{"a/.claude/projects/x"}, Wish{}, ".claude"},
		{[]string{"HEAD", "objects/", "refs/"}, Wish{}, "git repository"},
		{[]string{"HEAD", "objects/", "refs/"}, Wish{ReadOnly: true}, ""},
		{[]string{"HEAD", "objects/", "refs/"}, Wish{Allow: cove.MountAllow{Git: true}}, "its repository has no hooks"},
		{[]string{strings.Repeat("d/", maxDepth+1)}, Wish{}, "directories deep"},
		{[]string{strings.Repeat("d/", maxDepth+1)}, Wish{Allow: cove.MountAllow{Sockets: true}}, "directories deep"},
		{[]string{strings.Repeat("d/", maxDepth+1)}, Wish{Allow: cove.MountAllow{Git: true}}, "directories deep"},
		{[]string{strings.Repeat("d/", maxDepth+1)}, Wish{Allow: cove.MountAllow{Sockets: true, Git: true, Hooks: true}}, ""},
		{[]string{strings.Repeat("d/", maxDepth+1)}, Wish{ReadOnly: true, Allow: cove.MountAllow{Sockets: true}}, ""},
		{[]string{strings.Repeat("d/", maxDepth+1)}, Wish{Again: true}, "directories deep"},
		{[]string{"a/b/c/s="}, Wish{Again: true}, ""},
		{[]string{"x/docker.sock="}, Wish{Again: true}, "container engine"},
		{[]string{"a/cove="}, Wish{}, "a socket"},
		{[]string{"a/.claude="}, Wish{}, "a socket"},
		{[]string{"a/b/stale~"}, Wish{}, ""},
		{[]string{"a/b/stale~", "a/b/s="}, Wish{}, "a/b/s: a socket"},
		{[]string{"a/" + strings.Repeat("n", 60) + "="}, Wish{}, "a socket"},
		{[]string{"a/s=", "a/.ssh/id"}, Wish{}, ".ssh holds credentials"},
		{[]string{"1=", "2=", "3=", "4=", "5=", "6="}, Wish{}, "and perhaps more: a socket"},
		{[]string{"a/docker.sock/"}, Wish{}, ""},
		{[]string{"a/.aws/models/x", "b/.azure/pipelines.yml", "c/.kube/deployment.yaml"}, Wish{}, ""},
		{[]string{"a/.aws/credentials"}, Wish{}, ".aws"},
		{[]string{"a/.azure/msal_token_cache.bin"}, Wish{}, ".azure"},
		{[]string{"a/.kube/config"}, Wish{}, ".kube"},
		{[]string{"a/.netrc0", "a/.ssh/"}, Wish{}, ""},
	} {
		base := tree(t, c.holds...)
		o, err := Rules{}.Open(t.Context(), base, c.wish)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q, %+v: %v, want %q", c.holds, c.wish, err, c.want)
		}
		if err == nil {
			o.Close()
		} else if cove.ErrorCode(err) != cove.Forbidden || cove.ErrorHint(err) == "" {
			t.Errorf("%q: %s, hint %q", c.holds, cove.ErrorCode(err), cove.ErrorHint(err))
		}
	}
}

// TestGuards states what of a writable mount is read-only.
func TestGuards(t *testing.T) {
	rules := Rules{Guarded: []string{".envrc", "**/.vscode/tasks.json", ".husky/**", ".both/file", ".both", "lefthook.*",
		".config/x*.toml"}, Named: func(_ context.Context, git, top string) []string {
		if filepath.Base(top) != "named" {
			return nil
		}
		return []string{"tools/hooks/", "tools/missing"}
	}}
	git := Wish{Allow: cove.MountAllow{Git: true}}
	bare := func(at string) []string {
		return []string{at + "HEAD", at + "objects/", at + "refs/", at + "config", at + "hooks/x"}
	}
	for _, c := range []struct {
		holds []string
		wish  Wish
		want  string // with a + before what is pinned
	}{
		{[]string{"file"}, Wish{}, ""},
		{[]string{".git/HEAD"}, Wish{}, ".git"},
		{[]string{".git/HEAD"}, Wish{ReadOnly: true}, ""},
		{[]string{".git/HEAD"}, Wish{Allow: cove.MountAllow{Git: true, Hooks: true}}, ""},
		{[]string{".git/HEAD", ".envrc"}, Wish{Allow: cove.MountAllow{Hooks: true}}, ".git"},
		{[]string{".git/hooks/x", ".git/config", ".envrc"}, git, "+.git .git/hooks .git/config .envrc"},
		{[]string{".git/hooks/x", ".git/config", ".git/config.worktree", ".git/commondir", ".git/refs/", "a/.git"}, git,
			"+.git .git/hooks .git/config .git/config.worktree .git/commondir +a a/.git"},
		{slices.Concat(bare(".git/"), bare(".git/modules/x/"), []string{".git/worktrees/y/commondir",
			".git/worktrees/y/gitdir"}), git, "+.git .git/hooks .git/config +.git/modules +.git/modules/x " +
			".git/modules/x/hooks .git/modules/x/config +.git/worktrees +.git/worktrees/y .git/worktrees/y/commondir " +
			".git/worktrees/y/gitdir"},
		{bare("s/"), git, "+s s/hooks s/config"},
		{append(bare(""), "worktrees/y/commondir", "worktrees/y/gitdir"), git,
			"hooks config +worktrees +worktrees/y worktrees/y/commondir worktrees/y/gitdir"},
		{[]string{"a/b/.git/HEAD", "c/.git"}, Wish{}, "+a +a/b a/b/.git +c c/.git"},
		{[]string{".git/modules/x/HEAD", ".git/modules/x/objects/", ".git/modules/x/refs/", ".git/x/.git/"}, Wish{}, ".git"},
		{[]string{"store/HEAD", "store/objects/", "store/refs/"}, Wish{}, "store"},
		{[]string{"store/HEAD", "store/objects/"}, Wish{}, ""},
		{[]string{"s/HEAD", "s/commondir", "c/objects/", "c/refs/", "c/config"}, Wish{}, "s c"},
		{[]string{"c/objects/", "c/refs/", "c/hooks/x"}, Wish{}, "c"},
		{[]string{"lefthook.yml", "lefthook.json", "other.yml", "a/.config/x.toml", "a/.git", ".config/xy.toml",
			".config/y.toml"}, Wish{}, "lefthook.yml lefthook.json +a a/.git +a/.config a/.config/x.toml +.config " +
			".config/xy.toml"},
		{[]string{"named/.git/", "named/tools/hooks/x", "named/tools/y", "tools/hooks/x"}, Wish{},
			"+named named/.git +named/tools named/tools/hooks"},
		{[]string{".both/file"}, Wish{}, ".both .both/file"},
		{[]string{".envrc", ".vscode/tasks.json", ".vscode/other", ".husky/pre-commit"}, Wish{},
			".envrc +.vscode .vscode/tasks.json .husky"},
		{[]string{"sub/.git/HEAD", "sub/.envrc", "sub/.vscode/tasks.json", "other/.envrc"}, Wish{},
			"+sub sub/.git sub/.envrc +sub/.vscode sub/.vscode/tasks.json"},
	} {
		base := tree(t, c.holds...)
		o, err := rules.Open(t.Context(), base, c.wish)
		if err != nil {
			t.Errorf("%q: %v", c.holds, err)
			continue
		}
		var got []string
		for _, g := range o.Guards {
			name := g.Name
			if !g.ReadOnly {
				name = "+" + name
			}
			got = append(got, name)
			var st unix.Stat_t
			if unix.Lstat(filepath.Join(base, g.Name), &st) != nil || st.Dev != g.Dev || st.Ino != g.Ino {
				t.Errorf("%q: the guard %s is something else", c.holds, g.Name)
			}
		}
		slices.Sort(got)
		want := strings.Fields(c.want)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%q, %+v: %q, want %q", c.holds, c.wish, got, want)
		}
		o.Close()
	}
}

// TestHooksThatCouldBeMade: a repository that stays writable has what decides what git executes, in its own place.
func TestHooksThatCouldBeMade(t *testing.T) {
	link := func(t *testing.T, base, name string) {
		if err := os.Symlink("target", filepath.Join(base, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		holds []string
		link  string
		why   string
	}{
		{[]string{"a/.git/config", "a/.git/hooks/"}, "", ""},
		{[]string{"a/.git/config", "target/"}, "a/.git/hooks", "a/.git/hooks: it leads elsewhere"},
		{[]string{"a/.git/hooks/", "target"}, "a/.git/config", "a/.git/config: it leads elsewhere"},
		{[]string{"a/.git/config", "a/.git/hooks/"}, "a/.git/config.worktree", "a/.git/config.worktree: it leads elsewhere"},
		{[]string{"a/.git/config"}, "", "no a/.git/hooks"},
		{[]string{"a/.git/hooks/"}, "", "no a/.git/config"},
		{[]string{"a/.git/"}, "", "no a/.git/hooks"},
		{[]string{"target/config", "target/hooks/"}, "a.git", ""},
		{[]string{"target/config", "target/hooks/"}, ".git", ".git: it leads elsewhere"},
	} {
		base := tree(t, c.holds...)
		if c.link != "" {
			link(t, base, c.link)
		}
		o, err := Rules{}.Open(t.Context(), base, Wish{Allow: cove.MountAllow{Git: true}})
		if c.why == "" && err != nil || c.why != "" && (err == nil || !strings.Contains(err.Error(), c.why) ||
			!strings.Contains(cove.ErrorHint(err), "--writable-hooks")) {
			t.Errorf("%q: %v, want %q", c.holds, err, c.why)
		}
		if err == nil {
			o.Close()
		}
		if o, err = (Rules{}).Open(t.Context(), base, Wish{Allow: cove.MountAllow{Git: true, Hooks: true}}); err != nil {
			t.Errorf("%q, all writable: %v", c.holds, err)
		} else {
			o.Close()
		}
	}
}

// TestGuardedParts: what would be read-only in a mount of a checkout is not writable as a mount of its own.
func TestGuardedParts(t *testing.T) {
	base := tree(t, "p/.git/hooks/x", "p/.git/config", "p/.git/refs/", "p/.git/HEAD", "p/.git/objects/",
		"p/.git/worktrees/w/gitdir", "p/.git/modules/m/HEAD", "p/.git/modules/m/objects/", "p/.git/modules/m/refs/",
		"p/.git/modules/m/hooks/", "p/.git/modules/m/config",
		"p/.envrc", "p/.vscode/tasks.json", "p/.husky/deep/x",
		"p/src/.envrc", "store/HEAD", "store/objects/", "store/refs/", "store/hooks/", "linked/.git", "plain/.husky/x")
	rules := Rules{Guarded: []string{".envrc", ".vscode/tasks.json", ".husky/**"}}
	const git, hooks, both = "git", "hooks", "git hooks"
	for name, needs := range map[string]string{
		"p/.git": git, "p/.git/refs": git, "p/.git/modules": git, "p/.git/modules/m": git, "p/.git/modules/m/refs": git,
		"store/HEAD": git, "p/.git/hooks": both, "p/.git/config": both, "p/.git/worktrees": both,
		"p/.git/worktrees/w": both, "p/.git/modules/m/hooks": both, "store/hooks": both, "linked/.git": both,
		"p/.envrc": hooks, "p/.vscode": hooks, "p/.vscode/tasks.json": hooks, "p/.husky": hooks, "p/.husky/deep": hooks,
		"p": "", "p/src": "", "p/src/.envrc": "", "plain/.husky": "",
	} {
		for _, given := range []string{"", git, hooks, both} {
			for _, readOnly := range []bool{false, true} {
				w := Wish{ReadOnly: readOnly, Allow: cove.MountAllowOf(strings.Fields(given))}
				o, err := rules.Open(t.Context(), filepath.Join(base, name), w)
				may := readOnly || given == both || needs == "" || needs == given
				if (err == nil) != may || err != nil && cove.ErrorCode(err) != cove.Forbidden {
					t.Errorf("%s, %+v: %v", name, w, err)
				}
				for word := range strings.FieldsSeq(needs) {
					if err != nil && !slices.Contains(strings.Fields(given), word) &&
						!strings.Contains(cove.ErrorHint(err), "--writable-"+word) {
						t.Errorf("%s, %+v: the hint is %q", name, w, cove.ErrorHint(err))
					}
				}
				if err == nil {
					o.Close()
				}
			}
		}
	}
}

// TestSearchEnds: a search ends with its context.
func TestSearchEnds(t *testing.T) {
	base := tree(t)
	for i := range 1100 {
		if err := unix.Mknod(filepath.Join(base, fmt.Sprint(i)), unix.S_IFREG|0o644, 0); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := (Rules{}).Open(ctx, base, Wish{}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// TestClosedDirectories: a directory that cannot be read is passed over where a sandbox cannot use names in it either.
func TestClosedDirectories(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs other users' directories")
	}
	const self, owner, other, inside = 4321, 4322, 4323, 65534
	for _, c := range []struct {
		owner, group int
		mode         os.FileMode
		ok           bool
	}{
		{other, other, 0o700, true}, {other, other, 0o750, true}, {other, other, 0o711, false}, {owner, other, 0, false},
		{owner, other, 0o700, false}, {other, owner, 0o750, false}, {other, owner, 0o700, true},
		{inside, other, 0o700, false}, {other, inside, 0o710, false},
	} {
		base, err := os.MkdirTemp("/tmp", "closed")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(base) })
		sub := filepath.Join(base, "sub")
		if err := errors.Join(os.Mkdir(sub, 0o700), os.Chown(sub, c.owner, c.group), os.Chmod(sub, c.mode),
			os.Chown(base, owner, owner), os.Chmod(base, 0o755)); err != nil {
			t.Fatal(err)
		}
		done := make(chan error)
		go func() {
			runtime.LockOSThread() // ends with this function, and the identity with it
			unix.Setfsgid(self)
			unix.Setfsuid(self)
			o, err := Rules{}.Open(context.Background(), base, Wish{User: inside})
			if err == nil {
				o.Close()
			}
			done <- err
		}()
		if err := <-done; (err == nil) != c.ok || err != nil && !strings.Contains(err.Error(), "sub cannot be read") {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// TestGitThatIsMounted: what is mounted at a .git does not come along, so it needs no guard.
func TestGitThatIsMounted(t *testing.T) {
	base := tree(t, "p/.git/HEAD", "other/HEAD")
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // ends with this function, and the namespace with it
		err := errors.Join(unix.Unshare(unix.CLONE_NEWNS), unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
			unix.Mount(filepath.Join(base, "other"), filepath.Join(base, "p/.git"), "", unix.MS_BIND, ""))
		if err == nil {
			o, err := Rules{}.Open(context.Background(), filepath.Join(base, "p"), Wish{})
			if err != nil || len(o.Guards) != 0 {
				t.Errorf("%+v, %v", o, err)
			}
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Skipf("no bind mounts: %v", err)
	}
}

// TestGuardsOfLinks: a .git that leads elsewhere refuses a writable mount; of other links the target in the mount
// is read-only.
func TestGuardsOfLinks(t *testing.T) {
	base := tree(t, "sub/file", "elsewhere/.git/HEAD", "target")
	for name, target := range map[string]string{"sub/.git": "../elsewhere/.git", ".envrc": "target", ".circle": ".circle",
		".out": "../../../etc/passwd", ".top": "/etc/passwd", ".nothing": "nothing", ".itself": "."} {
		if err := os.Symlink(target, filepath.Join(base, name)); err != nil {
			t.Fatal(err)
		}
	}
	rules := Rules{Guarded: []string{".envrc", ".circle", ".out", ".top", ".nothing", ".itself/target"}}
	if _, err := rules.Open(t.Context(), base, Wish{}); err == nil || !strings.Contains(err.Error(), "sub/.git") {
		t.Errorf("a .git that is a link: %v", err)
	}
	o, err := rules.Open(t.Context(), base, Wish{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	o.Close()
	if err := os.Remove(filepath.Join(base, "sub/.git")); err != nil {
		t.Fatal(err)
	}
	o, err = rules.Open(t.Context(), base, Wish{})
	if err != nil || len(o.Guards) != 3 || o.Guards[1].Name != "elsewhere/.git" || o.Guards[2].Name != "target" {
		t.Fatalf("%+v, %v", o, err)
	}
	o.Close()
}

// TestGuardsWithoutDescriptors: where there are no descriptors left, a mount is refused, not opened with fewer guards.
func TestGuardsWithoutDescriptors(t *testing.T) {
	base := tree(t, ".git/HEAD", ".envrc", ".husky/x", "link", ".vscode/tasks.json")
	if err := os.Symlink("link", filepath.Join(base, ".linked")); err != nil {
		t.Fatal(err)
	}
	rules := Rules{Guarded: []string{".envrc", ".husky/**", ".linked", ".vscode/tasks.json"}}
	all, err := rules.Open(t.Context(), base, Wish{})
	if err != nil {
		t.Fatal(err)
	}
	all.Close()
	var was syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	defer syscall.Setrlimit(syscall.RLIMIT_NOFILE, &was)
	first, err := unix.Dup(0) // the lowest that is free
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(first)
	refused := 0
	for limit := uint64(first); ; limit++ {
		few := was
		few.Cur = limit
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &few); err != nil {
			t.Fatal(err)
		}
		o, err := rules.Open(t.Context(), base, Wish{})
		if err != nil {
			refused++
			continue
		}
		if len(o.Guards) != len(all.Guards) {
			t.Errorf("with %d descriptors more than there were: %d of %d guards", limit-uint64(first), len(o.Guards),
				len(all.Guards))
		}
		o.Close()
		if len(o.Guards) == len(all.Guards) {
			break
		}
	}
	if refused == 0 {
		t.Error("no limit was too low")
	}
}

// TestManyGuards: more than can be guarded is refused, not left open.
func TestManyGuards(t *testing.T) {
	var names []string
	for i := range maxGuards + 1 {
		names = append(names, fmt.Sprintf("r%d/.git/", i))
	}
	base := tree(t, names...)
	if _, err := (Rules{}).Open(t.Context(), base, Wish{}); cove.ErrorCode(err) != cove.Forbidden {
		t.Errorf("%d repositories: %v", maxGuards+1, err)
	}
	fits := tree(t, names[:maxGuards]...)
	if o, err := (Rules{}).Open(t.Context(), fits, Wish{}); err != nil || len(o.Guards) != 2*maxGuards {
		t.Errorf("%d repositories, each in a directory: %v", maxGuards, err)
	} else {
		o.Close()
	}
	o, err := Rules{}.Open(t.Context(), base, Wish{Allow: cove.MountAllow{Git: true, Hooks: true}})
	if err != nil {
		t.Fatal(err)
	}
	o.Close()
}

// TestSearchIsFast: 200,000 files are searched in well under a second of processor time, and so a tenth in a tenth.
func TestSearchIsFast(t *testing.T) {
	base := tree(t)
	for i := range 200 {
		dir := filepath.Join(base, fmt.Sprintf("package%d/source", i))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for j := range 100 {
			if err := unix.Mknod(filepath.Join(dir, fmt.Sprintf("file-%d.go", j)), unix.S_IFREG|0o644, 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	var before, after unix.Rusage
	unix.Getrusage(unix.RUSAGE_SELF, &before)
	o, err := Rules{}.Open(t.Context(), base, Wish{})
	unix.Getrusage(unix.RUSAGE_SELF, &after)
	if err != nil {
		t.Fatal(err)
	}
	o.Close()
	took := time.Duration(after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano())
	t.Logf("%v of processor time", took)
	if took > 100*time.Millisecond {
		t.Errorf("20,000 files took %v", took)
	}
}
