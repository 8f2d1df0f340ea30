//go:build linux

// Package inside owns git inside a sandbox whose repository is not there: the program that sends a command to the git
// API and behaves as git would. It is linked into cove-guest.
//
// What concerns the place where it is called happens here: aliases, the user's own settings, files to read a message
// from, the pager and the editor. Whether a command is allowed is decided outside.
package inside

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/gitservice/internal/command"
	"github.com/cove-sandbox/cove/internal/gitservice/internal/wire"
)

// Exit codes of git's own.
const (
	exitFatal = 128
	exitUsage = 129
)

// Main does what git would with arguments, and returns its exit code.
func Main(args []string) int {
	s := &session{args: args, settings: readSettings()}
	var err error
	if s.dir, err = os.Getwd(); err != nil {
		return fatal("Unable to read current working directory: %v", err)
	}
	if err := s.expandAliases(); err != nil {
		return fatal("%v", err)
	}
	if name, asked := s.helpFor(); asked {
		return help(name)
	}
	if !s.served() {
		return s.real()
	}
	if code, done := s.own(); done {
		return code
	}
	if i := s.verb(); s.name() == "bisect" && i+1 < len(s.args) && s.args[i+1] == "run" {
		return s.bisectRun(s.args[i+2:])
	}
	return s.ask()
}

func fatal(format string, args ...any) int {
	fmt.Fprintf(os.Stderr, "fatal: "+format+"\n", args...)
	return exitFatal
}

// session is one call of git.
type session struct {
	args     []string
	dir      string // where it is called
	settings settings
	pager    *pager // nil without

	conn    atomic.Pointer[os.File]
	heeding sync.Once
	editing atomic.Bool
	tee     io.Writer // receives the output, too; nil without
	silent  bool      // and nothing else does
}

// verb is the index of the command among the arguments, or of none.
func (s *session) verb() int {
	for i := 0; i < len(s.args); i++ {
		switch a := s.args[i]; {
		case a == "-C" || a == "-c" || a == "--git-dir" || a == "--work-tree" || a == "--namespace" ||
			a == "--super-prefix" || a == "--config-env":
			i++
		case !strings.HasPrefix(a, "-"):
			return i
		}
	}
	return len(s.args)
}

func (s *session) name() string {
	if i := s.verb(); i < len(s.args) {
		return s.args[i]
	}
	return ""
}

// at is the directory that the command is about, after all -C.
func (s *session) at() string {
	dir := s.dir
	for i, end := 0, s.verb(); i+1 < end; i++ {
		if s.args[i] == "-C" {
			if i++; path.IsAbs(s.args[i]) {
				dir = s.args[i]
			} else if s.args[i] != "" {
				dir = dir + "/" + s.args[i]
			}
		}
	}
	return path.Clean(dir)
}

// served reports whether a command is about the repository that is not inside.
// Others, which are, are for the git of the image.
func (s *session) served() bool {
	if s.name() == "clone" || s.name() == "init" || os.Getenv("GIT_DIR") != "" {
		return false
	}
	for _, a := range s.args[:s.verb()] {
		if strings.HasPrefix(a, "--git-dir") {
			return false
		}
	}
	for dir := s.at(); ; dir = path.Dir(dir) {
		if dir == cove.Workspace {
			return true
		}
		if fi, err := os.Lstat(dir + "/.git"); err == nil && (fi.IsDir() || fi.Size() > 0) || dir == "/" {
			return false
		}
	}
}

// real becomes the git of the image.
func (s *session) real() int {
	self, err := os.Stat("/proc/self/exe")
	if err != nil {
		return fatal("%v", err)
	}
	for dir := range strings.SplitSeq(os.Getenv("PATH"), ":") {
		program := path.Join(dir, "git")
		fi, err := os.Stat(program)
		if err != nil || !path.IsAbs(program) || fi.IsDir() || fi.Mode()&0o111 == 0 || os.SameFile(fi, self) ||
			path.Clean(dir) == wire.Programs {
			continue
		}
		err = syscall.Exec(program, append([]string{"git"}, s.args...), os.Environ())
		return fatal("%s: %v", program, err)
	}
	if s.name() == "clone" || s.name() == "init" {
		return fatal("there is no git in this sandbox but that of %s", cove.Workspace)
	}
	return fatal("not a git repository (or any of the parent directories): .git")
}

// terminal reports whether a descriptor is one.
func terminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// passed are the variables that the API may be told.
var passed = []string{"GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_AUTHOR_DATE", "GIT_COMMITTER_NAME",
	"GIT_COMMITTER_EMAIL", "GIT_COMMITTER_DATE",
	"GIT_MERGE_AUTOEDIT", "COLUMNS", "TZ"}

// ask has the API run the command.
func (s *session) ask() int {
	needs, err := command.Describe(s.args)
	r := s.request(s.args)
	out := terminal(os.Stdout)
	r.Color = out && os.Getenv("TERM") != "dumb"
	if out && r.Env["COLUMNS"] == "" {
		if w, err := unix.IoctlGetWinsize(1, unix.TIOCGWINSZ); err == nil && w.Col > 0 {
			r.Env["COLUMNS"] = strconv.Itoa(int(w.Col))
		}
	}
	if err == nil && needs.Input != "" {
		if r.Stdin, err = s.read(needs.Input); err != nil {
			return fatal("could not read '%s': %v", needs.Input, errors.Unwrap(err))
		}
	}
	if out && (needs.Paginate || needs.Pager && !needs.NoPager) {
		if s.pager = s.startPager(needs.Paginate); s.pager != nil {
			r.Paged = true
		}
	}
	code := s.run(r)
	if s.pager != nil {
		s.pager.wait()
	}
	return code
}

// request returns what the API is asked for a command.
func (s *session) request(args []string) wire.Request {
	r := wire.Request{Args: args, Dir: s.dir, Env: map[string]string{}, Config: s.settings.list(), Edits: true,
		Speaks: terminal(os.Stderr)}
	for _, name := range passed {
		if v, ok := os.LookupEnv(name); ok {
			r.Env[name] = v
		}
	}
	return r
}

// read reads what a command takes from a file.
func (s *session) read(name string) ([]byte, error) {
	f := os.Stdin
	if name != "-" {
		if !path.IsAbs(name) {
			name = s.at() + "/" + name
		}
		var err error
		if f, err = os.Open(name); err != nil {
			return nil, err
		}
		defer f.Close()
	}
	data, err := io.ReadAll(io.LimitReader(f, wire.MaxInput+1))
	if err == nil && len(data) > wire.MaxInput {
		err = fmt.Errorf("input: %w", unix.EFBIG)
	}
	return data, err
}

// run sends a request and does what comes back.
func (s *session) run(r wire.Request) int {
	body, err := json.Marshal(r)
	if err != nil {
		return fatal("%v", err)
	}
	conn, answer, err := post(wire.CommandPath, body)
	if err != nil {
		return fatal("%v", err)
	}
	s.conn.Store(conn)
	defer conn.Close()
	s.heeding.Do(s.heedInterrupts)
	for {
		kind, p, err := wire.ReadFrame(answer)
		if err != nil {
			return fatal("git has been interrupted: %v", err)
		}
		switch kind {
		case wire.FrameStdout:
			if err := s.show(p); err != nil {
				return exitFatal + int(syscall.SIGPIPE)
			}
		case wire.FrameStderr:
			if !s.silent {
				os.Stderr.Write(p)
			}
		case wire.FrameEdit:
			if err := s.edit(p); err != nil {
				return fatal("%v", err)
			}
		case wire.FrameExit:
			var e wire.Exit
			if err := json.Unmarshal(p, &e); err != nil {
				return fatal("%v", err)
			}
			return e.Code
		}
	}
}

func (s *session) show(p []byte) error {
	if s.tee != nil {
		s.tee.Write(p)
	}
	if s.silent {
		return nil
	}
	to := os.Stdout
	if s.pager != nil {
		to = s.pager.to
	}
	_, err := to.Write(p)
	return err
}

// heedInterrupts ends the command when the terminal says so, which its runner notices by the connection; but not while
// the user is in the editor, or reads: those have the terminal.
func (s *session) heedInterrupts() {
	c := make(chan os.Signal, 1)
	signal.Notify(c, unix.SIGINT, unix.SIGQUIT)
	go func() {
		for sig := range c {
			if s.editing.Load() {
				continue
			}
			unix.Shutdown(int(s.conn.Load().Fd()), unix.SHUT_RDWR)
			if s.pager != nil {
				s.pager.wait()
			}
			os.Exit(exitFatal + int(sig.(syscall.Signal)))
		}
	}()
}
