// Package hostgit owns every run of git on the host (invariant G3): a repository's content and configuration are data
// to it, and start no program.
//
// A run has Cove's own configuration, as command-line settings that outweigh a repository's, its own environment, only
// the requested transports, and no hook, filter, file system monitor, external diff, pager, editor, helper or prompt.
// Its context bounds its time, and may have a [Meter] of its CPU time; limits bound its memory, its output and the
// files it writes; its children end with it.
//
// The repository chooses the names of filters and merge drivers. Where a run has working files, and its configuration
// is not Cove's own, their names are looked up first, and each is switched off. That is valid only if the configuration
// does not change meanwhile: no run ever gets a git directory or working files that a living sandbox can write to.
package hostgit

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/cputime"
	"github.com/cove-sandbox/cove/internal/pattern"
)

const (
	// DefaultOutput bounds the standard output kept of a run, in bytes.
	DefaultOutput = 64 << 20
	maxSaid       = 16 << 10 // bytes of standard error that are kept: its end
	maxLine       = 200      // bytes of a line that is reported
	waitDelay     = 5 * time.Second
)

// DefaultLimits bound a run without its own limits: enough for any real repository, and not for exhausting the machine.
var DefaultLimits = Limits{Memory: 6 << 30, FileSize: 32 << 30}

// Limits bound each process of a run on Linux. On other systems git reads a user's own folders alone, and has none.
type Limits struct {
	Memory   int64         // bytes of address space
	FileSize int64         // bytes of each file it writes
	CPU      time.Duration // whole seconds; 0 is no limit
}

// Setting is one line of configuration: core.bare, true.
type Setting struct{ Key, Value string }

// Git is the git program of this machine. It may be used concurrently.
type Git struct{ program string }

// Find finds the git program. Errors: Unavailable.
func Find() (*Git, error) {
	program, err := exec.LookPath("git")
	if err == nil {
		program, err = filepath.Abs(program)
	}
	if err != nil {
		return nil, cove.Errorf(cove.Unavailable, "git is not installed on this machine").WithHint("%s", install)
	}
	return &Git{program: program}, nil
}

// Run is one run of git. Its flags are Cove's own; all other input is an argument or a path, which is never parsed as a
// flag.
type Run struct {
	Dir      string // the git directory, absolute; empty for commands without a repository
	WorkTree string // absolute; empty for none
	Own      bool   // the caller has written the configuration of Dir, so it is not searched
	Index    string // absolute path of the index, if not the repository's

	Command []string // "fetch", or "worktree", "add"
	Flags   []string
	Args    []string // revisions, refs, addresses
	Paths   []string // after "--"

	Settings  []Setting // after Cove's own, which they outweigh
	Transport []string  // "https": permitted transports; nil is none
	Env       []string  // additional, "GIT_COMMITTER_DATE=…"

	Stdin   io.Reader
	Stdout  io.Writer  // nil keeps it for Output
	Files   []*os.File // inherited, from descriptor 3 on
	Started func()     // called once git has started, for callers that feed one of the Files

	// Said receives each line of standard error as it comes, cleaned; of progress, which overwrites lines, each state.
	Said func(line string)

	Limits    Limits // zero is DefaultLimits
	MaxOutput int64  // bytes of standard output; 0 is DefaultOutput, without Stdout
}

// ExitError is the failure of a run by git itself.
type ExitError struct {
	Code int    // of the process; -1 when a signal ended it
	Said string // the end of its standard error, clean
}

func (e *ExitError) Error() string {
	if e.Said == "" {
		return "git ended with code " + strconv.Itoa(e.Code)
	}
	return e.Said
}

// ExitCode returns git's exit code, 0 for nil and -1 when err is not from git.
func ExitCode(err error) int {
	var e *ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &e):
		return e.Code
	}
	return -1
}

// Output runs git and returns its output. Errors: those of Run.
func (g *Git) Output(ctx context.Context, r Run) ([]byte, error) {
	var out bytes.Buffer
	r.Stdout = &out
	r.MaxOutput = cmp.Or(r.MaxOutput, DefaultOutput)
	err := g.Run(ctx, r)
	return out.Bytes(), err
}

// Line runs git and returns its one line of output, without its end.
func (g *Git) Line(ctx context.Context, r Run) (string, error) {
	out, err := g.Output(ctx, r)
	return strings.TrimSuffix(string(out), "\n"), err
}

// commands are the permitted ones. An alias is never one of them.
var commands = []string{"bundle", "cat-file", "check-attr", "commit-graph", "commit-tree", "config",
	"count-objects", "diff", "diff-index", "diff-tree", "fetch", "for-each-ref", "fsck",
	"hash-object", "index-pack", "init", "log", "ls-files", "ls-remote", "ls-tree", "merge-base", "merge-file",
	"merge-tree", "pack-objects", "pack-refs", "prune", "prune-packed", "push", "read-tree", "repack",
	"rev-list", "rev-parse", "show", "sparse-checkout", "symbolic-ref", "unpack-objects", "update-index", "update-ref",
	"upload-pack", "version", "worktree", "write-tree"}

// Run runs git until it ends. Errors: InvalidArgument for an argument that could be parsed as a flag; Canceled when ctx
// ended it; TooLarge when it wrote too much; Unavailable, Forbidden, NotFound and StorageFull as far as git's messages
// tell; otherwise Internal. Errors reported by git itself wrap an ExitError.
func (g *Git) Run(ctx context.Context, r Run) error {
	if len(r.Command) == 0 || !slices.Contains(commands, r.Command[0]) {
		return cove.Errorf(cove.Internal, "git %q is no command that Cove runs on the host", r.Command)
	}
	return g.run(ctx, r)
}

func (g *Git) run(ctx context.Context, r Run) error {
	args, err := r.argv()
	if err != nil {
		return err
	}
	if r.WorkTree != "" && r.Dir != "" && !r.Own {
		off, err := g.disablePrograms(ctx, r.Dir)
		if err != nil {
			return err
		}
		r.Settings = append(off, r.Settings...)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	said := &tail{limit: maxSaid, tell: r.Said}
	limits := r.Limits
	if limits == (Limits{}) {
		limits = DefaultLimits
	}
	cmd, err := limits.command(ctx, g.program, args)
	if err != nil {
		return cove.Errorf(cove.Internal, "the limits of this process cannot be read: %w", err)
	}
	cmd.Dir = "/"
	cmd.Env = r.environment(filepath.Dir(g.program))
	cmd.Stdin, cmd.Stderr, cmd.ExtraFiles = r.Stdin, said, r.Files
	cmd.Stdout = r.Stdout
	if r.Stdout != nil && r.MaxOutput > 0 {
		cmd.Stdout = &limited{to: r.Stdout, left: r.MaxOutput, over: func() { cancel(errTooMuch) }}
	}
	cmd.WaitDelay = waitDelay
	if err := cmd.Start(); err != nil {
		if ctx.Err() != nil {
			return r.explain(ctx, err, "")
		}
		return cove.Errorf(cove.Unavailable, "git cannot be started: %w", err)
	}
	if r.Started != nil {
		r.Started()
	}
	err = cmd.Wait()
	if p := cmd.ProcessState; p != nil { // it was waited for
		cputime.Count(ctx, p.UserTime()+p.SystemTime())
	}
	return r.explain(ctx, err, said.String())
}

// programSettings matches the settings by which a repository names programs for the files that its attributes choose.
var programSettings = pattern.New(`(?s)^(filter\..*)\.(clean|smudge|process|required)$|^(merge\..*)\.driver$`)

// disablePrograms returns the settings that disable the filters and merge drivers of a repository's configuration.
func (g *Git) disablePrograms(ctx context.Context, dir string) ([]Setting, error) {
	out, err := g.Output(ctx, Run{Dir: dir, Command: []string{"config"},
		Flags: []string{"--list", "--name-only", "--null"}})
	var off []Setting
	for name := range strings.SplitSeq(string(out), "\x00") {
		m := programSettings.FindStringSubmatch(name)
		switch {
		case m == nil:
		case m[3] != "":
			off = append(off, Setting{name, "false"}) // the merge has a conflict
		case m[2] == "required":
			off = append(off, Setting{name, "false"})
		default:
			off = append(off, Setting{name, ""}) // files pass unchanged
		}
	}
	return off, err
}

var errTooMuch = errors.New("too much output")

// explain returns the error of a failed run.
func (r Run) explain(ctx context.Context, err error, said string) error {
	if err == nil {
		return nil
	}
	what := "git " + strings.Join(r.Command, " ")
	cause := context.Cause(ctx)
	switch {
	case errors.Is(cause, errTooMuch):
		return cove.Errorf(cove.TooLarge, "%s: what it writes is larger than %d MiB", what, r.MaxOutput>>20)
	case errors.Is(cause, context.DeadlineExceeded):
		return cove.Errorf(cove.Unavailable, "%s did not end in time: %w", what, cause)
	case cause != nil:
		return cove.Errorf(cove.Canceled, "%s was ended: %w", what, cause)
	}
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok {
		return cove.Errorf(cove.Internal, "%s: %w", what, err)
	}
	said = clean(said)
	for _, secret := range []string{r.Dir, r.WorkTree} { // paths of the host
		if secret != "" {
			said = strings.ReplaceAll(said, secret, filepath.Base(secret))
		}
	}
	failed := cove.Errorf(CodeOf(said), "%s: %w", what, &ExitError{Code: exit.ExitCode(), Said: said})
	if failed.Code == cove.StorageFull {
		return failed.WithHint("free some space, or choose another home with COVE_HOME")
	}
	return failed
}

// tail keeps the end of its input.
type tail struct {
	limit int
	tell  func(line string) // receives each line; may be nil

	mu   sync.Mutex
	kept []byte
	line []byte // the unfinished line, as far as relevant
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, p...)
	if over := len(t.kept) - t.limit; over > 0 {
		t.kept = append(t.kept[:0], t.kept[over:]...)
	}
	for _, c := range p {
		if t.tell == nil {
			break
		}
		switch {
		case c != '\r' && c != '\n':
			if len(t.line) < maxLine {
				t.line = append(t.line, c)
			}
		case len(t.line) > 0:
			t.tell(clean(string(t.line)))
			t.line = t.line[:0]
		}
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.kept)
}

// limited passes a bounded number of bytes on and then ends the run.
type limited struct {
	to   io.Writer
	left int64
	over func()
}

func (l *limited) Write(p []byte) (int, error) {
	if l.left -= int64(len(p)); l.left < 0 {
		l.over()
		return 0, errTooMuch
	}
	return l.to.Write(p)
}
