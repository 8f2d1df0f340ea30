package seccomp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// TestRuncKeepsTheProfile makes the same calls in a container of runc, whose
// library compiles the rendered profile in its own way.
func TestRuncKeepsTheProfile(t *testing.T) {
	runc, err := exec.LookPath("runc")
	if err != nil || os.Getuid() != 0 {
		t.Skip("needs root and runc")
	}
	profile, err := Snippet().OCI(HostArch())
	if err != nil {
		t.Fatal(err)
	}
	got := askRunc(t, runc, profile)
	for _, c := range forbidden() {
		if got.Calls[c.name] != c.want {
			t.Errorf("%s: %s, want %s", c.name, got.Calls[c.name], c.want)
		}
	}
	for name, outcome := range got.Work {
		if outcome != "ok" {
			t.Errorf("%s: %s", name, outcome)
		}
	}
}

// askRunc runs the child, without a filter of its own, under a profile.
func askRunc(t *testing.T, runc string, profile *specs.LinuxSeccomp) report {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bundle := t.TempDir()
	if err := os.Mkdir(filepath.Join(bundle, "rootfs"), 0o755); err != nil {
		t.Fatal(err)
	}
	bind := func(source, target string) specs.Mount {
		return specs.Mount{Source: source, Destination: target, Type: "bind", Options: []string{"bind", "ro"}}
	}
	spec := specs.Spec{
		Version: "1.0.2",
		Root:    &specs.Root{Path: "rootfs"},
		Process: &specs.Process{
			Args:            []string{"/probe"},
			Env:             []string{childVar + "=control", "PATH=/usr/bin:/bin"},
			Cwd:             "/",
			NoNewPrivileges: true,
			Capabilities: &specs.LinuxCapabilities{ // for work as another user
				Bounding: []string{"CAP_SETUID", "CAP_SETGID"}, Effective: []string{"CAP_SETUID", "CAP_SETGID"},
				Permitted: []string{"CAP_SETUID", "CAP_SETGID"},
			},
		},
		Mounts: []specs.Mount{
			{Source: "proc", Destination: "/proc", Type: "proc"},
			{Source: "tmpfs", Destination: "/tmp", Type: "tmpfs"},
			{Source: "tmpfs", Destination: "/dev", Type: "tmpfs"},
			bind(self, "/probe"),
		},
		Linux: &specs.Linux{
			Namespaces: []specs.LinuxNamespace{{Type: specs.PIDNamespace}, {Type: specs.MountNamespace},
				{Type: specs.IPCNamespace}},
			Seccomp: profile,
		},
	}
	for _, dir := range []string{"/usr", "/bin", "/lib", "/lib64"} {
		if _, err := os.Stat(dir); err == nil {
			spec.Mounts = append(spec.Mounts, bind(dir, dir))
		}
	}
	config, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(bundle, "config.json"), config, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(runc, "--root", t.TempDir(), "run", "--bundle", bundle,
		fmt.Sprintf("cove-test-seccomp-%d", os.Getpid()))
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("runc: %v: %s", err, stderr.Bytes())
	}
	var got report
	if err := json.Unmarshal(stdout.Bytes(), &got); err != nil {
		t.Fatalf("%v: %s", err, stdout.Bytes())
	}
	return got
}
