package doctor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/dockercontext"
	"github.com/cove-sandbox/cove/internal/linux/binfmt"
)

// machine returns a host with the given readable files.
func machine(t *testing.T, files map[string]string) *host {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	h := newHost(Options{Engine: native, Probe: []string{"/usr/local/bin/cove", "doctor-probe"}})
	h.root = root
	return h
}

func TestWhatIsRead(t *testing.T) {
	const vulnerabilities = "/sys/devices/system/cpu/vulnerabilities/"
	for _, test := range []struct {
		name  string
		check func(context.Context, *host) outcome
		files map[string]string
		want  Status
		found string // part of the report
		fix   string // part of the fix
	}{
		{"KSM on", checkKSM, map[string]string{"/sys/kernel/mm/ksm/run": "1\n"}, Warn, "on", "ksm/run"},
		{"KSM off", checkKSM, map[string]string{"/sys/kernel/mm/ksm/run": "0\n"}, OK, "off", ""},
		{"KSM absent", checkKSM, nil, OK, "off", ""},
		{"core handler", checkCorePattern, map[string]string{
			"/proc/sys/kernel/core_pattern": "|/usr/share/apport/apport -p%p\n",
		}, OK, "handled by /usr/share/apport/apport,", ""},
		{"core socket", checkCorePattern, map[string]string{"/proc/sys/kernel/core_pattern": "@/run/coredump.socket\n"}, Warn,
			"/run/coredump.socket", "core_pattern"},
		{"core file", checkCorePattern, map[string]string{"/proc/sys/kernel/core_pattern": "core\n"}, OK, "", ""},
		{"AppArmor", checkLSM, map[string]string{"/sys/kernel/security/lsm": "lockdown,capability,yama,apparmor"}, OK,
			"apparmor", ""},
		{"no MAC", checkLSM, map[string]string{"/sys/kernel/security/lsm": "capability,landlock"}, Info, "no mandatory", ""},
		{"no securityfs", checkLSM, nil, Info, "securityfs", ""},
		{"locked down", checkLockdown, map[string]string{"/sys/kernel/security/lockdown": "none [integrity] confidentiality"},
			OK, "integrity", ""},
		{"not locked down", checkLockdown, map[string]string{
			"/sys/kernel/security/lockdown": "[none] integrity confidentiality",
		}, Info, "none", ""},
		{"all mitigated", checkVulnerabilities, map[string]string{
			vulnerabilities + "meltdown": "Mitigation: PTI", vulnerabilities + "mds": "Not affected"}, OK,
			"1 mitigated, 1 do not apply", ""},
		{"open hole", checkVulnerabilities, map[string]string{
			vulnerabilities + "mds": "Vulnerable: Clear CPU buffers attempted, no microcode", "/proc/cmdline": "quiet"}, Warn,
			"open: mds", "microcode"},
		{"mitigations off", checkVulnerabilities, map[string]string{
			vulnerabilities + "mds": "Vulnerable", "/proc/cmdline": "quiet mitigations=off"}, Warn, "mds",
			"without mitigations=off"},
		{"emulators", checkEmulators, map[string]string{binfmt.Dir + "/status": "enabled\n",
			binfmt.Dir + "/qemu-arm": "enabled\ninterpreter /usr/bin/qemu-arm-static\nflags: F\nmagic 7f454c46\n"}, Info,
			"emulated by qemu-arm", ""},
		{"emulators that are not opened", checkEmulators, map[string]string{binfmt.Dir + "/status": "enabled\n",
			binfmt.Dir + "/qemu-arm": "enabled\ninterpreter /usr/bin/qemu-arm\nflags: \nmagic 7f454c46\n"}, Warn, "qemu-arm",
			"flag F"},
		{"no emulators", checkEmulators, nil, Info, "no emulator", ""},
		{"few namespaces", checkNamespaceCount, map[string]string{
			"/proc/sys/user/max_user_namespaces": "10000", "/proc/sys/user/max_net_namespaces": "10"}, Warn,
			"max_net_namespaces = 10", "max_net_namespaces"},
		{"many namespaces", checkNamespaceCount, map[string]string{"/proc/sys/user/max_user_namespaces": "10000"},
			OK, "10000", ""},
		{"weak setting", checkSetting(wanted{"kernel.kptr_restrict", 1, "why", ""}),
			map[string]string{"/proc/sys/kernel/kptr_restrict": "0"}, Warn, "= 0: why",
			"kernel.kptr_restrict = 1"},
		{"weak setting that the policy makes up for", checkSetting(wanted{"kernel.io_uring_disabled", 1, "why", "refused"}),
			map[string]string{"/proc/sys/kernel/io_uring_disabled": "0"}, Info, "refused", ""},
		{"strong setting", checkSetting(wanted{"kernel.kptr_restrict", 1, "why", ""}),
			map[string]string{"/proc/sys/kernel/kptr_restrict": "2"}, OK, "= 2", ""},
		{"no such setting", checkSetting(wanted{"kernel.kptr_restrict", 1, "why", ""}), nil, Info, "", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := test.check(t.Context(), machine(t, test.files))
			if o.status != test.want || !strings.Contains(o.found, test.found) || !strings.Contains(o.fix, test.fix) ||
				test.fix == "" && o.fix != "" {
				t.Errorf("%s: %q; fix %q", o.status, o.found, o.fix)
			}
		})
	}
}

func TestUserNamespaceFix(t *testing.T) {
	for _, test := range []struct {
		name  string
		files map[string]string
		err   error
		want  string
	}{
		{"none allowed", map[string]string{"/proc/sys/user/max_user_namespaces": "0"}, unix.ENOSPC,
			"user.max_user_namespaces = 15000"},
		{"Debian's switch", map[string]string{"/proc/sys/kernel/unprivileged_userns_clone": "0"}, unix.EPERM,
			"kernel.unprivileged_userns_clone = 1"},
		{"Ubuntu's AppArmor", map[string]string{"/proc/sys/kernel/apparmor_restrict_unprivileged_userns": "1"}, unix.EACCES,
			`profile cove "/usr/local/bin/cove"`},
		{"used up", nil, &trialError{answer{Errno: int(unix.ENOSPC)}}, "used up"},
		{"not built", nil, unix.EINVAL, "CONFIG_USER_NS"},
		{"a container around", nil, unix.EPERM, "seccomp=unconfined"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := machine(t, test.files).userNamespaceFix(test.err); !strings.Contains(got, test.want) {
				t.Errorf("got %q", got)
			}
		})
	}
}

func TestSubordinate(t *testing.T) {
	me := &user.User{Username: "ada", Uid: "1000"}
	for _, test := range []struct {
		name, file string
		first      int
		fails      bool
	}{
		{"by name", "root:1:2\nada:100000:65536\n", 100000, false},
		{"by id", "1000:200000:65536\n", 200000, false},
		{"too small a range before", "ada:100000:1000\nada:300000:65536\n", 300000, false},
		{"another account's", "bob:100000:65536\n", 0, true},
		{"nonsense", "ada:x:y\nada\n::\n", 0, true},
		{"nothing", "", 0, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := machine(t, map[string]string{"/etc/subuid": test.file})
			first, err := subordinate(filepath.Join(h.root, "/etc/subuid"), me)
			if first != test.first || (err != nil) != test.fails {
				t.Errorf("%d, %v", first, err)
			}
		})
	}
}

// TestKeptGroups: groups that code keeps inside are named.
func TestKeptGroups(t *testing.T) {
	look := func(id string) (*user.Group, error) {
		if id == "4" {
			return &user.Group{Gid: id, Name: "adm"}, nil
		}
		return nil, user.UnknownGroupIdError(id)
	}
	if got := keptGroups([]int{1000, 4, 4399}, 1000, look); !strings.HasSuffix(got, ": adm, 4399") {
		t.Error(got)
	}
	if got := keptGroups([]int{1000}, 1000, look); got != "" {
		t.Error(got)
	}
}

func TestDocker(t *testing.T) {
	serve := func(t *testing.T, handler http.HandlerFunc) *host {
		t.Helper()
		socket := filepath.Join(t.TempDir(), "docker.sock")
		l, err := net.Listen("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		s := &http.Server{Handler: handler}
		go s.Serve(l)
		t.Cleanup(func() { s.Close() })
		return newHost(Options{Engine: docker, Docker: dockercontext.Endpoint{Host: "unix://" + socket}})
	}
	answers := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/version" {
			http.NotFound(w, r)
			return
		}
		w.Write([]byte(`{"Version":"28.2.2","ApiVersion":"1.50","Components":[{"Name":"Engine","Version":"28.2.2"},` +
			`{"Name":"runc","Version":"1.2.5"}]}`))
	})
	if o := checkDocker(t.Context(), answers); o.status != OK || o.found != "version 28.2.2, API 1.50" {
		t.Errorf("%+v", o)
	}
	if o := checkRunc(t.Context(), answers); o.status != Fail || !strings.Contains(o.found, "CVE-2025-31133") {
		t.Errorf("%+v", o)
	}
	broken := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("{")) })
	if o := checkDocker(t.Context(), broken); o.status != Fail {
		t.Errorf("%+v", o)
	}
	absent := newHost(Options{Engine: docker, Docker: dockercontext.Endpoint{Host: filepath.Join(t.TempDir(), "none")}})
	if o := checkDocker(t.Context(), absent); o.status != Fail || !strings.Contains(o.fix, "systemctl start docker") {
		t.Errorf("%+v", o)
	}
	absent.options.Engine = native
	if o := checkDocker(t.Context(), absent); o.status != Info {
		t.Errorf("%+v", o)
	}
	remote := newHost(Options{Engine: docker, Docker: dockercontext.Endpoint{Host: "tcp://10.0.0.1:2375"}})
	if o := checkDocker(t.Context(), remote); o.status != Fail || !strings.Contains(o.found, "not on this machine") {
		t.Errorf("%+v", o)
	}
	answers.options.Docker.Context, absent.options.Docker.Context = "mine", "mine"
	for _, h := range []*host{answers, absent} {
		if o := checkDocker(t.Context(), h); !strings.Contains(o.found, `of the Docker context "mine"`) {
			t.Errorf("%+v", o)
		}
	}
	broken.options.DockerErr = cove.Errorf(cove.InvalidArgument, "there is no context").WithHint("make it")
	if o := checkDocker(t.Context(), broken); o.status != Fail || o.found != "there is no context" || o.fix != "make it" {
		t.Errorf("%+v", o)
	}
}

// TestPodman: the service is found, another engine at its place is not taken for it, and what to do is said.
func TestPodman(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "podman.sock")
	h := newHost(Options{Engine: podman, Podman: "unix://" + socket})
	if o := checkPodman(t.Context(), h); o.status != Fail || !strings.Contains(o.fix, " start podman.socket") {
		t.Errorf("%+v", o)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	component := "Podman Engine"
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"Version":"4.3.1","ApiVersion":"1.41","Components":[{"Name":%q,"Version":"4.3.1"}]}`, component)
	})}
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
	if o := checkPodman(t.Context(), h); o.status != OK || o.found != "version 4.3.1, API 1.41" {
		t.Errorf("%+v", o)
	}
	component = "Engine"
	if o := checkPodman(t.Context(), h); o.status != Fail || !strings.Contains(o.found, "another engine") {
		t.Errorf("%+v", o)
	}
	h.options.Engine = native
	if o := checkPodman(t.Context(), h); o.status != Info {
		t.Errorf("%+v", o)
	}
}

func TestGuest(t *testing.T) {
	program := func(text string) string {
		path := filepath.Join(t.TempDir(), "guest")
		if err := os.WriteFile(path, []byte("#!/bin/sh\necho "+text+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	changed := func(mode os.FileMode, owner int) string {
		path := program("cove-guest 1.2.3")
		if err := errors.Join(os.Chown(path, owner, -1), os.Chmod(path, mode)); err != nil {
			t.Skipf("another owner needs root: %v", err)
		}
		return path
	}
	for _, test := range []struct {
		name, path string
		want       Status
	}{
		{"for its owner alone", changed(0o700, os.Geteuid()), OK},
		{"for its group too", changed(0o775, os.Geteuid()), OK},
		{"written to by everybody", changed(0o707, os.Geteuid()), Fail},
		{"setuid", changed(os.ModeSetuid|0o755, os.Geteuid()), Fail},
		{"another user's", changed(0o755, 61000), Fail},
		{"same version", program("cove-guest 1.2.3"), OK},
		{"another version", program("cove-guest 1.2.2"), Fail},
		{"another program", program("hello 1.2.3"), Fail},
		{"not there", "/nowhere/cove-guest", Fail},
		{"not configured", "", Fail},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := newHost(Options{Version: "1.2.3", Guest: test.path})
			if o := checkGuest(t.Context(), h); o.status != test.want || (o.fix == "") != (o.status == OK) {
				t.Errorf("%+v", o)
			}
		})
	}
}

func TestHome(t *testing.T) {
	dir := t.TempDir()
	if o := checkHome(t.Context(), newHost(Options{Home: filepath.Join(dir, "not", "yet", "there")})); o.status == Fail {
		t.Errorf("%+v", o)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if o := checkHome(t.Context(), newHost(Options{Home: "/proc/sys/kernel"})); o.status != Fail {
		t.Errorf("%+v", o)
	}
}
