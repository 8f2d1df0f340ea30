//go:build linux

package inside

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/cove-sandbox/cove"
)

// Exit codes of the command of "git bisect run".
const (
	cannotTest    = 125 // this commit
	notExecutable = 126
	notFound      = 127
)

// runShown has the API run a command, with the options that this one has before its verb. It shows the output and
// returns it.
func (s *session) runShown(args ...string) (out string, code int) {
	var b bytes.Buffer
	s.tee = &b
	code = s.run(s.request(slices.Concat(s.args[:s.verb()], args)))
	s.tee = nil
	return strings.TrimSuffix(b.String(), "\n"), code
}

// runSilent is runShown without showing the output.
func (s *session) runSilent(args ...string) (out string, code int) {
	s.silent = true
	defer func() { s.silent = false }()
	return s.runShown(args...)
}

// reportError prints an error and returns the exit code for it.
func reportError(format string, args ...any) int {
	fmt.Fprintf(os.Stderr, "error: "+format+"\n", args...)
	return 1
}

// reportWaiting prints what git says until the commits to begin with are marked, and returns the exit code for it.
func reportWaiting(missing string) int {
	fmt.Println("status: waiting for " + missing)
	return 1
}

// bisectRun is "git bisect run": the command runs in this sandbox, whose user could run it, too. Its exit code
// becomes a "git bisect good", "bad" or "skip", which is passed on to the API.
func (s *session) bisectRun(command []string) int {
	good, code := s.runSilent("bisect", "terms", "--term-good")
	bad, _ := s.runSilent("bisect", "terms", "--term-bad")
	if _, running := s.runSilent("bisect", "log"); running != 0 {
		return reportError("no bisection has been started: git bisect start")
	}
	if code != 0 { // its words are not chosen before a commit is marked
		return reportWaiting("both good and bad commits")
	}
	refs, code := s.runSilent("for-each-ref", "--format=%(refname:lstrip=2)", "refs/bisect")
	if code != 0 {
		return reportError("the refs of the bisection cannot be read: exit code %d", code)
	}
	known := ""
	hasGood, hasBad := false, false
	for name := range strings.Lines(refs) {
		name = strings.TrimSuffix(name, "\n")
		if id, ok := strings.CutPrefix(name, good+"-"); ok && !hasGood {
			known, hasGood = id, true
		}
		hasBad = hasBad || name == bad
	}
	switch {
	case !hasGood && !hasBad:
		return reportWaiting("both good and bad commits")
	case !hasGood:
		return reportWaiting("good commit(s), bad commit known")
	case !hasBad:
		return reportWaiting("bad commit, 1 good commit known")
	case len(command) == 0:
		return reportError("bisect run failed: no command provided.")
	}
	return s.bisectSteps(command, good, bad, known)
}

// bisectSteps tests one commit after another. known is a commit that is good.
func (s *session) bisectSteps(command []string, good, bad, known string) int {
	line := quoted(command)
	for first := true; ; first = false {
		code, err := runShell(line)
		if err != nil {
			return reportError("bisect run failed: %v", err)
		}
		if first && (code == notExecutable || code == notFound) {
			// Of a command that is not there, every commit would be bad.
			if other, ok := s.runOnGood(line, known); !ok {
				return reportError("unable to verify '%s' on good revision", line)
			} else if other == code {
				return reportError("bogus exit code %d for good revision", code)
			}
		}
		if code >= 128 {
			reportError("bisect run failed: exit code %d from %s is < 0 or >= 128", code, line)
			return 256 - code // as git, whose exit code is the negative of it
		}
		term := bad
		switch code {
		case 0:
			term = good
		case cannotTest:
			term = "skip"
		}
		out, code := s.runShown("bisect", term)
		switch {
		case code == 2:
			reportError("bisect run cannot continue any more")
			return code
		case code != 0:
			reportError("bisect run failed: 'git bisect %s' exited with error code -%d", term, code)
			return code
		}
		if first, _, _ := strings.Cut(out, "\n"); strings.HasSuffix(first, " is the first "+bad+" commit") {
			fmt.Println("bisect found first bad commit")
			return 0
		}
	}
}

// runOnGood runs the command on a commit that is good, and goes back.
func (s *session) runOnGood(line, known string) (code int, ok bool) {
	if _, code := s.runSilent("rev-parse", "--verify", "-q", "BISECT_HEAD"); code == 0 {
		return 0, true // nothing is checked out
	}
	here, code := s.runSilent("rev-parse", "--verify", "HEAD")
	if code != 0 || !s.goTo(known) {
		return 0, false
	}
	code, err := runShell(line)
	return code, s.goTo(here) && err == nil
}

func (s *session) goTo(id string) bool {
	if _, code := s.runSilent("switch", "-q", "--detach", id); code != 0 {
		return false
	}
	_, code := s.runShown("log", "-1", "--no-decorate", "--format=[%H] %s", id)
	return code == 0
}

// runShell runs a command line here, at the top of the workspace.
func runShell(line string) (code int, err error) {
	fmt.Printf("running %s\n", line)
	p, err := os.StartProcess("/bin/sh", []string{"sh", "-c", line}, &os.ProcAttr{Dir: cove.Workspace,
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}, Env: os.Environ()})
	if err != nil {
		return 0, err
	}
	state, err := p.Wait()
	if err != nil {
		return 0, err
	}
	if w, ok := state.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return exitFatal + int(w.Signal()), nil
	}
	return state.ExitCode(), nil
}

// quoted writes words for a shell.
func quoted(words []string) string {
	var all []string
	for _, w := range words {
		all = append(all, "'"+strings.NewReplacer("'", `'\''`, "!", `'\!'`).Replace(w)+"'")
	}
	return strings.Join(all, " ")
}
