package rootfs

// RootCapabilities are the bits of capabilities(7) that root inside may have: what package managers and daemons need.
const RootCapabilities uint64 = 1<<0 | // CAP_CHOWN
	1<<1 | // CAP_DAC_OVERRIDE
	1<<3 | // CAP_FOWNER
	1<<4 | // CAP_FSETID
	1<<5 | // CAP_KILL
	1<<6 | // CAP_SETGID
	1<<7 | // CAP_SETUID
	1<<8 | // CAP_SETPCAP
	1<<10 | // CAP_NET_BIND_SERVICE
	1<<18 | // CAP_SYS_CHROOT
	1<<31 // CAP_SETFCAP
