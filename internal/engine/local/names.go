//go:build linux

package local

import (
	"fmt"
	"strings"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/instance"
)

// Names gives control groups their names: the realm of the run directory, the instance that owns the group, and a
// number. A sweep recognises them by it.
type Names struct{ RunDir string }

// realmLength is how much of the run directory's realm is in a name.
const realmLength = 12

func (n Names) realm() string { return instance.Realm(n.RunDir)[:realmLength] }

// Group names a group of an instance.
func (n Names) Group(id cove.InstanceID, number int64) string {
	return fmt.Sprintf("%s.%s.%d", n.realm(), id, number)
}

// Orphan reports whether a group carries the name of a dead instance of this run directory. Groups of other run
// directories are never orphans: Cove may run on the same host with another run directory, whose locks are not here.
func (n Names) Orphan(group string) bool {
	parts := strings.Split(group, ".")
	if len(parts) != 3 || parts[0] != n.realm() || parts[2] == "" || strings.Trim(parts[2], "0123456789") != "" {
		return false
	}
	id, err := cove.ParseInstanceID(parts[1])
	return err == nil && !instance.Alive(n.RunDir, id)
}
