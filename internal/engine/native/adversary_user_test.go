//go:build linux

package native

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/cove-sandbox/cove/internal/engine/enginetest"
	"github.com/cove-sandbox/cove/test/asuser"
	"github.com/cove-sandbox/cove/test/debian"
)

// TestAdversaryWithoutRoot attacks sandboxes of an ordinary user, who has control groups: with subordinate ids, and
// without any, where the guest and the programs inside have the user's own id.
func TestAdversaryWithoutRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, who becomes the user")
	}
	if os.Getenv("COVE_TEST_IN_VM") != "" {
		t.Skip("the machine has accounts for that")
	}
	const user = 61000
	for name, ids := range map[string]string{"one id": "", "subordinate ids": fmt.Sprintf("%d:1610612736:65536\n", user)} {
		t.Run(name, func(t *testing.T) {
			programs := ".local/bin"
			if ids != "" {
				programs = "bin"
			}
			u := asuser.New(t, user, enginetest.BuildGuest(t), programs)
			run := "^TestAdversary$"
			if ids != "" { // of the image, all that is the user's is root's inside
				run += "|^TestAdversaryOfRoot$|^TestUsers$|^TestUsersAlone$"
				must(t, "cp", "-a", debian.Root(t), u.In("image"))
				must(t, "chown", "-R", fmt.Sprintf("%d:%[1]d", user), u.In("image"))
			}
			u.Run(t, run, ids, "true", "COVE_ADVERSARY_USER=1", adversaryImage+"="+u.In("image"))
		})
	}
}

// must runs a command.
func must(t *testing.T, command ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), command[0], command[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%q: %v: %s", command, err, out)
	}
}
