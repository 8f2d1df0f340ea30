package doctor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/engine/enginetest"
	"github.com/cove-sandbox/cove/internal/engine/enginetest/fake"
	nativeengine "github.com/cove-sandbox/cove/internal/engine/native"
	"github.com/cove-sandbox/cove/internal/engine/provision"
	"github.com/cove-sandbox/cove/internal/instance"
	"github.com/cove-sandbox/cove/internal/linux/cgroup"
	"github.com/cove-sandbox/cove/internal/version"
)

// turnedOffVar makes the test binary examine a user namespace without nested ones.
const turnedOffVar = "COVE_TEST_DOCTOR_TURNED_OFF"

// TestMain makes the test binary its own probe.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "doctor-probe" {
		os.Exit(RunProbe(os.Args[2:]))
	}
	if os.Getenv(turnedOffVar) != "" {
		os.Exit(turnedOff())
	}
	code := m.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		os.Stderr.WriteString(err.Error() + "\n")
		code = 1
	}
	os.Exit(code)
}

func probe() []string { return []string{"/proc/self/exe", "doctor-probe"} }

func here(t testing.TB) Options {
	t.Helper()
	return Options{Version: version.Version, Probe: probe(), Home: t.TempDir(), Guest: enginetest.BuildGuest(t)}
}

var small = provision.Plan{
	Shape: cove.Shape{
		User:   cove.CodeUser,
		Limits: cove.Limits{Memory: 128 << 20, CPUs: 1, PIDs: 50, Disk: 16 << 20, Inodes: 1000, OpenFiles: 256},
	},
}

// realNative returns the native engine as the daemon makes it.
func realNative(t *testing.T, guest string) Engine {
	run := t.TempDir()
	for _, dir := range []string{filepath.Dir(run), run} { // the guest's own ids need access
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return Engine{Name: native, Plan: small, Args: []string{"/bin/true"},
		Open: func(context.Context) (engine.Engine, error) {
			in, err := instance.Hold(run) // each engine has its own, as checks run at the same time
			if err != nil {
				return nil, err
			}
			t.Cleanup(func() { in.Release() })
			return nativeengine.New(nativeengine.Options{Guest: guest, RunDir: run, Instance: in.ID, CgroupParent: "cove-test",
				Log: slog.New(slog.DiscardHandler)})
		}}
}

// TestHere examines this machine with the real engine.
func TestHere(t *testing.T) {
	o := here(t)
	o.Engines = []Engine{realNative(t, o.Guest)}
	r := Run(t.Context(), o)
	var b bytes.Buffer
	if err := r.Text(&b, false); err != nil {
		t.Fatal(err)
	}
	t.Logf("\n%s", b.String())
	ids := map[string]bool{}
	for _, f := range r.Findings {
		if f.ID == "" || f.Area == "" || f.Title == "" || f.Found == "" || ids[f.ID] ||
			!slices.Contains([]Status{OK, Info, Warn, Fail}, f.Status) {
			t.Errorf("finding %+v", f)
		}
		if f.Status == Fail && f.Fix == "" {
			t.Errorf("%s fails without saying what to do: %s", f.ID, f.Found)
		}
		ids[f.ID] = true
	}
	for _, id := range expected(t) {
		i := slices.IndexFunc(r.Findings, func(f Finding) bool { return f.ID == id })
		if i < 0 || r.Findings[i].Status != OK {
			t.Errorf("%s should be ok here", id)
		}
	}
	if len(expected(t)) > 0 {
		want := map[bool]Status{true: OK, false: Warn}[enginetest.TmpfsXattrs(t)]
		i := slices.IndexFunc(r.Findings, func(f Finding) bool { return f.ID == "overlay.directories" })
		if i < 0 || r.Findings[i].Status != want {
			t.Errorf("overlay.directories should be %s here", want)
		}
	}
	if left := groups(t); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

// expected returns the checks that must succeed on this machine: all that the native engine needs, for root; in the
// test VM they depend on the account.
func expected(t *testing.T) []string {
	always := []string{"userns.self", "namespaces", "proc", "limit.watches", "limit.terminals", "limit.signals",
		"limit.locks", "limit.disk", "limit.inodes", "peer", "seccomp", "overlay", "mounts.api", "pidfd", "home", "guest"}
	limits := []string{"cgroup.controllers", "cgroup.birth", "limit.memory", "limit.sockets", "limit.pids", "limit.cpu",
		"engine.native", "workspace.native"}
	account := os.Getenv("COVE_TEST_IN_VM")
	switch {
	case os.Geteuid() == 0:
		return append(append(always, limits...), "mounts.idmap", "limit.throughput")
	case account == "delegated", account == "service":
		return append(append(always, limits...), "subids")
	case account == "norange":
		return append(always, limits...)
	case account == "partial": // without the cpu controller
		return append(always, "cgroup.birth", "limit.memory", "limit.sockets", "limit.pids")
	case account == "undelegated":
		return append(always, "subids")
	}
	t.Log("not root: only that every check ends is tested")
	return nil
}

// groups returns the control groups made by this process's doctors.
func groups(t *testing.T) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(cgroup.Mount, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && d.Name() == fmt.Sprintf("cove-doctor-%d", os.Getpid()) {
			found = append(found, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// TestLimitsAreWhatStops: without its limit each trial succeeds, so that a passed check has seen the limit at work.
func TestLimitsAreWhatStops(t *testing.T) {
	h := newHost(here(t))
	defer h.close()
	hierarchy, err := h.hierarchy()
	if err != nil || !hierarchy.Has(cgroup.PIDs) {
		t.Skip("needs control groups of its own")
	}
	try := func(name string, args ...string) grouped {
		r, err := h.tryLimited(t.Context(), cgroup.Limits{}, trial{name: name, args: args})
		if err != nil || r.err != nil {
			t.Fatalf("%s: %v, %v", name, err, r.err)
		}
		return r
	}
	if r := try("memory", "50331648"); r.found != "used 48 MiB" || r.stats.OOMKills != 0 {
		t.Errorf("memory: %+v", r)
	}
	if r := try("pids", append([]string{"48"}, append(h.options.Probe[1:], "wait")...)...); r.found !=
		"started 48 processes" || r.stats.PIDsDenied != 0 {
		t.Errorf("pids: %+v", r)
	}
	if took, err := time.ParseDuration(try("cpu", "20ms").found); err != nil || took <= 0 {
		t.Errorf("cpu: %v, %v", took, err)
	}
}

// TestUserNamespacesTurnedOff examines an environment without user namespaces.
func TestUserNamespacesTurnedOff(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), turnedOffVar+"=1")
	cmd.SysProcAttr = attributes(unix.CLONE_NEWUSER)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Skipf("needs user namespaces itself: %v: %s", err, out)
	}
	for _, want := range []string{"fail user namespaces", "no space left on device", "user.max_user_namespaces = 15000"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("%q is not in:\n%s", want, out)
		}
	}
}

func turnedOff() int {
	if err := os.WriteFile("/proc/sys/user/max_user_namespaces", []byte("0"), 0); err != nil {
		os.Stderr.WriteString(err.Error())
		return 1
	}
	h := newHost(Options{Probe: probe()})
	f := check{title: "user namespaces", needs: native}.finding(checkUserNamespace(context.Background(), h), native)
	os.Stdout.WriteString(string(f.Status) + " " + f.Title + ": " + f.Found + "\n" + f.Fix + "\n")
	return 0
}

func TestTryEngine(t *testing.T) {
	withoutLimits := engine.Capabilities{Missing: map[string]string{"memory_limit": "mount it", "pids_limit": "mount it"},
		CPULimit: true, SwapLimit: true, DiskLimit: true}
	open := func(o fake.Options, f fake.Faults) func(context.Context) (engine.Engine, error) {
		return func(context.Context) (engine.Engine, error) {
			e := fake.New(o)
			e.Inject(f)
			return e, nil
		}
	}
	for _, test := range []struct {
		name  string
		open  func(context.Context) (engine.Engine, error)
		args  []string
		want  Status
		found string
		fix   string
	}{
		{"works", open(fake.Options{}, fake.Faults{}), []string{"true"}, OK, "made, used and removed", ""},
		{"the program fails", open(fake.Options{}, fake.Faults{}), []string{"false"}, Fail, "exit code 1", ""},
		{"cannot be opened", func(context.Context) (engine.Engine, error) {
			return nil, cove.Errorf(cove.Unavailable, "no engine").WithHint("start it")
		}, nil, Fail, "no engine", "start it"},
		{"cannot prepare", open(fake.Options{}, fake.Faults{Prepare: errors.New("broken")}), []string{"true"},
			Fail, "broken", ""},
		{"cannot destroy", open(fake.Options{}, fake.Faults{Destroy: errors.New("stuck")}), []string{"true"},
			Fail, "stuck", ""},
		{"cannot limit", open(fake.Options{Capabilities: &withoutLimits}, fake.Faults{}), []string{"true"}, Fail,
			"cannot enforce memory_limit, pids_limit", "mount it"},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := tryEngine(t.Context(), Engine{Name: "fake", Open: test.open, Plan: small, Args: test.args}, "fake")
			if o.status != test.want || !strings.Contains(o.found, test.found) || o.fix != test.fix {
				t.Errorf("%+v", o)
			}
		})
	}
}

func TestAnotherEngineThatIsNotHereIsNoNews(t *testing.T) {
	absent := Engine{Name: "docker", Open: func(context.Context) (engine.Engine, error) {
		return nil, cove.Errorf(cove.Unavailable, "no engine").WithHint("start it")
	}}
	if o := tryEngine(t.Context(), absent, native); o.status != Info || o.fix != "" {
		t.Errorf("%+v", o)
	}
}

// TestDocumented: docs/doctor.md lists exactly the checks.
func TestDocumented(t *testing.T) {
	if os.Getenv("COVE_TEST_IN_VM") != "" {
		t.Skip("the documents are not in the VM")
	}
	page, err := os.ReadFile("../../docs/doctor.md")
	if err != nil {
		t.Fatal(err)
	}
	_, page, _ = bytes.Cut(page, []byte("| id |"))
	var listed, there []string
	for line := range strings.Lines(string(page)) {
		cell, _, _ := strings.Cut(strings.TrimPrefix(line, "| "), " |")
		for name := range strings.SplitSeq(cell, ", ") {
			if id, ok := strings.CutPrefix(name, "`"); ok {
				listed = append(listed, strings.TrimSuffix(id, "`"))
			}
		}
	}
	var all []Engine
	for _, name := range engine.Names() {
		all = append(all, Engine{Name: name})
	}
	for _, c := range append(checks(), engineChecks(Options{Engines: all})...) {
		there = append(there, c.id)
	}
	slices.Sort(listed)
	slices.Sort(there)
	if !slices.Equal(listed, there) {
		t.Errorf("documented:\n%v\nthere:\n%v", listed, there)
	}
}

// TestCanceled: a cancelled caller does not wait.
func TestCanceled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	start := time.Now()
	if r := Run(ctx, here(t)); len(r.Findings) == 0 || time.Since(start) > 10*time.Second {
		t.Errorf("%d findings after %v", len(r.Findings), time.Since(start))
	}
}

func TestRunProbeRefusesOthers(t *testing.T) {
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	stderr := os.Stderr
	os.Stderr = null
	defer func() { os.Stderr = stderr }()
	for _, args := range [][]string{nil, {"rm"}} {
		if code := RunProbe(args); code == 0 {
			t.Errorf("%v: exit code 0", args)
		}
	}
}
