package rootfs

import (
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
	for u, want := range map[cove.User]string{cove.UserCode: "USER=nobody", cove.UserAgent: "USER=cove"} {
		if env := strings.Join(Env(u), "\n"); !strings.Contains(env, want) || !strings.Contains(env, "HOME="+cove.Home) {
			t.Errorf("%s: %s", u, env)
		}
	}
}
