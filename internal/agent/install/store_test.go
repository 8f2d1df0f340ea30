package install

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/agent"
	"github.com/cove-sandbox/cove/internal/egress/model"
	"github.com/cove-sandbox/cove/internal/workspace"
)

// lab is a Store whose sandboxes are this process: npm is a function that writes into a directory as npm would. What
// really happens in sandboxes is proved where agents are run.
type lab struct {
	*Store
	dir      string
	npm      func(dir string, args []string) Result
	says     string // of a program that is asked for its version
	exit     int    // of that
	runs     atomic.Int32
	registry func() (map[string]string, error)
}

func newLab(t *testing.T) *lab {
	l := &lab{dir: t.TempDir(), npm: works, registry: func() (map[string]string, error) {
		return map[string]string{"registry": "https://packages.lab.test/npm/", "@team:registry": "https://team.lab.test/"}, nil
	}}
	l.Store = Open(Options{
		Dir: filepath.Join(l.dir, "agents"), Beside: l.dir, Agents: agent.Builtin, Providers: model.Known, Run: l.run,
		Registry: func(context.Context) (map[string]string, error) { return l.registry() },
	})
	return l
}

func (l *lab) run(ctx context.Context, j Job) (Result, error) {
	l.runs.Add(1)
	if j.Script != installScript {
		if j.Network != nil || !j.Attachments[0].ReadOnly {
			return Result{}, errors.New("a program that is tried has a network, or can write")
		}
		if l.says != "" {
			return Result{ExitCode: l.exit, Stdout: l.says}, nil
		}
		version, err := os.ReadFile(filepath.Join(j.Attachments[0].Place.Name(), "version"))
		return Result{Stdout: string(version) + " (of the lab)\n"}, err
	}
	if n, _ := json.Marshal(j.Network); !strings.Contains(string(n), `presets: [npm]`) || strings.Contains(string(n), "allow") {
		return Result{}, fmt.Errorf("npm may reach %s", n)
	}
	if err := ctx.Err(); err != nil {
		return Result{Killed: true}, nil
	}
	return l.npm(j.Attachments[0].Place.Name(), j.Args), nil
}

// works is npm that has everything.
func works(dir string, args []string) Result {
	files := map[string]string{"version": args[1], "bin/" + args[2]: "program", "package-lock.json": `{"lockfileVersion":3}`}
	for name, content := range files {
		os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o755); err != nil {
			return Result{ExitCode: 1, Stderr: err.Error()}
		}
	}
	return Result{}
}

func (l *lab) install(t *testing.T, name, version string) (agent.Layer, error) {
	t.Helper()
	return l.Install(t.Context(), name, version, func(workspace.Step) {})
}

// TestProgressOfInstall: while npm is at work, it is told how much of the packages is there, without npm's cache, and
// of how much where the version is the pinned one.
func TestProgressOfInstall(t *testing.T) {
	l := newLab(t)
	for version, total := range map[string]int64{pinned: 378e6, "2.1.197": 0} {
		var told []workspace.Step
		half := make(chan struct{})
		seen := sync.OnceFunc(func() { close(half) }) // it is told again while npm goes on
		l.npm = func(dir string, args []string) Result {
			for name, size := range map[string]int{"node_modules/x": 2 << 20, ".npm/x": 5 << 20} {
				os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755)
				if err := os.WriteFile(filepath.Join(dir, name), make([]byte, size), 0o644); err != nil {
					return Result{ExitCode: 1, Stderr: err.Error()}
				}
			}
			select {
			case <-half:
			case <-time.After(10 * time.Second):
			}
			os.RemoveAll(filepath.Join(dir, ".npm"))
			os.Remove(filepath.Join(dir, ".npmrc"))
			return works(dir, args)
		}
		if _, err := l.Install(t.Context(), "claude", version, func(s workspace.Step) {
			if len(told) == 0 || told[len(told)-1] != s {
				told = append(told, s)
			}
			if s.Bytes == 2<<20 {
				seen()
			}
		}); err != nil {
			t.Fatal(err)
		}
		fetching := workspace.Step{Text: "fetching @anthropic-ai/claude-code " + version, Total: total}
		half1, all := fetching, fetching
		half1.Bytes, all.Bytes = 2<<20, 2<<20+int64(len(version+"program"+`{"lockfileVersion":3}`))
		want := []workspace.Step{fetching, half1, all, {Text: "trying Claude Code " + version}}
		if !slices.Equal(told, want) {
			t.Errorf("%+v, want %+v", told, want)
		}
	}
}

// left is what is in the directory of an agent.
func (l *lab) left(t *testing.T, name string) string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(l.dir, "agents", name))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}

const pinned = "2.1.329"

func TestInstall(t *testing.T) {
	l := newLab(t)
	claude, _ := l.Agent("claude")
	if _, err := l.Layer(claude); cove.ErrorCode(err) != cove.RuntimeMissing || !strings.Contains(err.Error(), "cove agents install claude") {
		t.Errorf("not installed: %v", err)
	}
	var seen string
	l.npm = func(dir string, args []string) Result {
		config, _ := os.ReadFile(filepath.Join(dir, ".npmrc"))
		seen = string(config)
		return works(dir, args)
	}
	got, err := l.install(t, "claude", "")
	if err != nil || got.Version != pinned || got.Source != filepath.Join(l.dir, "agents", "claude", pinned) {
		t.Fatalf("%+v, %v", got, err)
	}
	if seen != "@team:registry=https://team.lab.test/\nregistry=https://packages.lab.test/npm/\n" {
		t.Errorf("npm was told %q", seen)
	}
	if left := l.left(t, "claude"); left != ".lock 2.1.329 2.1.329.lock.json current" {
		t.Error(left)
	}
	if info, err := os.Stat(got.Source); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("%v, %v", info, err)
	}
	before := l.runs.Load()
	if _, err := l.install(t, "claude", pinned); err != nil || l.runs.Load() != before {
		t.Errorf("what is there is fetched again: %v", err)
	}
	// Another version is beside, and in use.
	if got, err = l.install(t, "claude", "2.1.197"); err != nil {
		t.Fatal(err)
	}
	if now, err := l.Layer(claude); err != nil || now != got || Size(now) == 0 {
		t.Errorf("%+v, %v", now, err)
	}
	if all, err := l.Versions(claude); err != nil || fmt.Sprint(all) != "[2.1.197 2.1.329]" {
		t.Errorf("%v, %v", all, err)
	}
	_, _, o, err := l.Outfit("claude", Want{})
	if err != nil || !slices.Equal(o.Layers, []cove.Layer{{Name: "claude/2.1.197", Target: "/opt/cove/agents/claude"}}) || o.Path != "/opt/cove/agents/claude/bin" {
		t.Errorf("%+v, %v", o, err)
	}
	for _, c := range []struct {
		name, version string
		want          cove.Code
	}{{"nobody", "", cove.NotFound}, {"claude", "latest", cove.InvalidArgument}, {"claude", "../../etc", cove.InvalidArgument}, {"claude", "^2.0.0", cove.InvalidArgument},
		{"worker", "1.0.0", cove.Unsupported}, {"worker", "", cove.RuntimeMissing}} {
		if _, err := l.install(t, c.name, c.version); cove.ErrorCode(err) != c.want {
			t.Errorf("%s@%s: %v", c.name, c.version, err)
		}
	}
	if err := os.WriteFile(filepath.Join(l.dir, "cove-worker"), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, _, o, err := l.Outfit("worker", Want{}); err != nil || o.Layers[0].Target != "/opt/cove/agents/worker/bin/cove-worker" {
		t.Errorf("%+v, %v", o, err)
	}
	if _, _, _, err := l.Outfit("claude", Want{ProviderName: "nobody"}); cove.ErrorCode(err) != cove.NotFound {
		t.Error(err)
	}
}

// TestFailures: whatever goes wrong, nothing is left that counts, and the error says what to do.
func TestFailures(t *testing.T) {
	full := "npm warn tar TAR_ENTRY_ERROR ENOSPC: no space left on device, write\nnpm error code ENOSPC\n"
	for name, c := range map[string]struct {
		result Result
		code   cove.Code
		says   string
	}{
		"disk full":       {Result{ExitCode: 228, Stderr: full}, cove.StorageFull, "there is no space for @anthropic-ai/claude-code 2.1.329"},
		"no network":      {Result{ExitCode: 1, Stderr: "npm error code ECONNREFUSED\nnpm error syscall connect\nnpm error FetchError: request failed\n"}, cove.Unavailable, "cannot be reached: code ECONNREFUSED; syscall connect"},
		"a gateway fails": {Result{ExitCode: 1, Stderr: "npm error code E502\n"}, cove.Unavailable, "cannot be reached"},
		"no such version": {Result{ExitCode: 1, Stderr: "npm error code ETARGET\nnpm error notarget No matching version found\n"}, cove.NotFound, "npm view @anthropic-ai/claude-code versions"},
		"needs a login":   {Result{ExitCode: 1, Stderr: "npm error code E401\n"}, cove.Forbidden, "without a login"},
		"changed":         {Result{ExitCode: 1, Stderr: "npm error code EINTEGRITY\n"}, cove.Corrupt, "is not what it was"},
		"no npm inside":   {Result{ExitCode: exitNoNpm}, cove.RuntimeMissing, "below /usr"},
		"no program":      {Result{ExitCode: exitNoProgram}, cove.Corrupt, "has no program claude"},
		"out of memory":   {Result{ExitCode: 137, Limit: cove.LimitOOM}, cove.LimitReached, "oom"},
		"too slow":        {Result{ExitCode: -1, Limit: cove.LimitTimeout}, cove.Unavailable, "in time"},
		"killed":          {Result{ExitCode: -1, Killed: true}, cove.Canceled, "ended it"},
		"something else":  {Result{ExitCode: 7, Stderr: "npm error boom\n"}, cove.Unavailable, "boom"},
	} {
		l := newLab(t)
		l.npm = func(dir string, args []string) Result {
			works(dir, args) // as far as it came
			return c.result
		}
		_, err := l.install(t, "claude", "")
		if cove.ErrorCode(err) != c.code || !strings.Contains(err.Error(), c.says) || c.code != cove.Canceled && cove.ErrorHint(err) == "" {
			t.Errorf("%s: %v", name, err)
		}
		if left := l.left(t, "claude"); left != ".lock" {
			t.Errorf("%s: left are %s", name, left)
		}
	}
	l := newLab(t)
	l.registry = func() (map[string]string, error) { return nil, cove.Errorf(cove.NotFound, "npm is not installed") }
	if _, err := l.install(t, "claude", ""); cove.ErrorCode(err) != cove.RuntimeMissing || !strings.Contains(err.Error(), "install Node.js") {
		t.Errorf("no npm: %v", err)
	}
	l = newLab(t)
	l.says = "1.0.0"
	if _, err := l.install(t, "claude", ""); cove.ErrorCode(err) != cove.Corrupt || l.left(t, "claude") != ".lock" {
		t.Errorf("another program: %v, %s", err, l.left(t, "claude"))
	}
	l = newLab(t)
	l.exit, l.says = exitNeeds, "node\n"
	if _, err := l.install(t, "gemini", ""); cove.ErrorCode(err) != cove.RuntimeMissing || !strings.Contains(err.Error(), "Gemini CLI needs node") {
		t.Errorf("needs node: %v", err)
	}
	l.exit, l.says = 1, "boom"
	if _, err := l.install(t, "gemini", ""); cove.ErrorCode(err) != cove.RuntimeMissing || !strings.Contains(err.Error(), "gemini --version ended with exit code 1") {
		t.Errorf("does not run: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := newLab(t).Install(ctx, "claude", "", func(workspace.Step) {}); cove.ErrorCode(err) != cove.Canceled {
		t.Errorf("canceled: %v", err)
	}
}

// TestHostilePackage: what a package writes leads nowhere on the host.
func TestHostilePackage(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte(`{"mine":true}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, hostile := range map[string]func(dir string){
		"lockfile is a link":  func(dir string) { os.Remove(dir + "/package-lock.json"); os.Symlink(secret, dir+"/package-lock.json") },
		"lockfile is no JSON": func(dir string) { os.WriteFile(dir+"/package-lock.json", []byte("}"), 0o644) },
		"no lockfile":         func(dir string) { os.Remove(dir + "/package-lock.json") },
		"lockfile is a directory": func(dir string) {
			os.Remove(dir + "/package-lock.json")
			os.Mkdir(dir+"/package-lock.json", 0o755)
		},
	} {
		l := newLab(t)
		l.npm = func(dir string, args []string) Result {
			works(dir, args)
			os.Symlink(filepath.Dir(secret), dir+"/out")
			hostile(dir)
			return Result{}
		}
		if _, err := l.install(t, "claude", ""); cove.ErrorCode(err) != cove.Corrupt {
			t.Errorf("%s: %v", name, err)
		}
		if left := l.left(t, "claude"); left != ".lock" {
			t.Errorf("%s: left are %s", name, left)
		}
		if data, err := os.ReadFile(secret); err != nil || string(data) != `{"mine":true}` {
			t.Errorf("%s: %s, %v", name, data, err)
		}
	}
}

// TestKilled: what a process leaves that dies meanwhile is removed by the next, and counts for nothing until then.
func TestKilled(t *testing.T) {
	l := newLab(t)
	claude, _ := l.Agent("claude")
	for _, left := range []string{".new-123", ".old-2.1.100"} {
		works(filepath.Join(l.dir, "agents", "claude", left), []string{"x", pinned, "claude"})
	}
	if all, err := l.Versions(claude); err != nil || len(all) != 0 {
		t.Errorf("%v, %v", all, err)
	}
	if _, err := l.Layer(claude); cove.ErrorCode(err) != cove.RuntimeMissing {
		t.Error(err)
	}
	// A version in use whose directory has gone is not installed.
	os.WriteFile(filepath.Join(l.dir, "agents", "claude", currentName), []byte("2.1.5\n"), 0o644)
	if _, err := l.Layer(claude); cove.ErrorCode(err) != cove.RuntimeMissing {
		t.Error(err)
	}
	os.WriteFile(filepath.Join(l.dir, "agents", "claude", currentName), []byte("../../etc\n"), 0o644)
	if _, err := l.Layer(claude); cove.ErrorCode(err) != cove.RuntimeMissing {
		t.Error(err)
	}
	if _, err := l.install(t, "claude", ""); err != nil {
		t.Fatal(err)
	}
	if left := l.left(t, "claude"); left != ".lock 2.1.329 2.1.329.lock.json current" {
		t.Error(left)
	}
}

// TestTwoAtOnce: one fetches, the other one waits and uses what is there.
func TestTwoAtOnce(t *testing.T) {
	l := newLab(t)
	var fetched atomic.Int32
	under := make(chan struct{})
	l.npm = func(dir string, args []string) Result {
		if fetched.Add(1) == 1 {
			<-under
		}
		return works(dir, args)
	}
	var all sync.WaitGroup
	waits := make(chan string, 100)
	for range 3 {
		all.Go(func() {
			_, err := l.Install(t.Context(), "claude", "", func(s workspace.Step) { waits <- s.Text })
			if err != nil {
				t.Error(err)
			}
		})
	}
	for {
		if strings.HasPrefix(<-waits, "waiting for another") {
			break
		}
	}
	close(under)
	all.Wait()
	if fetched.Load() != 1 {
		t.Errorf("fetched %d times", fetched.Load())
	}
	// Who waits can leave.
	unlock, err := l.lock(t.Context(), l.Agents()[0], func(workspace.Step) {})
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := l.Install(ctx, "claude", "2.1.1", func(workspace.Step) {}); cove.ErrorCode(err) != cove.Canceled {
		t.Error(err)
	}
}

func TestRemove(t *testing.T) {
	l := newLab(t)
	for _, v := range []string{"2.1.1", "2.1.2", "2.1.3"} {
		if _, err := l.install(t, "claude", v); err != nil {
			t.Fatal(err)
		}
	}
	used := func(dir string) []string {
		if strings.HasSuffix(dir, "/2.1.1") {
			return []string{"brave-otter"}
		}
		return nil
	}
	if _, err := l.Remove(t.Context(), "claude", "2.1.1", used); cove.ErrorCode(err) != cove.Conflict || !strings.Contains(err.Error(), "brave-otter") {
		t.Error(err)
	}
	if _, err := l.Remove(t.Context(), "claude", "9.9.9", used); cove.ErrorCode(err) != cove.NotFound {
		t.Error(err)
	}
	removed, err := l.Remove(t.Context(), "claude", "", used)
	if err != nil || fmt.Sprint(removed) != "[2.1.2]" {
		t.Errorf("%v, %v", removed, err)
	}
	claude, _ := l.Agent("claude")
	if now, err := l.Layer(claude); err != nil || now.Version != "2.1.3" {
		t.Errorf("%+v, %v", now, err)
	}
	if removed, err = l.Remove(t.Context(), "claude", "2.1.3", used); err != nil || !slices.Equal(removed, []string{"2.1.3"}) {
		t.Errorf("%v, %v", removed, err)
	}
	if _, err := l.Layer(claude); cove.ErrorCode(err) != cove.RuntimeMissing {
		t.Error(err)
	}
	// Installed again it is held to what it was.
	var known string
	l.npm = func(dir string, args []string) Result {
		data, _ := os.ReadFile(filepath.Join(dir, "known-lock.json"))
		known = string(data)
		return works(dir, args)
	}
	if _, err := l.install(t, "claude", "2.1.3"); err != nil || known != `{"lockfileVersion":3}` {
		t.Errorf("%q, %v", known, err)
	}
}
