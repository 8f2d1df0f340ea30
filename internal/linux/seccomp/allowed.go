package seccomp

import "strings"

func list(names string) []string { return strings.Fields(names) }

func inotify() []string {
	return list("inotify_init inotify_init1 inotify_add_watch inotify_rm_watch")
}

// allowed returns the calls that ordinary programs need: each works on the sandbox's own files, memory, processes and
// sockets, and is bounded by them.
func allowed() []Group {
	return []Group{
		{Why: "files, through the sandbox's own mounts and permissions", Calls: list(`
			read write close stat fstat lstat newfstatat statx lseek pread64 pwrite64 readv writev preadv pwritev
			preadv2 pwritev2 access faccessat faccessat2 dup dup2 dup3 fcntl flock fsync fdatasync
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
