package lie

import (
	"bytes"
	"encoding/binary"
	"math"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove/internal/guest"
)

// The kinds of an executor's messages (package executor).
const (
	Answer = 1
	Exit   = 2
)

// Message is one of an executor's: the answer to a script, with bytes and descriptors, or the end of a process.
type Message struct {
	Kind, PID, Status, Size uint32
	Data                    []byte
	Files                   []int
}

// Head is the message without its bytes.
func (m Message) Head() []byte {
	var b []byte
	for _, n := range []uint32{m.Kind, m.PID, m.Status, m.Size} {
		b = binary.NativeEndian.AppendUint32(b, n)
	}
	return b
}

// Executes stands for the start of a program by an executor, among operations.
const Executes guest.Op = "executor"

// Executor is a lie of an executor.
type Executor struct {
	Name string
	// Say says the lie in place of a message, the truth, until the connection ends. It may say the truth first.
	Say  func(m ExecutorMouth, truth Message)
	Mute bool // nothing else is said from then on
	Want Reaction
}

// ExecutorMouth is the executor's end of a connection.
type ExecutorMouth interface {
	Tell(m Message) error
	Write(p []byte) (int, error)
	Close() error
}

// FindExecutor returns a lie by its name.
func FindExecutor(name string) (Executor, bool) {
	for _, l := range slices.Concat(Executors, Descriptors, Sockets, Listeners) {
		if l.Name == name {
			return l, true
		}
	}
	return Executor{}, false
}

// changed says the truth with a change.
func changed(change func(m *Message)) func(ExecutorMouth, Message) {
	return func(mouth ExecutorMouth, m Message) {
		change(&m)
		mouth.Tell(m)
	}
}

// also says the truth, and more.
func also(more ...Message) func(ExecutorMouth, Message) {
	return func(mouth ExecutorMouth, m Message) {
		mouth.Tell(m)
		for _, other := range more {
			mouth.Tell(other)
		}
	}
}

// failure is the answer to a script that has failed.
func failure(status uint32) func(ExecutorMouth, Message) {
	return changed(func(m *Message) { *m = Message{Kind: Answer, Status: status} })
}

// unknown is the end of a process that does not exist.
var unknown = Message{Kind: Exit, PID: stranger}

// Started is the process that an answer says has been started.
func (m Message) Started() uint32 {
	if len(m.Data) < 8 {
		return 0
	}
	return binary.NativeEndian.Uint32(m.Data)
}

// Executors are lies in place of the answer that says that a program has been started.
var Executors = []Executor{
	{Name: "silence", Say: func(ExecutorMouth, Message) {}, Mute: true, Want: Waits},
	{Name: "silence after the start", Say: also(), Mute: true, Want: Waits},
	{Name: "death", Say: func(m ExecutorMouth, _ Message) { m.Close() }, Mute: true, Want: Ends},
	{Name: "death after the start", Say: func(m ExecutorMouth, truth Message) {
		m.Tell(truth)
		m.Close()
	}, Mute: true, Want: Ends},
	{Name: "half a message", Say: func(m ExecutorMouth, truth Message) {
		m.Write(truth.Head()[:7])
		m.Close()
	}, Mute: true, Want: Ends},
	{Name: "garbage", Say: func(m ExecutorMouth, _ Message) { m.Write(bytes.Repeat([]byte("\xffgarbage"), 1000)) },
		Mute: true, Want: Ends},
	{Name: "a message of no kind", Say: changed(func(m *Message) { m.Kind = 3 }), Want: Ends},
	{Name: "a long answer", Say: changed(func(m *Message) { m.Size, m.Data = m.Size+8, append(m.Data, "12345678"...) }),
		Want: Ends},
	{Name: "no answer", Say: changed(func(m *Message) { m.Size, m.Data = 0, nil }), Want: Ends},
	{Name: "four gigabytes", Say: changed(func(m *Message) { m.Size = math.MaxUint32 }), Want: Ends},
	{Name: "an answer without a script", Say: also(Message{Kind: Answer}), Want: Ends},
	{Name: "a failure", Say: failure(uint32(unix.EPERM)), Want: Fails},
	{Name: "a negative error", Say: failure(math.MaxUint32), Want: Ends},
	{Name: "a huge error", Say: failure(1 << 20), Want: Ends},
	{Name: "an error of no call", Say: changed(func(m *Message) { *m = Message{Kind: Answer, PID: 1 << 30, Status: 1} }),
		Want: Ends},
	{Name: "a process of no id", Say: changed(func(m *Message) { clear(m.Data) }), Want: Ends},
	{Name: "a forged exit", Say: func(m ExecutorMouth, truth Message) {
		m.Tell(truth)
		m.Tell(Message{Kind: Exit, PID: truth.Started(), Status: 7 << 8})
	}, Want: Believed},
	{Name: "a forged exit before the answer", Say: func(m ExecutorMouth, truth Message) {
		m.Tell(Message{Kind: Exit, PID: truth.Started(), Status: 7 << 8})
		m.Tell(truth)
	}, Want: Believed},
	{Name: "two exits", Say: func(m ExecutorMouth, truth Message) {
		m.Tell(truth)
		for range 2 {
			m.Tell(Message{Kind: Exit, PID: truth.Started(), Status: 7 << 8})
		}
	}, Want: Ends},
	{Name: "the exit of another", Say: also(unknown), Want: Ends},
	{Name: "the exit of another before the answer", Say: func(m ExecutorMouth, truth Message) {
		m.Tell(unknown)
		m.Tell(truth)
	}, Want: Ends},
	{Name: "an exit that is none", Say: func(m ExecutorMouth, truth Message) {
		m.Tell(truth)
		m.Tell(Message{Kind: Exit, PID: truth.Started(), Status: 0x7f})
	}, Want: Ends},
	{Name: "a flood of exits", Say: func(m ExecutorMouth, _ Message) {
		for i := uint32(2); m.Tell(Message{Kind: Exit, PID: i}) == nil; i++ {
		}
	}, Want: Ends},
	{Name: "a flood of answers", Say: func(m ExecutorMouth, truth Message) {
		for m.Tell(truth) == nil {
		}
	}, Want: Ends},
	{Name: "output without end", Say: func(m ExecutorMouth, truth Message) {
		var p [2]int
		if unix.Pipe2(p[:], unix.O_CLOEXEC) != nil || unix.SetNonblock(p[0], true) != nil {
			panic("no pipe")
		}
		go func() {
			for full := bytes.Repeat([]byte("word\n"), 10_000); ; {
				if _, err := unix.Write(p[1], full); err != nil {
					unix.Close(p[1])
					return
				}
			}
		}()
		truth.Files[0] = p[0]
		m.Tell(truth)
		unix.Close(p[0])
	}, Want: Waits},
	{Name: "a pipe that blocks later", Say: func(m ExecutorMouth, truth Message) {
		m.Tell(truth)
		time.Sleep(50 * time.Millisecond) // the host looks at them first
		for _, fd := range truth.Files {
			unix.SetNonblock(fd, false)
		}
		m.Tell(Message{Kind: Exit, PID: truth.Started(), Status: 7 << 8})
	}, Want: Believed},
}

// other is a Say of the truth with other descriptors.
func other(files func(truth []int) []int) func(ExecutorMouth, Message) {
	return func(mouth ExecutorMouth, m Message) {
		m.Files = files(m.Files)
		mouth.Tell(m)
	}
}

// instead is a Say of the truth with a descriptor in the place of each.
func instead(open func() (int, error)) func(ExecutorMouth, Message) {
	return other(func(truth []int) []int {
		fd, err := open()
		if err != nil {
			panic(err)
		}
		return slices.Repeat([]int{fd}, len(truth))
	})
}

func opening(path string, flags int) func() (int, error) {
	return func() (int, error) { return unix.Open(path, flags|unix.O_CLOEXEC, 0) }
}

// Descriptors are lies in place of any answer with descriptors: streams, a terminal, listeners.
var Descriptors = []Executor{
	{Name: "no descriptor", Say: other(func([]int) []int { return nil }), Want: Ends},
	{Name: "one descriptor less", Say: other(func(all []int) []int { return all[1:] }), Want: Ends},
	{Name: "one descriptor more", Say: other(func(all []int) []int { return append(all, all[0]) }), Want: Ends},
	{Name: "sixty descriptors", Say: other(func(all []int) []int { return slices.Repeat(all[:1], 60) }), Want: Ends},
	{Name: "too many descriptors", Say: other(func(all []int) []int { return slices.Repeat(all[:1], 250) }), Want: Ends},
	{Name: "descriptors without end", Say: func(mouth ExecutorMouth, m Message) {
		few := Message{Kind: Exit, PID: m.Started(), Files: slices.Repeat(m.Files[:1], 60)}
		for mouth.Tell(few) == nil {
		}
	}, Want: Ends},
	{Name: "files", Say: instead(opening("/proc/self/exe", unix.O_RDONLY)), Want: Ends},
	{Name: "places", Say: instead(opening("/", unix.O_PATH)), Want: Ends},
	{Name: "directories", Say: instead(opening("/", unix.O_RDONLY)), Want: Ends},
	{Name: "nothing", Say: instead(opening(os.DevNull, unix.O_RDWR|unix.O_NONBLOCK)), Want: Ends},
	{Name: "randomness", Say: instead(opening("/dev/urandom", unix.O_RDWR|unix.O_NONBLOCK)), Want: Ends},
	{Name: "sockets", Say: instead(func() (int, error) {
		return unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	}), Want: Ends},
	{Name: "counters", Say: instead(func() (int, error) { return unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK) }),
		Want: Ends},
	{Name: "pipes that block", Say: instead(func() (int, error) {
		var p [2]int
		err := unix.Pipe2(p[:], unix.O_CLOEXEC)
		return p[0], err
	}), Want: Ends},
}

// Sockets are lies in place of a socket to connect: sockets that the host must not connect.
var Sockets = []Executor{
	{Name: "datagrams", Say: instead(func() (int, error) {
		return unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	}), Want: Ends},
	{Name: "a socket that listens", Say: instead(func() (int, error) {
		fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err == nil {
			err = unix.Listen(fd, 1)
		}
		return fd, err
	}), Want: Ends},
}

// Listeners are lies that a host cannot see in the answer: the listeners in it are real, and misbehave later.
var Listeners = []Executor{
	{Name: "listeners that block later", Say: func(m ExecutorMouth, truth Message) {
		var kept []int
		for _, fd := range truth.Files {
			if own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0); err == nil {
				kept = append(kept, own)
			}
		}
		m.Tell(truth)
		go func() {
			for range 2000 {
				for _, fd := range kept {
					unix.SetNonblock(fd, false)
					unix.Listen(fd, 8) // again, where the host has shut it down
				}
				time.Sleep(5 * time.Millisecond) // the host uses them meanwhile
			}
			for _, fd := range kept {
				unix.Close(fd)
			}
		}()
	}, Want: Believed},
}
