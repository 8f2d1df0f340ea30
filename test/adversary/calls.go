package adversary

import (
	"maps"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove"
)

// userOf is the user that a row names.
func userOf(name string) cove.User {
	if name == "agent" {
		return cove.AgentUser
	}
	return cove.CodeUser
}

// neededCalls are calls that every program lives on: where they are not reached, a refusal of others shows nothing.
func neededCalls() map[string]int {
	return map[string]int{"read": unix.SYS_READ, "write": unix.SYS_WRITE, "close": unix.SYS_CLOSE,
		"getpid": unix.SYS_GETPID, "mmap": unix.SYS_MMAP, "execve": unix.SYS_EXECVE,
		"getrandom": unix.SYS_GETRANDOM}
}

// neverCalls is written down here a second time, apart from the policy that
// Cove ships, so that a slip there is seen here.
func neverCalls() map[string]int {
	calls := map[string]int{
		"acct": unix.SYS_ACCT, "add_key": unix.SYS_ADD_KEY, "adjtimex": unix.SYS_ADJTIMEX, "bpf": unix.SYS_BPF,
		"chroot":        unix.SYS_CHROOT,
		"clock_adjtime": unix.SYS_CLOCK_ADJTIME, "clock_settime": unix.SYS_CLOCK_SETTIME, "clone3": unix.SYS_CLONE3,
		"delete_module": unix.SYS_DELETE_MODULE, "fanotify_init": unix.SYS_FANOTIFY_INIT,
		"finit_module": unix.SYS_FINIT_MODULE,
		"fsconfig":     unix.SYS_FSCONFIG, "fsmount": unix.SYS_FSMOUNT, "fsopen": unix.SYS_FSOPEN, "fspick": unix.SYS_FSPICK,
		"init_module": unix.SYS_INIT_MODULE, "io_uring_enter": unix.SYS_IO_URING_ENTER,
		"io_uring_register": unix.SYS_IO_URING_REGISTER,
		"io_uring_setup":    unix.SYS_IO_URING_SETUP, "kcmp": unix.SYS_KCMP, "kexec_file_load": unix.SYS_KEXEC_FILE_LOAD,
		"kexec_load": unix.SYS_KEXEC_LOAD, "keyctl": unix.SYS_KEYCTL, "lookup_dcookie": unix.SYS_LOOKUP_DCOOKIE,
		"migrate_pages": unix.SYS_MIGRATE_PAGES, "mount": unix.SYS_MOUNT, "mount_setattr": unix.SYS_MOUNT_SETATTR,
		"move_mount": unix.SYS_MOVE_MOUNT, "move_pages": unix.SYS_MOVE_PAGES, "name_to_handle_at": unix.SYS_NAME_TO_HANDLE_AT,
		"nfsservctl": unix.SYS_NFSSERVCTL, "open_by_handle_at": unix.SYS_OPEN_BY_HANDLE_AT, "open_tree": unix.SYS_OPEN_TREE,
		"perf_event_open": unix.SYS_PERF_EVENT_OPEN, "pidfd_getfd": unix.SYS_PIDFD_GETFD, "pivot_root": unix.SYS_PIVOT_ROOT,
		"process_madvise": unix.SYS_PROCESS_MADVISE, "process_mrelease": unix.SYS_PROCESS_MRELEASE,
		"process_vm_readv": unix.SYS_PROCESS_VM_READV, "process_vm_writev": unix.SYS_PROCESS_VM_WRITEV,
		"ptrace":   unix.SYS_PTRACE,
		"quotactl": unix.SYS_QUOTACTL, "quotactl_fd": unix.SYS_QUOTACTL_FD, "reboot": unix.SYS_REBOOT,
		"request_key":   unix.SYS_REQUEST_KEY,
		"setdomainname": unix.SYS_SETDOMAINNAME, "sethostname": unix.SYS_SETHOSTNAME, "setns": unix.SYS_SETNS,
		"settimeofday": unix.SYS_SETTIMEOFDAY, "swapoff": unix.SYS_SWAPOFF, "swapon": unix.SYS_SWAPON,
		"syslog":  unix.SYS_SYSLOG,
		"umount2": unix.SYS_UMOUNT2, "unshare": unix.SYS_UNSHARE, "userfaultfd": unix.SYS_USERFAULTFD,
		"vhangup":        unix.SYS_VHANGUP,
		"open_tree_attr": unix.SYS_OPEN_TREE_ATTR, "memfd_secret": unix.SYS_MEMFD_SECRET,
	}
	maps.Copy(calls, archNever())
	return calls
}
