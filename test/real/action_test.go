package real

import (
	"fmt"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/cove-sandbox/cove/test/delegate"
	"github.com/cove-sandbox/cove/test/modeltest"
)

// action is action.yml, as far as a runner of jobs reads it.
type action struct {
	Inputs  map[string]struct{ Default string }
	Outputs map[string]struct{ Value string }
	Runs    struct {
		Using string
		Steps []struct {
			Name, ID, Shell, Run string
			Env                  map[string]string
		}
	}
}

var expression = regexp.MustCompile(`\$\{\{ *([a-z.]+) *\}\}`)

// job runs the action's steps as a runner of jobs does, until one fails, and returns its outputs, the log and the
// report for people.
func (a *action) job(m *machine, with map[string]string) (outputs map[string]string, log, report string, code int) {
	m.t.Helper()
	values := map[string]string{"github.workspace": m.project}
	for name, input := range a.Inputs {
		values["inputs."+name] = input.Default
	}
	for name, value := range with {
		values["inputs."+name] = value
	}
	expand := func(text string) string {
		for range 2 { // a default has expressions, too
			text = expression.ReplaceAllStringFunc(text, func(found string) string {
				return values[expression.FindStringSubmatch(found)[1]]
			})
		}
		return text
	}
	temp := strings.TrimSpace(m.sh("/", "mktemp -d"))
	m.t.Cleanup(func() { os.RemoveAll(temp) })
	repository, err := filepath.Abs("../..")
	if err != nil {
		m.t.Fatal(err)
	}
	for _, step := range a.Runs.Steps {
		if step.Shell != "bash" || expression.MatchString(step.Run) {
			m.t.Fatalf("the step %q is not bash, or an input is part of its program", step.Name)
		}
		in := m.with("GITHUB_ACTION_PATH="+repository, "GITHUB_WORKSPACE="+m.project, "RUNNER_TEMP="+temp,
			"GITHUB_OUTPUT="+temp+"/output", "GITHUB_STEP_SUMMARY="+temp+"/report")
		for name, value := range step.Env {
			in.env = append(in.env, name+"="+expand(value))
		}
		r := in.try(m.project, "bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step.Run)
		log += r.out + r.errs
		if code = r.code; code != 0 {
			break
		}
	}
	outputs = map[string]string{}
	written := m.sh("/", "cat "+temp+"/output 2>/dev/null; true")
	for written != "" {
		line, rest, _ := strings.Cut(written, "\n")
		if name, end, ok := strings.Cut(line, "<<"); ok {
			outputs[name], rest, _ = strings.Cut(rest, "\n"+end+"\n")
		} else if name, value, ok := strings.Cut(line, "="); ok {
			outputs[name] = value
		}
		written = rest
	}
	for name := range a.Outputs {
		if _, ok := outputs[name]; code == 0 && !ok {
			m.t.Errorf("the output %s is not written", name)
		}
	}
	return outputs, log, m.sh("/", "cat "+temp+"/report 2>/dev/null; true"), code
}

// modelServer serves a model that follows a script, and returns the file of a provider that leads there.
func modelServer(t *testing.T, m *machine, script string) (server *modeltest.Server, providers string) {
	t.Helper()
	parsed, err := modeltest.Parse("script", []byte(script))
	if err != nil {
		t.Fatal(err)
	}
	server = modeltest.New(modeltest.Options{Script: parsed})
	at := httptest.NewServer(server)
	t.Cleanup(at.Close)
	_, port, err := net.SplitHostPort(at.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	providers = m.home + "/providers.yaml"
	const text = `echo 'providers: [{name: scripted, kind: anthropic, base_url: "http://localhost:%s/v1"}]' >%s`
	m.sh("/", fmt.Sprintf(text, port, providers))
	return server, providers
}

// TestAction runs the steps of action.yml with a release, Claude Code and a model that follows a script: in a
// container's job, which root runs, and in one of a user with sudo, as on GitHub's machines.
func TestAction(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: a mount namespace without the server of this machine")
	}
	agents := os.Getenv("COVE_TEST_AGENTS")
	if agents == "" {
		t.Skip("needs Claude Code, which is there where agents could be installed: COVE_TEST_AGENTS is set")
	}
	t.Parallel()
	text, err := os.ReadFile("../../action.yml")
	var a action
	if err == nil {
		err = yaml.Unmarshal(text, &a)
	}
	if err != nil || a.Runs.Using != "composite" {
		t.Fatal(a, err)
	}
	dist := release(t, distTool(t), "1.2.3")
	for dir := dist; dir != os.TempDir(); dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, who := range []string{"root", "runner"} {
		t.Run(who, func(t *testing.T) {
			m := asRoot(t)
			m.sh("/", `mkdir -p /var/lib/cove && cp -a --link "`+agents+`" /var/lib/cove/agents 2>/dev/null ||
				cp -a "`+agents+`/." /var/lib/cove/agents`)
			if who == "root" {
				aJob(t, &a, m, dist)
				refusedJobs(&a, m, dist)
			} else {
				aJob(t, &a, withSudo(t, m), dist)
			}
			if left := m.cove("list", "-q"); left != "" { // as root, whose sandboxes they are
				t.Errorf("sandboxes stay: %s", left)
			}
		})
	}
}

// withSudo is the machine of a user who becomes root without a password.
func withSudo(t *testing.T, m *machine) *machine {
	t.Helper()
	if _, err := exec.LookPath("sudo"); err != nil {
		t.Skip("needs sudo, which scripts/install.sh installs")
	}
	etc := t.TempDir()
	m.sh("/", fmt.Sprintf(`cd %s && cp /etc/passwd /etc/sudoers . && chmod 440 sudoers &&
		echo 'runner:*:%d:%[2]d::/home/user:/bin/sh' >>passwd && echo 'runner ALL=(ALL) NOPASSWD: ALL' >>sudoers &&
		mount --bind passwd /etc/passwd && mount --bind sudoers /etc/sudoers && chmod 750 /home/user &&
		cp -a %s /home/user/project && chown -R %[2]d:%[2]d /home/user`, etc, user, m.project))
	of := *m
	of.home, of.project = "/home/user", "/home/user/project"
	of.enter = slices.Concat(m.enter, delegate.As(user))
	of.env = slices.Concat(m.env, []string{"HOME=/home/user", "USER=runner", "LOGNAME=runner"})
	return &of
}

const noting = `prompts:
  - when: leave a note
    turns:
      - do: [{write: {path: NOTES.md, content: "noted\n"}}]
      - say: "::error::It is noted."
`

func aJob(t *testing.T, a *action, m *machine, dist string) {
	// As actions/checkout leaves it.
	m.sh(m.project, `git config http.https://github.com/.extraheader "AUTHORIZATION: basic b2YtdGhlLWpvYg=="`)
	model, providers := modelServer(t, m, noting)
	with := map[string]string{
		"release": dist, "prompt": "leave a note, $(id) `id` ${{ secrets.X }}", "directory": m.project,
		"arguments": "--set\ngateway.providers=" + providers + "\n\n--model-provider=scripted",
	}

	outputs, log, report, code := a.job(m, with)
	if code != 0 || outputs["answer"] != "::error::It is noted.\n" || !strings.HasPrefix(outputs["run"], "ru_") {
		t.Fatalf("code %d, %q\n%s", code, outputs, log)
	}
	if !strings.Contains(log, "installed cove 1.2.3 ") {
		t.Error("another release was installed")
	}
	stop, rest, _ := strings.Cut(log, "::stop-commands::")
	token, _, _ := strings.Cut(rest, "\n")
	said, on := strings.Index(rest, "::error::"), strings.LastIndex(rest, "::"+token+"::")
	if stop == log || said < 0 || on < said {
		t.Errorf("what the agent says is a command to the runner:\n%s", log)
	}
	if got := m.sh(m.project, "cat NOTES.md; stat -c %U . NOTES.md | uniq | wc -l"); got != "noted\n1\n" {
		t.Errorf("taken over: %q", got)
	}
	if !strings.Contains(report, "It is noted.") || !strings.Contains(report, outputs["run"]) {
		t.Errorf("the report:\n%s", report)
	}
	for _, r := range model.Requests() {
		if strings.Contains(r.Body, "b2YtdGhlLWpvYg") {
			t.Error("the checkout's token reached the model")
		}
	}

	// The checkout stays as it is, and the work is a patch.
	m.sh(m.project, "rm NOTES.md")
	with["apply"] = "false"
	outputs, log, _, code = a.job(m, with)
	if code != 0 || outputs["patch"] == "" {
		t.Fatalf("code %d, %q\n%s", code, outputs, log)
	}
	got := m.sh(m.project, "git status --porcelain; git apply "+outputs["patch"]+"; cat NOTES.md")
	if got != "noted\n" {
		t.Errorf("the patch: %q", got)
	}
}

// refusedJobs: what cannot be done is an exit code and a sentence.
func refusedJobs(a *action, m *machine, dist string) {
	for says, wrong := range map[string]map[string]string{
		"unknown flag": {"arguments": "--no-such-flag"}, "no key for its models": {},
		"are agents": {"agent": "parrot"}, "true or false": {"apply": "maybe"},
	} {
		wrong["release"], wrong["prompt"] = dist, "leave a note"
		if _, log, _, code := a.job(m, wrong); code == 0 || !strings.Contains(log, says) {
			m.t.Errorf("%s: code %d\n%s", says, code, log)
		}
	}
}
