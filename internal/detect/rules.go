package detect

import "slices"

// Rules returns the table, the gravest first. Words that occur in ordinary code and security texts are low or medium; a
// use against the host is high; a complete recipe is critical.
func Rules() []Rule { return slices.Concat(criticalRules, highRules, mediumRules, lowRules) }

// Context of a path that is written: a redirection, tee or dd before it, or a call before it with a writing mode after
// it.
const (
	shellWrite = `(?:>{1,2}\s*|\btee\s+(?:-a\s+)?|\bof=)["']?`
	callWrite  = `["']\s*,\s*(?:mode\s*=\s*)?(?:["'][^"'\n]*[wa+]|[^)\n]*O_(?:WRONLY|RDWR))`
	callName   = `\b(?:open\w*|write_?file\w*|File\.(?:write|open)|Path)\s*\(\s*`
)

// writesTo matches a write to a path that ends in the given expression.
func writesTo(path string) string {
	return shellWrite + `[^\s"'|;&]*` + path + `\b` +
		`|` + callName + `[furb]{0,2}["'][^"'\n]*` + path + callWrite +
		`|(?i:\bwrite_?file\w*|\bFile\.write)\s*\(\s*["'][^"'\n]*` + path + `["']`
}

var criticalRules = []Rule{
	{ID: "cgroup-release-agent", Severity: Critical, Literals: []string{"release_agent"},
		Pattern: writesTo(`release_agent`),
		Detail:  "writes a cgroup release_agent, which the host's kernel runs as root"},
	{ID: "core-pattern-write", Severity: Critical, Literals: []string{"core_pattern"},
		Pattern: writesTo(`/proc/sys/kernel/core_pattern`) + `|\bsysctl\s[^\n]*kernel\.core_pattern\s*=`,
		Detail:  "sets the host's core dump handler, which runs as root"},
	{ID: "uevent-helper-write", Severity: Critical, Literals: []string{"uevent_helper"},
		Pattern: writesTo(`uevent_helper`),
		Detail:  "sets the kernel's uevent helper, which runs as root on the host"},
	{ID: "modprobe-path-write", Severity: Critical, Literals: []string{"/kernel/modprobe"},
		Pattern: writesTo(`/proc/sys/kernel/modprobe`),
		Detail:  "sets the program the kernel loads modules with, which runs as root on the host"},
	{ID: "sysrq-trigger", Severity: Critical, Literals: []string{"sysrq-trigger"},
		Pattern: writesTo(`/proc/sysrq-trigger`),
		Detail:  "crashes or reboots the host through SysRq"},
	{ID: "runtime-binary-overwrite", Severity: Critical, Literals: []string{"/proc/self/exe"},
		Pattern: `\A#!\s*/proc/self/exe|` + writesTo(`/proc/self/exe`),
		Detail:  "overwrites the container runtime through /proc/self/exe (CVE-2019-5736)"},
	{ID: "leaked-descriptor-escape", Severity: Critical, Literals: []string{"/proc/self/fd/"},
		Pattern: `/proc/self/fd/(?:\d+|\$\{?\w+\}?)/\.\./\.\.`,
		Detail:  "walks out through a leaked descriptor (CVE-2024-21626)"},
	{ID: "nsenter-init", Severity: Critical, Literals: []string{"nsenter"},
		Pattern: `(?m)(?:^|[;&|(` + "`" + `"'])\s*(?:sudo\s+)?nsenter\b[^\n]*?(?:-t\s*|--target[= ` +
			`]\s*|-t["'],\s*["']|--target["'],\s*["'])1\b["', ]*(?:[^\n]*?(?:\s|["'])(?:-[a-zA-Z]*[ma]|--mount|--all)\b)`,
		Detail: "enters the namespaces of the host's init"},
	{ID: "chroot-init-root", Severity: Critical, Literals: []string{"/proc/1/root"},
		Pattern: `\bchroot\b[\s("',]+/proc/1/root`,
		Detail:  "changes root into the host's file system through /proc/1/root"},
	{ID: "engine-socket-create", Severity: Critical, Literals: []string{"docker.sock", "podman.sock"},
		Pattern: `(?s)(?:docker|podman)\.sock.*?/(?:containers/create|containers/[^\s"']+/(?:start|exec)|` +
			`exec/[^\s"']+/start)|\s-H[ =]?\s*unix://\S*(?:docker|podman)\.sock\s[^\n]*?\brun\b[^\n]*(?:--privileged|-v\s*/:)`,
		Detail: "has the host's container engine start a container"},
	{ID: "host-disk-write", Severity: Critical, Literals: []string{"debugfs"},
		Pattern: `\bdebugfs\s+(?:-w\s+)?(?:-R\s+\S+\s+)?/dev/(?:sd|vd|xvd|nvme|dm-|mapper/)`,
		Detail:  "edits the host's disk beneath its file system"},
}

var highRules = []Rule{
	{ID: "engine-socket", Severity: High, Literals: []string{"docker.sock", "containerd.sock", "podman.sock", "crio.sock",
		"dockershim.sock", "buildkitd.sock"},
		Pattern: `(?:docker|containerd|podman|crio|dockershim|buildkitd)\.sock\b`,
		Detail:  "names the socket of a container engine"},
	{ID: "release-agent", Severity: High, Literals: []string{"release_agent", "notify_on_release"},
		Pattern: `\b(?:release_agent|notify_on_release)\b`,
		Detail:  "names the cgroup release agent"},
	{ID: "init-root", Severity: High, Literals: []string{"/proc/1/"},
		Pattern: `/proc/1/(?:root|cwd|fd|mem|exe|ns)\b`,
		Detail:  "reaches through /proc for another root"},
	{ID: "nsenter", Severity: High, Literals: []string{"nsenter"},
		Pattern: `\bnsenter\s+-|["']nsenter["']\s*,`,
		Detail:  "enters other namespaces"},
	{ID: "kernel-helper", Severity: High, Literals: []string{"core_pattern", "uevent_helper", "sysrq-trigger",
		"binfmt_misc/register", "/kernel/modprobe"},
		Pattern: `\b(?:core_pattern|uevent_helper|sysrq-trigger)\b|binfmt_misc/register\b|/proc/sys/kernel/modprobe\b`,
		Detail:  "names a kernel setting through which the host runs a program"},
	{ID: "kernel-memory", Severity: High, Literals: []string{"/dev/mem", "/dev/kmem", "/dev/port", "/proc/kcore"},
		Pattern: `/dev/k?mem\b|/dev/port\b|/proc/kcore\b`,
		Detail:  "reaches for the kernel's memory"},
	{ID: "kernel-module", Severity: High, Literals: []string{"init_module", "insmod", "modprobe",
		"delete_module", "kexec"},
		Pattern: `\bf?init_module\b|\bdelete_module\b|\bkexec_(?:file_)?load\b|\bkexec\s+-|\binsmod\s+\S|\bmodprobe\s+[a-z-]`,
		Detail:  "loads code into the kernel"},
	{ID: "host-disk", Severity: High, Literals: []string{"/dev/sd", "/dev/vd", "/dev/xvd", "/dev/nvme", "/dev/dm-",
		"/dev/mapper", "mknod"},
		Pattern: `/dev/(?:sd[a-z]|vd[a-z]|xvd[a-z]|nvme\d|dm-\d|mapper/\w)|\bmknod\b[^\n]*\s[bc]\s+\d+\s+\d+`,
		Detail:  "reaches for the host's disks"},
	{ID: "cgroup-mount", Severity: High, Literals: []string{"cgroup", "devices.allow"},
		Pattern: `\bmount\b[^\n]*-t\s*cgroup|devices\.allow\b`,
		Detail:  "reaches for cgroups beyond its own"},
	{ID: "file-handle", Severity: High, Literals: []string{"open_by_handle_at"},
		Pattern: `\bopen_by_handle_at\b`,
		Detail:  "opens files of the host by handle"},
	{ID: "loader-preload-file", Severity: High, Literals: []string{"/etc/ld.so.preload"},
		Pattern: `/etc/ld\.so\.preload\b`,
		Detail:  "has every program load a library"},
	{ID: "metadata-credentials", Severity: High, Literals: []string{"169.254.169.254", "fd00:ec2::254",
		"metadata.google.internal", "100.100.100.200", "168.63.129.16"},
		Pattern: `(?i)(?:169\.254\.169\.254|\[?fd00:ec2::254\]?|metadata\.google\.internal|100\.100\.100\.200|` +
			`168\.63\.129\.16)(?::\d+)?/(?:latest|computemetadata|metadata|opc|v1|machine)`,
		Detail: "asks the cloud's metadata service for credentials"},
	{ID: "service-account-token", Severity: High, Literals: []string{"secrets/kubernetes.io/serviceaccount"},
		Pattern: `secrets/kubernetes\.io/serviceaccount`,
		Detail:  "reads a Kubernetes service account's token"},
	{ID: "privileged-container", Severity: High, Literals: []string{"--privileged", "--pid=host", "--pid host"},
		Pattern: `\b(?:docker|podman|nerdctl)\s+(?:run|create|exec)\b[^\n]*(?:--privileged|--pid[= ]host)`,
		Detail:  "starts a privileged container"},
	{ID: "reverse-shell", Severity: High, Literals: []string{"/dev/tcp/", "/dev/udp/", "nc ", "ncat", "socat", "/bin/sh",
		"/bin/bash", "pty.spawn"},
		Pattern: `\b(?:ba)?sh\s+-i\b[^\n]*/dev/(?:tcp|udp)/|/dev/(?:tcp|udp)/[^\s"']+[^\n]*0[<>]&1|\b(?:nc|ncat|` +
			`netcat)\b[^\n]*\s-(?:[a-z]*[ec]|-exec|-sh-exec)\s+["']?(?:/bin/|/usr/bin/)?(?:ba)?sh\b|` +
			`\bsocat\b[^\n]*(?i:exec:)["']?(?:/bin/)?(?:ba)?sh|(?s:\bdup2\b.*?(?:/bin/(?:ba)?sh|pty\.spawn))`,
		Detail: "hands a shell to a host on the network"},
	{ID: "fork-bomb", Severity: High, Literals: []string{"()", "fork"},
		Pattern: `while\s+(?:True|1)\s*:\s*(?:os\.)?fork\(\)|\bfork\s+while\s+(?:fork|1|true)\b|\bloop\s*\{\s*fork|` +
			`:\s*\(\)\s*\{\s*:\s*\|\s*:\s*&\s*\}\s*;\s*:|\b(\w{1,16})\s*\(\)\s*\{\s*(\w{1,16})\s*\|\s*(\w{1,16})\s*&\s*\}\s*;`,
		Detail: "multiplies itself without end"},
	{ID: "miner", Severity: High, Literals: []string{"stratum+", "xmrig", "minerd", "cpuminer", "cryptonight", "nicehash"},
		Pattern: `(?i)stratum\+(?:tcp|ssl|tls)://|\b(?:xmrig|minerd|cpuminer|ccminer|nbminer)\b\s+-|` +
			`\bxmrig[-\d.]*(?:\.tar|/)`,
		Detail: "mines a cryptocurrency"},
	{ID: "inject-terminal", Severity: High, Literals: []string{"tiocsti", "tioclinux", "0x5412"},
		Pattern: `\bTIOC(?:STI|LINUX)\b|\bioctl\b[^\n]*0x5412\b`,
		Detail:  "types into the caller's terminal"},
}

var mediumRules = []Rule{
	{ID: "password-file", Severity: Medium, Literals: []string{"/etc/shadow", "/etc/gshadow", "/etc/sudoers"},
		Pattern: `/etc/g?shadow\b|/etc/sudoers\b`,
		Detail:  "names the host's password files"},
	{ID: "metadata-address", Severity: Medium, Literals: []string{"169.254.169.254", "fd00:ec2::254",
		"metadata.google.internal", "2852039166", "0xa9fea9fe"},
		Pattern: `(?i)\b169\.254\.169\.254\b|fd00:ec2::254|\bmetadata\.google\.internal\b|\b2852039166\b|\b0xa9fea9fe\b`,
		Detail:  "names a cloud's metadata service"},
	{ID: "user-namespace", Severity: Medium, Literals: []string{"unshare", "clone_new"},
		Pattern: `\bunshare\s+-|\bunshare\s*\(|["']unshare["']\s*,|\bCLONE_NEW(?:USER|NS|PID|NET|IPC|UTS|CGROUP)\b`,
		Detail:  "makes namespaces of its own"},
	{ID: "join-namespace", Severity: Medium, Literals: []string{"setns", "/ns/"},
		Pattern: `\bsetns\s*\(|/proc/(?:\d+|self)/ns/(?:mnt|pid|user|net)\b`,
		Detail:  "joins another namespace"},
	{ID: "mount-call", Severity: Medium, Literals: []string{"mount", "move_mount", "open_tree", "fsopen"},
		Pattern: `(?m)(?:libc|lib|dll|cdll|syscall|unix)\w*\.(?i:u?mount2?)\s*\(|\b(?:move_mount|open_tree|fsopen|` +
			`pivot_root)\s*\(|(?:^|[;&|("'])\s*(?:sudo\s+)?u?mount\s+(?:-[a-z-]|--bind|/dev/)|["']u?mount["']\s*,` +
			`\s*["'](?:-|/dev/)`,
		Detail: "mounts a file system"},
	{ID: "pivot-root", Severity: Medium, Literals: []string{"pivot_root"},
		Pattern: `\bpivot_root\b`,
		Detail:  "exchanges its root file system"},
	{ID: "chroot", Severity: Medium, Literals: []string{"chroot"},
		Pattern: `\bchroot\s*\(|(?m)(?:^|[;&|("'])\s*(?:sudo\s+)?chroot\s+[/.$]|["']chroot["']\s*,|(?i:syscall\.chroot)`,
		Detail:  "changes its root directory"},
	{ID: "trace-process", Severity: Medium, Literals: []string{"ptrace", "process_vm_", "gdb ", "strace "},
		Pattern: `\bPTRACE_(?:ATTACH|SEIZE|POKE\w+)\b|\bptrace\s*\(|\bprocess_vm_(?:readv|writev)\b|\b(?:gdb|` +
			`strace)\b[^\n]*\s-p\s*\d`,
		Detail: "traces another process"},
	{ID: "process-memory", Severity: Medium, Literals: []string{"/proc/"},
		Pattern: `/proc/(?:\d+|\*|self)/(?:mem|environ)\b|/proc/[*]/(?:root|cwd|fd)\b`,
		Detail:  "reads another process's memory or environment"},
	{ID: "kernel-log", Severity: Medium, Literals: []string{"/dev/kmsg", "/proc/kallsyms", "/proc/kmsg",
		"/sys/kernel/debug", "/sys/kernel/tracing"},
		Pattern: `/dev/kmsg\b|/proc/k(?:allsyms|msg)\b|/sys/kernel/(?:debug|tracing)\b`,
		Detail:  "reads the kernel's log or symbols"},
	{ID: "kernel-keyring", Severity: Medium, Literals: []string{"keyctl", "add_key", "request_key"},
		Pattern: `\bkeyctl\s*\(|\bkeyctl\s+(?:add|show|read|link|session|padd)\b|\b(?:SYS_|__NR_)(?:keyctl|add_key|` +
			`request_key)\b`,
		Detail: "uses the kernel's key rings, which are not namespaced"},
	{ID: "kernel-surface", Severity: Medium, Literals: []string{"userfaultfd", "perf_event_open", "io_uring_setup",
		"sys_bpf", "__nr_bpf", "bpf_prog_load", "bpftool", "iopl", "ioperm", "modify_ldt"},
		Pattern: `\buserfaultfd\b|\bperf_event_open\b|\bio_uring_setup\b|\b(?:SYS_|__NR_)bpf\b|\b(?i:bpf_prog_load)\b|` +
			`\bbpftool\s+\w|\b(?:iopl|ioperm|modify_ldt)\s*\(`,
		Detail: "uses a system call that kernel exploits are made with"},
	{ID: "raw-socket", Severity: Medium, Literals: []string{"af_packet", "af_vsock", "af_alg", "af_xdp",
		"af_key", "sock_raw"},
		Pattern: `\bAF_(?:PACKET|VSOCK|ALG|XDP|KEY)\b|\bSOCK_RAW\b`,
		Detail:  "opens a socket of a kind that is closed in sandboxes"},
	{ID: "set-user-id", Severity: Medium, Literals: []string{"chmod", "setcap"},
		Pattern: `\bchmod\s+(?:[ug]+\+s|[246]7[0-7]{2})\b|\bos\.chmod\([^)\n]*0o[246]7|\bsetcap\s+\S*cap_`,
		Detail:  "makes a program run with another user's rights"},
	{ID: "miner-name", Severity: Medium, Literals: []string{"xmrig", "cryptonight", "randomx", "coinhive",
		"minexmr", "nanopool"},
		Pattern: `(?i)\b(?:xmrig|cryptonight|coinhive|minexmr|nanopool)\b`,
		Detail:  "names a miner or its pool"},
	{ID: "known-exploit", Severity: Medium, Literals: []string{"dirtycow", "dirty_cow", "dirtypipe", "dirty_pipe",
		"pwnkit", "shocker", "cve-"},
		Pattern: `(?i)\b(?:dirty_?cow|dirty_?pipe|pwnkit)\b|\bcve-(?:2016-5195|2019-5736|2022-0847|2022-0492|2021-4034|` +
			`2024-21626|2021-30465|2022-0185)\b`,
		Detail: "names a known exploit"},
}

var lowRules = []Rule{
	{ID: "container-probe", Severity: Low, Literals: []string{"/.dockerenv", "/.containerenv", "/proc/1/cgroup",
		"/proc/1/sched", "systemd-detect-virt"},
		Pattern: `/\.dockerenv\b|/\.containerenv\b|/proc/1/(?:cgroup|sched)\b|\bsystemd-detect-virt\b`,
		Detail:  "asks whether it runs in a container"},
	{ID: "loader-preload", Severity: Low, Literals: []string{"ld_preload", "ld_audit"},
		Pattern: `\bLD_(?:PRELOAD|AUDIT)\b`,
		Detail:  "has a program load a library"},
	{ID: "own-executable", Severity: Low, Literals: []string{"/proc/self/exe"},
		Pattern: `/proc/self/exe\b`,
		Detail:  "names its own executable through /proc"},
	{ID: "capabilities", Severity: Low, Literals: []string{"cap_sys_admin", "cap_sys_ptrace", "cap_dac_read_search",
		"capsh", "cap_sys_module"},
		Pattern: `\bCAP_(?:SYS_ADMIN|SYS_PTRACE|DAC_READ_SEARCH|SYS_MODULE)\b|(?i)\bcapsh\s+--`,
		Detail:  "asks for capabilities"},
	{ID: "user-credentials", Severity: Low, Literals: []string{".ssh/", ".aws/credentials", ".docker/config.json",
		".kube/config", "authorized_keys"},
		Pattern: `\.ssh/(?:id_\w+|authorized_keys|config)\b|\.aws/credentials\b|\.docker/config\.json\b|\.kube/config\b`,
		Detail:  "names files that hold credentials"},
	{ID: "host-persistence", Severity: Low, Literals: []string{"/etc/cron", "crontab", "/etc/systemd/system",
		"/etc/init.d"},
		Pattern: `/etc/cron(?:tab|\.\w+)\b|\bcrontab\s+-|/etc/systemd/system/|/etc/init\.d/`,
		Detail:  "starts something later"},
}
