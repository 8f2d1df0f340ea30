//go:build linux

package native

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
)

// TestUsers: programs have the ids of the image's user that a template names, and no other right. What they share with
// the guest is at most the group 0, and they can neither signal nor look into it. Files in mounts are theirs inside and
// their owner's outside.
func TestUsers(t *testing.T) {
	e := open(t)
	if !e.capabilities.Users {
		t.Skip("no users of images: " + e.capabilities.Missing["users"])
	}
	dir := imageTree(t)
	for _, name := range []string{"id", "grep"} {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		copyProgram(t, dir, path, "bin/"+name)
	}
	const script = `id -u; id -g; id -G; stat -c %u:%g /data/old /home/cove /work /run
		echo new > /data/new && cat /data/old && echo own > /home/cove/own && cat /home/cove/own
		for what in signal-1 environ-1; do case $what in
			signal-1) kill -0 1 && echo "$what works";;
			environ-1) cat /proc/1/environ && echo "$what works";;
		esac; done 2> /dev/null
		grep -E '^(Cap...|NoNewPrivs|Seccomp):' /proc/self/status`
	for name, u := range map[string]cove.User{
		"groups":         {UID: 999, GID: 998, Groups: "4,101", Name: "db", Home: "/home/db", Shell: "/bin/sh"},
		"cove's own id":  {UID: 1000, GID: 50, Groups: "7", Name: "node", Home: "/home/node", Shell: "/bin/sh"},
		"group 0":        {UID: 1234, GID: 0, Name: "1234", Home: cove.Home, Shell: "/bin/sh"},
		"the last":       {UID: 65535, GID: 65535, Name: "last", Home: cove.Home, Shell: "/bin/sh", Agent: true},
		"the host's own": {UID: os.Getuid() + 5, GID: os.Getgid() + 6, Name: "own", Home: cove.Home, Shell: "/bin/sh"},
	} {
		for _, lifetime := range []cove.Lifetime{cove.LifetimeAttached, cove.LifetimeDetached} {
			t.Run(name+" "+string(lifetime), func(t *testing.T) {
				data := t.TempDir()
				if err := os.WriteFile(filepath.Join(data, "old"), []byte("old\n"), 0o600); err != nil {
					t.Fatal(err)
				}
				template := engine.Template{ID: cove.NewSandboxID(), Rootfs: engine.Rootfs{Kind: engine.RootfsDir, Dir: dir},
					Shape: cove.Shape{Limits: limits, User: u, Lifetime: lifetime}, Network: cove.NetworkNone}
				sb, err := e.Prepare(t.Context(), template)
				if err != nil {
					t.Fatal(err)
				}
				defer sb.Destroy(t.Context())
				b := engine.Binding{Mounts: []cove.Mount{{Source: data, Target: "/data"}}}
				if err := sb.Bind(t.Context(), b); err != nil {
					t.Fatal(err)
				}
				groups := strings.ReplaceAll(strings.TrimSuffix(fmt.Sprint(u.GID, ",", u.Groups), ","), ",", " ")
				want := fmt.Sprintf("%d\n%d\n%s\n", u.UID, u.GID, strings.Join(strings.Fields(groups), " ")) +
					strings.Repeat(fmt.Sprintf("%d:%d\n", u.UID, u.GID), 4) + "old\nown\n"
				for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"} {
					want += set + ":\t0000000000000000\n"
				}
				want += "NoNewPrivs:\t1\nSeccomp:\t2\n"
				if out, exit := output(t, sb, script); exit.Code != 0 || out != want {
					t.Errorf("%q, %+v, want %q", out, exit, want)
				}
				info, err := os.Stat(filepath.Join(data, "new"))
				if err != nil {
					t.Fatal(err)
				}
				if st := info.Sys().(*syscall.Stat_t); int(st.Uid) != os.Getuid() || int(st.Gid) != os.Getgid() {
					t.Errorf("the new file belongs to %d:%d", st.Uid, st.Gid)
				}
			})
		}
	}
}

// TestNoUsersOfTheHost: the machine's own toolchain has no user but Cove's.
func TestNoUsersOfTheHost(t *testing.T) {
	e := open(t)
	sb, err := e.Prepare(t.Context(), engine.Template{ID: cove.NewSandboxID(), Network: cove.NetworkNone,
		Rootfs: engine.Rootfs{Kind: engine.RootfsHost}, Shape: cove.Shape{Limits: limits,
			User: cove.User{UID: 33, GID: 33, Name: "www-data", Home: cove.Home, Shell: "/bin/sh"}}})
	if err == nil {
		sb.Destroy(t.Context())
	}
	if cove.ErrorCode(err) != cove.Unsupported || !strings.Contains(err.Error(), "users") {
		t.Errorf("%v", err)
	}
}

// TestUsersAlone: where nothing is shared with who runs Cove, programs see the owners of an image's files as they are,
// may change none of another's, and have nothing of PID 1's.
func TestUsersAlone(t *testing.T) {
	e := open(t)
	if !e.capabilities.Users {
		t.Skip("no users of images: " + e.capabilities.Missing["users"])
	}
	dir := imageTree(t)
	for _, name := range []string{"id", "grep"} {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		copyProgram(t, dir, path, "bin/"+name)
	}
	if err := os.WriteFile(filepath.Join(dir, "private"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	const script = `stat -c %u:%g / /bin/sh /private /work; echo own > /work/own && cat /work/own
		for what in root-s-file a-new-file signal-1 environ-1 memory-1; do case $what in
			root-s-file) cat /private && echo "$what works";;
			a-new-file) (: > /bin/new) && echo "$what works";;
			signal-1) kill -0 1 && echo "$what works";;
			environ-1) cat /proc/1/environ && echo "$what works";;
			memory-1) cat /proc/1/maps && echo "$what works";;
		esac; done 2> /dev/null
		grep -E '^(Cap...|NoNewPrivs|Seccomp):' /proc/self/status`
	for _, u := range []cove.User{cove.CodeUser, {UID: 999, GID: 998, Name: "db", Home: "/home/db", Shell: "/bin/sh"}} {
		t.Run(u.Name, func(t *testing.T) {
			template := engine.Template{ID: cove.NewSandboxID(), Alone: true, Network: cove.NetworkNone,
				Rootfs: engine.Rootfs{Kind: engine.RootfsDir, Dir: dir, Flat: "/nowhere"},
				Shape:  cove.Shape{Limits: limits, User: u}}
			sb, err := e.Prepare(t.Context(), template)
			if err != nil {
				t.Fatal(err)
			}
			defer sb.Destroy(t.Context())
			if err := sb.Bind(t.Context(), engine.Binding{}); err != nil {
				t.Fatal(err)
			}
			want := fmt.Sprintf("0:0\n0:0\n0:0\n%d:%d\nown\n", u.UID, u.GID)
			for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"} {
				want += set + ":\t0000000000000000\n"
			}
			want += "NoNewPrivs:\t1\nSeccomp:\t2\n"
			if out, exit := output(t, sb, script); exit.Code != 0 || out != want {
				t.Errorf("%q, %+v, want %q", out, exit, want)
			}
		})
	}
}
