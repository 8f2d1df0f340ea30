//go:build linux

package forkserver

import (
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove/internal/linux/unixconn"
)

// Args and Env start a fork server. The environment spares its runtime, and a keeper's, a look at the host's control
// groups, a collection of its few megabytes, and threads that look for work: it waits nearly always, and one that spins
// takes the CPU from the user's program.
var (
	Args = []string{"cove-guest"}
	Env  = []string{"GOMAXPROCS=1", "GOTRACEBACK=none", "GOGC=400", "GODEBUG=containermaxprocs=0,updatemaxprocs=0"}
)

// aheadVariable tells the program that takes this one's place of a fork server: its descriptor and process id, and the
// device and inode of the program that it was started from.
const (
	aheadVariable = "COVE_FORK_SERVER"
	aheadFormat   = "%d %d %d %d"
)

// Ahead starts a fork server from the program at a path, for the program that takes the place of this one, which is to
// have what is returned in its environment. So the two start at the same time.
func Ahead(path string) (variable string, err error) {
	program, err := OpenProgram(path)
	if err != nil {
		return "", err
	}
	defer program.Close()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return "", os.NewSyscallError("socketpair", err)
	}
	theirs := os.NewFile(uintptr(fds[1]), "guest socket")
	defer theirs.Close()
	var st unix.Stat_t
	p, err := startServer(program, Args, Env, theirs)
	if err == nil {
		err = unix.Fstat(int(program.file.Fd()), &st)
	}
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fds[0]), unix.F_SETFD, 0) // it outlives the exec
	}
	if err != nil {
		unix.Close(fds[0])
		return "", err
	}
	return aheadVariable + "=" + fmt.Sprintf(aheadFormat, fds[0], p.Pid, st.Dev, st.Ino), nil
}

// ahead is a fork server that the program has started whose place this one has taken.
type ahead struct {
	conn     *unixconn.Conn
	process  *os.Process
	dev, ino uint64 // of its program
}

var inherited struct {
	sync.Mutex
	server *ahead // until it is taken
}

// Inherit takes a fork server out of the environment of this process, for Take. It is called before anything else runs.
func Inherit() {
	value, told := os.LookupEnv(aheadVariable)
	if !told {
		return
	}
	os.Unsetenv(aheadVariable)
	var fd, pid int
	var dev, ino uint64
	if n, err := fmt.Sscanf(value, aheadFormat, &fd, &pid, &dev, &ino); n != 4 || err != nil || fd < 3 || pid < 2 {
		return
	}
	if kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN); err != nil || kind != unix.AF_UNIX {
		return // not what Ahead has left
	}
	conn, err := unixconn.New(fd)
	if err != nil {
		return
	}
	p, err := os.FindProcess(pid)
	if err != nil {
		conn.Close()
		return
	}
	inherited.server = &ahead{conn, p, dev, ino}
}

// EndInherited ends the fork server that was inherited, unless it was taken.
func EndInherited() {
	inherited.Lock()
	defer inherited.Unlock()
	if a := inherited.server; a != nil {
		a.end()
	}
	inherited.server = nil
}

func (a *ahead) end() {
	a.conn.Close()
	a.process.Kill()
	a.process.Wait()
}

// take returns the fork server that was inherited, the first time, if it runs the program.
func take(program *Program) *ahead {
	inherited.Lock()
	defer inherited.Unlock()
	a := inherited.server
	inherited.server = nil
	if a == nil {
		return nil
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(program.file.Fd()), &st); err == nil && st.Dev == a.dev && st.Ino == a.ino {
		return a
	}
	a.end()
	return nil
}
