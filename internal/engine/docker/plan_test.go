package docker

import (
	"bytes"
	"encoding/json"
	"path"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"pgregory.net/rapid"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/linux/seccomp"
	"github.com/cove-sandbox/cove/internal/rootfs"
)

func aWish() wish {
	return wish{
		cpus: 2,
		name: "cove-x", nonce: "n", realm: "r", instance: "in_x", hostname: "cove", guest: "/opt/cove-guest",
		template: engine.Template{ID: "sb_x", Shape: cove.Shape{User: cove.CodeUser,
			Limits: cove.Limits{Memory: 256 << 20, CPUs: 0.5, PIDs: 50, Disk: 100 << 20, Inodes: 20_000, OpenFiles: 1024}},
			Network: cove.NetworkNone},
		image: image{ID: "sha256:abc", Env: []string{"PATH=/bin", "GODEBUG=x=1", "BARE"}, Volumes: []string{"/data", "/tmp"}},
	}
}

// TestPlanOfMuch: what a daemon refuses to give is not asked of it, and the guest keeps to what was asked for.
func TestPlanOfMuch(t *testing.T) {
	w := aWish()
	w.template.Limits.CPUs, w.template.Limits.OpenFiles = 4, 1<<16
	_, h, err := plan(w)
	if err != nil || h.NanoCPUs != 2_000_000_000 || len(h.Ulimits) != 1 || h.Ulimits[0].Name != "core" {
		t.Errorf("%+v, %v", h.Resources, err)
	}
	if sealed, err := seal(w.template, nil); err != nil || sealed.Seal.OpenFiles != 1<<16 {
		t.Errorf("%+v, %v", sealed, err)
	}
}

// TestPlan holds every wall of a container to invariants H1 to H4.
func TestPlan(t *testing.T) {
	c, h, err := plan(aWish())
	if err != nil {
		t.Fatal(err)
	}
	for what, ok := range map[string]bool{
		"the guest alone is run":           slices.Equal(c.Entrypoint, []string{guestPath, "--stdio"}) && len(c.Cmd) == 0,
		"the image chooses no user":        c.User == "0:0",
		"the image chooses no directory":   c.WorkingDir == "/",
		"the image chooses no environment": slices.Equal(c.Env, []string{"PATH", "GODEBUG", "BARE"}),
		"the image runs no health check":   slices.Equal(c.Healthcheck.Test, []string{"NONE"}),
		"it ends with its host":            c.OpenStdin && c.StdinOnce && !c.Tty,
		"it has no network":                h.NetworkMode == "none" && c.NetworkDisabled,
		"it is not privileged":             !h.Privileged && len(h.Devices) == 0,
		"its root is read-only":            h.ReadonlyRootfs,
		"it shares no namespace": h.PidMode == "" && h.UTSMode == "" && h.UsernsMode == "" &&
			h.IpcMode == container.IPCModeNone && h.CgroupnsMode == container.CgroupnsModePrivate,
		"it has no capability to spare":   slices.Equal(h.CapDrop, []string{"ALL"}) && len(h.CapAdd) == 4,
		"it gains no privilege":           slices.Contains(h.SecurityOpt, "no-new-privileges:true"),
		"memory is limited, without swap": h.Memory == 256<<20 && h.MemorySwap == h.Memory,
		"the CPU is limited":              h.NanoCPUs == 500_000_000,
		"tasks are limited":               *h.PidsLimit == 50+startTasks,
		"it does not come back":           h.RestartPolicy.Name == container.RestartPolicyDisabled && !h.AutoRemove,
		"it writes no log":                h.LogConfig.Type == "none",
		"/sys is not there":               slices.Contains(h.MaskedPaths, "/sys"),
		"message queues are not there":    slices.Contains(h.MaskedPaths, "/dev/mqueue"),
		"/proc/kcore is not there":        slices.Contains(h.MaskedPaths, "/proc/kcore"),
		"/proc/sys cannot be written":     slices.Contains(h.ReadonlyPaths, "/proc/sys"),
		"cores are off":                   h.Ulimits[0].Name == "core" && h.Ulimits[0].Hard <= 1,
		"a volume is no place to write":   strings.HasPrefix(h.Tmpfs["/data"], "ro,"),
		"a volume does not displace /tmp": strings.HasPrefix(h.Tmpfs["/tmp"], "rw,"),
	} {
		if !ok {
			t.Errorf("not so: %s", what)
		}
	}
	for _, m := range h.Mounts {
		if !m.ReadOnly || !m.BindOptions.NonRecursive || m.BindOptions.Propagation != mount.PropagationRPrivate {
			t.Errorf("mount %+v", m)
		}
	}
}

func TestSeccompIsOurs(t *testing.T) {
	for _, u := range []cove.User{cove.CodeUser, cove.AgentUser} {
		profile, err := seccompProfile(seccomp.Processes{User: u})
		if err != nil {
			t.Fatal(err)
		}
		var p struct {
			DefaultAction string
			Architectures []string
			Syscalls      []struct {
				Names  []string
				Action string
				Args   []any
			}
		}
		if err := json.Unmarshal([]byte(profile), &p); err != nil {
			t.Fatal(err)
		}
		verdict := map[string]string{}
		for _, s := range p.Syscalls {
			for _, name := range s.Names {
				verdict[name] = s.Action
			}
		}
		if p.DefaultAction != "SCMP_ACT_ERRNO" || verdict["read"] != "SCMP_ACT_ALLOW" {
			t.Errorf("%s: the default is %s, read is %s", u.Name, p.DefaultAction, verdict["read"])
		}
		for _, name := range []string{"io_uring_setup", "mount", "ptrace", "bpf", "unshare", "setns", "keyctl"} {
			if verdict[name] == "SCMP_ACT_ALLOW" {
				t.Errorf("%s: %s is allowed", u.Name, name)
			}
		}
		if allowed := verdict["memfd_create"] == "SCMP_ACT_ALLOW"; allowed != (u == cove.AgentUser) {
			t.Errorf("%s: memfd_create allowed: %t", u.Name, allowed)
		}
		// libseccomp kills a thread that uses an ABI which a profile does not name.
		if runtime.GOARCH == "amd64" && !slices.Equal(p.Architectures,
			[]string{"SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32"}) {
			t.Errorf("%s: the profile is for %v", u.Name, p.Architectures)
		}
		want, err := seccomp.Filter(seccomp.Processes{User: u})
		if err != nil {
			t.Fatal(err)
		}
		w := aWish()
		w.template.User = u
		if sealed, err := seal(w.template, nil); err != nil || !bytes.Equal(sealed.Seal.Filter, want) {
			t.Errorf("%s: the guest loads another filter than the native engine's: %d bytes, %v", u.Name,
				len(sealed.Seal.Filter), err)
		}
	}
}

func TestUserMountsTakeThePlaceOfOurs(t *testing.T) {
	w := aWish()
	w.binds = []bind{{source: "/home/me/project", target: "/work"},
		{source: "/home/me/data", target: "/workspace", readOnly: true}}
	_, h, err := plan(w)
	if err != nil {
		t.Fatal(err)
	}
	if _, still := h.Tmpfs["/work"]; still {
		t.Error("two mounts at /work")
	}
	sealed, err := seal(w.template, []engine.Attachment{{Target: "/work/"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range sealed.Scratch {
		if name == "/work" {
			t.Error("the host's file system is counted as the sandbox's disk")
		}
	}
}

// TestDivide: the parts never add up to more than the whole, and everybody gets something.
func TestDivide(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		disk := rapid.Int64Range(0, 1<<40).Draw(t, "disk")
		inodes := rapid.Int64Range(0, 1<<24).Draw(t, "inodes")
		places, err := divide(disk, inodes, cove.CodeUser)
		if disk < minDisk || inodes < minInodes {
			if cove.ErrorCode(err) != cove.InvalidArgument {
				t.Fatalf("%d bytes, %d inodes: %v", disk, inodes, err)
			}
			return
		}
		if err != nil || len(places) != len(rootfs.Writables(cove.CodeUser)) {
			t.Fatalf("%d places: %v", len(places), err)
		}
		var bytes, files int64
		for _, p := range places {
			if p.size < page || p.size%page != 0 || p.inodes < 4 {
				t.Fatalf("%s gets %d bytes and %d inodes", p.Name, p.size, p.inodes)
			}
			bytes, files = bytes+p.size, files+p.inodes
		}
		if bytes > disk || files > inodes || bytes < disk-int64(len(places)+whole)*page {
			t.Fatalf("%d of %d bytes, %d of %d inodes", bytes, disk, files, inodes)
		}
	})
}

func TestSharesAreTheWhole(t *testing.T) {
	sum := int64(homeShare)
	for _, s := range shares {
		sum += s
	}
	if sum != whole {
		t.Errorf("the shares add up to %d of %d", sum, whole)
	}
}

func TestOwned(t *testing.T) {
	id, in := string(cove.NewSandboxID()), string(cove.NewInstanceID())
	labels := map[string]string{labelSandbox: id, labelInstance: in}
	for _, c := range []struct {
		name   string
		names  []string
		labels map[string]string
		want   bool
	}{
		{"ours", []string{"/cove-" + id}, labels, true},
		{"an image brought the labels", []string{"/quirky_hopper"}, labels, false},
		{"another sandbox's name", []string{"/cove-" + string(cove.NewSandboxID())}, labels, false},
		{"no labels", []string{"/cove-" + id}, nil, false},
		{"an instance that is none", []string{"/cove-" + id},
			map[string]string{labelSandbox: id, labelInstance: "me"}, false},
		{"a sandbox that is none", []string{"/cove-x"}, map[string]string{labelSandbox: "x", labelInstance: in}, false},
		{"no name", nil, labels, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := owned(c.names, c.labels); got != c.want {
				t.Errorf("owned: %t", got)
			}
		})
	}
}

// TestDifferencesAreNoticed: what a daemon leaves out or changes is found.
func TestDifferencesAreNoticed(t *testing.T) {
	fresh := func() *container.HostConfig {
		_, h, err := plan(aWish())
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	if all := differences(fresh(), fresh()); len(all) > 0 {
		t.Errorf("a faithful daemon is accused: %v", all)
	}
	for name, weaken := range map[string]func(*container.HostConfig){
		"privileged":        func(h *container.HostConfig) { h.Privileged = true },
		"writable root":     func(h *container.HostConfig) { h.ReadonlyRootfs = false },
		"network":           func(h *container.HostConfig) { h.NetworkMode = "bridge" },
		"host pids":         func(h *container.HostConfig) { h.PidMode = "host" },
		"host ipc":          func(h *container.HostConfig) { h.IpcMode = "host" },
		"host uts":          func(h *container.HostConfig) { h.UTSMode = "host" },
		"host cgroups":      func(h *container.HostConfig) { h.CgroupnsMode = "host" },
		"no memory limit":   func(h *container.HostConfig) { h.Memory = 0 },
		"no CPU limit":      func(h *container.HostConfig) { h.NanoCPUs = 0 },
		"no tasks limit":    func(h *container.HostConfig) { h.PidsLimit = nil },
		"no seccomp":        func(h *container.HostConfig) { h.SecurityOpt = []string{"no-new-privileges:true"} },
		"new privileges":    func(h *container.HostConfig) { h.SecurityOpt = h.SecurityOpt[1:] },
		"no masks":          func(h *container.HostConfig) { h.MaskedPaths = nil },
		"no read-only ones": func(h *container.HostConfig) { h.ReadonlyPaths = nil },
		"capabilities":      func(h *container.HostConfig) { h.CapAdd = append(h.CapAdd[:4:4], "CAP_SYS_ADMIN") },
		"kept capabilities": func(h *container.HostConfig) { h.CapDrop = nil },
		"a device": func(h *container.HostConfig) {
			h.Devices = []container.DeviceMapping{{PathOnHost: "/dev/kvm"}}
		},
		"a bind":            func(h *container.HostConfig) { h.Binds = []string{"/:/host"} },
		"a mount":           func(h *container.HostConfig) { h.Mounts = append(h.Mounts, mount.Mount{Source: "/"}) },
		"a boundless tmpfs": func(h *container.HostConfig) { h.Tmpfs["/work"] = "rw" },
	} {
		t.Run(name, func(t *testing.T) {
			made := fresh()
			weaken(made)
			if len(differences(fresh(), made)) == 0 {
				t.Error("not noticed")
			}
		})
	}
	if len(differences(fresh(), nil)) == 0 {
		t.Error("a daemon that says nothing is trusted")
	}
}

func TestHostTreeHasAPlaceForEverything(t *testing.T) {
	h := rootfs.Host{Dirs: []string{"/usr", "/lib"}, Etc: []string{"/etc/ssl/certs"}}
	tree := hostTree(h)
	for _, want := range []string{"/usr", "/lib", "/work", "/tmp", "/proc", "/sys", "/dev", "/etc", path.Dir(guestPath),
		cove.Workspace} {
		if !slices.Contains(tree, want) {
			t.Errorf("no %s in %q", want, tree)
		}
	}
}
