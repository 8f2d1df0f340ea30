package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/internal/image"
	"github.com/cove-sandbox/cove/internal/instance"
)

func TestPrintable(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"plain", "héllo ✓", "héllo ✓"},
		{"CSI", "\x1b[2J", `\x1b[2J`},
		{"OSC 8", "\x1b]8;;http://x\x07", `\x1b]8;;http://x\x07`},
		{"C1 CSI", "\u009b2J", `\x9b2J`},
		{"carriage return", "safe\rbad", `safe\x0dbad`},
		{"newline", "a\nb", `a\nb`},
		{"tab", "a\tb", "a b"},
		{"bidi", "a\u202eb", `a\u202eb`},
		{"zero width", "a\u200bb", `a\u200bb`},
		{"line separator", "a\u2028b", `a\u2028b`},
		{"invalid UTF-8", "a\xffb", `a\xffb`},
		{"replacement character itself", "\uFFFD", "\uFFFD"},
		{"DEL", "\x7f", `\x7f`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := printable(c.in); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

func FuzzPrintable(f *testing.F) {
	f.Add("a\x1b[31mb\xff\u202e")
	f.Fuzz(func(t *testing.T, s string) {
		got := printable(s)
		if !utf8.ValidString(got) {
			t.Fatalf("%q is not UTF-8", got)
		}
		for _, r := range got {
			if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) {
				t.Fatalf("%q came through in %q", r, got)
			}
		}
	})
}

func TestPlainJSON(t *testing.T) {
	text := "plain \u00e9 \u009b2J \u202e \x7f \U000e0041 \x1b[2J \"\\ \n"
	b, err := json.MarshalIndent(map[string]string{"output": text}, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	got := plainJSON(string(b))
	for _, r := range got {
		if obeyed(r) {
			t.Errorf("%q came through in %q", r, got)
		}
	}
	var back map[string]string
	if err := json.Unmarshal([]byte(got), &back); err != nil || back["output"] != text {
		t.Errorf("it reads back as %q, %v", back["output"], err)
	}
	if !strings.Contains(got, "\u00e9") {
		t.Errorf("a letter was escaped: %q", got)
	}
}

func TestParseSize(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct {
		in   string
		step int64
		want int64 // 0: refused
	}{
		{"256M", mib, 256 << 20}, {"256m", mib, 256 << 20}, {"256MiB", mib, 256 << 20}, {"256 MB", mib, 256 << 20},
		{"1G", mib, 1 << 30}, {"1.5G", mib, 3 << 29}, {"1048576", mib, mib}, {"1024K", mib, mib}, {"64K", 1 << 10, 64 << 10},
		{"", mib, 0}, {"M", mib, 0}, {"0", mib, 0}, {"0M", mib, 0}, {"-1M", mib, 0}, {"100", mib, 0}, {"1.3M", mib, 0}, {"1T", mib, 0},
		{"1e3M", mib, 0}, {"NaN", mib, 0}, {"Inf", mib, 0}, {"0x10M", mib, 0}, {"+1M", mib, 0}, {"1_0M", mib, 0},
		{"99999999999G", mib, 0}, {"1M1", mib, 0}, {"١M", mib, 0},
	} {
		got, err := parseSize(c.in, c.step)
		if got != c.want || (err == nil) != (c.want != 0) {
			t.Errorf("parseSize(%q) = %d, %v; want %d", c.in, got, err, c.want)
		}
		if err != nil && (cove.ErrorCode(err) != cove.InvalidArgument || cove.ErrorHint(err) == "") {
			t.Errorf("parseSize(%q): %#v", c.in, err)
		}
	}
}

func FuzzParseSize(f *testing.F) {
	for _, s := range []string{"256M", "1.5 GiB", "-1", "1e9", "٣K"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if n, err := parseSize(s, 1<<10); err == nil && (n <= 0 || n%(1<<10) != 0) {
			t.Fatalf("parseSize(%q) = %d", s, n)
		}
	})
}

func TestParseSeconds(t *testing.T) {
	for _, c := range []struct {
		in   string
		want time.Duration // 0: refused
	}{
		{"10s", 10 * time.Second}, {"1m30s", 90 * time.Second}, {"2", 2 * time.Second}, {"0.5", 500 * time.Millisecond}, {"500ms", 500 * time.Millisecond},
		{"", 0}, {"0", 0}, {"-1s", 0}, {"NaN", 0}, {"Inf", 0}, {"1e300", 0}, {"soon", 0},
	} {
		if got, err := parseSeconds(c.in); got != c.want || (err == nil) != (c.want != 0) {
			t.Errorf("parseSeconds(%q) = %v, %v; want %v", c.in, got, err, c.want)
		}
	}
}

func TestParseSince(t *testing.T) {
	now := time.Date(2030, 1, 10, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		in   string
		want time.Time
	}{
		{"90m", now.Add(-90 * time.Minute)}, {"1h30m", now.Add(-90 * time.Minute)}, {"7d", now.AddDate(0, 0, -7)}, {"0.5d", now.Add(-12 * time.Hour)},
		{"2030-01-02T03:04:05Z", time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)}, {"2030-01-02T03:04:05+01:00", time.Date(2030, 1, 2, 2, 4, 5, 0, time.UTC)},
		{"", time.Time{}},
	} {
		if got, err := parseSince(c.in, now); err != nil || !got.Equal(c.want) {
			t.Errorf("parseSince(%q) = %v, %v; want %v", c.in, got, err, c.want)
		}
	}
	for _, in := range []string{"0", "0s", "-1h", "-1d", "d", "NaNd", "Infd", "1e400d", "99999999d", "1e300d", "7", "yesterday", "2030-01-02"} {
		if got, err := parseSince(in, now); cove.ErrorCode(err) != cove.InvalidArgument || cove.ErrorHint(err) == "" {
			t.Errorf("parseSince(%q) = %v, %v", in, got, err)
		}
	}
}

// TestReadersFindTheLiving: a process that ends just when it is asked does not
// keep another from answering.
func TestReadersFindTheLiving(t *testing.T) {
	dir, err := os.MkdirTemp("", "cove-cli-") // short: a unix socket's path has 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Mkdir(filepath.Join(dir, instance.Dir), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b", "c"} {
		l, err := net.Listen("unix", filepath.Join(dir, instance.Dir, name+".sock"))
		if err != nil {
			t.Fatal(err)
		}
		s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if name == "a" {
				panic(http.ErrAbortHandler)
			}
			fmt.Fprintf(w, `{"status":"ok","version":%q}`, name)
		})}
		go s.Serve(l)
		t.Cleanup(func() { s.Close() })
	}
	a := &app{say: &speaker{w: io.Discard}, getenv: func(string) string { return "" }, settings: settings{home: dir, runDir: dir}}
	var h api.Health
	err = a.readRecords(t.Context(), func(c *client.Client) (err error) {
		h, err = c.Health(t.Context())
		return err
	})
	if err != nil || h.Version != "b" {
		t.Errorf("%+v, %v", h, err)
	}
}

func TestBarText(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct {
		done, total int64
		width       int
		want        string
	}{
		{0, 18 * mib, 79, "downloading   0% [                              ] 0 B of 18 MiB"},
		{9 * mib, 18 * mib, 79, "downloading  50% [===============               ] 9 MiB of 18 MiB"},
		{18 * mib, 18 * mib, 79, "downloading 100% [==============================] 18 MiB of 18 MiB"},
		{19 * mib, 18 * mib, 50, "downloading 100% [==============] 18 MiB of 18 MiB"},
		{9 * mib, 18 * mib, 35, "downloading  50% 9 MiB of 18 MiB"},
		{9 * mib, 18 * mib, 20, "downloading  50%"},
		{9 * mib, 18 * mib, 12, "downloading"},
		{9 * mib, 18 * mib, 5, ""},
		{9 * mib, -1, 79, "downloading 9 MiB"},
		{0, 0, 79, "downloading 0 B"},
	} {
		if got := barText("downloading", c.done, c.total, c.width); got != c.want {
			t.Errorf("%d of %d in %d columns: %q, want %q", c.done, c.total, c.width, got, c.want)
		}
	}
	for width := -1; width < 120; width++ {
		for done := range int64(100) {
			if got := barText("unpacking", done*mib/3, 33*mib, width); len(got) > max(width, 0) {
				t.Fatalf("%q has more than %d columns", got, width)
			}
		}
	}
}

// TestProgressGoesForward: a bar that shows the layers one after the other, or
// two stages as one, would fall back.
func TestProgressGoesForward(t *testing.T) {
	p := &progress{parts: map[progressPart]image.Event{}}
	event := func(s image.Stage, layer int, done, total int64) string {
		p.parts[progressPart{s, layer}] = image.Event{Stage: s, Layer: layer, Layers: 2, Done: done, Total: total}
		return p.line(30)
	}
	for _, c := range []struct{ got, want string }{
		{event(image.Download, 0, 0, 30), "downloading   0% 0 B of 30 B"},
		{event(image.Download, 1, 0, 70), "downloading   0% 0 B of 100 B"},
		{event(image.Download, 0, 30, 30), "downloading  30% 30 B of 100 B"},
		{event(image.Unpack, 0, 20, 30), "downloading  30% 30 B of 100 B"},
		{event(image.Unpack, 1, 0, 70), "downloading  30% 30 B of 100 B"},
		{event(image.Download, 1, 70, 70), "unpacking  20% 20 B of 100 B"},
		{event(image.Unpack, 1, 70, 70), "unpacking  90% 90 B of 100 B"},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
}

func TestParseMount(t *testing.T) {
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		in   string
		want api.Mount // zero: refused
	}{
		{"/a:/b", api.Mount{Source: "/a", Target: "/b"}},
		{"/a:/b:ro", api.Mount{Source: "/a", Target: "/b", ReadOnly: true}},
		{"/a:/b:rw", api.Mount{Source: "/a", Target: "/b"}},
		{"x/../y:/b", api.Mount{Source: filepath.Join(dir, "y"), Target: "/b"}},
		{"", api.Mount{}}, {"/a", api.Mount{}}, {":/b", api.Mount{}}, {"/a:b", api.Mount{}}, {"/a:/b:/c", api.Mount{}}, {"/a:/b:wx", api.Mount{}},
	} {
		if got, err := parseMount(c.in); got != c.want || (err == nil) != (c.want != api.Mount{}) {
			t.Errorf("parseMount(%q) = %+v, %v; want %+v", c.in, got, err, c.want)
		}
	}
}

func TestExitCodes(t *testing.T) {
	for _, code := range cove.Codes {
		ofAgent := code == cove.AgentFailed || code == cove.SchemaMismatch
		if got := exitCode(cove.Errorf(code, "x")); ofAgent != (got == exitAgent) || !ofAgent && (got < exitCove || got > exitMissing) {
			t.Errorf("%s becomes %d, which is not one of Cove's own", code, got)
		}
	}
}

func TestExitCodesOfExecutions(t *testing.T) {
	for _, c := range []struct {
		name    string
		e       api.Execution
		stopped syscall.Signal
		want    int
	}{
		{"the program's", api.Execution{Status: api.StatusCompleted, ExitCode: 3}, 0, 3},
		{"the program's, by a signal", api.Execution{Status: api.StatusCompleted, ExitCode: 139}, 0, 139},
		{"finished before the signal arrived", api.Execution{Status: api.StatusCompleted, ExitCode: 0}, syscall.SIGINT, 0},
		{"timeout", api.Execution{Status: api.StatusTimeout, ExitCode: -1}, 0, 124},
		{"limit, killed by the kernel", api.Execution{Status: api.StatusLimited, LimitHit: "oom", ExitCode: 137}, 0, 137},
		{"limit, ended by Cove", api.Execution{Status: api.StatusLimited, LimitHit: "output", ExitCode: -1}, 0, 137},
		{"Ctrl-C", api.Execution{Status: api.StatusKilled, ExitCode: -1}, syscall.SIGINT, 130},
		{"killed by somebody else", api.Execution{Status: api.StatusKilled, ExitCode: -1}, 0, 137},
		{"refused", api.Execution{Status: api.StatusRefused, ExitCode: -1}, 0, 126},
		{"failed", api.Execution{Status: api.StatusFailed, ExitCode: -1}, 0, 125},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := exitOf(c.e, c.stopped); got != c.want {
				t.Errorf("%d, want %d", got, c.want)
			}
		})
	}
}

func TestExitCodesOfRuns(t *testing.T) {
	failed := func(code cove.Code) *api.Error { return &api.Error{Error: "x", Code: string(code)} }
	for _, c := range []struct {
		name    string
		r       api.Run
		stopped syscall.Signal
		want    int
	}{
		{"done", api.Run{Status: api.RunSucceeded}, 0, 0},
		{"done before the signal arrived", api.Run{Status: api.RunSucceeded}, syscall.SIGINT, 0},
		{"not done", api.Run{Status: api.RunFailed}, 0, 1},
		{"interrupted here", api.Run{Status: api.RunInterrupted}, syscall.SIGTERM, 143},
		{"interrupted elsewhere", api.Run{Status: api.RunInterrupted}, 0, 130},
		{"out of time", api.Run{Status: api.RunLimit, LimitHit: "timeout"}, 0, 124},
		{"out of turns", api.Run{Status: api.RunLimit, LimitHit: "turns"}, 0, 137},
		{"the program failed", api.Run{Status: api.RunError, Error: failed(cove.AgentFailed)}, 0, 1},
		{"nonsense", api.Run{Status: api.RunError, Error: failed(cove.AgentProtocol)}, 0, 125},
		{"no models", api.Run{Status: api.RunError, Error: failed(cove.ModelUnreachable)}, 0, 125},
		{"not installed", api.Run{Status: api.RunError, Error: failed(cove.RuntimeMissing)}, 0, 127},
		{"nobody knows", api.Run{Status: api.RunError}, 0, 125},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := exitOfRun(c.r, c.stopped); got != c.want {
				t.Errorf("%d, want %d", got, c.want)
			}
		})
	}
}

// TestVerdictNamesEveryLimit: a limit added to the vocabulary needs its words.
func TestVerdictNamesEveryLimit(t *testing.T) {
	for _, kind := range []cove.LimitKind{cove.LimitOOM, cove.LimitTimeout, cove.LimitPIDs, cove.LimitDisk, cove.LimitOutput} {
		for _, used := range []cove.Limits{{}, defaultsOf("python")} {
			v := verdict(api.Execution{Status: api.StatusLimited, LimitHit: string(kind)}, used)
			if !strings.HasPrefix(v, "stopped: ") || !strings.Contains(v, "--") {
				t.Errorf("%s: %q", kind, v)
			}
		}
	}
	if v := verdict(api.Execution{Status: api.StatusCompleted, ExitCode: 1}, cove.Limits{}); v != "" {
		t.Errorf("a program that ended by itself: %q", v)
	}
}

func TestFilesKeepTheirPlaceInside(t *testing.T) {
	t.Chdir(t.TempDir())
	outside := filepath.Join(t.TempDir(), "o.bin")
	for name, data := range map[string]string{"a.txt": "a", "d/b.txt": "b", outside: "\xff"} {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(data), 0o750); err != nil {
			t.Fatal(err)
		}
	}
	files, err := readFiles([]string{"./a.txt", "d/../d/b.txt", outside})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []api.File{{Path: "a.txt", Content: "a", Mode: 0o750}, {Path: "d/b.txt", Content: "b", Mode: 0o750},
		{Path: "o.bin", Content: "/w==", Encoding: "base64", Mode: 0o750}} {
		if files[i] != want {
			t.Errorf("%+v, want %+v", files[i], want)
		}
	}
	if err := os.Truncate("a.txt", maxFiles+1); err != nil {
		t.Fatal(err)
	}
	if _, err := readFiles([]string{"a.txt"}); cove.ErrorCode(err) != cove.TooLarge {
		t.Errorf("a file that is too large: %v", err)
	}
}

// TestSecondSignalLeavesAtOnce: also while the first is still at work.
func TestSecondSignalLeavesAtOnce(t *testing.T) {
	left := make(chan int, 1)
	in := &interrupts{signals: make(chan os.Signal, 2), done: make(chan struct{}), leave: func(code int) { left <- code }, cancel: func() {}}
	go in.watch()
	busy, begun := make(chan struct{}), make(chan struct{})
	in.onSignal(func() { close(begun); <-busy })
	in.signals <- syscall.SIGINT
	<-begun
	in.signals <- syscall.SIGINT
	if code := <-left; code != 130 {
		t.Errorf("left with %d", code)
	}
	close(busy)
	in.settle()
	close(in.done)
}

// TestSignalsInTurn: each signal has its own turn, and the one after them
// leaves.
func TestSignalsInTurn(t *testing.T) {
	left, said := make(chan int, 1), make(chan string)
	in := &interrupts{signals: make(chan os.Signal, 2), done: make(chan struct{}), leave: func(code int) { left <- code }, cancel: func() { t.Error("it gave up") }}
	go in.watch()
	in.onSignal(func() { said <- "ask" }, func() { said <- "kill" })
	for _, want := range []string{"ask", "kill"} {
		in.signals <- syscall.SIGINT
		if got := <-said; got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	in.signals <- syscall.SIGINT
	if code := <-left; code != 130 {
		t.Errorf("left with %d", code)
	}
	in.settle()
	close(in.done)
}

func TestSignalBeforeAnythingRuns(t *testing.T) {
	in := &interrupts{signals: make(chan os.Signal, 2), done: make(chan struct{}), cancel: func() {}}
	in.handle(syscall.SIGTERM)
	ctx, cancel := in.cover(t.Context())
	defer cancel()
	<-ctx.Done()
	if got := exitCode(in.explain(cove.Errorf(cove.Canceled, "x"))); got != 143 {
		t.Errorf("exit code %d", got)
	}
}

func TestLiveSocketsSkipsDeadOnes(t *testing.T) {
	dir, err := os.MkdirTemp("", "cove-[x]-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Mkdir(filepath.Join(dir, "instances"), 0o700); err != nil {
		t.Fatal(err)
	}
	alive := filepath.Join(dir, "instances", "in_b.sock")
	for _, path := range []string{filepath.Join(dir, "cove.sock"), filepath.Join(dir, "instances", "in_a.sock"), alive} {
		fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Bind(fd, &syscall.SockaddrUnix{Name: path}); err != nil {
			t.Fatal(err)
		}
		if path != alive {
			syscall.Close(fd) // the file stays, as after kill -9
			continue
		}
		defer syscall.Close(fd)
		if err := syscall.Listen(fd, 1); err != nil {
			t.Fatal(err)
		}
	}
	if got := liveSockets(t.Context(), dir); len(got) != 1 || got[0] != alive {
		t.Errorf("%q", got)
	}
}

func TestColour(t *testing.T) {
	none := func(string) string { return "" }
	if colorful(nil, none) {
		t.Error("no file has colours")
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	if colorful(w, none) {
		t.Error("a pipe has colours")
	}
}

// TestWithWithin: what is within a sandbox goes with it, and first.
func TestWithWithin(t *testing.T) {
	all := []api.Sandbox{{ID: "host"}, {ID: "a", Within: "host"}, {ID: "other"}, {ID: "b", Within: "host"}, {ID: "c", Within: "else"}}
	for chosen, want := range map[string]string{"host": "a b host", "a": "a", "other host": "a b other host", "b host a": "a b host", "": ""} {
		var picked []api.Sandbox
		for _, id := range strings.Fields(chosen) {
			for _, s := range all {
				if s.ID == id {
					picked = append(picked, s)
				}
			}
		}
		var got []string
		for _, s := range withWithin(all, picked) {
			got = append(got, s.ID)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %q, want %s", chosen, got, want)
		}
	}
}
