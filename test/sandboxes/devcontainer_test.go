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
	"sync"
	"syscall"
	"testing"

	"github.com/cove-sandbox/cove/internal/terminal"
	"github.com/cove-sandbox/cove/internal/terminal/terminaltest"
	"github.com/cove-sandbox/cove/test/debian"
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

// withDebian takes a root file system of Debian into the store, as the image "debian".
func (l *lab) withDebian() {
	l.t.Helper()
	l.must("cp", "-a", debian.Root(l.t), l.in("root"))
	l.must("cove", "image", "import", "dir:"+l.in("root"), "--name", "debian")
}

// images are the names of the images in the store that begin with devcontainer-.
func (l *lab) images() (names []string) {
	l.t.Helper()
	for line := range strings.Lines(l.must("cove", "image", "list")) {
		if strings.HasPrefix(line, "devcontainer-src-") {
			names = append(names, strings.Fields(line)[0])
		}
	}
	return names
}

// TestDevContainerBuild: the image of a dev container is built of the repository when it is missing, and again when
// what it is built from has changed; once, however many ask for it. What is built is agreed to.
func TestDevContainerBuild(t *testing.T) {
	l := newLab(t)
	l.withDebian()
	l.must("mkdir", l.in("src/.devcontainer"))
	const file = `{"build": {"dockerfile": "Dockerfile", "context": "..", "args": {"WORD": "w"},
		"options": ["--privileged"]}, "postCreateCommand": "cat /made >~/log"}`
	l.write("src/.devcontainer/devcontainer.json", file)
	l.write("src/.devcontainer/Dockerfile", "FROM debian\nARG WORD\nCOPY a.txt /made\nRUN echo $WORD $(id -u) >>/made\n")
	l.write("src/.dockerignore", ".git\n")

	said := l.creates(t, "first", "--devcontainer")
	for _, part := range []string{"build.options is left out", "#", "RUN echo $WORD"} {
		if !strings.Contains(said, part) {
			t.Errorf("%q is not said:\n%s", part, said)
		}
	}
	if log := l.home("first", "log"); log != "one\nw 0\n" {
		t.Errorf("the image has %q", log)
	}
	first := l.images()
	if len(first) != 1 {
		t.Fatalf("the images are %q", first)
	}
	if said = l.creates(t, "again"); strings.Contains(said, "#") || !slices.Equal(l.images(), first) {
		t.Errorf("built again: %q\n%s", l.images(), said)
	}

	if out, said, code := l.at("cove", "devcontainer", "build"); out != first[0]+"\n" || code != 0 ||
		!slices.Equal(l.images(), first) {
		t.Errorf("build: %q, %d, %s", out, code, said)
	}

	// A changed file of the context is no other content to agree to, and is built, by one of several at once.
	l.must("cove", "destroy", "--yes", "first", "again")
	l.write("src/a.txt", "two\n")
	var both sync.WaitGroup
	var said2 [2]string
	for i, name := range []string{"left", "right"} {
		both.Go(func() { said2[i] = l.creates(t, name) })
	}
	both.Wait()
	if n := strings.Count(said2[0]+said2[1], "RUN echo $WORD"); n != 1 {
		t.Errorf("it is built %d times:\n%s\n%s", n, said2[0], said2[1])
	}
	for _, name := range []string{"left", "right"} {
		if log := l.home(name, "log"); log != "two\nw 0\n" {
			t.Errorf("%s has %q", name, log)
		}
	}
	if second := l.images(); len(second) != 1 || second[0] == first[0] {
		t.Errorf("the images are %q, after %q", second, first)
	}

	// Changed instructions are, and so is what is left out of the context.
	for name, text := range map[string]string{"Dockerfile": "FROM debian\nCOPY a.txt /made\n",
		"Dockerfile.dockerignore": "a.txt\n"} {
		l.write("src/.devcontainer/"+name, text)
		if said, _ := l.makes("changed"); !strings.Contains(said, "which is not used") {
			t.Errorf("with another %s: %q", name, said)
		}
		l.must("cove", "destroy", "--yes", "changed")
	}
	said, code := l.makes("kept", "--devcontainer")
	if code == 0 || !strings.Contains(said, ".dockerignore") {
		t.Errorf("with what is left out: %d, %s", code, said)
	}
	if err := os.Remove(l.in("src/.devcontainer/Dockerfile.dockerignore")); err != nil {
		t.Fatal(err)
	}
	l.must("sh", "-c", "cd "+l.in("src")+" && ln -s /etc/passwd out && mkfifo .devcontainer/fifo")
	for path, want := range map[string]string{"../../x": "it leads out of the repository",
		"../out": "lead out of the checkout", "../none": "there is no none", "fifo": "is no regular file"} {
		l.write("src/.devcontainer/devcontainer.json", `{"build": {"dockerfile": "`+path+`"}}`)
		if said, code := l.makes("out", "--devcontainer"); code == 0 || !strings.Contains(said, want) {
			t.Errorf("%s: %d, %q", path, code, said)
		}
	}
	l.must("sh", "-c", "cd "+l.in("src")+" && ln -sfn /etc ctx")
	l.write("src/.devcontainer/devcontainer.json", `{"build": {"dockerfile": "Dockerfile", "context": "../ctx"}}`)
	if said, code := l.makes("out", "--devcontainer"); code == 0 || !strings.Contains(said, "ctx") {
		t.Errorf("a context outside: %d, %q", code, said)
	}
}

// creates makes a sandbox of the repository, and returns all that is said.
func (l *lab) creates(t *testing.T, name string, flags ...string) string {
	t.Helper()
	c := l.command(append([]string{"cove", "new", "src", "--no-attach", "--name", name}, flags...)...)
	out, err := c.CombinedOutput()
	if err != nil {
		t.Errorf("%v: %s", err, out)
	}
	return string(out)
}

// at runs a command in the repository, and returns its standard output, its error output and its exit code.
func (l *lab) at(args ...string) (out, errs string, code int) {
	l.t.Helper()
	var stdout, stderr bytes.Buffer
	c := l.command(args...)
	c.Dir, c.Stdout, c.Stderr = l.in("src"), &stdout, &stderr
	err := c.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		code = exit.ExitCode()
	} else if err != nil {
		l.t.Fatal(err)
	}
	return stdout.String(), stderr.String(), code
}

// TestDevContainerUp: a directory has one sandbox of its dev container, which "up" makes, starts and finds again, with
// its commands in their order.
func TestDevContainerUp(t *testing.T) {
	l := newLab(t)
	l.must("mkdir", "-p", l.in("src/sub"))
	const file = `{"containerEnv": {"A": "1"}, "remoteEnv": {"B": "${containerEnv:A}2"},
		"workspaceFolder": "/workspace/sub", "onCreateCommand": "echo on >>~/log",
		"postCreateCommand": "echo create >>~/log; test -e ~/go-on",
		"postStartCommand": "echo start >>~/log", "postAttachCommand": "echo attach >>~/log", "privileged": true}`
	l.write("src/sub/x", "x\n")
	l.write("src/.devcontainer.json", file)
	l.must("git", "-C", l.in("src"), "add", ".")
	l.must("git", "-C", l.in("src"), "commit", "-q", "-m", "dev container")
	_, said, code := l.at("cove", "devcontainer", "exec", "true")
	if code == 0 || !strings.Contains(said, "devcontainer up") {
		t.Errorf("before it is there: %d, %s", code, said)
	}

	// A command that fails is gone on with.
	_, said, code = l.at("cove", "devcontainer", "up", "--name", "box")
	for _, part := range []string{"privileged is left out", "postCreateCommand failed in the sandbox box"} {
		if code == 0 || !strings.Contains(said, part) {
			t.Errorf("%q is not said: %d, %s", part, code, said)
		}
	}
	l.must("cove", "exec", "box", "--", "sh", "-c", "touch ~/go-on")
	out, said, code := l.at("cove", "devcontainer", "up")
	if out != "box\n" || code != 0 {
		t.Fatalf("%q, %d, %s", out, code, said)
	}
	const begun = "on\ncreate\ncreate\nstart\nattach\n"
	if log := l.home("box", "log"); log != begun {
		t.Errorf("it left %q", log)
	}
	out, _, _ = l.at("cove", "devcontainer", "up", "--json", "--workspace-folder", l.in("src/sub"))
	if log := l.home("box", "log"); log != begun+"attach\n" || !strings.Contains(out, `"name": "box"`) {
		t.Errorf("it runs, and up again left %q: %s", log, out)
	}

	// What runs in it has its variables and directory, and passes its streams and its exit code on.
	out, said, code = l.at("cove", "devcontainer", "exec", "-e", "C=3", "sh", "-c",
		"pwd; echo $A $B $C; ls -d x; echo err >&2; exit 7", "--json")
	if out != "/workspace/sub\n1 12 3\nx\n" || said != "err\n" || code != 7 {
		t.Errorf("%q, %q, %d", out, said, code)
	}

	// A file that has changed is said, and changes nothing.
	l.write("src/.devcontainer.json", `{"containerEnv": {"A": "9"}, "postStartCommand": "echo other >>~/log"}`)
	if out, _, code = l.at("cove", "devcontainer", "stop"); out != "box\n" || code != 0 {
		t.Errorf("stop: %q, %d", out, code)
	}
	_, said, code = l.at("cove", "devcontainer", "exec", "true")
	if code == 0 || !strings.Contains(said, "devcontainer up") {
		t.Errorf("exec in one that is stopped: %d, %s", code, said)
	}
	_, said, code = l.at("cove", "devcontainer", "up")
	if log := l.home("box", "log"); log != begun+"attach\nstart\nattach\n" || code != 0 ||
		!strings.Contains(said, "has changed") {
		t.Errorf("started again it has %q: %d, %s", log, code, said)
	}

	// It is removed as others are.
	l.must("cove", "exec", "box", "--", "sh", "-c", "echo work >/workspace/work")
	if _, said, code = l.at("cove", "devcontainer", "down"); code == 0 || !strings.Contains(said, "--yes") {
		t.Errorf("down without a word: %d, %s", code, said)
	}
	if out, said, code = l.at("cove", "devcontainer", "down", "--yes"); out != "box\n" || code != 0 {
		t.Errorf("down: %q, %d, %s", out, code, said)
	}
	_, said, code = l.at("cove", "devcontainer", "down", "--yes")
	if code == 0 || !strings.Contains(said, "there is no sandbox") {
		t.Errorf("down again: %d, %s", code, said)
	}
}

// TestDevContainerUpAtOnce: of several who bring one up at once, one makes it, and all have it when it is ready.
func TestDevContainerUpAtOnce(t *testing.T) {
	l := newLab(t)
	l.write("src/.devcontainer.json", `{"postCreateCommand": "echo made >>log"}`)
	var all sync.WaitGroup
	var names, logs [3]string
	for i := range names {
		all.Go(func() {
			names[i], _, _ = l.at("cove", "devcontainer", "up", "--bind")
			log, err := os.ReadFile(l.in("src/log"))
			if err != nil {
				t.Error(err)
			}
			logs[i] = string(log)
		})
	}
	all.Wait()
	if names[0] == "" || names[0] != names[1] || names[1] != names[2] || len(l.list().Sandboxes) != 1 {
		t.Errorf("the sandboxes are %q", names)
	}
	if logs != [3]string{"made\n", "made\n", "made\n"} {
		t.Errorf("their commands left %q", logs)
	}
	if out, said, code := l.at("cove", "devcontainer", "build"); code != 0 || strings.Count(out, "\n") != 1 {
		t.Errorf("build of one that names an image which is there: %d, %s%s", code, out, said)
	}
}

// TestDevContainerAgent: an agent works in the dev container of its directory if the user has agreed to it. The sandbox
// goes with the work, as one that the agent's run has made.
func TestDevContainerAgent(t *testing.T) {
	l := newLab(t)
	l.write("cove.yaml", `agents:
  - name: scripted
    program: sh
    prompt: argument
    output: text
    headless:
      - sh
      - -c
      - |
        case "$1" in *change*) echo new >new.txt ;; esac
        echo "stage $STAGE: $(cat ~/log)"
      - sh
      - "{prompt}"
`)
	l.env = append(l.env, "COVE_CONFIG="+l.in("cove.yaml"))
	l.write("src/.devcontainer.json", `{"containerEnv": {"STAGE": "dev"}, "postCreateCommand": "cat a.txt >~/log"}`)
	l.write("src/a.txt", "not committed\n")
	for _, c := range []struct {
		name, prompt, out, says string
		flags                   []string
	}{
		{"not agreed to", "look", "stage :\n", "which is not used", nil},
		{"agreed to", "look", "stage dev: not committed\n", "has changed nothing", []string{"--devcontainer"}},
		{"agreed to before", "change", "stage dev: not committed\n", "1 file of ", []string{"--apply"}},
		{"quietly", "look", "stage dev: not committed\n", "", []string{"--quiet"}},
		{"left alone", "look", "stage :\n", "", []string{"--no-devcontainer"}},
	} {
		out, said, code := l.at(append([]string{"cove", "agent", "scripted", c.prompt}, c.flags...)...)
		if out != c.out || code != 0 || !strings.Contains(said, c.says) {
			t.Errorf("%s: %q, %d\n%s", c.name, out, code, said)
		}
		if c.name == "quietly" && strings.Contains(said, "dev container") {
			t.Errorf("with --quiet it says:\n%s", said)
		}
		if all := l.list().Sandboxes; len(all) != 0 {
			t.Fatalf("%s: it leaves %d sandboxes", c.name, len(all))
		}
	}
	if text, err := os.ReadFile(l.in("src/new.txt")); string(text) != "new\n" {
		t.Errorf("the work is %q, %v", text, err)
	}
	if left, err := os.ReadDir(l.in("home/devcontainers")); err != nil || len(left) != 1 {
		t.Errorf("it keeps %v, %v", left, err)
	}

	// A command that fails keeps the sandbox, and the agent does not begin.
	l.write("src/.devcontainer.json", `{"postCreateCommand": "exit 3"}`)
	out, said, code := l.at("cove", "agent", "scripted", "change", "--devcontainer")
	if out != "" || code == 0 || !strings.Contains(said, "postCreateCommand failed in the sandbox") ||
		len(l.list().Sandboxes) != 1 {
		t.Errorf("with a command that fails: %q, %d\n%s", out, code, said)
	}
}

// TestDevContainerFeatures: features of the repository are installed over the image as root, in their order, with their
// options and variables; their content is agreed to.
func TestDevContainerFeatures(t *testing.T) {
	l := newLab(t)
	l.withDebian()
	l.must("mkdir", "-p", l.in("src/.devcontainer/tool/lib"), l.in("src/.devcontainer/base"))
	l.write("src/.devcontainer/devcontainer.json", `{"build": {"dockerfile": "Dockerfile"},
		"remoteUser": "backup", "containerUser": "games",
		"postCreateCommand": "tool >>~/log; id -un >>~/log",
		"features": {"./tool": {"word": "it's \"$HOME\""}, "./base": "2"}}`)
	l.write("src/.devcontainer/Dockerfile", "FROM debian\nRUN echo built >/made\nUSER daemon\n")
	l.write("src/.devcontainer/base/devcontainer-feature.json", `{"id": "base"}`)
	l.write("src/.devcontainer/base/install.sh",
		"#!/bin/sh\necho base $VERSION $(id -u) $_REMOTE_USER $_REMOTE_USER_HOME >>/made\n")
	l.write("src/.devcontainer/tool/devcontainer-feature.json", `{"id": "tool", "installsAfter": ["x.test/y/base"],
		"options": {"word": {"type": "string", "default": "none"}, "loud": {"type": "boolean", "default": true}},
		"containerEnv": {"PATH": "/opt/tool:${PATH}"}, "onCreateCommand": "echo begun >>~/log", "privileged": true}`)
	l.write("src/.devcontainer/tool/lib/tool", "#!/bin/sh\ncat /made\n")
	l.write("src/.devcontainer/tool/install.sh",
		"#!/bin/bash\nset -e\necho \"tool $WORD $LOUD\" >>/made\nmkdir /opt/tool\ncp lib/tool /opt/tool/\n")
	said := l.creates(t, "box", "--devcontainer")
	if !strings.Contains(said, "features../tool.privileged is left out") {
		t.Errorf("what is left out is not said:\n%s", said)
	}
	const want = "begun\nbuilt\nbase 2 0 backup /var/backups\ntool it's \"$HOME\" true\nbackup\n"
	if log := l.home("box", "log"); log != want {
		t.Errorf("it left %q, want %q\n%s", log, want, said)
	}
	if out := l.must("cove", "exec", "box", "--", "sh", "-c", "ls -A /tmp"); strings.Contains(out, "dev-container") {
		t.Errorf("in /tmp there is %q", out)
	}
	first := l.images()
	if said = l.creates(t, "again"); strings.Contains(said, "#") || len(first) != 2 || !slices.Equal(l.images(), first) {
		t.Errorf("built again: %q, %q\n%s", first, l.images(), said)
	}
	out, said, code := l.at("cove", "devcontainer", "explain")
	for _, part := range []string{"features../tool.word ", "build.dockerfile ", "base/devcontainer-feature.json"} {
		if code != 0 || strings.Contains(out, part) == (part == "base/devcontainer-feature.json") {
			t.Errorf("explain, %q: %d, %s%s", part, code, out, said)
		}
	}
	l.write("src/.devcontainer/tool/lib/tool", "#!/bin/sh\necho other\n")
	if said, _ := l.makes("changed"); !strings.Contains(said, "which is not used") {
		t.Errorf("with another file of a feature: %q", said)
	}
	l.write("src/.devcontainer/base/install.sh", "#!/bin/sh\necho no good >&2; exit 4\n")
	if said, code := l.makes("failed", "--devcontainer"); code == 0 || !strings.Contains(said, "no good") {
		t.Errorf("with one that fails: %d, %s", code, said)
	}
	l.must("mv", l.in("src/.devcontainer/base"), l.in("src/.devcontainer/other"))
	if said, _ := l.makes("without"); !strings.Contains(said, "is not used") || !strings.Contains(said, "no feature") {
		t.Errorf("without one of them: %q", said)
	}
	l.must("mv", l.in("src/.devcontainer/other"), l.in("src/.devcontainer/base"))
	l.must("ln", "-s", "/etc/passwd", l.in("src/.devcontainer/base/link"))
	if said, code := l.makes("linked", "--devcontainer"); code == 0 || !strings.Contains(said, "link is no regular file") {
		t.Errorf("with a link: %d, %s", code, said)
	}
}
