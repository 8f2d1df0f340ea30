package soak

import (
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/cove-sandbox/cove/internal/instance"
	"github.com/cove-sandbox/cove/test/holdings"
)

// holdings counts what the machine holds of a lab: what is there after everything has ended has leaked.
func (l *lab) holdings() map[string]int {
	l.t.Helper()
	held := holdings.Holder{Dir: l.dir, RunDir: l.runDir(), Home: filepath.Join(l.dir, "home"), Cgroups: groups}.Count()
	if l.engine == docker {
		containers, err := exec.Command("docker", "ps", "--all", "--quiet", "--filter",
			"label=cove.realm="+instance.Realm(l.runDir())).Output()
		if err != nil {
			l.t.Fatalf("the containers: %v", err)
		}
		held["containers"] = len(strings.Fields(string(containers)))
	}
	return held
}
