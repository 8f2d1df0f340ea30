package run

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/internal/cli/flags"
	"github.com/cove-sandbox/cove/internal/cli/report"
)

// TestGitReadOnly: what git says of a read-only .git at the end of long output is explained, and nothing else is.
func TestGitReadOnly(t *testing.T) {
	const said = "fatal: Unable to create '/workspace/.git/index.lock': Read-only file system\n"
	for _, c := range []struct {
		said string
		exit int
		want bool
	}{
		{said, 128, true}, {strings.Repeat("x\n", 5000) + said, 128, true}, {said, 0, false}, {"", 1, false},
		{"touch: /data/x: Read-only file system\n.git/\n", 1, false},
	} {
		var last ending
		for part := range slices.Chunk([]byte(c.said), 100) {
			last.Write(part)
		}
		if got := gitReadOnly(api.Execution{ExitCode: c.exit, Stderr: string(last)}); (got != "") != c.want {
			t.Errorf("%.50q, %d: %q", c.said, c.exit, got)
		}
	}
	var last ending
	last.Write([]byte(strings.Repeat("x", 10000)))
	if len(last) != 4096 {
		t.Errorf("%d bytes are kept", len(last))
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
		{"killed by another client", api.Execution{Status: api.StatusKilled, ExitCode: -1}, 0, 137},
		{"ended by a shutdown", api.Execution{Status: api.StatusShutdown, ExitCode: -1}, 0, 123},
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

// TestVerdictNamesEveryLimit: a limit added to the vocabulary needs its words.
func TestVerdictNamesEveryLimit(t *testing.T) {
	number := regexp.MustCompile(`\(limit (128 MiB|3 s|7|9 MiB( and 9 files)?|1 KiB of output, 1 KiB of errors);`)
	for _, kind := range []cove.LimitKind{cove.LimitOOM, cove.LimitTimeout, cove.LimitPIDs, cove.LimitDisk,
		cove.LimitFileSize, cove.LimitOutput} {
		for _, e := range []api.Execution{{}, {Limits: &api.Limits{MemoryMB: 128, PIDs: 7, DiskMB: 9, Inodes: 9, StdoutKB: 1,
			StderrKB: 1}, Timeout: 3}} {
			e.Status, e.LimitHit = api.StatusLimited, string(kind)
			v := report.Verdict(e)
			known := number.MatchString(v)
			if !strings.HasPrefix(v, "stopped: ") || !strings.Contains(v, "--") || known != (e.Limits != nil) {
				t.Errorf("%s: %q", kind, v)
			}
		}
	}
	if v := report.Verdict(api.Execution{Status: api.StatusCompleted, ExitCode: 1}); v != "" {
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
	files, err := flags.ReadFiles([]string{"./a.txt", "d/../d/b.txt", outside})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []api.File{{Path: "a.txt", Content: "a", Mode: 0o750},
		{Path: "d/b.txt", Content: "b", Mode: 0o750},
		{Path: "o.bin", Content: "/w==", Encoding: "base64", Mode: 0o750}} {
		if files[i] != want {
			t.Errorf("%+v, want %+v", files[i], want)
		}
	}
	if err := os.Truncate("a.txt", flags.MaxFiles+1); err != nil {
		t.Fatal(err)
	}
	if _, err := flags.ReadFiles([]string{"a.txt"}); cove.ErrorCode(err) != cove.TooLarge {
		t.Errorf("a file that is too large: %v", err)
	}
}

// TestSplit: an image, or a program of one, and neither a runtime nor code, is about the image's own program.
func TestSplit(t *testing.T) {
	given := func(names ...string) func(string) bool {
		return func(name string) bool { return slices.Contains(names, name) }
	}
	image, none := options{Spec: flags.Spec{Image: "x", Given: given()}}, flags.Spec{Given: given()}
	for name, c := range map[string]struct {
		o        options
		args     []string
		dash     int
		language string
		rest     string
	}{
		"an image":            {o: image, dash: -1, language: "image"},
		"its arguments":       {image, []string{"a", "b"}, 0, "image", "a b"},
		"a profile":           {o: options{Spec: flags.Spec{Profile: "x", Given: given()}}, dash: -1, language: "image"},
		"a program":           {o: options{entrypoint: "x", Spec: none}, dash: -1, language: "image"},
		"a language":          {image, []string{"sh", "f", "a"}, 2, "sh", "a"},
		"code":                {o: options{Spec: flags.Spec{Image: "x", Given: given("code")}}, dash: -1},
		"nothing":             {o: options{Spec: none}, dash: -1},
		"arguments alone":     {o: options{Spec: none}, args: []string{"a"}},
		"a file of that name": {o: image, args: []string{"x.image"}, dash: -1},
	} {
		language, _, rest, err := c.o.split(c.args, c.dash)
		if language != c.language || strings.Join(rest, " ") != c.rest || (err == nil) != (c.language != "") {
			t.Errorf("%s: %q, %q, %v", name, language, rest, err)
		}
	}
}
