package hostgit

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cove-sandbox/cove"
)

// TestNothingIsAFlag: outside input is never parsed as a flag, another command or a second line.
func TestNothingIsAFlag(t *testing.T) {
	g := find(t)
	for name, r := range map[string]Run{
		"a revision":       {Command: []string{"log"}, Args: []string{"--output=/tmp/x"}},
		"an address":       {Command: []string{"ls-remote"}, Args: []string{"--upload-pack=x"}},
		"a short flag":     {Command: []string{"fetch"}, Args: []string{"-ux"}},
		"a path":           {Command: []string{"log"}, Args: []string{"HEAD"}, Paths: []string{"-x"}},
		"a second line":    {Command: []string{"fetch"}, Args: []string{"https://git.example/x\n--all"}},
		"a NUL":            {Command: []string{"fetch"}, Args: []string{"https://git.example/x\x00y"}},
		"a NUL in a path":  {Command: []string{"log"}, Paths: []string{"a\x00b"}},
		"the end of flags": {Command: []string{"log"}, Args: []string{"--"}},
	} {
		if err := g.Run(t.Context(), r); cove.ErrorCode(err) != cove.InvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, command := range [][]string{nil, {"-c"}, {"--exec-path=/tmp"}, {"alias"}, {"credential"}, {"submodule"},
		{"remote-ext"}, {"difftool"}} {
		if err := g.Run(t.Context(), Run{Command: command}); cove.ErrorCode(err) != cove.Internal {
			t.Errorf("the command %q: %v", command, err)
		}
	}
}

// TestTransports: only requested transports work, whatever the address and the configuration.
func TestTransports(t *testing.T) {
	g := find(t)
	base := t.TempDir()
	newRepository(t, filepath.Join(base, "origin"))
	for address, wish := range map[string][]string{
		"ext::sh -c true": {"https"},
		"fd::3":           {"https"},
		"file://" + filepath.Join(base, "origin"):      {"https"},
		filepath.Join(base, "origin"):                  {"https"},
		"git://git.example/x":                          {"https"},
		"ssh://git.example/x":                          {"https"},
		"git@git.example:x":                            {"https"},
		"http://127.0.0.1:9/x":                         {"https"},
		"ftp://git.example/x":                          {"https"},
		"unknown::x":                                   {"https"},
		"https://127.0.0.1:9/x":                        nil,
		"file://" + filepath.Join(base, "origin/.git"): nil,
	} {
		err := g.Run(t.Context(), Run{Command: []string{"ls-remote"}, Args: []string{address}, Transport: wish})
		if cove.ErrorCode(err) != cove.Forbidden || !strings.Contains(err.Error(), "not allowed") {
			t.Errorf("%s: %v", address, err)
		}
	}
	out, err := g.Output(t.Context(), Run{Command: []string{"ls-remote"},
		Args: []string{"file://" + filepath.Join(base, "origin")}, Transport: []string{"file"}})
	if err != nil || !strings.Contains(string(out), "refs/heads/main") {
		t.Errorf("one that is asked for: %q, %v", out, err)
	}
}

// TestEnvironment: git sees nothing of Cove's own environment.
func TestEnvironment(t *testing.T) {
	g := find(t)
	repo := filepath.Join(t.TempDir(), "repo")
	newRepository(t, repo)
	for name, value := range map[string]string{"GIT_DIR": "/nowhere", "GIT_CONFIG_PARAMETERS": "'core.pager=false'",
		"GIT_EXTERNAL_DIFF": "false", "HOME": t.TempDir(),
		"GIT_OBJECT_DIRECTORY": "/nowhere", "GIT_EXEC_PATH": "/nowhere", "GIT_TRACE": "1", "GIT_NAMESPACE": "x",
		"GIT_SSL_NO_VERIFY": "1", "https_proxy": "http://127.0.0.1:9"} {
		t.Setenv(name, value)
	}
	write(t, filepath.Join(os.Getenv("HOME"), ".gitconfig"), "[user]\n\tname = somebody\n", 0o644)
	if out, err := g.Line(t.Context(), Run{Dir: filepath.Join(repo, ".git"), Command: []string{"rev-parse"},
		Flags: []string{"--verify"}, Args: []string{"HEAD"}}); err != nil || !ValidID(out) {
		t.Errorf("%q, %v", out, err)
	}
	if out, err := g.Output(t.Context(), Run{Command: []string{"config"}, Flags: []string{"--list"}}); err != nil ||
		bytes.Contains(out, []byte("somebody")) {
		t.Errorf("%s, %v", out, err)
	}
	for _, v := range (Run{}).environment("/usr/bin") {
		if strings.HasPrefix(v, "GIT_SSL_NO_VERIFY") || strings.HasPrefix(strings.ToLower(v), "https_proxy") {
			t.Errorf("git sees %s", v)
		}
	}
}

func TestBounds(t *testing.T) {
	g := find(t)
	repo := filepath.Join(t.TempDir(), "repo")
	newRepository(t, repo)
	write(t, filepath.Join(repo, "big"), strings.Repeat("x", 3<<20), 0o644)
	plain(t, repo, nil, "add", ".")
	plain(t, repo, nil, "commit", "-q", "-m", "big")
	show := Run{Dir: filepath.Join(repo, ".git"), Command: []string{"cat-file"}, Flags: []string{"-p"},
		Args: []string{"HEAD:big"}}
	t.Run("output", func(t *testing.T) {
		show := show
		show.MaxOutput = 1 << 20
		if out, err := g.Output(t.Context(), show); cove.ErrorCode(err) != cove.TooLarge || len(out) > 1<<20 {
			t.Errorf("%d bytes, %v", len(out), err)
		}
	})
	t.Run("memory", func(t *testing.T) {
		show := show
		show.Limits = Limits{Memory: 1 << 20}
		if err := g.Run(t.Context(), show); err == nil {
			t.Error("git runs in a megabyte")
		}
	})
	t.Run("size of a file", func(t *testing.T) {
		r := Run{Dir: filepath.Join(repo, ".git"), WorkTree: t.TempDir(), Index: filepath.Join(t.TempDir(), "index"),
			Command: []string{"read-tree"},
			Flags:   []string{"-m", "-u"}, Args: []string{"HEAD"}, Limits: Limits{FileSize: 1 << 20}}
		if err := g.Run(t.Context(), r); err == nil {
			t.Error("git writes more")
		}
	})
	t.Run("time", func(t *testing.T) {
		// upload-pack waits for a request; its child waits with it.
		in, out, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		defer out.Close()
		ctx, cancel := context.WithCancel(t.Context())
		heard := &signal{heard: make(chan struct{})}
		ended := make(chan error)
		go func() {
			ended <- g.Run(ctx, Run{Command: []string{"upload-pack"}, Args: []string{repo}, Stdin: in, Stdout: heard,
				Settings: []Setting{{"safe.directory", "*"}}})
		}()
		<-heard.heard
		cancel()
		if err := <-ended; cove.ErrorCode(err) != cove.Canceled {
			t.Error(err)
		}
	})
	t.Run("deadline", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
		defer cancel()
		<-ctx.Done()
		if err := g.Run(ctx, show); err == nil {
			t.Error("it ended well")
		}
	})
}

// signal reports the first write.
type signal struct{ heard chan struct{} }

func (s *signal) Write(p []byte) (int, error) {
	select {
	case <-s.heard:
	default:
		close(s.heard)
	}
	return len(p), nil
}

// TestErrors: an error has git's message, cleaned, its code, and no path of the host.
func TestErrors(t *testing.T) {
	g := find(t)
	repo := filepath.Join(t.TempDir(), "secret-place/repo")
	newRepository(t, repo)
	err := g.Run(t.Context(), Run{Dir: filepath.Join(repo, ".git"), Command: []string{"rev-parse"},
		Flags: []string{"--verify"}, Args: []string{"no\x1b[31msuch"}})
	var exit *ExitError
	if !errors.As(err, &exit) || exit.Code != 128 || ExitCode(err) != 128 || strings.ContainsAny(err.Error(), "\x1b\n") {
		t.Errorf("%q", err)
	}
	err = g.Run(t.Context(), Run{Dir: repo, Command: []string{"log"}})
	if err == nil || strings.Contains(err.Error(), "secret-place") {
		t.Errorf("%v", err)
	}
	if err := (Run{Command: []string{"fetch"}}).explain(t.Context(), syscall.ENOENT,
		""); cove.ErrorCode(err) != cove.Internal {
		t.Error(err)
	}
	for said, code := range map[string]cove.Code{
		"fatal: Authentication failed for 'https://x/'\n":                                              cove.Forbidden,
		"fatal: unable to access 'https://x/': Could not resolve host: x\n":                            cove.Unavailable,
		"fatal: unable to access 'https://x/': The requested URL returned error: 403\n":                cove.Forbidden,
		"fatal: repository 'https://x/' not found\n":                                                   cove.NotFound,
		"error: file write error: No space left on device\nfatal: unable to write\n":                   cove.StorageFull,
		"error: RPC failed; curl 18 transfer closed\nfatal: early EOF\nfatal: fetch-pack: invalid\n":   cove.Unavailable,
		"fatal: unable to access 'https://x/': server certificate verification failed. CAfile: none\n": cove.Unavailable,
		"something that nobody has heard of":                                                           cove.Internal,
	} {
		if got := CodeOf(said); got != code {
			t.Errorf("%q is %s, want %s", said, got, code)
		}
	}
	if got, want := clean("Receiving objects: 1%\rReceiving objects: 2%\rremote: bad\x1b]0;x\x07 news\nremote: hint: "+
		"turn this off\nremote: Counting objects: 100% (3/3), done.\nfatal: no\xff\nhint: try\n"),
		"remote: bad]0;x news; no"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestSaid: lines arrive as they are written, progress state by state.
func TestSaid(t *testing.T) {
	var told []string
	w := &tail{limit: 8, tell: func(line string) { told = append(told, line) }}
	for _, p := range []string{"Receiving objects:   1%\rRecei", "ving objects:  50% (1/2)\r", "done\x1b[1m.\n\n",
		strings.Repeat("x", 1000) + "\nnot ended"} {
		if n, err := w.Write([]byte(p)); n != len(p) || err != nil {
			t.Error(n, err)
		}
	}
	if want := []string{"Receiving objects:   1%", "Receiving objects:  50% (1/2)", "done[1m.",
		strings.Repeat("x", maxLine)}; !slices.Equal(told, want) {
		t.Errorf("%q, want %q", told, want)
	}
	if w.String() != "ot ended" {
		t.Errorf("kept %q", w)
	}
}

func TestNames(t *testing.T) {
	for name, valid := range map[string]bool{
		"main": true, "cove/brave-otter": true, "release/1.2": true, "a.b": true, "feature#1": true, "ü": true, "a@b": true,
		"": false, "HEAD": false, "-x": false, "a/-x": false, "a..b": false, "a b": false, "a~1": false, "a^": false,
		"a:b": false, "a?": false, "a*": false,
		"a[": false, "a\\b": false, "/a": false, "a/": false, "a//b": false, ".a": false, "a/.b": false, "a.lock": false,
		"a.lock/b": false, "a.": false,
		"a@{1}": false, "@": false, "a\x00b": false, "a\nb": false, "a\x1bb": false, "a\x7fb": false, "a\u202eb": false,
		"a\xffb": false, "refs/heads/x": false,
		strings.Repeat("a", 300): false,
	} {
		if got := ValidBranch(name); got != valid {
			t.Errorf("%q: %v", name, got)
		}
	}
}

// FuzzValidRef: git accepts every name that ValidRef accepts.
func FuzzValidRef(f *testing.F) {
	find(f)
	for _, s := range []string{"refs/heads/main", "refs/heads/a.lock", "refs/heads/@", "refs/tags/v1..2", "refs/a",
		"refs/heads/\u00a0"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, ref string) {
		if !ValidRef(ref) {
			return
		}
		if out, err := ordinary("/", nil, "check-ref-format", ref).CombinedOutput(); err != nil {
			t.Errorf("git does not take %q: %v %s", ref, err, out)
		}
	})
}
