//go:build linux

package parked

import (
	"bytes"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/internal/config"
	"github.com/cove-sandbox/cove/internal/engine/enginetest"
)

// TestSealedAlike: a process of a zygote is one that was started, as far as the kernel tells.
func TestSealedAlike(t *testing.T) {
	l := newLab(t, bred()...)
	state, err := os.ReadFile("testdata/state.py")
	if err != nil {
		t.Fatal(err)
	}
	p := program{"python", "state", string(state)}
	want := run(t, l.fresh, p)
	if want.Exit != 0 || !strings.Contains(want.Output, "no instructions without a file []") {
		t.Fatalf("fresh: %+v", want)
	}
	for range 3 {
		for _, s := range l.of(p.language) {
			got := s.parked(t, p)
			if found, err := differences(want, want, got); err != nil || len(found) > 0 {
				t.Errorf("%s: %v %s", s.group, err, strings.Join(found, "\n"))
			}
		}
	}
}

// shared is what processes of a zygote have in common, as they would not otherwise; drawn is what each has of its own.
const shared, drawn = `
import ctypes
print(hash("seed"), id(object()), ctypes.cast(ctypes.CDLL(None).getpid, ctypes.c_void_p).value)
`, `
import ctypes, os, random, uuid
libc = ctypes.CDLL(None)
libc.getauxval.restype = ctypes.c_ulong
print("AT_RANDOM", ctypes.string_at(libc.getauxval(25), 16).hex())
print("random", random.random(), os.urandom(8).hex(), uuid.uuid4())
`

// TestZygotes: all processes but the first come from one zygote, and draw what they draw themselves.
func TestZygotes(t *testing.T) {
	l := newLab(t, bred()...)
	common, apart := map[string]int{}, map[string]bool{}
	for range 6 {
		common[l.copied.parked(t, program{"python", "shared", shared}).Output]++
		got := l.copied.parked(t, program{"python", "drawn", drawn})
		if got.Exit != 0 {
			t.Fatalf("%+v", got)
		}
		for line := range strings.Lines(got.Output) {
			if apart[line] {
				t.Errorf("two processes have the same %s", line)
			}
			apart[line] = true
		}
	}
	most := 0
	for _, n := range common {
		most = max(most, n)
	}
	if most < 5 {
		t.Errorf("not all come from one zygote: %v", common)
	}
	other := map[string]bool{}
	for range 3 {
		other[l.pooled.parked(t, program{"python", "shared", shared}).Output] = true
	}
	if len(other) != 3 {
		t.Errorf("processes that were started have in common: %v", other)
	}
}

// loaded says what is there of modules before they are imported, what else tells of them, and what is drawn by chance.
const loaded = `
import os, sys
print([m in sys.modules for m in ("asyncio", "decimal", "xml.dom", "usercustomize")])
print(os.listdir("/proc/self/fd")[:-1], os.listdir(os.path.expanduser("~")), [p for p in sys.path if "home" in p])
import asyncio, decimal, random, xml.dom
async def add(): return decimal.Decimal("0.1") + decimal.Decimal("0.2")
print(asyncio.run(add()), type(random).__name__)
`

// TestModules: programs of a zygote find the modules of the configuration imported, and nothing else that tells of it;
// the numbers of each are its own.
func TestModules(t *testing.T) {
	p, said := preloading(t, "cove-parked-modules", "asyncio", "decimal", "random", "xml.dom")
	drawn := map[string]bool{}
	for range 4 {
		got := p.parked(t, program{"python", "loaded", loaded})
		want := "[True, True, True, False]\n['0', '1', '2'] [] []\n0.3 module\n"
		if got.Output != want || got.Exit != 0 || got.Stderr != "" {
			t.Errorf("%+v, want %q", got, want)
		}
		drawn[p.parked(t, program{"python", "drawn", "import random\nprint(random.random())"}).Output] = true
	}
	if len(drawn) != 4 {
		t.Errorf("random numbers of four programs: %v", drawn)
	}
	if said := said(); said != "" {
		t.Errorf("the server warns: %s", said)
	}
}

// TestModulesMissing: a module that cannot be imported is told of once, and programs come from a zygote without.
func TestModulesMissing(t *testing.T) {
	p, said := preloading(t, "cove-parked-missing", "asyncio", "cove_none")
	common := map[string]bool{}
	for range 4 {
		got := p.parked(t, program{"python", "loaded", loaded})
		if !strings.HasPrefix(got.Output, "[False, ") || got.Exit != 0 {
			t.Errorf("%+v", got)
		}
		common[p.parked(t, program{"python", "shared", shared}).Output] = true
	}
	if len(common) > 2 { // the first, of which the zygote was made, is one of them
		t.Errorf("not all come from one zygote: %v", common)
	}
	const want = "No module named 'cove_none'"
	if text := said(); strings.Count(text, "python_modules") != 1 || !strings.Contains(text, want) {
		t.Errorf("the server warns: %s", text)
	}
}

// preloading is a server whose zygotes have imported modules, and what it warns of.
func preloading(t *testing.T, group string, modules ...string) (p *pooled, said func() string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: an unprivileged run depends on how the machine delegates control groups")
	}
	var log locked
	p = &pooled{group: group, turns: map[string]*sync.Mutex{"python": {}},
		Client: serveLogging(t, enginetest.BuildGuest(t), group, config.Pool{Size: 2, MemoryMB: 1024,
			MaxAge: config.Duration(time.Hour), Zygotes: true, PythonModules: modules}, &log)}
	if _, err := client.PoolOf(p.Client).Warm(t.Context(), api.PoolWarm{Language: "python", Count: 1}); err != nil {
		t.Fatal(err)
	}
	return p, log.String
}

// locked is a buffer for several goroutines.
type locked struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *locked) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *locked) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
