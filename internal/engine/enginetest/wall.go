package enginetest

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// What the wall around a sandbox is, in the few facts that hold for every
// engine. Attempts to break it are test/adversarial's.
var wallTests = []test{
	{name: "no privileges", kernel: true, run: noPrivileges},
	{name: "namespaces of its own", kernel: true, run: ownNamespaces},
	{name: "the root filesystem is read-only", kernel: true, run: readOnlyRoot},
	{name: "nothing of the host's is there", kernel: true, run: nothingOfTheHost},
	{name: "no descriptors but the three", kernel: true, run: descriptors},
	{name: "no network but loopback", kernel: true, run: noNetwork},
	{name: "names fail at once", kernel: true, run: noNames},
}

func noPrivileges(t *testing.T, x *env) {
	r := x.output(t, x.bound(t), command("cat", "/proc/self/status"))
	status := map[string]string{}
	for line := range strings.Lines(r.stdout) {
		key, value, _ := strings.Cut(line, ":")
		status[key] = strings.TrimSpace(value)
	}
	for key, want := range map[string]string{
		"NoNewPrivs": "1", "Seccomp": "2",
		"CapInh": "0000000000000000", "CapPrm": "0000000000000000", "CapEff": "0000000000000000",
		"CapBnd": "0000000000000000", "CapAmb": "0000000000000000",
	} {
		if status[key] != want {
			t.Errorf("%s is %q, want %s", key, status[key], want)
		}
	}
	if x.caps.UserIDs && status["Uid"] != "65534\t65534\t65534\t65534" {
		t.Errorf("Uid is %q", status["Uid"])
	}
	if status["Groups"] != "" && x.caps.UserIDs && status["Groups"] != "65534" {
		t.Errorf("Groups are %q", status["Groups"])
	}
}

func ownNamespaces(t *testing.T, x *env) {
	one, two := x.bound(t), x.bound(t)
	kinds := []string{"pid", "mnt", "net", "ipc", "uts", "cgroup"}
	if x.caps.UserNamespace {
		kinds = append(kinds, "user")
	}
	for _, ns := range kinds {
		path := "/proc/self/ns/" + ns
		host, err := os.Readlink(path)
		if err != nil {
			t.Fatal(err)
		}
		a, b := x.output(t, one, command("readlink", path)).stdout, x.output(t, two, command("readlink", path)).stdout
		if !strings.HasPrefix(a, ns+":[") || a == b || strings.TrimSpace(a) == host || strings.TrimSpace(b) == host {
			t.Errorf("namespace %s: %q and %q inside, %q on the host", ns, a, b, host)
		}
	}
}

func readOnlyRoot(t *testing.T, x *env) {
	sb := x.bound(t)
	r := x.output(t, sb,
		shell(
			`for p in / /etc /usr /usr/bin /dev /proc /sys /.cove; do ( : > "$p/probe" ) 2>/dev/null && echo "$p"; done; : > /work/probe && echo control`))
	if r.stdout != "control\n" {
		t.Errorf("writable: %q; %q", r.stdout, r.stderr)
	}
}

func nothingOfTheHost(t *testing.T, x *env) {
	sb := x.bound(t)
	dir := t.TempDir() // under the host's /tmp
	r := x.output(t, sb, shell(`for p in "$@"; do ls -d "$p" 2>/dev/null; done; ls -d /usr/bin`,
		dir, "/etc/shadow", "/var/lib/dpkg", "/var/run/docker.sock", "/run/docker.sock", "/root/.ssh", "/boot/config",
		"/sys/kernel", "/sys/fs", "/proc/1/root/usr"))
	if r.stdout != "/usr/bin\n" {
		t.Errorf("inside there is %q", r.stdout)
	}
	r = x.output(t, sb, shell("cat /proc/kcore /proc/keys /proc/timer_list 2>/dev/null | head -c 10"))
	if r.stdout != "" {
		t.Errorf("a masked file says %q", r.stdout)
	}
}

func descriptors(t *testing.T, x *env) {
	r := x.output(t, x.bound(t), command("ls", "/proc/self/fd"))
	if got := strings.Fields(r.stdout); fmt.Sprint(got) != "[0 1 2 3]" { // 3 is ls's own
		t.Errorf("descriptors %v", got)
	}
}

func noNetwork(t *testing.T, x *env) {
	sb := x.bound(t)
	r := x.output(t, sb, command("cat", "/proc/net/dev"))
	for line := range strings.Lines(r.stdout) {
		if name, _, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) != "lo" {
			t.Errorf("there is an interface %s", strings.TrimSpace(name))
		}
	}
	r = x.output(t, sb, command("cat", "/proc/net/route"))
	if n := strings.Count(r.stdout, "\n"); n > 1 {
		t.Errorf("there are routes: %q", r.stdout)
	}
	for _, address := range []string{"1.1.1.1/80", "169.254.169.254/80", "10.0.0.1/22", "::ffff:1.1.1.1/80"} {
		r := x.output(t, sb, command("bash", "-c", "exec 3<>/dev/tcp/"+address))
		if r.exit.Code == 0 || !strings.Contains(r.stderr, "Network is unreachable") { // the kernel's answer at once
			t.Errorf("connecting to %s: %+v", address, r)
		}
	}
	// The control: loopback is up, and nobody listens.
	r = x.output(t, sb, command("bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/9"))
	if !strings.Contains(r.stderr, "Connection refused") {
		t.Errorf("loopback: %+v", r)
	}
}

func noNames(t *testing.T, x *env) {
	sb := x.bound(t)
	began := time.Now()
	r := x.output(t, sb, command("getent", "ahosts", "example.com"))
	if took := time.Since(began); r.exit.Code == 0 || r.stdout != "" || took > 5*time.Second {
		t.Errorf("%+v after %v", r, took)
	}
	if r = x.output(t, sb, command("getent", "hosts", "localhost")); !strings.Contains(r.stdout, "localhost") {
		t.Errorf("localhost: %+v", r)
	}
}
