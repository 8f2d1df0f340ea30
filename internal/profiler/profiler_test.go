package profiler

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if at := os.Getenv("COVE_TEST_PROFILES"); at != "" { // the process that asks
		os.Exit(ask(at))
	}
	goleak.VerifyTestMain(m)
}

// ask reports by its exit code whether a socket answers: 3 where the connection is closed at once.
func ask(at string) int {
	r, err := clientOf(at).Get("http://cove/debug/pprof/cmdline")
	if err != nil {
		return 3
	}
	r.Body.Close()
	return 0
}

func clientOf(at string) *http.Client {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", at)
		}}}
}

// serve serves profiles of this process until the test ends. What it logs is in log afterwards.
func serve(t *testing.T, log io.Writer) (at string) {
	t.Helper()
	at = filepath.Join(t.TempDir(), "s")
	s, err := Listen(at, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := s.Serve(); err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	t.Cleanup(func() {
		s.Close()
		serving.Wait()
		if _, err := os.Stat(at); err == nil {
			t.Error("the socket is left")
		}
	})
	return at
}

// TestTools: the tools of the Go distribution read what is served.
func TestTools(t *testing.T) {
	at := serve(t, t.Output())
	for _, c := range []struct {
		path  string
		tool  []string
		wants string
	}{
		{"/debug/pprof/heap", []string{"pprof", "-top"}, "inuse_space"},
		{"/debug/pprof/allocs", []string{"pprof", "-top"}, "alloc_space"},
		{"/debug/pprof/profile?seconds=1", []string{"pprof", "-top"}, "Type: cpu"},
		{"/debug/pprof/goroutine", []string{"pprof", "-traces"}, "profiler.(*Server).Serve"},
		{"/debug/pprof/trace?seconds=1", []string{"trace", "-d=footprint"}, "GoCreate"},
		{"/debug/flight", []string{"trace", "-d=footprint"}, "GoCreate"},
	} {
		t.Run(c.path, func(t *testing.T) {
			r, err := clientOf(at).Get("http://cove" + c.path)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Body.Close()
			body, err := io.ReadAll(r.Body)
			if err != nil || r.StatusCode != http.StatusOK {
				t.Fatalf("status %d, %v: %.200s", r.StatusCode, err, body)
			}
			file := filepath.Join(t.TempDir(), "served")
			if err := os.WriteFile(file, body, 0o600); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command("go", append(append([]string{"tool"}, c.tool...), file)...)
			cmd.Env = append(os.Environ(), "PPROF_TMPDIR="+t.TempDir())
			if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), c.wants) {
				t.Errorf("%v: %v, %.1000s", cmd.Args, err, out)
			}
		})
	}
}

// TestStrangers: a process in namespaces like a sandbox's, to which the socket was shown, gets no answer although its
// id is the owner's; the same process outside does.
func TestStrangers(t *testing.T) {
	var log bytes.Buffer
	t.Run("asked", func(t *testing.T) {
		at := serve(t, &log)
		if info, err := os.Stat(at); err != nil || info.Mode() != os.ModeSocket|0o600 {
			t.Errorf("the socket: %v, %v", info.Mode(), err)
		}
		for name, flags := range map[string]uintptr{"outside": 0, "inside": syscall.CLONE_NEWUSER | syscall.CLONE_NEWPID} {
			cmd := exec.Command("/proc/self/exe")
			cmd.Env = append(os.Environ(), "COVE_TEST_PROFILES="+at)
			if flags != 0 {
				cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags,
					UidMappings: []syscall.SysProcIDMap{{ContainerID: os.Getuid(), HostID: os.Getuid(), Size: 1}},
					GidMappings: []syscall.SysProcIDMap{{ContainerID: os.Getgid(), HostID: os.Getgid(), Size: 1}}}
			}
			want := 0
			if flags != 0 {
				want = 3
			}
			if out, _ := cmd.CombinedOutput(); cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != want {
				t.Errorf("%s: %v, %s", name, cmd.ProcessState, out)
			}
		}
	})
	if !strings.Contains(log.String(), "another user namespace") {
		t.Errorf("the log has no reason: %s", log.String())
	}
}
