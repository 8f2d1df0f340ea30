package localsocket

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// CheckPeer refuses the other end of a connection of a unix socket that is a process in another user or process
// namespace, as all processes of sandboxes are: there, an owner's id says nothing. A connection within this process
// (net.Pipe) passes, and one of another kind does not.
func CheckPeer(c net.Conn) error {
	socket, ok := c.(*net.UnixConn)
	if !ok {
		if c.RemoteAddr().Network() == "pipe" {
			return nil
		}
		return fmt.Errorf("a connection of the kind %T does not say which process has connected", c)
	}
	var who *unix.Ucred
	pidfd := -1
	err := onSocket(socket, func(fd int) (err error) {
		if who, err = unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED); err != nil {
			return err
		}
		if pidfd, err = unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PEERPIDFD); errors.Is(err, unix.ENOPROTOOPT) {
			pidfd, err = unix.PidfdOpen(int(who.Pid), 0) // before 6.5
		}
		if errors.Is(err, unix.ENOSYS) { // before 5.3
			pidfd, err = -1, nil
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("the process that connected is not known: %w", err)
	}
	if pidfd >= 0 {
		defer unix.Close(pidfd)
	}
	if who.Pid <= 0 {
		return errors.New("it is in a process namespace that this one does not see")
	}
	if who.Uid == 0 && os.Geteuid() != 0 { // another user may not see root's namespaces, but how deep its id is
		err = notNested(int(who.Pid))
	} else {
		err = cmp.Or(sameNamespace(int(who.Pid), "user"), sameNamespace(int(who.Pid), "pid"))
	}
	if err != nil {
		return err
	}
	// Of a process that lives still, the id was its own all the time.
	if pidfd < 0 {
		return nil
	}
	if err := unix.PidfdSendSignal(pidfd, 0, nil, 0); err != nil && !errors.Is(err, unix.EPERM) {
		return errors.New("the process that connected has ended already")
	}
	return nil
}

// notNested refuses a process in a process namespace below the one whose /proc this is, as in a container.
func notNested(pid int) error {
	status, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return notShown("process", err)
	}
	if idsIn(string(status)) > 1 {
		return errors.New("it is in another pid namespace")
	}
	return nil
}

// notShown explains why a namespace cannot be compared: the process has ended, or the machine's /proc hides it.
func notShown(kind string, err error) error {
	return fmt.Errorf("its %s namespace is not shown (a /proc with hidepid hides the processes of others, root's too): %w",
		kind, errors.Unwrap(err))
}

// idsIn returns how many ids a process has, one in each namespace from here to its own: NSpid of
// proc_pid_status(5).
func idsIn(status string) int {
	for line := range strings.Lines(status) {
		if ids, ok := strings.CutPrefix(line, "NSpid:"); ok {
			return len(strings.Fields(ids))
		}
	}
	return 0
}

func sameNamespace(pid int, kind string) error {
	own, err := os.Stat("/proc/self/ns/" + kind)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // a kernel without such namespaces
	}
	if err != nil {
		return err
	}
	theirs, err := os.Stat("/proc/" + strconv.Itoa(pid) + "/ns/" + kind)
	if err != nil {
		return notShown(kind, err)
	}
	if !os.SameFile(own, theirs) {
		return fmt.Errorf("it is in another %s namespace", kind)
	}
	return nil
}

// PeerUser returns the user of the process at the other end of a connection of a unix socket, as this process's user
// namespace has it.
func PeerUser(c net.Conn) (uint32, error) {
	socket, ok := c.(*net.UnixConn)
	if !ok {
		return 0, fmt.Errorf("a connection of the kind %T does not say which user has connected", c)
	}
	var who *unix.Ucred
	err := onSocket(socket, func(fd int) (err error) {
		who, err = unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
		return err
	})
	if err != nil {
		return 0, err
	}
	return who.Uid, nil
}

// onSocket calls f with the descriptor of a connection.
func onSocket(c *net.UnixConn, f func(fd int) error) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	called := raw.Control(func(fd uintptr) { failed = f(int(fd)) })
	return errors.Join(called, failed)
}
