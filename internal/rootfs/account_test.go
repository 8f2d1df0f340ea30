package rootfs

import (
	"path"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove"
)

const (
	passwd = "root:x:0:0:root:/root:/bin/bash\nbroken\nbin:x:2:2:bin:/bin:/usr/sbin/nologin\n" +
		"node:x:1000:1000::/home/node:/bin/bash\npostgres:x:999:998::/var/lib/postgresql:/bin/sh\n" +
		"www:x:33:33::/var/www:\nlarge:x:70000:1::/home/large:/bin/sh\nnone:x:7:7::/nonexistent:/bin/false\n" +
		"up:x:8:8::/home/../etc:/bin/sh\nnode:x:0:0::/:/bin/sh\n"
	group = "root:x:0:\nadm:x:4:node,www\nssl:x:101:postgres\ndocker:x:70000:node\nnode:x:1000:node\nadm:x:4:node\n" +
		"empty:x:9:\n"
)

func TestAccount(t *testing.T) {
	for text, want := range map[string]cove.User{
		"node":         {UID: 1000, GID: 1000, Groups: "4", Name: "node", Home: "/home/node", Shell: "/bin/bash"},
		"1000":         {UID: 1000, GID: 1000, Groups: "4", Name: "node", Home: "/home/node", Shell: "/bin/bash"},
		"node:ssl":     {UID: 1000, GID: 101, Name: "node", Home: "/home/node", Shell: "/bin/bash"},
		"node:7":       {UID: 1000, GID: 7, Name: "node", Home: "/home/node", Shell: "/bin/bash"},
		"postgres":     {UID: 999, GID: 998, Groups: "101", Name: "postgres", Home: "/var/lib/postgresql", Shell: "/bin/sh"},
		"1234":         {UID: 1234, Shell: "/bin/sh"},
		"1234:5":       {UID: 1234, GID: 5, Shell: "/bin/sh"},
		"bin":          {UID: 2, GID: 2, Name: "bin", Home: "/bin", Shell: "/usr/sbin/nologin"},
		"www":          {UID: 33, GID: 33, Groups: "4", Name: "www", Home: "/var/www", Shell: "/bin/sh"},
		"none":         {UID: 7, GID: 7, Name: "none", Home: "/nonexistent", Shell: "/bin/false"},
		"up":           {UID: 8, GID: 8, Name: "up", Shell: "/bin/sh"},
		"root":         {UID: 0, GID: 0, Name: "root", Home: "/root", Shell: "/bin/bash"},
		"0":            {UID: 0, GID: 0, Name: "root", Home: "/root", Shell: "/bin/bash"},
		"ada":          {UID: -1},
		"node:ada":     {UID: -1},
		"large":        {UID: -1},
		"70000":        {UID: -1},
		"-1":           {UID: -1},
		"":             {UID: -1},
		"node:":        {UID: -1},
		":node":        {UID: -1},
		"a b":          {UID: -1},
		"node:ssl:4":   {UID: -1},
		"../etc":       {UID: -1},
		"node\nroot:0": {UID: -1},
	} {
		u, err := Account(text, []byte(passwd), []byte(group))
		if want.UID < 0 {
			if code := cove.ErrorCode(err); code != cove.NotFound && code != cove.InvalidArgument {
				t.Errorf("%q: %+v, %v", text, u, err)
			}
			continue
		}
		if err != nil || u != want {
			t.Errorf("%q: %+v, %v, want %+v", text, u, err, want)
		}
	}
}

// FuzzAccount: whatever an image has, a user has ids of the sandbox's, and texts that are one line.
func FuzzAccount(f *testing.F) {
	f.Add("node", []byte(passwd), []byte(group))
	f.Add("0:0", []byte("a:x:0:0::/:\x00"), []byte(strings.Repeat("g:x:1:a,a\n", 100)))
	f.Fuzz(func(t *testing.T, text string, passwd, group []byte) {
		u, err := Account(text, passwd, group)
		if err != nil {
			return
		}
		ids := append([]int{u.UID, u.GID}, u.GroupIDs()...)
		for _, id := range ids {
			if id < 0 || id > 65535 {
				t.Errorf("%q: %+v", text, u)
			}
		}
		if len(ids) > 2+maxGroups || u.Home != "" && !path.IsAbs(u.Home) || !path.IsAbs(u.Shell) ||
			strings.ContainsAny(u.Name+u.Home+u.Shell, "\x00\n:") && !strings.Contains(u.Shell, ":") {
			t.Errorf("%q: %+v", text, u)
		}
	})
}
