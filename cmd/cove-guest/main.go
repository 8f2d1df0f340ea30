//go:build linux

// Command cove-guest is PID 1 of a container, and the keeper of processes below an executor; under the name git what
// stands for git where the repository is not inside, and under the name git-edit the editor of the git that runs beside
// it. As a fork server it becomes executors. Cove starts it; it is of no use by itself.
package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove/internal/gitservice/inside"
	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/guest/pid1"
	"github.com/cove-sandbox/cove/internal/linux/enter"
	"github.com/cove-sandbox/cove/internal/linux/forkserver"
	"github.com/cove-sandbox/cove/internal/linux/unixconn"
	sidecar "github.com/cove-sandbox/cove/internal/sidecar/inside"
	"github.com/cove-sandbox/cove/internal/version"
)

// Descriptors of a keeper: its first connection, the listening socket, and the file system of everything writable.
const (
	socketFD  = 3
	doorFD    = 4
	scratchFD = 5
)

// The main goroutine stays on the main thread: see package pid1.
func init() { runtime.LockOSThread() }

func main() {
	if gained() {
		fmt.Fprintln(os.Stderr, "cove-guest takes no privileges of its file: remove the setuid and setgid bits")
		os.Exit(125)
	}
	switch filepath.Base(os.Args[0]) {
	case "git":
		os.Exit(inside.Main(os.Args[1:]))
	case "git-edit":
		os.Exit(inside.Edit(os.Args[1:]))
	}
	setName("cove-guest")
	args := append(slices.Clone(os.Args), "", "", "", "")
	mode, place := args[1], args[2]
	switch mode {
	case "--version":
		fmt.Println("cove-guest", version.Version)
	case "--keeper": // package guest/remote has the descriptors
		ignoreSignals()
		keeper(args[2], args[3], args[4])
	case "--fork", "--copy":
		setName("cove-fork")
		ignoreSignals()
		if err := forkserver.Run(mode, place); err != nil {
			fmt.Fprintln(os.Stderr, "cove-guest: the fork server:", err)
			os.Exit(125)
		}
	case "--call": // a listener at a socket among the sandbox's files
		ignoreSignals()
		conn, err := unixconn.Dial(place)
		if err != nil {
			fmt.Fprintf(os.Stderr, "cove-guest: the socket does not answer: %v\n", err)
			os.Exit(125)
		}
		pid1.Run(conn)
	case "--stdio":
		ignoreSignals()
		pid1.Run(stdio{})
	case "--sidecar": // of a network that the host cannot enter; see package sidecar
		ignoreSignals()
		if err := sidecar.Run(stdio{}); err != nil && !errors.Is(err, io.EOF) {
			fmt.Fprintln(os.Stderr, "cove-guest: the sidecar:", err)
			os.Exit(125)
		}
	case enter.Flag: // in the user namespace of a container
		conn, err := unixconn.New(0)
		if err == nil {
			err = enter.Serve(conn)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(125)
		}
	case "--wait": // holds a user namespace until its standard input ends
		io.Copy(io.Discard, os.Stdin)
	default:
		fmt.Fprintln(os.Stderr, "cove-guest runs inside Cove's sandboxes; Cove starts it itself (see \"cove run --help\")")
		os.Exit(125)
	}
}

// gained reports whether this process has privileges that its caller had not, by bits or capabilities of its file.
func gained() bool {
	const secure = 23 // AT_SECURE (getauxval(3))
	values, err := unix.Auxv()
	return err != nil || slices.ContainsFunc(values, func(v [2]uintptr) bool { return v[0] == secure && v[1] != 0 })
}

// setName names the process. Started from a descriptor, its name would be the descriptor's number.
func setName(s string) {
	name := append([]byte(s), 0)
	unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(&name[0])), 0, 0, 0)
}

// ignoreSignals lets PID 1 survive every signal from inside the sandbox; it ends with its host. Signals are caught
// rather than ignored, because a child process would inherit ignored signals.
func ignoreSignals() { signal.Notify(make(chan os.Signal, 1)) }

// keeper keeps the processes of a user.
func keeper(uid, gid, groups string) {
	user := guest.Seal{}
	var err, groupErr error
	user.UserUID, err = strconv.Atoi(uid)
	user.UserGID, groupErr = strconv.Atoi(gid)
	for text := range strings.FieldsFuncSeq(groups, func(r rune) bool { return r == ',' }) {
		id, err := strconv.Atoi(text)
		groupErr = errors.Join(groupErr, err)
		user.UserGroups = append(user.UserGroups, id)
	}
	conn, connErr := unixconn.New(socketFD)
	if errors.Join(err, groupErr, connErr) != nil {
		os.Exit(125)
	}
	unix.CloseRange(doorFD, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC)
	pid1.Keep(conn, os.NewFile(doorFD, "door"), scratchFD, user)
}

// stdio speaks the protocol on descriptors 0 and 1.
type stdio struct{}

func (stdio) Read(p []byte) (int, error)  { return os.Stdin.Read(p) }
func (stdio) Write(p []byte) (int, error) { return os.Stdout.Write(p) }
func (stdio) Close() error                { os.Stdin.Close(); return os.Stdout.Close() }
