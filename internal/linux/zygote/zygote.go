//go:build linux

// Package zygote makes processes from a zygote, the state of one that has started: its memory, its registers, and what
// else the kernel keeps of a process with one thread.
//
// Take stops a process that waits at a named pipe, and writes its state into an image: a file in memory which holds the
// contents of its pages, and a list of system calls. An executor's child maps that list with the few instructions that
// execute it, and becomes a copy of the process: the calls remove the child's own memory, map and fill that of the
// image, and drop the child's privileges. The last one restores the registers, so that the process reads from the pipe.
//
// No instruction of the process runs before the privileges of its copy are gone, and none of its memory decides about
// the calls: they follow from what the kernel tells about it. All processes of one image have the same layout of
// memory, and the same secrets that were drawn at the start of the first: the canary of its stacks, and the seed of its
// hashes.
package zygote

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ErrUnsupported is a process of which no zygote can be made, here or at all.
var ErrUnsupported = errors.New("no zygote can be made")

func unsupported(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrUnsupported, fmt.Sprintf(format, args...))
}

// Program is a list of system calls with their data, which a process executes before it is the one of an image.
type Program struct {
	base  uint64 // where it lies in that process
	data  []byte // from base on, the instructions first
	calls []call
}

// call is an entry of the list, as the instructions read it.
type call struct {
	number uint64
	args   [6]uint64
	result uint64 // that it has to have
	told   uint64 // written to the executor if it has not
}

// failed marks the number of a call that has failed, in an executor's error.
const failed = 0x1000

// Do appends a call, which has to return 0.
func (p *Program) Do(number int, args ...uint64) { p.Want(0, number, args...) }

// Want appends a call, which has to return a result.
func (p *Program) Want(result uint64, number int, args ...uint64) {
	c := call{number: uint64(number), result: result, told: uint64(failed+len(p.calls)) << 32}
	copy(c.args[:], args)
	p.calls = append(p.calls, c)
}

// Bytes places data, and returns its address.
func (p *Program) Bytes(b []byte) uint64 {
	at := len(p.data)
	p.data = append(p.data, b...)
	p.data = append(p.data, make([]byte, -len(p.data)&7)...)
	return p.base + uint64(at)
}

// Words are 64-bit numbers as data.
func Words(words ...uint64) (b []byte) {
	for _, w := range words {
		b = binary.NativeEndian.AppendUint64(b, w)
	}
	return b
}

// list returns the program's text, and the place of its calls in it.
func (p *Program) list() (text []byte, table uint64) {
	text, table = p.data, uint64(len(p.data))
	for _, c := range p.calls {
		text = append(text, unsafe.Slice((*byte)(unsafe.Pointer(&c)), unsafe.Sizeof(c))...)
	}
	return text, table
}

// Image describes a zygote. Its file holds the memory, too.
type Image struct {
	PID   int    // of the process, in its own namespace: that of its copies
	Pipe  int    // the descriptor of the named pipe at which it waits
	Flags int    // with which that is open
	Base  uint64 // where the program lies in a copy
	Size  uint64 // of the program, in whole pages
	Table uint64 // the address of its calls
	Files []File // mapped ones, the program of the process first
	Own   []Area // what the kernel has mapped into it: the place of each, and its length
	// Below, Above and Moves are the calls that depend on where those lie in the process that becomes a copy: the removals
	// of what is below and above, and the movement of each.
	Below, Above int
	Moves        []int
	Shared       []int // the calls that make pages a copy's own which it shares with the image else
}

// File is a mapped file, with what shows that it is as it was.
type File struct {
	Path  string
	Inode uint64
	Size  int64
	Mtime [2]int64
	Ctime [2]int64
}

// Area is a part of a process's memory.
type Area struct {
	Name     string
	From, To uint64
}

// write completes an image's file, whose pages are there.
func (i *Image) write(f *os.File, p *Program) error {
	text, table := p.list()
	if uint64(len(text)) > i.Size {
		return unsupported("its state takes %d bytes", len(text))
	}
	i.Table = i.Base + table
	if _, err := f.WriteAt(text, 0); err != nil {
		return err
	}
	end, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	state, err := json.Marshal(i)
	if err != nil {
		return err
	}
	if _, err = f.WriteAt(append(state, Words(uint64(len(state)))...), end); err != nil {
		return err
	}
	const seals = unix.F_SEAL_WRITE | unix.F_SEAL_GROW | unix.F_SEAL_SHRINK | unix.F_SEAL_SEAL
	if _, err = unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, seals); err != nil {
		return os.NewSyscallError("fcntl", err)
	}
	return f.Chmod(0o400) // else its copies may ask which of its pages are in memory, and have them written to swap
}

// Open reads an image of this program's own.
func Open(f *os.File) (*Image, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	var length [8]byte
	if _, err := f.ReadAt(length[:], info.Size()-8); err != nil {
		return nil, err
	}
	n := int64(binary.NativeEndian.Uint64(length[:]))
	state := make([]byte, min(n, info.Size()))
	if _, err := f.ReadAt(state, info.Size()-8-n); err != nil {
		return nil, err
	}
	i := &Image{}
	return i, json.Unmarshal(state, i)
}
