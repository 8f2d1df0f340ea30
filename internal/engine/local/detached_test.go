//go:build linux

package local

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/instance"
)

func wantCode(t *testing.T, doing string, err error, want cove.Code) {
	t.Helper()
	if cove.ErrorCode(err) != want {
		t.Errorf("%s: %v, want %s", doing, err, want)
	}
}

func hold(t *testing.T, r Registry) *instance.Instance {
	t.Helper()
	self, err := instance.Hold(r.RunDir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { self.Lock().Close() })
	return self
}

// TestLife takes one from its maker to the next process and to its end. What
// Bind hands out stands for the guest: it lives for as long as the lock is open.
func TestLife(t *testing.T) {
	r := Registry{RunDir: t.TempDir(), Engine: "some"}
	id := cove.NewSandboxID()
	k, err := r.New(hold(t, r), Record{Under: "parent", Name: "made", Tasks: 7,
		Template: engine.Template{ID: id, Shape: cove.Shape{User: cove.AgentUser}}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = r.New(hold(t, r), Record{Template: engine.Template{ID: id}})
	wantCode(t, "another of that id", err, cove.Conflict)
	_, err = r.Take(id, "parent", "it")
	wantCode(t, "taking what its maker has", err, cove.Conflict)
	var plan guest.Bind
	held, sent, err := k.Bind(&plan, []*os.File{os.Stdin}, os.Stdout)
	if err != nil || *plan.Door != 1 || !slices.Equal(plan.Hold, []int{2, 3}) || len(held) != 4 || held[0] != os.Stdin ||
		held[3] != os.Stdout {
		t.Fatalf("%+v, %v, %v", plan, held, err)
	}
	fd, err := syscall.Dup(int(held[2].Fd()))
	if err != nil {
		t.Fatal(err)
	}
	lock := os.NewFile(uintptr(fd), "lock")
	sent(true)
	if left, err := r.Left(); err != nil || len(left) > 0 {
		t.Errorf("left while its maker has it: %v, %v", left, err)
	}
	runs := func(when string, want bool) {
		t.Helper()
		if runs, err := r.Runs(id); err != nil || runs != want {
			t.Errorf("%s: it runs: %t, %v", when, runs, err)
		}
	}
	runs("its maker has it", true)
	if err := k.Disown(); err != nil {
		t.Fatal(err)
	}

	runs("no process has it", true)
	if left, err := r.Left(); err != nil || !slices.Equal(left, []cove.SandboxID{id}) {
		t.Errorf("left %v, %v", left, err)
	}
	if removed, err := r.Sweep(); err != nil || len(removed) > 0 {
		t.Errorf("swept one that runs: %v, %v", removed, err)
	}
	if left, err := (Registry{RunDir: r.RunDir, Engine: "another"}).Left(); err != nil || len(left) > 0 {
		t.Errorf("another engine's: %v, %v", left, err)
	}
	_, err = r.Take(id, "elsewhere", "the setting")
	if wantCode(t, "taking it under something else", err, cove.Conflict); !strings.Contains(err.Error(), "the setting") {
		t.Errorf("it does not say what to do: %v", err)
	}
	k, err = r.Take(id, "parent", "it")
	if err != nil || k.Record.Name != "made" || k.Record.Tasks != 7 || k.Record.Template.User != cove.AgentUser {
		t.Fatalf("%+v, %v", k, err)
	}
	// Its manager is killed, and lets go of it a moment later.
	disowned := make(chan error, 1)
	time.AfterFunc(lockGrace/40, func() { disowned <- k.Disown() })
	runs("its manager is being killed", true)
	if err := <-disowned; err != nil {
		t.Fatal(err)
	}
	if k, err = r.Take(id, "parent", "it"); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(lockGrace/40, func() { disowned <- k.Disown() })
	if next, err := r.Take(id, "parent", "it"); err != nil {
		t.Errorf("taken when its manager has let go of it: %v", err)
	} else if err := errors.Join(<-disowned, next.Disown()); err != nil {
		t.Error(err)
	}

	lock.Close()
	runs("it has ended", false)
	_, err = r.Take(id, "parent", "it")
	wantCode(t, "taking one that has ended", err, cove.NotFound)
	if !r.Has(id) {
		t.Error("it is gone before it is swept")
	}
	if removed, err := r.Sweep(); err != nil || len(removed) != 1 || r.Has(id) {
		t.Errorf("swept %v, %v", removed, err)
	}
	_, err = r.Take(id, "parent", "it")
	wantCode(t, "taking one that was swept", err, cove.NotFound)
	runs("it was swept", false)
}

// TestSweepAfterDeath: a sweep removes what a process has left that died while it made the directory of a sandbox, or
// removed one.
func TestSweepAfterDeath(t *testing.T) {
	r := Registry{RunDir: t.TempDir(), Engine: "some"}
	for name, files := range map[string][]string{
		fresh + "empty":             nil,
		fresh + "owned":             {ownerFile},
		string(cove.NewSandboxID()): {recordFile, doorFile},
	} {
		if err := os.MkdirAll(filepath.Join(r.dir(), name), 0o700); err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if err := os.WriteFile(filepath.Join(r.dir(), name, file), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := r.Sweep(); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(r.dir()); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
}

// TestMadeDuringSweeps: sandboxes are made while sweeps take what nobody manages.
func TestMadeDuringSweeps(t *testing.T) {
	r := Registry{RunDir: t.TempDir(), Engine: "some"}
	stop := make(chan struct{})
	var sweeping sync.WaitGroup
	for range 4 {
		sweeping.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := r.Sweep(); err != nil {
					t.Error(err)
				}
				if _, err := r.Left(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 100 {
		k, err := r.New(hold(t, r), Record{Template: engine.Template{ID: cove.NewSandboxID()}})
		if err != nil {
			t.Error(err)
			break
		}
		if err := k.Remove(); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	sweeping.Wait()
}

// TestRecordOfEarlierVersion: a sandbox that an earlier version of Cove made is
// taken as it was, for as long as it runs.
func TestRecordOfEarlierVersion(t *testing.T) {
	r := Registry{RunDir: t.TempDir(), Engine: "some"}
	id := cove.NewSandboxID()
	self := hold(t, r)
	k, err := r.New(self, Record{Template: engine.Template{ID: id}})
	if err != nil {
		t.Fatal(err)
	}
	record := `{"Instance":"` + string(self.ID) + `","Under":"parent","Name":"made","Tasks":7,"Template":{"ID":"` +
		string(id) + `","Isolation":"container",` +
		`"Rootfs":{"Kind":"host","Dir":"","Digest":"","Image":"","Env":null},"Limits":{"Memory":1024,"CPUs":2,"PIDs":3,"Disk":4,"Inodes":5,"OpenFiles":6,` +
		`"Stdout":7,"Stderr":8,"Timeout":9},"User":"agent","Network":"limited","Lasting":true}}`
	if err := os.WriteFile(k.Path(recordFile), []byte(record), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := k.Disown(); err != nil {
		t.Fatal(err)
	}
	k, err = r.Take(id, "parent", "it")
	if err != nil {
		t.Fatal(err)
	}
	want := engine.Template{ID: id, Rootfs: engine.Rootfs{Kind: engine.RootfsHost}, Network: cove.NetworkLimited,
		Shape: cove.Shape{
			Isolation: cove.IsolationContainer, User: cove.AgentUser, Lifetime: cove.LifetimeDetached,
			Limits: cove.Limits{Memory: 1024, CPUs: 2, PIDs: 3, Disk: 4, Inodes: 5, OpenFiles: 6, Stdout: 7,
				Stderr: 8, Timeout: 9},
		}}
	if got := k.Record.Template; !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}

// TestRecordThatCannotBeRead: it is said.
func TestRecordThatCannotBeRead(t *testing.T) {
	r := Registry{RunDir: t.TempDir(), Engine: "some"}
	k, err := r.New(hold(t, r), Record{Template: engine.Template{ID: cove.NewSandboxID()}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(k.Path(recordFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := k.Disown(); err != nil {
		t.Fatal(err)
	}
	_, err = r.Left()
	wantCode(t, "listing", err, cove.Corrupt)
	_, err = r.Take(k.Record.Template.ID, "", "it")
	wantCode(t, "taking it", err, cove.Corrupt)
}

// TestReleasedWaits: a descriptor of the lock that another process still shares for a moment is waited for.
func TestReleasedWaits(t *testing.T) {
	dir := t.TempDir()
	in, err := instance.Hold(dir)
	if err != nil {
		t.Fatal(err)
	}
	d := &Detached{runDir: dir, Record: Record{Instance: in.ID}}
	if !d.runs() {
		t.Fatal("the lock is not held")
	}
	freed := make(chan bool, 1)
	go func() { freed <- d.released() }()
	if err := in.Entrust(); err != nil { // the last descriptor closes
		t.Fatal(err)
	}
	if !<-freed {
		t.Error("the lock stays held")
	}
}

// holdingDir makes the test binary a process that makes a sandbox there, until it is killed.
const holdingDir = "COVE_TEST_LOCAL_HOLDING"

func TestMain(m *testing.M) {
	if dir := os.Getenv(holdingDir); dir != "" {
		holdUnmade(dir)
	}
	os.Exit(m.Run())
}

// holdUnmade holds what a process does that makes a sandbox: the lock, and a directory whose owner is not locked yet.
func holdUnmade(dir string) {
	unlock, err := lock(dir)
	if err == nil {
		defer unlock()
		err = os.Mkdir(filepath.Join(dir, fresh+"held"), 0o700)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, fresh+"held", ownerFile), nil, 0o600)
	}
	fmt.Println(err)
	time.Sleep(time.Hour) // sleep: until it is killed
}

// TestSweepWaitsForMaking: a sweep takes nothing of a sandbox that another process is making. Once that process is
// killed, the sweep goes on at once, and removes what it has left.
func TestSweepWaitsForMaking(t *testing.T) {
	r := Registry{RunDir: t.TempDir(), Engine: "some"}
	if err := os.MkdirAll(r.dir(), 0o700); err != nil {
		t.Fatal(err)
	}
	maker := exec.Command(os.Args[0])
	maker.Env = append(os.Environ(), holdingDir+"="+r.dir())
	out, err := maker.StdoutPipe()
	if err == nil {
		err = maker.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { maker.Process.Kill(); maker.Wait() }()
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "<nil>\n" {
		t.Fatalf("the maker says %q, %v", line, err)
	}
	swept := make(chan error, 2)
	for _, look := range []func() error{
		func() error { _, err := r.Sweep(); return err },
		func() error { _, err := r.Left(); return err },
	} {
		go func() { swept <- look() }()
	}
	select {
	case err := <-swept:
		t.Errorf("a sweep did not wait: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
	if _, err := os.Stat(filepath.Join(r.dir(), fresh+"held", ownerFile)); err != nil {
		t.Errorf("the sandbox that is being made: %v", err)
	}
	maker.Process.Kill()
	maker.Wait()
	for range 2 {
		select {
		case err := <-swept:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(5 * time.Second):
			t.Fatal("the lock of a process that was killed is held")
		}
	}
	if left, err := os.ReadDir(r.dir()); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
}
