package doctor

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

func checks() []check {
	all := []check{
		{"userns.self", "namespaces", "user namespaces", native, checkUserNamespace},
		{"userns.unprivileged", "namespaces", "user namespaces of users", "", checkUnprivileged},
		{"namespaces", "namespaces", "other namespaces", native, checkNamespaces},
		{"namespaces.count", "namespaces", "how many", "", checkNamespaceCount},
		{"proc", "namespaces", "/proc of its own", native, checkProc},
		{"subids", "namespaces", "subordinate ids", "", checkSubordinateIDs},

		{"cgroup.controllers", "limits", "control groups", native, checkControllers},
		{"cgroup.birth", "limits", "born into a group", native, checkBirth},
		{"limit.memory", "limits", "memory, without swap", native, checkMemory},
		{"limit.sockets", "limits", "buffers of sockets", native, checkSockets},
		{"limit.pids", "limits", "processes", native, checkPIDs},
		{"limit.cpu", "limits", "CPU", native, checkCPU},
		{"limit.watches", "limits", "inotify", native, succeeds("watches", inMounts, "",
			"needs Linux 4.9 or later with /proc/sys/user (CONFIG_INOTIFY_USER, CONFIG_SYSCTL)")},
		{"limit.terminals", "limits", "terminals", native, succeeds("terminals", inMounts, "",
			"needs a kernel built with CONFIG_UNIX98_PTYS")},
		{"limit.signals", "limits", "signals, message queues", native,
			succeeds("signals", unix.CLONE_NEWUSER|unix.CLONE_NEWIPC, "", "needs a kernel built with CONFIG_POSIX_MQUEUE")},
		{"limit.locks", "limits", "locks of files", "", checkLocks},
		{"limit.files", "limits", "open files", "", checkFiles},
		{"limit.disk", "limits", "bytes on disk", native, succeeds("tmpfs-bytes", inMounts, "", tmpfsFix)},
		{"limit.inodes", "limits", "files on disk", native, succeeds("tmpfs-inodes", inMounts, "", tmpfsFix)},
		{"limit.workspaces", "limits", "workspaces and homes", "", checkWorkspaces},
		{"limit.throughput", "limits", "throughput of workspaces", "", checkThroughput},
		{"tables", "limits", "room for many sandboxes", "", checkTables},

		{"seccomp", "walls", "seccomp, no_new_privs", everyEngine,
			succeeds("seccomp", 0, "loaded, refuses and allows as it should: ", seccompFix)},
		{"overlay", "walls", "overlay", native, succeeds("overlay", inMounts,
			"a file was changed above, and kept below", overlayFix)},
		{"overlay.directories", "walls", "directories of images", "", checkOverlayDirectories},
		{"mounts.api", "walls", "mounts by descriptor", native,
			succeeds("mount-api", inMounts, "", "needs Linux 5.12 or later")},
		{"mounts.idmap", "walls", "idmapped mounts", native, checkIDMap},
		{"pidfd", "walls", "processes by descriptor", native, checkPIDFD},
		{"peer", "walls", "who is at a socket", "", checkPeer},

		{"lsm", "defences of the host", "security modules", "", checkLSM},
		{"lockdown", "defences of the host", "lockdown", "", checkLockdown},
		{"cpu.vulnerabilities", "defences of the host", "processor holes", "", checkVulnerabilities},
		{"ksm", "defences of the host", "page merging", "", checkKSM},
		{"core_pattern", "defences of the host", "core dumps", "", checkCorePattern},
		{"kvm", "defences of the host", "KVM", "", checkKVM},
	}
	for _, s := range settings() {
		all = append(all, check{s.name, "defences of the host", s.name, "", checkSetting(s)})
	}
	return append(all,
		check{"home", "engines", "state directory", everyEngine, checkHome},
		check{"guest", "engines", "cove-guest", everyEngine, checkGuest},
		check{"emulators", "engines", "other architectures", "", checkEmulators},
		check{"docker", "engines", "Docker", docker, checkDocker},
		check{"docker.runc", "engines", "Docker's runc", docker, checkRunc},
		check{"podman", "engines", "Podman", podman, checkPodman},
	)
}

// atOnce bounds concurrent checks, which mostly wait for processes.
const atOnce = 4

const patience = 20 * time.Second

// Run makes every check. It does not fail: an unknown outcome is a finding too.
func Run(ctx context.Context, o Options) Report {
	if o.Engine == "" || o.Engine == "auto" {
		o.Engine = native
	}
	h := newHost(o)
	defer h.close()
	all := slices.Concat(checks(), engineChecks(o), keyChecks(o))
	findings := make([]Finding, len(all))
	gate := make(chan struct{}, atOnce)
	var wait sync.WaitGroup
	for i, c := range all {
		gate <- struct{}{}
		wait.Go(func() {
			defer func() { <-gate }()
			// Children die with the thread that started them (Pdeathsig), and threads that have entered a control group end.
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			ctx, cancel := context.WithTimeout(ctx, patience)
			defer cancel()
			findings[i] = c.finding(c.run(ctx, h), o.Engine)
		})
	}
	wait.Wait()
	return Report{
		Version: o.Version, Kernel: h.kernel(), User: h.user(), Engine: o.Engine,
		Healthy: healthy(findings), Findings: findings,
	}
}
