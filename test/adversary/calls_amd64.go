package adversary

import "golang.org/x/sys/unix"

// archNever are dangerous calls that only this architecture has.
func archNever() map[string]int {
	return map[string]int{"iopl": unix.SYS_IOPL, "ioperm": unix.SYS_IOPERM, "modify_ldt": unix.SYS_MODIFY_LDT,
		"uselib": unix.SYS_USELIB,
		"sysfs":  unix.SYS_SYSFS, "ustat": unix.SYS_USTAT, "_sysctl": unix.SYS__SYSCTL,
		"create_module": unix.SYS_CREATE_MODULE,
		"query_module":  unix.SYS_QUERY_MODULE, "get_kernel_syms": unix.SYS_GET_KERNEL_SYMS,
		"afs_syscall": unix.SYS_AFS_SYSCALL,
		"vserver":     unix.SYS_VSERVER, "security": unix.SYS_SECURITY}
}
