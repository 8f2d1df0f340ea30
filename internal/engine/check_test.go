package engine

import (
	"strings"
	"testing"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/rootfs"
)

// everything is an engine that can do it all.
func everything() Capabilities {
	return Capabilities{Isolations: []cove.Isolation{cove.IsolationContainer},
		Networks: []cove.NetworkMode{cove.NetworkNone}, OwnImages: true,
		LateMount: true, Listeners: true, MemoryLimit: true, SwapLimit: true, CPULimit: true, PIDsLimit: true,
		DiskLimit: true, Root: true}
}

func TestCheckRefusesNegativeLimits(t *testing.T) {
	template := func(l cove.Limits) Template {
		return Template{Shape: cove.Shape{User: cove.CodeUser, Limits: l}, Network: cove.NetworkNone}
	}
	for name, l := range map[string]cove.Limits{
		"memory": {Memory: -1}, "cpus": {CPUs: -0.5}, "pids": {PIDs: -1}, "disk": {Disk: -1}, "inodes": {Inodes: -1},
		"open files": {OpenFiles: -1}, "stdout": {Stdout: -1}, "stderr": {Stderr: -1}, "timeout": {Timeout: -1},
	} {
		if err := everything().Check(template(l)); cove.ErrorCode(err) != cove.InvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := everything().Check(template(cove.Limits{Memory: 1, CPUs: 1, PIDs: 1, Disk: 1})); err != nil {
		t.Errorf("positive limits: %v", err)
	}
}

// TestRefusalNamesEachReasonOnce, however many controls it takes away.
func TestRefusalNamesEachReasonOnce(t *testing.T) {
	c := Capabilities{Isolations: []cove.Isolation{cove.IsolationContainer}, SwapLimit: true, DiskLimit: true,
		Missing: map[string]string{
			"cpu_limit": "no group is yours", "memory_limit": "no group is yours", "pids_limit": "too old",
			"late_mount": "no group is yours",
		}}
	for want, err := range map[string]error{
		"cpu_limit, memory_limit: no group is yours; network none; pids_limit: too old": c.Check(Template{
			Shape:   cove.Shape{User: cove.CodeUser, Limits: cove.Limits{Memory: 1, CPUs: 1, PIDs: 1, Disk: 1}},
			Network: cove.NetworkNone}),
		"late_mount: no group is yours": c.CheckBinding(Binding{Mounts: []cove.Mount{{Source: "/tmp", Target: "/data"}}}),
	} {
		want = "this engine cannot enforce what was asked: " +
			want + ` (run "cove doctor" for what is missing and how to get it)`
		if cove.ErrorCode(err) != cove.Unsupported || err.Error() != want {
			t.Errorf("%v\nwant: %s", err, want)
		}
	}
}

func TestCheckIsolation(t *testing.T) {
	for isolation, want := range map[cove.Isolation]string{
		"": "", cove.IsolationContainer: "", cove.IsolationMicroVM: "isolation microvm (it has container)",
		cove.IsolationGVisor: "isolation gvisor (it has container)",
	} {
		err := everything().Check(Template{Shape: cove.Shape{Isolation: isolation, User: cove.CodeUser},
			Network: cove.NetworkNone})
		if want == "" && err != nil {
			t.Errorf("%q: %v", isolation, err)
		}
		if want != "" && (cove.ErrorCode(err) != cove.Unsupported || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v", isolation, err)
		}
	}
}

// TestCheckRoot: root inside is said so, has an image, and an engine that can hold it. A user without a name is not.
func TestCheckRoot(t *testing.T) {
	image := Rootfs{Kind: RootfsDir, Dir: "/image"}
	without := everything()
	without.Root = false
	for _, c := range []struct {
		what   string
		u      cove.User
		rootfs Rootfs
		can    Capabilities
		want   cove.Code
	}{
		{"root", cove.RootUser, image, everything(), ""},
		{"root of a host's programs", cove.RootUser, Rootfs{Kind: RootfsHost}, everything(), cove.Unsupported},
		{"root of an engine that has none", cove.RootUser, image, without, cove.Unsupported},
		{"another user there", cove.AgentUser, image, without, ""},
		{"no user", cove.User{}, image, everything(), cove.InvalidArgument},
		{"a number without a name", cove.User{Home: "/root"}, image, everything(), cove.InvalidArgument},
		{"less than root", cove.User{UID: -1, Name: "x"}, image, everything(), cove.InvalidArgument},
	} {
		err := c.can.Check(Template{Shape: cove.Shape{User: c.u}, Rootfs: c.rootfs, Network: cove.NetworkNone})
		if cove.ErrorCode(err) != c.want && (err != nil || c.want != "") {
			t.Errorf("%s: %v, want %s", c.what, err, c.want)
		}
	}
}

func TestCheckBindingRefusesTargets(t *testing.T) {
	for target, refused := range map[string]bool{"/data": false, cove.Workspace: false, "/": true, "/proc": true,
		"/dev/shm": true, "/work/../sys": true, "relative": true, "": true} {
		err := everything().CheckBinding(Binding{Mounts: []cove.Mount{{Source: "/tmp", Target: target}}})
		if (err != nil) != refused {
			t.Errorf("%q: %v", target, err)
		}
		err = everything().CheckBinding(Binding{Attachments: []Attachment{{Target: target}}})
		if (err != nil) != refused {
			t.Errorf("attached at %q: %v", target, err)
		}
	}
	own := rootfs.Own + "/objects"
	if err := everything().
		CheckBinding(Binding{Mounts: []cove.Mount{{Source: "/tmp",
			Target: own}}}); cove.ErrorCode(err) != cove.InvalidArgument {
		t.Errorf("a user's mount at %s: %v", own, err)
	}
	if err := everything().CheckBinding(Binding{Attachments: []Attachment{{Target: own}}}); err != nil {
		t.Errorf("an attachment at %s: %v", own, err)
	}
}
