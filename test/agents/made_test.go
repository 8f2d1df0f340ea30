//go:build linux

package agents

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove/client"
)

const makes = `
prompts:
  - when: make a repository
    turns:
      - do:
          - shell: mkdir .git && echo x >.envrc
      - say: It is made.
`

// TestMadeInMounts: what an agent makes in a directory of its user that decides what the user's programs run is named
// when its run ends, whether or not the sandbox ends then: on the terminal, in the record, over the API and in the
// audit log, and again when a sandbox is destroyed that went on.
func TestMadeInMounts(t *testing.T) {
	l := newLab(t, makes)
	for _, keep := range []bool{false, true} {
		name := "one"
		if keep {
			name = "kept"
		}
		dir := filepath.Join(l.dir, name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		args := []string{"worker", "--bind", "make a repository"}
		if keep {
			args = append(args, "--keep")
		}
		got := l.cove(t, dir, args...)
		note := "the sandbox made .git in " + dir + ", which decides what your git executes there, and .envrc in " + dir
		if got.code != 0 || strings.Count(got.stderr, "note: "+note) != 1 {
			t.Errorf("%s: %+v", name, got)
		}
		run := l.last(t)
		if len(run.Made) != 1 || !strings.HasPrefix(run.Made[0].Detail, note) || len(run.Made[0].Paths) != 2 ||
			run.Made[0].Paths[0] != filepath.Join(dir, ".git") {
			t.Errorf("%s: the record says %+v", name, run.Made)
		}
		for _, args := range [][]string{{"runs", "show", run.ID}, {"runs", "show", run.ID, "--json"}} {
			if got := l.cove(t, dir, args...); !strings.Contains(got.stdout, note) {
				t.Errorf("%s: %q says %+v", name, args, got)
			}
		}
		c := l.client(t)
		list, err := c.Runs(t.Context(), client.RunQuery{Limit: 1})
		if err != nil || len(list.Runs) != 1 || list.Runs[0].Made != nil {
			t.Errorf("%s: in a list is %+v, %v", name, list.Runs, err)
		}
		if keep {
			if said, err := c.DestroySandbox(t.Context(), run.Sandbox, false); err != nil || len(said.Made) != 1 ||
				!strings.HasPrefix(said.Made[0].Detail, note) {
				t.Errorf("its end says %+v, %v", said, err)
			}
		}
		log, err := c.Audit(t.Context(), client.AuditOptions{Action: "sandbox-mounts", Object: run.Sandbox, Limit: 9})
		if err != nil || len(log.Records) != 1 || !strings.HasPrefix(log.Records[0].Detail, note) {
			t.Errorf("%s: the audit log has %+v, %v", name, log.Records, err)
		}
		c.Close()
		// What was there is nothing that was made.
		again := l.cove(t, dir, "worker", "--bind", "make a repository")
		if run := l.last(t); strings.Contains(again.stderr, "the sandbox made") || run.Made != nil {
			t.Errorf("%s, again: %+v, %+v", name, again, run.Made)
		}
	}
}
