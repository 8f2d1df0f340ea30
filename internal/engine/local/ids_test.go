//go:build linux

package local

import (
	"path/filepath"
	"sync"
	"testing"

	"github.com/cove-sandbox/cove"
)

func TestIDMaps(t *testing.T) {
	self, first := Owner{1000, 100}, Owner{100000, 200000}
	for _, tt := range []struct {
		name     string
		m        IDMap
		users    string
		groups   string
		user     int // the host's id of the user's processes
		separate bool
	}{
		{"a range of its own", rangeMap(3), "0 1879244800 65536\n", "0 1879244800 65536\n",
			firstID + 3*rangeSize + 65534, true},
		{"the caller's ids only", ownMap(cove.CodeUser, self), "65534 1000 1\n", "65534 100 1\n", 1000, false},
		{"subordinate ids, code", subordinateMap(cove.CodeUser, self, first),
			"0 100000 65534\n65534 1000 1\n65535 165534 1\n", "0 200000 65534\n65534 100 1\n65535 265534 1\n", 1000, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.m.Users.String(); got != tt.users {
				t.Errorf("users %q, want %q", got, tt.users)
			}
			if got := tt.m.Groups.String(); got != tt.groups {
				t.Errorf("groups %q, want %q", got, tt.groups)
			}
			if got := tt.m.Users.OnHost(cove.CodeUser.UID); got != tt.user {
				t.Errorf("the user is %d on the host, want %d", got, tt.user)
			}
			if (tt.m.Users.OnHost(tt.m.Guest.UID) != tt.user) != tt.separate {
				t.Errorf("guest and user share an id: %v", !tt.separate)
			}
		})
	}
	agent := subordinateMap(cove.AgentUser, self, first).Users
	if agent.OnHost(1000) != 1000 || agent.OnHost(0) != 100000 || agent.OnHost(65535) != 100000+65534 ||
		agent.OnHost(65536) != -1 {
		t.Errorf("agent: %s", agent)
	}
}

func FuzzSubordinate(f *testing.F) {
	f.Add("dev:100000:65536")
	f.Add("1000:1:99999999999999999999")
	f.Fuzz(func(t *testing.T, line string) {
		if first, ok := parseSubordinate(line, "dev", "1000"); ok && first <= 0 {
			t.Errorf("%q gave %d", line, first)
		}
	})
}

func TestParseSubordinate(t *testing.T) {
	for line, want := range map[string]bool{
		"dev:100000:65536": true, "1000:100000:65536": true, "dev:100000:65535": false, "other:100000:65536": false,
		"dev:0:65536": false, "dev:-5:65536": false, "dev:x:65536": false, "dev:100000": false, "": false,
		"# dev:1:65536": false,
	} {
		if _, ok := parseSubordinate(line, "dev", "1000"); ok != want {
			t.Errorf("%q: %v", line, ok)
		}
	}
}

// TestSlotsAreExclusive: two processes never have the same range; here two open
// files stand for them, which is what the locks belong to.
func TestSlotsAreExclusive(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ids.lock")
	a, b := &Ranges{path: path}, &Ranges{path: path}
	var mu sync.Mutex
	taken := map[int]*Ranges{}
	var all sync.WaitGroup
	for _, s := range []*Ranges{a, b} {
		all.Go(func() {
			for range 300 {
				slot, err := s.take()
				mu.Lock()
				if err != nil || taken[slot] != nil {
					t.Errorf("slot %d, %v", slot, err)
				}
				taken[slot] = s
				mu.Unlock()
			}
		})
	}
	all.Wait()
	for slot, s := range taken {
		s.release(slot)
	}
	again, err := a.take()
	if err != nil || taken[again] != a {
		t.Errorf("slot %d was not kept, %v", again, err)
	}
	a.Close()
	for range rangeCount - 300 {
		if _, err := b.take(); err != nil {
			t.Fatal(err)
		}
	}
}
