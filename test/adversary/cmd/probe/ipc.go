package main

import (
	"golang.org/x/sys/unix"
)

// ipc are attempts to meet a neighbour in System V or POSIX IPC (C2). The
// maker makes an object under a key and holds; the finder looks for it.
func ipc() map[string]attempt {
	return map[string]attempt{
		"shm_make": held1(unix.SYS_SHMGET, 4096), "shm_find": find1(unix.SYS_SHMGET, 4096),
		"sem_make": held1(unix.SYS_SEMGET, 1), "sem_find": find1(unix.SYS_SEMGET, 1),
		"msg_make": held1(unix.SYS_MSGGET), "msg_find": find1(unix.SYS_MSGGET),
		"mq_make": mqMake, "mq_find": mqFind,
	}
}

const (
	ipcCreate    = 0o1000
	ipcExclusive = 0o2000
)

// held1 makes System V object KEY and waits.
func held1(nr uintptr, size ...uintptr) attempt {
	return func(args []string) (report, error) {
		v, err := numbers(args)
		if err != nil {
			return report{}, err
		}
		call1 := append(append([]uintptr{v[0]}, size...), ipcCreate|ipcExclusive|0o666)
		if err := call(nr, call1...); err != nil {
			return report{}, err
		}
		return hold(nil)
	}
}

// find1 looks for System V object KEY.
func find1(nr uintptr, size ...uintptr) attempt {
	return func(args []string) (report, error) {
		v, err := numbers(args)
		if err != nil {
			return report{}, err
		}
		return report{}, call(nr, append(append([]uintptr{v[0]}, size...), 0)...)
	}
}

func mqMake(args []string) (report, error) {
	if err := call(unix.SYS_MQ_OPEN, text(args[0]), unix.O_CREAT|unix.O_EXCL|unix.O_RDWR, 0o666, 0); err != nil {
		return report{}, err
	}
	return hold(nil)
}

func mqFind(args []string) (report, error) {
	fd, err := value(unix.SYS_MQ_OPEN, text(args[0]), unix.O_RDWR, 0, 0)
	return report{}, closing(fd, err)
}
