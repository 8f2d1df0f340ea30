package doctor

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// wanted is a kernel setting and its minimum safe value.
type wanted struct {
	name  string
	least int
	why   string // what a lower value permits
	// inside states that Cove's own policy holds inside sandboxes for any value, so that a low one weakens only the host
	// around them.
	inside string
}

func settings() []wanted {
	const refused = "refused inside all the same"
	return []wanted{
		{"kernel.randomize_va_space", 2, "addresses can be predicted", ""},
		{"kernel.kptr_restrict", 1, "/proc tells kernel addresses", ""},
		{"kernel.dmesg_restrict", 1, "every user reads the kernel's log", refused},
		{"kernel.yama.ptrace_scope", 1, "a program may trace others of its user", refused},
		{"kernel.unprivileged_bpf_disabled", 1, "every user loads BPF programs", refused},
		{"kernel.perf_event_paranoid", 2, "every user measures the kernel", refused},
		{"kernel.io_uring_disabled", 1, "every user uses io_uring", refused},
		{"fs.protected_symlinks", 1, "links in /tmp are followed across owners", ""},
		{"fs.protected_hardlinks", 1, "files of others can be hard-linked", ""},
		{"fs.protected_fifos", 1, "pipes of others in /tmp are opened for writing", ""},
		{"fs.protected_regular", 1, "files of others in /tmp are opened for writing", ""},
	}
}

// checkSetting checks one setting. If the policy covers it inside, a low value is a note, not a warning.
func checkSetting(w wanted) func(context.Context, *host) outcome {
	return func(_ context.Context, h *host) outcome {
		v, found := h.number(w.name)
		switch {
		case !found:
			return info("this kernel does not have it")
		case v >= w.least:
			return ok(fmt.Sprintf("= %d", v))
		case w.inside != "":
			return outcome{Info, fmt.Sprintf("= %d: %s (%s)", v, w.why, w.inside), ""}
		}
		return warn(fmt.Sprintf("= %d: %s", v, w.why), setting(w.name, fmt.Sprint(w.least)))
	}
}

func checkLSM(_ context.Context, h *host) outcome {
	text, found := h.read("/sys/kernel/security/lsm")
	if !found {
		return info("not told: securityfs is not mounted")
	}
	modules := strings.Split(text, ",")
	for _, mandatory := range []string{"apparmor", "selinux", "smack", "tomoyo"} {
		if slices.Contains(modules, mandatory) {
			return ok(text)
		}
	}
	return info(text + ": no mandatory access control")
}

func checkLockdown(_ context.Context, h *host) outcome {
	text, found := h.read("/sys/kernel/security/lockdown")
	if !found {
		return info("this kernel has none, or securityfs is not mounted")
	}
	_, mode, _ := strings.Cut(text, "[")
	mode, _, _ = strings.Cut(mode, "]")
	if mode == "none" {
		return info("none: root can change the kernel; boot with lockdown=integrity to prevent it")
	}
	return ok(mode)
}

// checkVulnerabilities reads the kernel's report on holes through which sandboxes could read each other.
func checkVulnerabilities(_ context.Context, h *host) outcome {
	const dir = "/sys/devices/system/cpu/vulnerabilities"
	entries, err := os.ReadDir(filepath.Join(h.root, dir))
	if err != nil {
		return info("not told by this kernel")
	}
	mitigated := 0
	var open []string
	for _, e := range entries {
		state, _ := h.read(filepath.Join(dir, e.Name()))
		switch {
		case strings.Contains(state, "Vulnerable"):
			open = append(open, e.Name())
		case strings.HasPrefix(state, "Mitigation"):
			mitigated++
		}
	}
	rest := fmt.Sprintf("%d mitigated, %d do not apply", mitigated, len(entries)-mitigated-len(open))
	if len(open) == 0 {
		return ok(rest)
	}
	fix := "update the processor's microcode (package intel-microcode or amd64-microcode) and the kernel"
	if line, _ := h.read("/proc/cmdline"); slices.Contains(strings.Fields(line), "mitigations=off") {
		fix = "boot without mitigations=off"
	}
	return warn(fmt.Sprintf("open: %s; %s", strings.Join(open, ", "), rest),
		fix+"\n(in a virtual machine: of the machine it runs on)")
}

// checkKSM warns of shared pages, through which one sandbox learns about another.
func checkKSM(_ context.Context, h *host) outcome {
	if run, found := h.read("/sys/kernel/mm/ksm/run"); found && run == "1" {
		return warn("on: equal pages of different sandboxes are shared, which can be timed",
			"echo 2 | sudo tee /sys/kernel/mm/ksm/run")
	}
	return ok("off")
}

// checkCorePattern checks the handler of core dumps: it runs on the host, as root, on crashed programs, and code inside
// can crash at will. The guest prevents that by a limit of 1, which needs a hard limit other than 0.
func checkCorePattern(_ context.Context, h *host) outcome {
	pattern, found := h.sysctl("kernel.core_pattern")
	switch {
	case !found:
		return info("not told")
	case strings.HasPrefix(pattern, "@"): // 6.16; the limit does not prevent it
		return warn("crashes inside are handed to the socket "+pattern[1:]+", outside",
			setting("kernel.core_pattern", "core"))
	case !strings.HasPrefix(pattern, "|"):
		return ok("written where the program runs, and switched off inside")
	}
	handler, _, _ := strings.Cut(strings.TrimPrefix(pattern, "|"), " ")
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_CORE, &limit); err != nil {
		return unknown("the limit of core dumps", err)
	}
	if limit.Max < 1 {
		return warn("crashes inside are handed to "+handler+", outside, because the hard limit here is 0",
			"start Cove with \"ulimit -Hc\" of at least 1 (LimitCORE=infinity in a systemd unit), or\n"+
				setting("kernel.core_pattern", "core"))
	}
	return ok("handled by " + handler + ", but not those inside")
}

// checkKVM reports whether a virtual machine would be fast here.
func checkKVM(_ context.Context, h *host) outcome {
	path := filepath.Join(h.root, "/dev/kvm")
	if err := unix.Access(path, unix.R_OK|unix.W_OK); err != nil {
		return info("not usable (" + err.Error() + "); isolation \"container\" does not need it")
	}
	return info("usable")
}
