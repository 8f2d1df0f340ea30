//go:build linux

// Package projects holds tests with ordinary projects of six languages: Cove builds the images of their dev containers,
// and their tests run inside, by command and by an agent.
package projects

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/test/debian"
	"github.com/cove-sandbox/cove/test/modeltest"
)

// project is one of testdata.
type project struct {
	name   string
	preset string // of its registry, beside that of its image's packages
	late   bool   // the user thinks of the preset when it is missed
	suite  string // the command line of its tests
	passed string // is part of what they print

	file, line, broken string // a part of a file, and what breaks it
	failed             string // is part of what the tests print then
	code               int    // their exit code then
}

// The slow ones are first.
var projects = []project{
	{name: "node", preset: "npm", suite: "npm test", passed: "# pass 2",
		file: "newest.js", line: "maxSatisfying", broken: "minSatisfying",
		failed: "not ok 1 - the highest of a range", code: 1},
	{name: "python", suite: ".venv/bin/python -m pytest", passed: "5 passed",
		file: "fold/_fold.c", line: "65521;\n\t\tb", broken: "65519;\n\t\tb", failed: "test_adler", code: 1},
	{name: "go", preset: "go", late: true, suite: "go test -v ./...", passed: "--- PASS: TestMove ",
		file: "ledger.go", line: "l[from] -=", broken: "l[from] +=", failed: "after a move (-want +got)", code: 1},
	{name: "java", suite: "make test", passed: "OK (2 tests)",
		file: "src/shop/Cart.java", line: "number * price", broken: "number + price",
		failed: "expected:<215> but was:<140>", code: 2},
	{name: "cpp", suite: "cmake --build build && ctest --test-dir build --output-on-failure",
		passed: "100% tests passed, 0 tests failed out of 3",
		file:   "interval.cpp", line: "i.first <= ", broken: "i.first < ", failed: "Merged.Touching (Failed)", code: 8},
	{name: "ruby", suite: "rake", passed: "2 runs, 5 assertions, 0 failures",
		file: "lib/roman.rb", line: "'IV' => 4", broken: "'IV' => 5", failed: `Expected: "IV"`, code: 1},
}

// registries are variables that dev containers read, and the commands that print where this machine's packages are.
var registries = map[string]string{"GOPROXY": "go env GOPROXY", "GOSUMDB": "go env GOSUMDB",
	"NPM_REGISTRY": "npm config get registry"}

// atOnce is how many projects are worked on at a time: a build uses a processor.
const atOnce = 2

// TestProjects: the image of a project's dev container is built, its tests run inside and pass, by "cove devcontainer
// exec" and by "cove worker"; with one line of a source file broken, the worker is told of the failure, and so is its
// user. The policy is that of a user: presets of registries, and the hosts that apt of the image names.
func TestProjects(t *testing.T) {
	l := newLab(t)
	t.Run("refused", l.refused)
	places := make(chan struct{}, atOnce)
	t.Run("work", func(t *testing.T) {
		for _, p := range projects {
			t.Run(p.name, func(t *testing.T) {
				t.Parallel()
				places <- struct{}{}
				defer func() { <-places }()
				p.work(t, l)
			})
		}
	})
}

// refused: what a build does not reach is said, with the flags that allow it, and so is that it has no network.
func (l *lab) refused(t *testing.T) {
	l.repository(t, "ruby", "denied")
	for flags, want := range map[string][]string{
		"":                  {"it had no network: where it needs one, --preset NAME or --allow HOST"},
		"--network=limited": denials(l.hosts)} {
		out, code := l.cove(t, "denied", append([]string{"devcontainer", "build"}, strings.Fields(flags)...)...)
		for _, part := range want {
			if code == 0 || !strings.Contains(out.errs, part) {
				t.Errorf("with %q it does not say %q: %d, %s", flags, part, code, out.errs)
			}
		}
	}
}

func denials(hosts []string) (all []string) {
	for _, host := range hosts {
		all = append(all, "the policy denied "+host+": allow it with --")
	}
	return all
}

func (p project) work(t *testing.T, l *lab) {
	l.repository(t, p.name, p.name)
	defer l.remove(t, p.name)
	up := append([]string{"devcontainer", "up", "--name", p.name}, l.flags...)
	worker := append([]string{"worker", "--devcontainer", "--model-provider", "scripted", "--json"}, l.flags...)
	if p.preset != "" {
		worker = append(worker, "--preset", p.preset)
		if !p.late {
			up = append(up, "--preset", p.preset)
		}
	}
	if p.late {
		p.advised(t, l, up)
	} else if out, code := l.cove(t, p.name, up...); code != 0 {
		t.Fatalf("up: %d, %s", code, out.errs)
	}
	out, code := l.cove(t, p.name, "devcontainer", "exec", "sh", "-c", p.suite)
	if code != 0 || !strings.Contains(out.out, p.passed) {
		t.Errorf("the suite in the dev container: %d, %s%s", code, out.out, out.errs)
	}

	worker = append(worker, "run the tests of "+p.name)
	out, code = l.cove(t, p.name, worker...)
	if strings.Contains(out.errs, "RUN apt-get") {
		t.Errorf("the worker has its image built again: %s", out.errs)
	}
	if told := toolResult(t, out.out); code != 0 || told.IsError || !strings.Contains(told.Output, p.passed) {
		t.Errorf("the suite by the worker: %d, %+v, %s", code, told, out.errs)
	}

	file := filepath.Join(l.in(p.name), p.file)
	text, err := os.ReadFile(file)
	if err != nil || strings.Count(string(text), p.line) != 1 {
		t.Fatalf("%s does not have %q once: %v", p.file, p.line, err)
	}
	if err := os.WriteFile(file, []byte(strings.Replace(string(text), p.line, p.broken, 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	out, code = l.cove(t, p.name, worker...)
	ended := fmt.Sprintf("[exit code %d]", p.code)
	if told := toolResult(t, out.out); code != 0 || !told.IsError || !strings.Contains(told.Output, p.failed) ||
		!strings.HasSuffix(strings.TrimSpace(told.Output), ended) {
		t.Errorf("the broken suite by the worker: %d, %+v, %s", code, told, out.errs)
	}
}

// advised brings up a dev container whose first command needs a registry that nothing allows, and then does what the
// failure advises.
func (p project) advised(t *testing.T, l *lab, up []string) {
	out, code := l.cove(t, p.name, up...)
	_, advice, found := strings.Cut(out.errs, "allow it with cove ")
	if advice, _, _ = strings.Cut(advice, "; "); code == 0 || !found {
		t.Fatalf("up without a preset: %d, %s", code, out.errs)
	}
	if advice = strings.TrimSpace(advice); advice != "policy allow "+p.name+" --preset "+p.preset {
		t.Errorf("it advises %q", advice)
	}
	if out, code := l.cove(t, p.name, strings.Fields(advice)...); code != 0 {
		t.Fatalf("%s: %d, %s", advice, code, out.errs)
	}
	if out, code := l.cove(t, p.name, "devcontainer", "up"); code != 0 {
		t.Fatalf("up, as advised: %d, %s", code, out.errs)
	}
}

// toolResult returns what the only tool of a task has answered.
func toolResult(t *testing.T, messages string) (result api.Message) {
	t.Helper()
	for line := range strings.Lines(messages) {
		var m api.Message
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Errorf("%q is no message: %v", line, err)
		}
		if m.Type == api.MessageToolResult {
			result = m
		}
	}
	return result
}

// lab is a server with its state, and a model that follows a script.
type lab struct {
	dir   string
	bin   string
	env   []string
	hosts []string // of the packages of the image
	flags []string // for commands that make sandboxes
}

func newLab(t *testing.T) *lab {
	root := debian.Root(t)
	l := &lab{hosts: debian.Hosts(t, root)}
	var err error
	if l.dir, err = os.MkdirTemp("", "cove-projects-"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(l.dir) })
	if err := os.Chmod(l.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	// The preset allows the sources of this machine, and the image may have others.
	l.flags = []string{"--preset", "debian"}
	for name, print := range registries {
		l.env = append(l.env, name+"="+strings.TrimSuffix(output(t, print), "/"))
		l.flags = append(l.flags, "--devcontainer-env", name)
	}
	for _, host := range l.hosts {
		l.flags = append(l.flags, "--allow", host)
	}
	if l.bin = os.Getenv("COVE_TEST_BIN"); l.bin == "" {
		l.bin = l.in("bin")
		build := exec.Command("go", "build", "-o", l.bin+"/", "../../cmd/...")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	script, err := modeltest.Parse("script", script(t))
	if err != nil {
		t.Fatal(err)
	}
	model := httptest.NewServer(modeltest.New(modeltest.Options{Script: script}))
	t.Cleanup(model.Close)
	l.write(t, "providers.yaml", "providers:\n- {name: scripted, kind: anthropic, base_url: \""+model.URL+"/v1\"}\n")
	l.write(t, "cove.yaml", "gateway: {providers: "+l.in("providers.yaml")+"}\n")
	l.env = append(append(os.Environ(), l.env...), "PATH="+l.bin+":"+os.Getenv("PATH"), "COVE_CONFIG="+l.in("cove.yaml"),
		"COVE_HOME="+l.in("home"), "COVE_RUN_DIR="+l.in("run"), "COVE_SANDBOX_CGROUP_PARENT=cove-projects-test",
		"COVE_SERVER=", "NO_COLOR=1", "LC_ALL=C", "GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=Ada",
		"GIT_AUTHOR_EMAIL=ada@site.example", "GIT_COMMITTER_NAME=Ada", "GIT_COMMITTER_EMAIL=ada@site.example")
	t.Cleanup(func() { l.cove(t, ".", "server", "stop") })
	// A request names nothing of a home.
	if out, code := l.run(t, ".", "cp", "-a", root, l.in("root")); code != 0 {
		t.Fatal(out.errs)
	}
	if out, code := l.cove(t, ".", "image", "import", "dir:"+l.in("root"), "--name", "debian:12"); code != 0 {
		t.Fatal(out.errs)
	}
	return l
}

// script has the model run the tests of a project.
func script(t *testing.T) []byte {
	type action map[string]string
	type turn struct {
		Say string   `json:"say,omitempty"`
		Do  []action `json:"do,omitempty"`
	}
	type prompt struct {
		When  string `json:"when,omitempty"`
		Turns []turn `json:"turns"`
	}
	var all struct {
		Prompts []prompt `json:"prompts"`
	}
	for _, p := range projects {
		all.Prompts = append(all.Prompts, prompt{"run the tests of " + p.name,
			[]turn{{Do: []action{{"shell": p.suite}}}, {Say: "The tests have run."}}})
	}
	text, err := json.Marshal(all) // which is YAML, too
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func (l *lab) in(name string) string { return filepath.Join(l.dir, name) }

func (l *lab) write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(l.in(name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// repository makes a repository of a project.
func (l *lab) repository(t *testing.T, project, dir string) {
	t.Helper()
	if err := os.CopyFS(l.in(dir), os.DirFS(filepath.Join("testdata", project))); err != nil {
		t.Fatal(err)
	}
	if project == "node" { // a registry of a company's is named by such a file
		l.write(t, filepath.Join(dir, ".npmrc"), "registry="+output(t, registries["NPM_REGISTRY"])+"\n")
	}
	for _, args := range [][]string{{"init", "-q", "-b", "main"}, {"add", "-A"}, {"commit", "-q", "-m", "First"}} {
		if out, code := l.run(t, dir, "git", args...); code != 0 {
			t.Fatalf("git %s: %s", args[0], out.errs)
		}
	}
}

// remove removes what a project has on the disk, of which the next one needs as much.
func (l *lab) remove(t *testing.T, project string) {
	t.Helper()
	image, _ := l.cove(t, project, append([]string{"devcontainer", "build"}, l.flags...)...) // it is there, and named
	for _, args := range [][]string{{"devcontainer", "down", "--yes"}, {"image", "remove", strings.TrimSpace(image.out)},
		{"image", "prune"}} {
		if out, code := l.cove(t, project, args...); code != 0 {
			t.Errorf("%q: %s", args, out.errs)
		}
	}
}

type outputs struct{ out, errs string }

func (l *lab) cove(t *testing.T, dir string, args ...string) (outputs, int) {
	t.Helper()
	return l.run(t, dir, filepath.Join(l.bin, "cove"), args...)
}

func (l *lab) run(t *testing.T, dir, program string, args ...string) (outputs, int) {
	t.Helper()
	var out, errs bytes.Buffer
	c := exec.Command(program, args...)
	c.Dir, c.Env, c.Stdout, c.Stderr = l.in(dir), l.env, &out, &errs
	err := c.Run()
	if _, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
		t.Fatal(err)
	}
	return outputs{out.String(), errs.String()}, c.ProcessState.ExitCode()
}

// output returns what a tool of this machine prints.
func output(t *testing.T, command string) string {
	t.Helper()
	words := strings.Fields(command)
	c := exec.Command(words[0], words[1:]...)
	c.Dir = "/"
	out, err := c.Output()
	if err != nil {
		t.Skipf("%s, which has a registry, is not installed on this machine: %v", words[0], err)
	}
	return strings.TrimSpace(string(out))
}
