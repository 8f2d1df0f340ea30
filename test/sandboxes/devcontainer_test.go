//go:build linux

package sandboxes

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/cove-sandbox/cove/internal/terminal"
	"github.com/cove-sandbox/cove/internal/terminal/terminaltest"
)

// makes makes a sandbox of the repository without a terminal. It returns what is said of a dev container.
func (l *lab) makes(name string, flags ...string) (said string, code int) {
	l.t.Helper()
	var errs bytes.Buffer
	c := l.command(append([]string{"cove", "new", "src", "--no-attach", "--name", name}, flags...)...)
	c.Stderr = &errs
	err := c.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return errs.String(), exit.ExitCode()
	}
	if err != nil {
		l.t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(errs.String()) {
		if strings.Contains(line, "dev container") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, ""), 0
}

// sits is a person who makes a sandbox of the repository at a terminal.
func (l *lab) sits(name string, flags ...string) *terminaltest.Person {
	l.t.Helper()
	return terminaltest.Sit(l.t, terminal.Size{Rows: 50, Columns: 150},
		l.command(append([]string{"cove", "new", "src", "--name", name}, flags...)...))
}

const question = "use this dev container, until its files change?"

// asked waits until one who makes a sandbox is asked about its dev container, or has it without.
func asked(p *terminaltest.Person, name string) bool {
	p.Sees(regexp.QuoteMeta(question) + "|the sandbox " + name + " is ready")
	return strings.Contains(p.Text(), question)
}

// home is a file in a sandbox's home, empty if it is not there.
func (l *lab) home(name, file string) string {
	l.t.Helper()
	return l.must("cove", "exec", name, "--", "sh", "-c", "cat ~/"+file+" 2>/dev/null; true")
}

// TestDevContainerAgreed: a repository's dev container is used when the user has agreed to its content, and else not.
func TestDevContainerAgreed(t *testing.T) {
	l := newLab(t)
	const first = `{"containerEnv": {"STAGE": "first"}, "privileged": true, "name": "\u001b[2J\u001b[31mshop",
		"postCreateCommand": "echo made for $STAGE >>~/log", "postAttachCommand": "echo attached >>~/log"}`
	l.write("src/.devcontainer.json", first)

	// Without a terminal one line says that there is one; without wishing to hear of it none does.
	if said, _ := l.makes("pipe"); strings.Count(said, "\n") != 1 ||
		!strings.Contains(said, "which is not used; --devcontainer agrees to it") {
		t.Errorf("without a terminal: %q", said)
	}
	if said, _ := l.makes("quiet", "--no-devcontainer"); said != "" {
		t.Errorf("with --no-devcontainer: %q", said)
	}
	p := l.sits("hush", "--no-devcontainer", "--no-attach")
	if asked(p, "hush") || strings.Contains(p.Text(), "dev container") {
		t.Fatalf("with --no-devcontainer at a terminal:\n%s", p.Text())
	}
	p.Leaves(0)

	// A no is not kept.
	p = l.sits("no", "--no-attach")
	if !asked(p, "no") {
		t.Fatalf("it does not ask:\n%s", p.Text())
	}
	p.Sees(`name +\\x1b\[2J\\x1b\[31mshop `)
	p.Sees(`privileged +it would take the wall away`)
	p.Types("n\r")
	p.Leaves(0)
	for _, name := range []string{"pipe", "quiet", "hush", "no"} {
		if log := l.home(name, "log"); log != "" {
			t.Errorf("%s ran commands: %q", name, log)
		}
		if env := l.must("cove", "exec", name, "--", "sh", "-c", "echo $STAGE"); env != "\n" {
			t.Errorf("%s has the variable %q", name, env)
		}
	}

	// A yes is.
	p = l.sits("yes")
	if !asked(p, "yes") {
		t.Fatalf("after a no it does not ask:\n%s", p.Text())
	}
	p.Sees(`containerEnv\.STAGE +first +\.devcontainer\.json:1`)
	p.Sees(`postCreateCommand \(once\) +/bin/sh -c echo made for \$STAGE`)
	p.Types("y\r")
	p.Sees(`yes:/workspace\$`)
	p.Types("exit\r")
	p.Leaves(0)
	if log := l.home("yes", "log"); log != "made for first\nattached\n" {
		t.Errorf("agreed to, it left %q", log)
	}
	if p = l.sits("again", "--no-attach"); asked(p, "again") {
		t.Fatalf("it asks the second time:\n%s", p.Text())
	}
	p.Leaves(0)
	if log := l.home("again", "log"); log != "made for first\n" {
		t.Errorf("the second time it left %q", log)
	}
	if said, _ := l.makes("later"); strings.Count(said, "\n") != 1 || l.home("later", "log") != "made for first\n" {
		t.Errorf("without a terminal, agreed to: %q", said)
	}

	// Other content is asked about.
	l.write("src/.devcontainer.json", strings.Replace(first, "first", "other", 1))
	if said, _ := l.makes("changed"); !strings.Contains(said, "which is not used") || l.home("changed", "log") != "" {
		t.Errorf("changed: %q", said)
	}
	if p = l.sits("asked", "--no-attach"); !asked(p, "asked") {
		t.Fatalf("it does not ask about the changed one:\n%s", p.Text())
	}
	p.Types("yes\r")
	p.Leaves(0)
	if log := l.home("asked", "log"); log != "made for other\n" {
		t.Errorf("with the changed one agreed to: %q", log)
	}
}

// TestDevContainerFails: a command that fails is an error, and its sandbox is there to be looked at.
func TestDevContainerFails(t *testing.T) {
	l := newLab(t)
	l.write("src/.devcontainer.json", `{
		"onCreateCommand": "echo begun >>~/log",
		"postCreateCommand": {"good": ["true"], "bad": "echo one went wrong; echo for a reason >&2; exit 3"},
		"postStartCommand": "echo started >>~/log"}`)
	said, code := l.makes("kept", "--devcontainer")
	for _, part := range []string{"one went wrong\n", "for a reason\n",
		"postCreateCommand.bad failed in the sandbox kept, with the exit code 3", "cove shell kept"} {
		if !strings.Contains(said, part) {
			t.Errorf("%q is not said", part)
		}
	}
	if code != 120 {
		t.Errorf("exit code %d", code)
	}
	if log := l.home("kept", "log"); log != "begun\n" {
		t.Errorf("it left %q", log)
	}
	if t.Failed() {
		t.Logf("it says:\n%s", said)
	}
}

// TestDevContainerStarts: a start repeats the commands of each start as the user has agreed to them, whatever the
// repository and the checkout say by then, and whichever server starts the sandbox.
func TestDevContainerStarts(t *testing.T) {
	l := newLab(t)
	const agreed = `{"containerEnv": {"STAGE": "agreed"}, "postCreateCommand": "echo created >>~/log",
		"postStartCommand": "echo started $STAGE >>~/log", "postAttachCommand": "echo attached >>~/log"}`
	const hostile = `{"containerEnv": {"STAGE": "hostile"}, "postCreateCommand": "echo hostile >>~/log",
		"postStartCommand": "echo hostile >>~/log"}`
	l.write("src/.devcontainer.json", agreed)
	l.must("git", "-C", l.in("src"), "add", ".")
	l.must("git", "-C", l.in("src"), "commit", "-q", "-m", "dev container")
	if said, code := l.makes("box", "--devcontainer"); code != 0 {
		t.Fatal(said)
	}
	const began = "created\nstarted agreed\n"
	if log := l.home("box", "log"); log != began {
		t.Fatalf("a new one has %q", log)
	}
	l.must("cove", "exec", "box", "--", "sh", "-c",
		"cat >.devcontainer.json <<'END'\n"+hostile+"\nEND\ngit commit -qam hostile")
	l.write("src/.devcontainer.json", hostile)
	l.must("cove", "stop", "box")
	l.must("cove", "start", "box")
	if log := l.home("box", "log"); log != began+"started agreed\n" {
		t.Errorf("started again it has %q", log)
	}
	l.must("cove", "stop", "box")
	if err := syscall.Kill(l.serverPID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	l.must("cove", "rename", "box", "crate")
	l.must("cove", "start", "crate")
	if log := l.home("crate", "log"); log != began+"started agreed\nstarted agreed\n" {
		t.Errorf("with another name and server it has %q", log)
	}
}

// TestDevContainerForgotten: what is kept of a sandbox's dev container for its starts goes with the sandbox.
func TestDevContainerForgotten(t *testing.T) {
	l := newLab(t)
	l.write("src/.devcontainer.json", `{"postStartCommand": "true"}`)
	kept := func() (names []string) {
		t.Helper()
		entries, err := os.ReadDir(l.in("home/devcontainers"))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return names
	}
	for _, end := range [][]string{{"cove", "destroy", "box", "--yes"}, {"cove", "destroy", "box", "--yes", "--keep-work"},
		{"cove", "prune", "--unused", "1ns", "--with-work", "--yes"}} {
		if said, code := l.makes("box", "--devcontainer"); code != 0 {
			t.Fatal(said)
		}
		want := []string{"agreed", l.list().Sandboxes[0].ID + ".json"}
		if names := kept(); !slices.Equal(names, want) {
			t.Errorf("of a new one it keeps %q, want %q", names, want)
		}
		l.must(end...)
		if names := kept(); !slices.Equal(names, want[:1]) {
			t.Errorf("after %q it keeps %q", end, names)
		}
	}
	// What cannot be read is no sandbox without commands.
	if said, code := l.makes("box", "--devcontainer"); code != 0 {
		t.Fatal(said)
	}
	l.must("cove", "stop", "box")
	l.write("home/devcontainers/"+l.list().Sandboxes[0].ID+".json", "{")
	if _, err := l.run("cove", "start", "box"); err == nil || !strings.Contains(err.Error(), ".json: unexpected end") {
		t.Errorf("with what cannot be read: %v", err)
	}
}
