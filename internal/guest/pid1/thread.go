//go:build linux

// Package pid1 implements cove-guest. As PID 1 of a container it seals itself in, starts the user's processes and reaps
// them; as a keeper it does so below an executor, sealed as that is.
//
// On Linux much of that state belongs to a thread, not to a process: capabilities, namespaces, cgroups of the threaded
// kind, file-system ids. Two threads therefore have a fixed purpose. The main thread seals, and alone starts
// processes, which inherit its cgroup and its lack of privileges. The files thread has the user's file-system ids
// permanently, so that the guest cannot be tricked into reading or writing files that the user may not.
package pid1

import (
	"math"
	"os"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/guest/build"
	"github.com/cove-sandbox/cove/internal/guest/guestd"
	"github.com/cove-sandbox/cove/internal/linux/unixconn"
)

type thread struct{ calls chan func() }

func newThread() *thread { return &thread{calls: make(chan func())} }

// loop runs the functions; the caller's goroutine must be locked to its thread.
func (t *thread) loop() {
	for f := range t.calls {
		f()
	}
}

func (t *thread) do(f func() error) (err error) {
	done := make(chan struct{})
	t.calls <- func() { err = f(); close(done) }
	<-done
	return err
}

// Run serves conn until it ends. A guest that outlives its connections then serves the next one. Any other exits, which
// ends the sandbox: the kernel kills every process of the namespace with its PID 1. Run must be called from main with
// the main thread locked.
func Run(conn guest.Conn) {
	makeThreads() // a container engine counts the guest's threads before it binds
	main := newThread()
	w := &world{main: main, files: newThread(), parked: -1}
	server := guestd.New(guestd.World{Wall: w, Spawner: w, Files: files{w}}, true)
	go func() { os.Exit(serve(server, conn)) }()
	main.loop()
}

func serve(server *guestd.Server, conn guest.Conn) int {
	for {
		err := server.Serve(conn)
		if door := server.Door(); door != nil {
			conn, err = unixconn.Accept(door)
			if err == nil {
				continue
			}
		}
		if err != nil {
			os.Stderr.WriteString("cove-guest: " + err.Error() + "\n")
			return 1
		}
		return 0
	}
}

// Keep serves conn, and then each connection that arrives at the door, until one ends while it holds no process. It
// starts processes below an executor, which is PID 1 and has sealed it. Scratch is a descriptor of the file system of
// everything writable, and user has the ids of processes. Keep must be called as Run.
func Keep(conn guest.Conn, door *os.File, scratch int, user guest.Seal) {
	main := newThread()
	w := &world{main: main, files: newThread(), scratch: []int{scratch}, mortal: true, parked: -1,
		seal: user}
	if err := w.prepare(); err != nil {
		os.Exit(125)
	}
	server := guestd.NewKeeper(guestd.World{Wall: w, Spawner: w, Files: files{w}}, int64(threads()))
	go func() { os.Exit(keep(server, conn, door)) }()
	main.loop()
}

// prepare gives up what a keeper needs to become one.
func (w *world) prepare() error {
	if err := w.openOwn(); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return err
	}
	// Children would have all that is inheritable and ambient.
	kept := uint32(math.MaxUint32)
	if unix.Getuid() != w.seal.UserUID {
		kept = build.Kept | build.Guard
	}
	if err := keepCapabilities(kept); err != nil {
		return err
	}
	if err := w.startFiles(); err != nil {
		return err
	}
	w.startReaping()
	makeThreads()
	return nil
}

// keep does not wait at the door while it holds no process: a host that has just connected there finds the connection
// ended before the first message.
func keep(server *guestd.Server, conn guest.Conn, door *os.File) int {
	for {
		server.Serve(conn) // an error is the host's matter
		if server.Unused() {
			return 0
		}
		next, err := unixconn.Accept(door)
		if err != nil {
			return 1
		}
		conn = next
	}
}

// makeThreads makes guest.Threads threads. The guest and the user's processes share a limit of tasks, and a Go program
// that cannot create a thread crashes. So the guest creates all ahead, and the host adds them to the limit.
func makeThreads() {
	for n := 4; n <= guest.Threads; {
		reserveThreads(n)
		have := threads()
		if have == 0 || have >= guest.Threads {
			return
		}
		n += guest.Threads - have
	}
}

// threads counts the threads of this process; 0 if they cannot be counted.
func threads() int {
	var st unix.Stat_t
	if unix.Stat("/proc/self/task", &st) != nil {
		return 0
	}
	return int(st.Nlink) - 2 // one directory for each thread
}

// reserveThreads makes n threads at once; the runtime keeps them for later.
func reserveThreads(n int) {
	var started, done sync.WaitGroup
	release := make(chan struct{})
	started.Add(n)
	for range n {
		done.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			started.Done()
			<-release
		})
	}
	started.Wait()
	close(release)
	done.Wait()
}

// startFiles starts the files thread with the user's ids.
func (w *world) startFiles() error {
	ready := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := setFSIDs(w.seal.UserUID, w.seal.UserGID)
		ready <- err
		if err == nil {
			w.files.loop()
		}
	}()
	return <-ready
}
