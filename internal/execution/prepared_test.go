package execution_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine/enginetest/fake"
	"github.com/cove-sandbox/cove/internal/engine/pool"
	"github.com/cove-sandbox/cove/internal/engine/process"
	"github.com/cove-sandbox/cove/internal/engine/provision"
	"github.com/cove-sandbox/cove/internal/execution"
	"github.com/cove-sandbox/cove/internal/guest"
	languages "github.com/cove-sandbox/cove/internal/runtime"
	"github.com/cove-sandbox/cove/test/await"
)

func pooled(o *execution.Options) {
	o.Pool = pool.Options{Terms: pool.Terms{Most: 2, Age: time.Hour}, Memory: 1 << 30}
}

// tell says all that a program has been given.
func tell(p *fake.Process) int {
	code, err := p.ReadFile("main.py")
	if err != nil {
		fmt.Fprint(p.Stderr, err)
		return 1
	}
	input, _ := io.ReadAll(p.Stdin)
	file, _ := p.ReadFile("data.txt")
	fmt.Fprintf(p.Stdout, "%s %q %s %s %s %s", code, p.Args[1:], p.Getenv("NAME"), input, file, p.Dir)
	return 0
}

// TestPrepared: an execution in a prepared sandbox is as any other, whatever it is given.
func TestPrepared(t *testing.T) {
	h := newHouse(t, tell, pooled)
	parked := func(r execution.Request) bool {
		return len(r.Args)+len(r.Env)+len(r.Files) == 0 && r.Stdin == nil
	}
	for name, change := range map[string]func(*execution.Request){
		"plain":       func(*execution.Request) {},
		"arguments":   func(r *execution.Request) { r.Args = []string{"one", "two"} },
		"environment": func(r *execution.Request) { r.Env = map[string]string{"NAME": "value"} },
		"input":       func(r *execution.Request) { r.Stdin = strings.NewReader("typed") },
		"files":       func(r *execution.Request) { r.Files = []provision.File{{Path: "data.txt", Data: []byte("held")}} },
		"limits":      func(r *execution.Request) { r.Limits.Memory = 64 << 20 },
		"large":       func(r *execution.Request) { r.Code = []byte(strings.Repeat("x", 40<<10)) },
	} {
		t.Run(name, func(t *testing.T) {
			if err := h.Pool.Drain(t.Context()); err != nil {
				t.Fatal(err)
			}
			run := func() string {
				r := python(name)
				change(&r)
				result, err := h.Execute(t.Context(), owner, r, nil, nil)
				if err != nil || result.ExitCode != 0 {
					t.Fatalf("%+v, %v", result, err)
				}
				return stdout(t, result)
			}
			fresh := run()
			await.That(t, "a sandbox is prepared", func() bool {
				all := kinds(h)
				return len(all) == 1 && all[0].Ready == all[0].Size
			})
			if again := run(); again != fresh {
				t.Errorf("prepared %.300q, fresh %.300q", again, fresh)
			}
			r := python(name)
			change(&r)
			s := kinds(h)[0]
			if s.Hits != 1 || s.Misses != 1 || (s.Key.Parked == "python") != (parked(r) && name != "large") {
				t.Errorf("%+v", s)
			}
		})
	}
}

// TestNotPrepared: what has something of its own in its sandbox gets one that was made for it.
func TestNotPrepared(t *testing.T) {
	h := newHouse(t, say, pooled)
	for name, change := range map[string]func(*execution.Request){
		"a directory of the host": func(r *execution.Request) { r.Bind = t.TempDir() },
		"root inside":             func(r *execution.Request) { r.User, r.Image = cove.RootUser, "oci:there" },
	} {
		r := python("x")
		change(&r)
		if _, err := h.Execute(t.Context(), owner, r, nil, nil); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if all := kinds(h); len(all) != 0 {
			t.Errorf("%s: %+v", name, all)
		}
	}
}

// TestPreparedFails: where a prepared sandbox dies as it is given its code, another one runs that.
func TestPreparedFails(t *testing.T) {
	h := newHouse(t, tell, pooled)
	if err := h.Pool.Warm(t.Context(), "python", "", 1); err != nil {
		t.Fatal(err)
	}
	await.That(t, "one is prepared", func() bool { return len(kinds(h)) == 1 && kinds(h)[0].Ready == 1 })
	first := h.engine.Live()[0]
	killed := errors.New("not killed")
	started := func(cove.ExecutionID) {
		await.That(t, "it is claimed", func() bool { return kinds(h)[0].Hits == 1 })
		sb := h.engine.Sandbox(first)
		killed = sb.Kill()
		<-sb.Done()
	}
	r, err := h.Execute(t.Context(), owner, python("lives"), started, nil)
	if err != nil || killed != nil || r.ExitCode != 0 || !strings.HasPrefix(stdout(t, r), "lives") {
		t.Errorf("%+v, %v, %v", r, err, killed)
	}
	if s := kinds(h)[0]; s.Hits != 1 || s.Misses != 0 {
		t.Errorf("it was not the prepared one: %+v", s)
	}
}

// TestPreparedBesideJobs: agents' tasks, which wait for models, leave the processors to what is prepared.
func TestPreparedBesideJobs(t *testing.T) {
	most := runtime.GOMAXPROCS(0)
	h := newHouse(t, say, pooled, func(o *execution.Options) { o.MaxConcurrent = most })
	var jobs sync.WaitGroup
	defer jobs.Wait()
	end := make(chan struct{})
	defer close(end)
	begun := make(chan struct{})
	for range most {
		jobs.Go(func() {
			r, err := h.Do(context.Background(), owner, execution.Job{Language: "claude", Code: []byte("x"),
				Do: func(context.Context, cove.ExecutionID, process.Output) (execution.Result, error) {
					begun <- struct{}{}
					<-end
					return execution.Result{}, nil
				}}, nil)
			if err != nil {
				t.Error(err)
				return
			}
			r.Output.Release()
		})
	}
	for range most {
		<-begun
	}
	if err := h.Pool.Warm(t.Context(), "python", "", 1); err != nil {
		t.Fatal(err)
	}
	await.That(t, "one is prepared", func() bool { return len(kinds(h)) == 1 && kinds(h)[0].Ready == 1 })
}

// TestParkedFits: no runtime parks more code than a guest takes for a parked reader.
func TestParkedFits(t *testing.T) {
	for _, r := range languages.All() {
		if r.Parked > guest.MaxParked {
			t.Errorf("%s parks %d bytes, and a guest takes %d", r.Name, r.Parked, guest.MaxParked)
		}
	}
}

func kinds(h *house) []pool.Status {
	all, _ := h.Pool.Status()
	return all
}

func TestWarm(t *testing.T) {
	h := newHouse(t, say, pooled)
	if err := h.Pool.Warm(t.Context(), "latin", "", 1); cove.ErrorCode(err) != cove.InvalidArgument {
		t.Errorf("no such language: %v", err)
	}
	if err := h.Pool.Warm(t.Context(), "python", "", 3); cove.ErrorCode(err) != cove.InvalidArgument {
		t.Errorf("more than the pool has: %v", err)
	}
	if err := h.Pool.Warm(t.Context(), "python", "oci:/none", 1); cove.ErrorCode(err) != cove.ImageMissing {
		t.Errorf("no such image: %v", err)
	}
	if err := h.Pool.Warm(t.Context(), "perl", "", 1); err != nil {
		t.Error(err)
	}
	await.That(t, "an empty one", func() bool {
		all := kinds(h)
		return len(all) == 1 && all[0].Ready == 1 && all[0].Key.Parked == ""
	})
	h = newHouse(t, tell, pooled) // a program that waits for its code
	of := execution.Plain{Language: "python", Limits: cove.Limits{Memory: 64 << 20}}
	if err := h.Pool.Configure(t.Context(), of, pool.Terms{Least: 1, Most: 5, Refill: 1}); err != nil {
		t.Error(err)
	}
	r := python("1")
	r.Limits.Memory = 64 << 20
	await.That(t, "one is prepared", func() bool { all := kinds(h); return len(all) == 1 && all[0].Ready == 1 })
	if _, err := h.Execute(t.Context(), owner, r, nil, nil); err != nil {
		t.Fatal(err)
	}
	want := pool.Terms{Least: 1, Most: 5, Refill: 1, Age: time.Hour}
	if all := kinds(h); len(all) != 1 || all[0].Hits != 1 || all[0].Terms != want {
		t.Errorf("%+v, want %+v", all, want)
	}
	err := h.Pool.Configure(t.Context(), execution.Plain{Language: "python"}, pool.Terms{Least: 3})
	if cove.ErrorCode(err) != cove.InvalidArgument || !strings.Contains(cove.ErrorHint(err), "at most 2") {
		t.Errorf("more than the pool has: %v", err)
	}
	networked := newHouse(t, say, pooled, func(o *execution.Options) {
		o.Defaults.Network = &cove.Network{Enabled: true, Mode: cove.NetworkOpen}
	})
	if err := networked.Pool.Warm(t.Context(), "python", "", 1); cove.ErrorCode(err) != cove.Unsupported {
		t.Errorf("with a network: %v", err)
	}
}
