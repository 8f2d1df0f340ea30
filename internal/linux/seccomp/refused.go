package seccomp

import "syscall"

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
