//go:build linux

package parked

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/internal/config"
	"github.com/cove-sandbox/cove/internal/daemon"
	"github.com/cove-sandbox/cove/internal/engine/enginetest"
	"github.com/cove-sandbox/cove/internal/runtime"
	"github.com/cove-sandbox/cove/test/await"
)

// languages are those whose interpreters can be parked.
var languages = []string{"python", "node", "bash", "sh"}

// lab has three servers, which differ in their pools alone: none, one whose interpreters are started, and one of which
// all but the first come from a zygote.
type lab struct {
	fresh          *client.Client
	pooled, copied *pooled
}

// pooled is a server that keeps an interpreter parked for each of its languages.
type pooled struct {
	*client.Client
	group string // a part of the paths of its control groups
	turns map[string]*sync.Mutex
}

// bred are the languages whose interpreters come from zygotes.
func bred() []string {
	return slices.DeleteFunc(slices.Clone(languages), func(name string) bool {
		r, _ := runtime.Lookup(name)
		return r.Trial == nil
	})
}

// newLab starts the servers, for some languages or for all.
func newLab(t *testing.T, some ...string) *lab {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: an unprivileged run depends on how the machine delegates control groups")
	}
	guest, chosen := enginetest.BuildGuest(t), some
	if len(some) == 0 {
		chosen = languages
	}
	return &lab{fresh: serve(t, guest, "cove-parked-none", config.Pool{}),
		pooled: newPooled(t, guest, "cove-parked-pool", false, chosen),
		copied: newPooled(t, guest, "cove-parked-copied", true, bred())}
}

// of are the servers that park interpreters of a language.
func (l *lab) of(language string) []*pooled {
	if slices.Contains(bred(), language) {
		return []*pooled{l.pooled, l.copied}
	}
	return []*pooled{l.pooled}
}

func newPooled(t *testing.T, guest, group string, zygotes bool, languages []string) *pooled {
	t.Helper()
	p := &pooled{group: group, turns: map[string]*sync.Mutex{}, Client: serve(t, guest, group,
		config.Pool{Size: 2, MemoryMB: 1024, MaxAge: config.Duration(time.Hour), Zygotes: zygotes})}
	for _, name := range languages {
		p.turns[name] = new(sync.Mutex)
		if _, err := client.PoolOf(p.Client).Warm(t.Context(), api.PoolWarm{Language: name, Count: 1}); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

func serve(t *testing.T, guest, group string, pool config.Pool) *client.Client {
	t.Helper()
	return serveLogging(t, guest, group, pool, t.Output())
}

// serveLogging is serve with a place for the server's warnings.
func serveLogging(t *testing.T, guest, group string, pool config.Pool, log io.Writer) *client.Client {
	t.Helper()
	dir := t.TempDir()
	for d := dir; d != "/tmp" && d != "/"; d = filepath.Dir(d) {
		os.Chmod(d, 0o755) // guests pass through to the staging directory
	}
	cfg := config.Defaults(func(string) string { return "" }, 0)
	cfg.Home, cfg.RunDir = filepath.Join(dir, "home"), filepath.Join(dir, "run")
	cfg.Guest, cfg.Listen, cfg.Sandbox.CgroupParent = guest, "", group
	cfg.Sandbox.Pool = pool
	d, err := daemon.New(t.Context(), daemon.Options{Config: &cfg,
		Log: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelWarn}))})
	if err != nil {
		t.Fatal(err)
	}
	c, err := d.Client()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := d.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return c
}

// program is a snippet, and a name for it.
type program struct{ language, name, code string }

func (p program) String() string { return p.language + "/" + p.name }

func run(t testing.TB, c *client.Client, p program) outcome {
	t.Helper()
	e, err := c.Execute(t.Context(), api.ExecuteRequest{Language: p.language, Code: p.code, Timeout: 120})
	if err != nil {
		t.Fatalf("%s: %v", p, err)
	}
	return outcome{e.Output, e.Stderr, e.ExitCode, string(e.Status), e.LimitHit, e.Error, e.Truncated}
}

// parked runs a program in an interpreter that waits for it at its pipe.
func (s *pooled) parked(t testing.TB, p program) outcome {
	return s.claim(t, p, func(ready int) bool { return len(s.atPipe(p.language)) >= ready })
}

// claim runs a program in a parked interpreter, as soon as one is prepared and they are as they should be.
func (s *pooled) claim(t testing.TB, p program, asShould func(ready int) bool) outcome {
	t.Helper()
	s.turns[p.language].Lock()
	defer s.turns[p.language].Unlock()
	var before api.PoolKind
	await.That(t, p.language+" is parked", func() bool {
		before = s.kind(t, p.language)
		return before.Ready > 0 && asShould(before.Ready) && s.kind(t, p.language).Ready == before.Ready
	})
	o := run(t, s.Client, p)
	if after := s.kind(t, p.language); after.Hits != before.Hits+1 || after.Misses != before.Misses {
		t.Fatalf("%s was not given a parked interpreter: %+v, before %+v", p, after, before)
	}
	return o
}

// kind is what the pool has of a language.
func (s *pooled) kind(t testing.TB, language string) api.PoolKind {
	t.Helper()
	status, err := client.PoolOf(s.Client).Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range status.Kinds {
		if one.Language == language {
			return one
		}
	}
	return api.PoolKind{}
}

// atPipe are the processes of the server that read from their file, which is a named pipe: directories of /proc.
func (s *pooled) atPipe(language string) (found []string) {
	r, _ := runtime.Lookup(language)
	file := "/work/" + r.File
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range all {
		args, _ := os.ReadFile(dir + "/cmdline")
		group, _ := os.ReadFile(dir + "/cgroup")
		if !bytes.Contains(args, []byte("\x00"+file+"\x00")) || !bytes.Contains(group, []byte(s.group)) {
			continue
		}
		fds, _ := filepath.Glob(dir + "/fd/*")
		for _, fd := range fds {
			var st unix.Stat_t
			if to, err := os.Readlink(fd); err == nil && to == file && unix.Stat(fd, &st) == nil &&
				st.Mode&unix.S_IFMT == unix.S_IFIFO && blocked(dir) {
				found = append(found, dir)
				break
			}
		}
	}
	return found
}

// blocked reports whether a process waits inside a system call that reads.
func blocked(dir string) bool {
	text, _ := os.ReadFile(dir + "/syscall")
	number, _, _ := strings.Cut(string(text), " ")
	n, err := strconv.Atoi(number)
	return err == nil && (n == unix.SYS_READ || n == unix.SYS_READV || n == unix.SYS_PREAD64)
}
