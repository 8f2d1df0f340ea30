package doctor

import (
	"bytes"
	"encoding/json"
	"flag"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files")

func TestOnlyWhatTheDefaultEngineNeedsFails(t *testing.T) {
	bad := fail("missing", "get it")
	for _, test := range []struct {
		name, needs, engine string
		want                Status
	}{
		{"needed by the default engine", "native", "native", Fail},
		{"needed by another engine", "docker", "native", Warn},
		{"needed by this one, and another is the default", "native", "docker", Warn},
		{"needed by every engine", everyEngine, "docker", Fail},
		{"needed by none", "", "native", Warn},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := check{id: "x", needs: test.needs}.finding(bad, test.engine)
			if f.Status != test.want || f.Fix != "get it" {
				t.Errorf("got %+v, want %s", f, test.want)
			}
			if healthy([]Finding{f}) != (test.want != Fail) {
				t.Errorf("verdict on %s is wrong", f.Status)
			}
		})
	}
	for _, s := range []Status{OK, Info, Warn} {
		if f := (check{needs: "native"}).finding(outcome{status: s}, "native"); f.Status != s || !healthy([]Finding{f}) {
			t.Errorf("%s became %s", s, f.Status)
		}
	}
}

func sample() Report {
	return Report{
		Version: "1.2.3", Kernel: "6.12.0 (x86_64)", User: "as uid 1000", Engine: "native",
		Findings: []Finding{
			{ID: "userns.self", Area: "namespaces", Title: "user namespaces", Status: Fail,
				Found: "mount a tmpfs: permission denied", Fix: apparmorProfile("/usr/local/bin/cove")},
			{ID: "proc", Area: "namespaces", Title: "/proc of its own", Status: OK, Found: "mounted"},
			{ID: "ksm", Area: "defences of the host", Title: "page merging", Status: Warn, Found: "on",
				Fix: "echo 2 | sudo tee /sys/kernel/mm/ksm/run"},
			{ID: "docker", Area: "engines", Title: "Docker", Status: Info, Found: "says \x1b[31mhello\a\u202e"},
		},
	}
}

func TestText(t *testing.T) {
	for _, test := range []struct {
		name  string
		color bool
	}{{"plain", false}, {"color", true}} {
		t.Run(test.name, func(t *testing.T) {
			var b bytes.Buffer
			if err := sample().Text(&b, test.color); err != nil {
				t.Fatal(err)
			}
			golden(t, test.name+".txt", b.Bytes())
			if !test.color && strings.ContainsRune(b.String(), '\x1b') {
				t.Error("an escape sequence in plain text")
			}
		})
	}
}

func TestVerdictLine(t *testing.T) {
	r := sample()
	if got := r.verdict(); got != "The native engine cannot hold its invariants here (1 failure, 1 warning): see what "+
		"failed above." {
		t.Error(got)
	}
	r.Findings, r.Healthy = r.Findings[1:], true
	if got := r.verdict(); got != "The native engine holds its invariants here (no failures, 1 warning)." {
		t.Error(got)
	}
}

func TestJSON(t *testing.T) {
	b, err := json.MarshalIndent(sample(), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "report.json", append(b, '\n'))
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (write it with: go test ./internal/doctor -update)", err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs:\n%s", path, got)
	}
}

func TestOpenFiles(t *testing.T) {
	for most, want := range map[int]Status{math.MaxInt: OK, 1 << 24: OK, 1<<24 - 1: Warn, 2_466_193: Warn} {
		if got := openFiles(most); got.status != want {
			t.Errorf("%d: %+v, want %s", most, got, want)
		}
	}
}
