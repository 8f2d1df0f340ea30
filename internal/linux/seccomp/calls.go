package seccomp

import (
	"strings"
	"syscall"
)

func list(names string) []string { return strings.Fields(names) }

func inotify() []string { return list("inotify_init inotify_init1 inotify_add_watch inotify_rm_watch") }

// allowed returns the calls that ordinary programs need, each bounded by the sandbox's own files, memory and sockets.
func allowed() []Group {
	return []Group{
		{Why: "files, through the sandbox's own mounts and permissions", Calls: list(`
			read write close stat fstat lstat newfstatat statx lseek pread64 pwrite64 readv writev preadv pwritev
			preadv2 pwritev2 access faccessat faccessat2 dup dup2 dup3 flock fsync fdatasync
			truncate ftruncate fallocate getdents getdents64 getcwd chdir fchdir rename renameat renameat2 mkdir mkdirat
			rmdir link linkat unlink unlinkat symlink symlinkat readlink readlinkat umask utime utimes utimensat
			futimesat statfs fstatfs readahead fadvise64 sync_file_range close_range`)},
		{Why: "owners and attributes, which mean nothing outside: a user can give no file away", Calls: list(`
			chown fchown lchown fchownat
			setxattr lsetxattr fsetxattr setxattrat getxattr lgetxattr fgetxattr getxattrat
			listxattr llistxattr flistxattr listxattrat removexattr lremovexattr fremovexattr removexattrat`)},
		{Why: "copies between descriptors a process already has", Calls: list(`sendfile copy_file_range splice tee`)},
		{Why: "file change events of files a process can open", Calls: inotify()},
		{Why: "a process's own memory, counted by the cgroup", Calls: list(`
			mmap mprotect munmap brk mremap msync mincore madvise mlock mlock2 munlock mlockall munlockall
			pkey_mprotect pkey_alloc pkey_free mseal map_shadow_stack membarrier rseq memfd_create`)},
		{Why: "processes of the sandbox's own pid namespace", Calls: list(`
			fork vfork execve execveat exit exit_group wait4 waitid kill tkill tgkill getpid getppid gettid getpgid getpgrp
			setpgid getsid setsid pidfd_open pidfd_send_signal arch_prctl set_tid_address set_robust_list get_robust_list
			restart_syscall`)},
		{Why: "signals", Calls: list(`
			rt_sigaction rt_sigprocmask rt_sigreturn rt_sigpending rt_sigtimedwait rt_sigqueueinfo rt_tgsigqueueinfo
			rt_sigsuspend sigaltstack pause signalfd signalfd4`)},
		{Why: "reading clocks, and timers", Calls: list(`
			nanosleep getitimer setitimer alarm gettimeofday time times clock_gettime clock_getres clock_nanosleep
			timer_create timer_settime timer_gettime timer_getoverrun timer_delete
			timerfd_create timerfd_settime timerfd_gettime`)},
		{Why: "identity; without capabilities only a way down, and the guest's way to the user", Calls: list(`
			getuid getgid geteuid getegid getresuid getresgid getgroups
			setuid setgid setreuid setregid setresuid setresgid setfsuid setfsgid setgroups capget capset`)},
		{Why: "scheduling among the sandbox's own tasks, inside its CPU quota", Calls: list(`
			sched_yield rseq_slice_yield getpriority setpriority sched_setparam sched_getparam sched_getscheduler
			sched_get_priority_max sched_get_priority_min sched_rr_get_interval sched_setaffinity sched_getaffinity
			sched_getattr getcpu ioprio_get ioprio_set`)},
		{Why: "locks between threads", Calls: list(`futex futex_wait futex_wake futex_requeue futex_waitv`)},
		{Why: "waiting for descriptors", Calls: list(`
			poll ppoll select pselect6 epoll_create epoll_create1 epoll_ctl epoll_wait epoll_pwait epoll_pwait2
			eventfd eventfd2`)},
		{Why: "sockets of the families that socket() allows, in the sandbox's network namespace", Calls: list(`
			connect accept accept4 bind listen shutdown sendto recvfrom sendmsg recvmsg sendmmsg recvmmsg
			getsockname getpeername setsockopt getsockopt`)},
		{Why: "pipes and System V and POSIX messages, in the sandbox's IPC namespace", Calls: list(`
			pipe pipe2 shmget shmat shmctl shmdt semget semop semtimedop semctl msgget msgsnd msgrcv msgctl
			mq_open mq_unlink mq_timedsend mq_timedreceive mq_notify mq_getsetattr`)},
		{Why: "facts about the machine and the process", Calls: list(`
			uname sysinfo getrandom getrlimit getrusage`)},
		{Why: "a further sandbox that a program builds around itself; it can only narrow", Calls: list(`
			landlock_create_ruleset landlock_add_rule landlock_restrict_self`)},
	}
}

// refused returns every other call. A call with its own reason is a group of its own. A test checks that the three
// lists cover the whole table, so that no new call is forgotten.
func refused() []Group {
	return []Group{
		{Why: "makes or enters a namespace, in which a process has every capability over half the kernel",
			Calls: list(`unshare setns`)},
		{Why: "takes its flags behind a pointer, where a filter cannot see them; libraries fall back to clone",
			Errno: syscall.ENOSYS, Calls: list(`clone3`)},
		{Why: "takes the mode of a new file behind a pointer, where a filter cannot see a setuid bit; programs fall back " +
			"to openat",
			Errno: syscall.ENOSYS, Calls: list(`openat2`)},
		{Why: "changes what the file tree is", Calls: list(`
			mount umount2 pivot_root chroot fsopen fsconfig fsmount fspick open_tree open_tree_attr move_mount mount_setattr`)},
		{Why: "tells of mounts and namespaces what /proc tells already; libraries fall back to /proc",
			Errno: syscall.ENOSYS, Calls: list(`statmount listmount listns`)},
		{Why: "opens files by number, past every directory above them",
			Calls: list(`name_to_handle_at open_by_handle_at`)},
		{Why: "reads or changes another process, or takes its descriptors", Calls: list(`
			ptrace process_vm_readv process_vm_writev kcmp pidfd_getfd process_madvise process_mrelease`)},
		{Why: "loads programs into the kernel, or a second way to make every call past this filter",
			Calls: list(`bpf io_uring_setup io_uring_enter io_uring_register`)},
		{Why: "stops the kernel in the middle of a copy, which is how its races are won",
			Calls: list(`userfaultfd`)},
		{Why: "measures the machine that all sandboxes share, and its own long list of holes",
			Calls: list(`perf_event_open lookup_dcookie uprobe uretprobe`)},
		{Why: "keyrings belong to a user id, not to a namespace", Calls: list(`keyctl add_key request_key`)},
		{Why: "replaces the kernel or its code",
			Calls: list(`init_module finit_module delete_module kexec_load kexec_file_load reboot`)},
		{Why: "watches or limits whole file systems",
			Calls: list(`fanotify_init fanotify_mark quotactl quotactl_fd acct swapon swapoff`)},
		{Why: "asks to write out all of the host's file systems, which stalls the writes of others; fsync does for a " +
			"program's own",
			Calls: list(`sync syncfs`)},
		{Why: "the kernel's log, and terminals that are not ours", Calls: list(`syslog vhangup`)},
		{Why: "x86 ports and segments", Calls: list(`iopl ioperm modify_ldt`)},
		{Why: "the machine's clocks", Calls: list(`settimeofday clock_settime clock_adjtime adjtimex`)},
		{Why: "the sandbox's name is Cove's to choose", Calls: list(`sethostname setdomainname`)},
		{Why: "places pages on the machine's memory nodes, and tells where they are",
			Calls: list(`mbind set_mempolicy get_mempolicy migrate_pages move_pages set_mempolicy_home_node`)},
		{Why: "maps memory that the kernel itself cannot look into", Calls: list(`memfd_secret`)},
		{Why: "lends a process's pages to a pipe, after which neither owns them; write copies instead",
			Calls: list(`vmsplice`)},
		{Why: "obsolete: mmap does it", Calls: list(`remap_file_pages`)},
		{Why: "one limit for the whole host (fs.aio-max-nr), so one sandbox could use it up; databases fall back to threads",
			Calls: list(`io_setup io_destroy io_submit io_cancel io_getevents io_pgetevents`)},
		{Why: "its policy stands behind a pointer; sched_setscheduler and setpriority do for a program's own tasks",
			Calls: list(`sched_setattr`)},
		{Why: "tells which pages of shared files others have read", Calls: list(`cachestat`)},
		{Why: "the attributes of security modules are not a program's business",
			Calls: list(`lsm_get_self_attr lsm_set_self_attr lsm_list_modules`)},
		{Why: "inode flags and project ids; programs fall back to an ioctl on the file",
			Errno: syscall.ENOSYS, Calls: list(`file_getattr file_setattr`)},
		{Why: "the kernel itself no longer has it",
			Errno: syscall.ENOSYS, Calls: list(`
			uselib ustat sysfs _sysctl create_module get_kernel_syms query_module nfsservctl getpmsg putpmsg afs_syscall
			tuxcall security vserver set_thread_area get_thread_area epoll_ctl_old epoll_wait_old`)},
	}
}
