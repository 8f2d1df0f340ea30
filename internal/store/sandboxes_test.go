package store

import (
	"testing"

	"github.com/cove-sandbox/cove"
)

// TestAdmits: local users, and keys without a number of their own, leave sandboxes for others and for the owner.
func TestAdmits(t *testing.T) {
	key, user := cove.KeyHolder("ci"), cove.LocalUser(4242)
	for _, c := range []struct {
		name     string
		room     Room
		owner    cove.Principal
		all, own int
		admitted bool
	}{
		{"no bound", Room{}, key, 1000, 1000, true},
		{"a key", Room{All: 256}, key, 111, 111, true},
		{"a key with its share", Room{All: 256}, key, 112, 112, false},
		{"a local user with its share", Room{All: 256}, user, 112, 112, false},
		{"another one", Room{All: 256}, user, 112, 0, true},
		{"a key with a number of its own", Room{All: 256, Own: 200}, key, 150, 150, true},
		{"it, when all are taken", Room{All: 256, Own: 200}, key, 256, 150, false},
		{"a caller, when only the owner's are left", Room{All: 256}, user, 224, 0, false},
		{"the owner then", Room{All: 256}, cove.MachineOwner(), 224, 0, true},
		{"the owner, when all are taken", Room{All: 256}, cove.MachineOwner(), 256, 256, false},
	} {
		if err := c.room.Admits(c.owner, c.all, c.own); (err == nil) != c.admitted {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
