package rootfs

import (
	"slices"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove"
)

func TestReadHost(t *testing.T) {
	h, err := ReadHost()
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range append(h.Dirs, h.Etc...) {
		for _, private := range []string{"/root", "/home", "/var", "/opt", "/srv", "/etc/shadow", "/etc/passwd", "/etc/ssh",
			"/etc/ssl/private"} {
			if dir == private || strings.HasPrefix(private, dir+"/") {
				t.Errorf("%s shows %s", dir, private)
			}
		}
	}
}

func TestValidateTarget(t *testing.T) {
	for target, ok := range map[string]bool{
		"/data": true, "/workspace": true, "/work/x": true, "/home/cove/x": true, "/opt/tool": true, "/srv": true,
		"/development": true,
		"":             false, "relative": false, "/": false, "/..": false, "//": false, "/proc": false, "/proc/self": false,
		"/sys": false, "/dev/shm": false,
		"/etc": false, "/etc/passwd": false, "/usr/bin": false, "/data/../etc": false, "/bin": false, "/lib64": false,
		"/a\x00b": false,
	} {
		if err := ValidateTarget(target); (err == nil) != ok {
			t.Errorf("%q: %v", target, err)
		}
	}
}

func TestEnvNamesTheUser(t *testing.T) {
	other := cove.User{UID: 1001, Name: "vscode", Home: "/home/vscode", Shell: "/bin/bash"}
	for u, want := range map[cove.User]string{
		cove.CodeUser: "USER=nobody", cove.AgentUser: "USER=cove", other: "SHELL=/bin/bash",
	} {
		if env := strings.Join(Env(u), "\n"); !strings.Contains(env, want) || !strings.Contains(env, "HOME="+u.Home) {
			t.Errorf("%+v: %s", u, env)
		}
	}
}

func TestFilesNameTheUser(t *testing.T) {
	passwd := func(u cove.User) string { return EtcFiles("box", u)[0].Data }
	if passwd(cove.CodeUser) != passwd(cove.AgentUser) || strings.Count(passwd(cove.CodeUser), "\n") != 3 {
		t.Errorf("the users of every sandbox: %q", passwd(cove.CodeUser))
	}
	other := cove.User{UID: 1000, GID: 50, Name: "vscode", Home: "/home/vscode", Shell: "/bin/bash"}
	if p := passwd(other); !strings.HasPrefix(p, "vscode:x:1000:50:vscode:/home/vscode:/bin/bash\n") {
		t.Errorf("another user: %q", p)
	}
	if !slices.ContainsFunc(Writables(other), func(w Writable) bool { return w.Name == cove.Home && w.Own }) {
		t.Errorf("no home that can be written: %+v", Writables(other))
	}
	if slices.ContainsFunc(Writables(other), func(w Writable) bool { return w.Name == other.Home }) {
		t.Errorf("the image's own home is hidden: %+v", Writables(other))
	}
}
