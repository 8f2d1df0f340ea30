package hostpath

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cove-sandbox/cove"
)

// TestJudge states which resolved paths are refused.
func TestJudge(t *testing.T) {
	for path, refused := range map[string]bool{
		"/home/dev/project": false, "/tmp/x": false, "/srv/data": false, "/opt/tool": false, "/mnt/disk": false,
		"/home/dev/.config/app": false,
		"/":                     true, "/home": true, "/usr": true,
		"/etc": true, "/etc/passwd": true, "/var": true, "/var/lib/docker": true, "/root": true,
		"/root/project": true, "/proc": true,
		"/proc/1": true, "/sys/fs/cgroup": true, "/dev/sda": true, "/boot": true, "/run/docker.sock": true,
		"/home/dev/.ssh": true, "/home/dev/.ssh/id_ed25519": true, "/home/dev/.aws": true, "/srv/backup/.gnupg/x": true,
		"/home/dev/.claude": true, "/home/dev/.kube/config": true, "/home/dev/.docker/config.json": true,
		"/home/dev/.config/gcloud": true, "/home/dev/.config/gcloud/x": true, "/home/dev/.local/share/cove/cove.db": true,
		"/home/dev/docker.sock": true, "/srv/containerd.sock": true, "/tmp/podman.sock": true,
		"/etcetera": false, "/variable": false, "/home/dev/ssh": false, "/home/dev/.sshx": false,
		"/home/dev/../../etc": true, "//etc": true, "/etc/": true,
	} {
		if got := Judge(path) != ""; got != refused {
			t.Errorf("%s: refused %v (%s)", path, got, Judge(path))
		}
	}
}

// TestJudgeProject: a project may lie where no mount may, as below root's home, but for what holds credentials.
func TestJudgeProject(t *testing.T) {
	for path, refused := range map[string]bool{
		"/root/project": false, "/root/work/deep": false, "/var/www/site": false, "/var/home/dev/project": false,
		"/home/dev/project": false, "/srv/data": false,
		"/root": true, "/root/.config": true, "/root/.cache/x": true, "/root/project/.ssh": true, "/root/x/.aws/y": true,
		"/root/.local/share/cove": true, "/var": true, "/var/www": true, "/var/lib/cove": true, "/var/home": true,
		"/var/home/dev/.ssh": true, "/etc/x": true, "/": true, "/root/../etc": true, "/root/x/docker.sock": true,
	} {
		if got := judgeProject(path) != ""; got != refused {
			t.Errorf("%s: refused %v (%s)", path, got, judgeProject(path))
		}
	}
}

// TestClaudeDirectory: the directory of Claude Code in a project is settings; that in a home is a login.
func TestClaudeDirectory(t *testing.T) {
	project, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(project, ".claude/commands"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"", ".credentials.json", "projects", "history.jsonl"} {
		at := filepath.Join(project, ".claude", name)
		if name != "" {
			if err := os.WriteFile(at, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		_, err := Rules{}.Check(project, nil)
		_, perr := CheckProject(project)
		if (err != nil) != (name != "") || (perr != nil) != (name != "") {
			t.Errorf("with %q: %v, %v", name, err, perr)
		}
		if name != "" {
			os.Remove(at)
		}
	}
}

func TestCheck(t *testing.T) {
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	in := func(name string) string { return filepath.Join(base, name) }
	for _, d := range []string{"ok", "allowed/deep", "home/.ssh", "cloud/.config/gcloud", "data/.local/share/cove",
		"gcloud", "engine"} {
		if err := os.MkdirAll(in(d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, target := range map[string]string{"to-etc": "/etc", "to-ok": in("ok"), "dangling": in("nothing"),
		"loop": in("loop"), "allowed/out": in("ok"), "root-link": in("allowed")} {
		if err := os.Symlink(target, in(name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(in("fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("unix", in("sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if err := os.WriteFile(in("engine/docker.sock"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, path string
		roots      []string
		code       cove.Code
		resolved   string
	}{
		{"a directory", in("ok"), nil, "", in("ok")},
		{"a link to a directory", in("to-ok"), nil, "", in("ok")},
		{"not absolute", "ok", nil, cove.InvalidArgument, ""},
		{"a NUL", in("ok\x00x"), nil, cove.InvalidArgument, ""},
		{"missing", in("nothing"), nil, cove.NotFound, ""},
		{"a dangling link", in("dangling"), nil, cove.NotFound, ""},
		{"a loop", in("loop"), nil, cove.InvalidArgument, ""},
		{"a link to /etc", in("to-etc"), nil, cove.Forbidden, ""},
		{"through a link to /etc", in("to-etc/passwd"), nil, cove.Forbidden, ""},
		{"a FIFO", in("fifo"), nil, cove.Forbidden, ""},
		{"a socket", in("sock"), nil, cove.Forbidden, ""},
		{"a home with keys in it", in("home"), nil, cove.Forbidden, ""},
		{"a home with cloud credentials in it", in("cloud"), nil, cove.Forbidden, ""},
		{"the directory above them", in("cloud/.config"), nil, cove.Forbidden, ""},
		{"a directory above Cove's own", in("data/.local/share"), nil, cove.Forbidden, ""},
		{"a name that is forbidden elsewhere only", in("gcloud"), nil, "", in("gcloud")},
		{"a directory with an engine's socket in it", in("engine"), nil, cove.Forbidden, ""},
		{"under an allowed root", in("allowed/deep"), []string{in("allowed")}, "", in("allowed/deep")},
		{"the allowed root itself", in("allowed"), []string{in("allowed")}, "", in("allowed")},
		{"a root that is a link", in("allowed/deep"), []string{in("root-link")}, "", in("allowed/deep")},
		{"beside the allowed root", in("ok"), []string{in("allowed")}, cove.Forbidden, ""},
		{"a name that only begins alike", in("ok"), []string{in("o")}, cove.Forbidden, ""},
		{"a link out of the allowed root", in("allowed/out"), []string{in("allowed")}, cove.Forbidden, ""},
		{"no roots at all", in("ok"), []string{}, cove.Forbidden, ""},
		{"a root that does not exist", in("ok"), []string{in("nothing")}, cove.Forbidden, ""},
		{"an empty root", in("ok"), []string{""}, cove.Forbidden, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Rules{}.Check(tt.path, tt.roots)
			if cove.ErrorCode(err) != tt.code || got != tt.resolved {
				t.Errorf("%q, %v; want %q, %s", got, err, tt.resolved, tt.code)
			}
		})
	}
}

// TestOpenRace: while somebody swaps a directory for a link to a forbidden
// place, Open gives the directory or an error, and never the other place.
func TestOpenRace(t *testing.T) {
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	target, aside, secret := filepath.Join(base, "dir"), filepath.Join(base, "aside"), filepath.Join(base, ".ssh")
	for _, d := range []string{filepath.Join(target, "sub"), filepath.Join(secret, "sub")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	forbidden, err := os.Stat(filepath.Join(secret, "sub"))
	if err != nil {
		t.Fatal(err)
	}
	var stop atomic.Bool
	var racer sync.WaitGroup
	racer.Go(func() {
		for !stop.Load() {
			os.Rename(target, aside)
			os.Symlink(secret, target)
			os.Remove(target)
			os.Rename(aside, target)
		}
	})
	opened, refused := 0, 0
	for (opened < 100 || refused < 100) && opened+refused < 500_000 {
		f, err := open(filepath.Join(target, "sub"))
		if err != nil {
			refused++
			continue
		}
		opened++
		if fi, err := f.Stat(); err != nil || os.SameFile(fi, forbidden) {
			t.Fatalf("the forbidden place was opened, %v", err)
		}
		f.Close()
	}
	stop.Store(true)
	racer.Wait()
	if opened == 0 || refused == 0 {
		t.Errorf("opened %d times, refused %d: the race tested nothing", opened, refused)
	}
}

// TestOpenSaysWhy: what is refused is told from what was changed meanwhile.
func TestOpenSaysWhy(t *testing.T) {
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{"ok", ".ssh"} {
		if err := os.Mkdir(filepath.Join(base, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("ok", filepath.Join(base, "link")); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]struct {
		code cove.Code
		text string
	}{
		base + "/ok":      {"", ""},
		"/var":            {cove.Forbidden, "is refused: /var belongs to the host"},
		base + "/.ssh":    {cove.Forbidden, "is refused: .ssh holds credentials"},
		base + "/link":    {cove.Forbidden, "was changed while it was being opened"},
		base + "/ok/.":    {cove.Forbidden, "was changed while it was being opened"},
		base + "/nothing": {cove.NotFound, "does not exist"},
	} {
		f, err := open(path)
		if cove.ErrorCode(err) != want.code || err != nil &&
			(!strings.Contains(err.Error(), want.text) || cove.ErrorHint(err) == "" && want.code == cove.Forbidden) {
			t.Errorf("%s: %v, want %s %q", path, err, want.code, want.text)
		}
		if err == nil {
			f.Close()
		}
	}
}

// TestOwn: a place of Cove's own is below its directory, whatever was put on the way to it, and is not judged.
func TestOwn(t *testing.T) {
	base := filepath.Join(t.TempDir(), ".local", "share", "cove")
	for _, d := range []string{"agents/one/bin", "outside"} {
		if err := os.MkdirAll(filepath.Join(base, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(base, "agents/file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(base, "agents/fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{"agents/out": "../outside", "agents/in": "one", "agents/two": "/etc",
		"home": "agents"} {
		if err := os.Symlink(target, filepath.Join(base, name)); err != nil {
			t.Fatal(err)
		}
	}
	dir := filepath.Join(base, "agents")
	for _, c := range []struct {
		own  Own
		code cove.Code
	}{
		{Own{dir, "one"}, ""}, {Own{dir, "one/bin"}, ""}, {Own{dir, "file"}, ""}, {Own{dir, "."}, ""},
		{Below(base, dir+"/one"), ""}, {Below(base, base), ""},
		{Own{filepath.Join(base, "home"), "one"}, ""}, // the machine's owner has moved it
		{Own{dir, "out"}, cove.Forbidden}, {Own{dir, "in"}, cove.Forbidden}, {Own{dir, "in/bin"}, cove.Forbidden},
		{Own{dir, "two/passwd"}, cove.Forbidden},
		{Own{dir, "../outside"}, cove.Forbidden}, {Own{dir, "/etc"}, cove.Forbidden},
		{Own{dir, "one/../../outside"}, cove.Forbidden},
		{Below(dir, base+"/outside"), cove.Forbidden}, {Below(dir, "/etc"), cove.Forbidden},
		{Below(dir, "relative"), cove.NotFound},
		{Own{dir, "nothing"}, cove.NotFound}, {Own{dir, "file/x"}, cove.NotFound},
		{Own{base + "/nothing", "."}, cove.NotFound}, {Own{dir, ""}, cove.NotFound},
		{Own{dir, "fifo"}, cove.Forbidden},
	} {
		f, err := c.own.Open()
		if cove.ErrorCode(err) != c.code {
			t.Errorf("%+v: %v, want %q", c.own, err, c.code)
		}
		if err == nil {
			f.Close()
		}
	}
}

// TestOwnRace: while somebody swaps a directory on the way for a link, Open gives
// the directory or an error, and never the other place.
func TestOwnRace(t *testing.T) {
	base := t.TempDir()
	way, aside := filepath.Join(base, "state", "way"), filepath.Join(base, "aside")
	for _, d := range []string{filepath.Join(way, "place"), filepath.Join(base, "bait", "place")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	bait, err := os.Stat(filepath.Join(base, "bait", "place"))
	if err != nil {
		t.Fatal(err)
	}
	var stop atomic.Bool
	var racer sync.WaitGroup
	racer.Go(func() {
		for !stop.Load() {
			os.Rename(way, aside)
			os.Symlink(filepath.Join(base, "bait"), way)
			os.Remove(way)
			os.Rename(aside, way)
		}
	})
	opened, refused := 0, 0
	for (opened < 100 || refused < 100) && opened+refused < 500_000 {
		f, err := Own{filepath.Join(base, "state"), "way/place"}.Open()
		if err != nil {
			refused++
			continue
		}
		opened++
		if fi, err := f.Stat(); err != nil || os.SameFile(fi, bait) {
			t.Fatalf("the bait was opened, %v", err)
		}
		f.Close()
	}
	stop.Store(true)
	racer.Wait()
	if opened == 0 || refused == 0 {
		t.Errorf("opened %d times, refused %d: the race tested nothing", opened, refused)
	}
}

func FuzzJudge(f *testing.F) {
	f.Add("/home/x/.ssh")
	f.Add("/etc/../home")
	f.Fuzz(func(t *testing.T, path string) {
		if !filepath.IsAbs(path) {
			return
		}
		clean := filepath.Clean(path)
		if Judge(path) != Judge(clean) {
			t.Errorf("%q and %q are judged differently", path, clean)
		}
		if strings.HasPrefix(clean+"/", "/etc/") && Judge(path) == "" {
			t.Errorf("%q is allowed", path)
		}
	})
}
