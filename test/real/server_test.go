package real

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cove-sandbox/cove/test/await"
)

// with is the machine in a shell that has exported variables.
func (m *machine) with(variables ...string) *machine {
	of := *m
	of.env = slices.Concat(m.env, variables)
	return &of
}

// says runs Cove and checks its exit code and that standard error has some texts.
func (m *machine) says(code int, args []string, texts ...string) {
	m.t.Helper()
	r := m.try(m.project, append([]string{"cove"}, args...)...)
	if r.code != code {
		m.t.Errorf("%q: code %d, want %d\n%s%s", args, r.code, code, r.out, r.errs)
	}
	for _, text := range texts {
		if !strings.Contains(r.errs, text) {
			m.t.Errorf("%q does not say %q:\n%s", args, text, r.errs)
		}
	}
}

// TestServer: the server in the background that a command has started does what later commands bring: their keys, and
// their settings, or it says that it does not.
func TestServer(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: a mount namespace without the server of this machine; TestDefaults has the user's")
	}
	t.Parallel()
	m := asRoot(t)

	// A key that is missing costs a second and leaves nothing; exported a minute late, it counts.
	began := time.Now()
	m.says(123, []string{"worker", "do it"}, "has no key for its models", "export ANTHROPIC_API_KEY=…")
	t.Logf("took %s", time.Since(began))
	m.says(123, []string{"claude", "do it"}, "Claude Code has no key for its models")
	m.sh("/", "! test -e /var/lib/cove/agents/claude") // nothing was fetched for it
	if got := m.cove("list", "-q") + m.cove("runs", "list", "-q"); got != "" {
		t.Errorf("left: %s", got)
	}
	m.says(1, []string{"credentials", "check", "anthropic"}, "export ANTHROPIC_API_KEY=…")
	keyed := m.with("ANTHROPIC_API_KEY=sk-ant-of-nobody")
	keyed.says(0, []string{"credentials", "check", "anthropic"}, "the server uses this shell's ANTHROPIC_API_KEY")
	m.says(0, []string{"credentials", "check", "anthropic"}) // and keeps it
	m.with("ANTHROPIC_API_KEY=sk-ant-of-another").says(0, []string{"list"}, "uses this shell's ANTHROPIC_API_KEY")
	m.with("ANTHROPIC_API_KEY=sk-ant-of-a-third").says(0, []string{"run", "--allow", "api.anthropic.com", "--credential",
		"anthropic", "sh", "-c", "true"}, "uses this shell's ANTHROPIC_API_KEY")
	asked := m.with("ANTHROPIC_API_KEY=sk-ant-of-a-fourth").try("/", "cove", "generate", "hi")
	if !strings.Contains(asked.errs, "uses this shell's ANTHROPIC_API_KEY") {
		t.Errorf("generate says %q", asked.errs)
	}

	// Settings of a command are used, or it says what to do.
	short := []string{"--set", "sandbox.default_limits.timeout=1s"}
	m.says(124, slices.Concat([]string{"run"}, short, []string{"sh", "-c", "sleep 60"}), "out of time")
	m.says(0, slices.Concat([]string{"list"}, short), "it is started anew") // nothing ran in it
	m.cove("server", "stop")
	m.cove("new", "--empty", "--name", "otter", "--no-attach")
	m.says(122, slices.Concat([]string{"list"}, short), "another sandbox.default_limits.timeout than this command",
		"cove server stop")
	m.with("COVE_SANDBOX_QUEUE=7").says(0, []string{"list"}, "another sandbox.queue than this shell, and uses its own")
	m.with("COVE_HOME=/srv/home").says(122, []string{"list"}, "another home", "COVE_RUN_DIR")
	if got := m.with("COVE_HOME=/srv/home").cove("run", "sh", "-c", "echo elsewhere"); got != "elsewhere\n" {
		t.Errorf("a run in another home: %q", got)
	}
	m.sh("/", "test -f /srv/home/cove.db")

	// So is the home: a server of another one does not answer for it.
	m.cove("stop", "otter")
	m.with("COVE_HOME=/srv/home").says(0, []string{"list"}, "had another home", "it is started anew")
	m.says(0, []string{"start", "otter"}, "had another home", "it is started anew")

	// The owner may have code take hours, where others may not.
	if got := m.cove("run", "sh", "-c", "echo long", "--timeout", "2h"); got != "long\n" {
		t.Errorf("with two hours: %q", got)
	}

	// "cove serve" takes over, and what runs goes on; a second one is refused, and a broken file does not keep it alive.
	m.sh("/srv", `cove serve --listen "" >serve.txt 2>&1 &`)
	await.That(t, "the server of the user's own", func() bool {
		return strings.Contains(m.try("/", "cat", "/srv/serve.txt").out, "listening")
	})
	if got := m.sh("/", "cat /srv/serve.txt"); !strings.Contains(got, "took over from the server in the background") {
		t.Errorf("serve says %q", got)
	}
	if got := m.cove("exec", "otter", "--", "echo", "still", "there"); got != "still there\n" {
		t.Errorf("after it: %q", got)
	}
	keyed.says(0, []string{"list"}, "another ANTHROPIC_API_KEY than this shell, and uses its own")
	m.says(122, []string{"serve", "--listen", ""}, "another server (process ", "cove server stop")
	m.with("COVE_HOME=/srv/home").says(122, []string{"serve", "--listen", ""}, "another server (process ")
	m.sh("/srv", "echo 'broken: [' >broken.yaml")
	m.says(0, []string{"--config", "/srv/broken.yaml", "server", "stop"}, "the configuration cannot be read")

	// A server in the background in which nothing runs ends by itself.
	m.cove("destroy", "--yes", "otter")
	m.cove("server", "stop")
	m.sh("/srv", `setsid cove serve --background --listen "" --log-file /srv/idle.txt --idle 1s >/dev/null 2>&1 &`)
	await.That(t, "an idle server ends", func() bool {
		return strings.Contains(m.try("/", "cat", "/srv/idle.txt").out, "shutting down")
	})
}
