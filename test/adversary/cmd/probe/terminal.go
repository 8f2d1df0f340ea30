package main

import (
	"fmt"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// terminals are attempts through the terminal a process has as its standard input (H3). Run them with a TTY.
func terminals() map[string]attempt {
	return map[string]attempt{
		"tty_inject":    ttyIoctl(unix.TIOCSTI),
		"tty_inject_hi": ttyIoctl(unix.TIOCSTI | 1<<32),
		"tty_linux":     ttyIoctl(0x541c), // TIOCLINUX: paste, among others
		"tty_linux_hi":  ttyIoctl(0x541c | 1<<32),
		"tty_console":   ttyIoctl(unix.TIOCCONS),
		"tty_setd":      ttyDiscipline,
		"tty_size":      ttySize,
		"tty_own_inject": func([]string) (report, error) {
			return onOwnTerminal(unix.TIOCSTI)
		},
		"tty_own_inject_hi": func([]string) (report, error) {
			return onOwnTerminal(unix.TIOCSTI | 1<<32)
		},
		"tty_open": simple(func() error { return openFor("/dev/tty", unix.O_RDWR) }),
	}
}

// ttyIoctl makes one request on standard input, with a NUL byte or subcode.
func ttyIoctl(request uintptr) attempt {
	return simple(func() error {
		var b byte = 0xff // for TIOCSTI a harmless byte, for TIOCLINUX no subcode
		return call(unix.SYS_IOCTL, 0, request, at(&b))
	})
}

// ttyDiscipline changes the line discipline, each of which is a driver.
func ttyDiscipline([]string) (report, error) {
	var r report
	for _, n := range []int32{1, 2, 3, 4, 5, 7, 13, 15, 17, 21} { // SLIP … N_HDLC, N_GSM0710
		if err := call(unix.SYS_IOCTL, 0, unix.TIOCSETD, at(&n)); err == nil {
			r.lines = append(r.lines, fmt.Sprintf("discipline %d", n))
		}
	}
	if len(r.lines) > 0 {
		return r, nil
	}
	return r, unix.EPERM
}

func ttySize([]string) (report, error) {
	ws, err := unix.IoctlGetWinsize(0, unix.TIOCGWINSZ)
	if err != nil {
		return report{}, err
	}
	return report{detail: fmt.Sprintf("%dx%d", ws.Row, ws.Col)}, nil
}

// onOwnTerminal makes the request on a terminal of the attacker's own, made
// its controlling one, which old kernels allow to everybody.
func onOwnTerminal(request uintptr) (report, error) {
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return report{}, err
	}
	defer master.Close()
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		return report{}, err
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		return report{}, err
	}
	signal.Ignore(unix.SIGHUP) // which the end of the terminal sends
	unix.Setsid()
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR, 0)
	if err != nil {
		return report{}, err
	}
	defer slave.Close()
	unix.IoctlSetInt(int(slave.Fd()), unix.TIOCSCTTY, 0)
	b := byte('x')
	return report{}, call(unix.SYS_IOCTL, slave.Fd(), request, at(&b))
}
