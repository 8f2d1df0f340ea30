//go:build linux

// Package executor is a process that executes scripts of system calls which another process has written.
//
// A Go program takes milliseconds of processor time to start, and has at least five threads. An executor is a fork of a
// small process which never returns to the Go runtime: it has one thread and no memory of its own but an area at a
// fixed address, into which it reads one [Script] after another. What is to be done is decided where the scripts are
// written; an executor only calls. It reports its children's ends, and ends with its connection unless a script has
// given it a door.
package executor

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Version is that of the form of scripts, which executors that outlive their server still have to understand: any
// change of the instructions, of the places or of the messages needs another.
const Version = 1

// Places in the memory of an executor. They are the same in each, so that a script holds addresses.
const (
	base      = 0x2000_0000
	memory    = 8 << 20
	maxScript = memory - bodyAt // of code and data
	bodyAt    = 32 << 10        // behind the control area
)

// Descriptors of an executor. Those below firstTemporary are there always, as copies of /dev/null where nothing else is
// kept; what a script opens above ends with the script.
const (
	socket         = 3
	signals        = 4
	FirstSlot      = 5
	LastSlot       = firstTemporary - 1
	firstTemporary = 64
)

// maxFiles bounds the descriptors that come with a script, and those that are given back.
const maxFiles = 60

// op is one instruction. Its number is that of a system call, or one of the pseudo calls below.
type op struct {
	nr    uint32
	dst   uint16   // the register that takes the result, counted from 1; 0 is none
	kinds uint8    // bit i: argument i is the number of a register
	_     uint8    //
	on    [2]catch // what to do after some errors; any other ends the script
	args  [6]uint64
}

type catch struct{ errno, to uint16 }

const opSize = unsafe.Sizeof(op{})

// Pseudo calls.
const (
	opSet    = 1<<16 + iota // dst = args[0]
	opJump                  // to args[0]
	opLoad                  // dst = args[1] bytes (2, 4, 8) at the address args[0]
	opStore                 // args[1] bytes at the address args[0] = args[2]
	opUnless                // jump to args[3] unless args[0] & args[1] == args[2]
	opFail                  // end with the error args[0]
	opFork                  // dst = the pid of a child, which goes on at args[0] and tells errors at args[1]
	opForked                // end with the error that the child args[2] has written to args[0], if args[1] is 8 bytes
	opGive                  // send the descriptor args[0] with the answer
	opDoor                  // outlive the connection: the next one arrives at the slot args[0]
	opBecome                // in a child: go on with the instructions at args[0], which args[1] is for
)

// Value is an argument: a number, a result or an address.
type Value struct {
	kind kind
	n    uint64
}

type kind uint8

const (
	number kind = iota
	register
	address // n bytes into the script's data
)

// Number is an argument that is known.
func Number[T ~int | ~int64 | ~uint32 | ~uintptr | ~uint64 | ~uint](n T) Value {
	return Value{kind: number, n: uint64(n)}
}

// CWD is the directory from which a call looks a name up that is absolute.
var CWD = Number(unix.AT_FDCWD)

// At is the address n bytes behind an address.
func (v Value) At(n int) Value { return Value{v.kind, v.n + uint64(n)} }

// Label is a place in a script.
type Label int

// Data are the constants and the memory of a script.
type Data struct {
	data     []byte
	texts    map[string]Value
	pointers map[int]uint64 // addresses among the data
	err      error
}

// Script is a list of system calls. Its methods append to it; Run returns the error that they meet.
type Script struct {
	Data
	ops       []op
	what      []string // for the error of each op
	addresses []place  // numbers of ops that are addresses
	labels    []int
	answer    int
	registers int
	doing     string
	finally   int
}

type place struct{ op, arg int }

// New returns an empty script. The first bytes of its data are the answer; files of the request are in the first
// registers.
func New(answer, files int) *Script {
	s := &Script{Data: Data{texts: map[string]Value{}, pointers: map[int]uint64{}}, registers: files}
	s.answer = answer
	s.Space(answer)
	return s
}

// Grow makes room for calls.
func (s *Script) Grow(calls int) {
	s.ops = slices.Grow(s.ops, calls)
	s.what = slices.Grow(s.what, calls)
}

// Answer is the address of the answer.
func (s *Script) Answer() Value { return Value{kind: address} }

// File is the i-th descriptor of the request.
func (s *Script) File(i int) Value { return Value{register, uint64(i)} }

// Doing names what the following calls are for, in errors.
func (s *Script) Doing(what string) { s.doing = what }

// Var is a register of its own.
func (s *Script) Var() Value {
	s.registers++
	if s.registers > lastErrno {
		s.fail(errors.New("too many results"))
		return Value{kind: register}
	}
	return Value{register, uint64(s.registers - 1)}
}

// Scope frees the registers made in f.
func (s *Script) Scope(f func()) {
	before := s.registers
	f()
	s.registers = before
}

func (d *Data) fail(err error) {
	if d.err == nil {
		d.err = err
	}
}

// Bytes are data that nothing changes.
func (d *Data) Bytes(b []byte) Value {
	if v, ok := d.texts[string(b)]; ok {
		return v
	}
	at := d.Space(len(b))
	copy(d.data[at.n:], b)
	d.texts[string(b)] = at
	return at
}

// Structure returns the bytes of a structure of the kernel's, without pointers.
func Structure[T any](v T) []byte { return memoryOf(&v) }

// Load reads a structure of the kernel's, without pointers, from the beginning of data.
func Load[T any](v *T, data []byte) { copy(memoryOf(v), data) }

func memoryOf[T any](v *T) []byte { return unsafe.Slice((*byte)(unsafe.Pointer(v)), unsafe.Sizeof(*v)) }

// Text is a string that ends with NUL.
func (d *Data) Text(t string) Value { return d.Bytes(append([]byte(t), 0)) }

// Space is zeroed data.
func (d *Data) Space(n int) Value {
	at := len(d.data)
	d.data = append(d.data, make([]byte, (n+7)&^7)...)
	return Value{address, uint64(at)}
}

// Words are 64-bit numbers and addresses.
func (d *Data) Words(words ...Value) Value {
	at := d.Space(8 * len(words))
	for i, w := range words {
		switch w.kind {
		case number:
			binary.NativeEndian.PutUint64(d.data[int(at.n)+8*i:], w.n)
		case address:
			d.pointers[int(at.n)+8*i] = w.n
		case register:
			d.fail(errors.New("a result among words"))
		}
	}
	return at
}

func (s *Script) add(nr int, dst *Value, args ...Value) *op {
	o := op{nr: uint32(nr)}
	if dst != nil {
		o.dst = uint16(dst.n) + 1
	}
	for i, a := range args {
		o.args[i] = a.n
		switch a.kind {
		case register:
			o.kinds |= 1 << i
		case address:
			s.addresses = append(s.addresses, place{len(s.ops), i})
		}
	}
	s.ops = append(s.ops, o)
	s.what = append(s.what, s.doing)
	return &s.ops[len(s.ops)-1]
}

// Call makes a system call. An error ends the script.
func (s *Script) Call(nr int, args ...Value) Value {
	v := s.Var()
	s.CallTo(v, nr, args...)
	return v
}

// CallTo is Call with a register for the result.
func (s *Script) CallTo(to Value, nr int, args ...Value) { s.add(nr, &to, args...) }

// Do is Call without a result.
func (s *Script) Do(nr int, args ...Value) { s.add(nr, nil, args...) }

// On has the script go on at a label after an error of its last call. A call has at most two.
func (s *Script) On(errno unix.Errno, to Label) {
	o := &s.ops[len(s.ops)-1]
	for i := range o.on {
		if o.on[i].errno == 0 {
			o.on[i] = catch{uint16(errno), uint16(to)}
			return
		}
	}
	s.fail(errors.New("more than two errors of a call"))
}

// Unless has the script go on behind its last call after an error, too.
func (s *Script) Unless(errnos ...unix.Errno) {
	next := s.Label()
	for _, e := range errnos {
		s.On(e, next)
	}
	s.Here(next)
}

// AnyError stands for every error.
const AnyError = unix.Errno(0xffff)

// Attempt appends f, and has the script go on at a label after every error of its calls that f does not handle.
func Attempt(s *Script, failed Label, f func()) {
	first := len(s.ops)
	f()
	for i := first; i < len(s.ops); i++ {
		o := &s.ops[i]
		free := slices.IndexFunc(o.on[:], func(c catch) bool { return c.errno == 0 })
		switch {
		case o.nr >= opSet:
		case free < 0:
			s.fail(errors.New("more than two errors of a call"))
		default:
			o.on[free] = catch{uint16(AnyError), uint16(failed)}
		}
	}
}

// Label returns a label that Here is to put into its place.
func (s *Script) Label() Label {
	s.labels = append(s.labels, -1)
	return Label(len(s.labels) - 1)
}

// Here puts a label into its place.
func (s *Script) Here(l Label) { s.labels[l] = len(s.ops) }

// Jump goes on at a label.
func (s *Script) Jump(to Label) { s.add(opJump, nil, Number(int(to))) }

// Set gives a register a value.
func (s *Script) Set(to, from Value) { s.add(opSet, &to, from) }

// Load is a number of 2, 4 or 8 bytes in memory.
func (s *Script) Load(at Value, bytes int) Value {
	v := s.Var()
	s.add(opLoad, &v, at, Number(bytes))
	return v
}

// Store puts a number of 2, 4 or 8 bytes into memory.
func (s *Script) Store(at Value, bytes int, v Value) { s.add(opStore, nil, at, Number(bytes), v) }

// JumpUnless goes on at a label unless v & mask is what is wanted.
func (s *Script) JumpUnless(v Value, mask, want uint64, to Label) {
	s.add(opUnless, nil, v, Number(mask), Number(want), Number(int(to)))
}

// FailUnless ends the script with an error unless v & mask is what is wanted.
func (s *Script) FailUnless(v Value, mask, want uint64, errno Value) {
	bad, good := s.Label(), s.Label()
	s.JumpUnless(v, mask, want, bad)
	s.Jump(good)
	s.Here(bad)
	s.Fail(errno)
	s.Here(good)
}

// Errno is the error of the last call that had one, which On has caught.
func (s *Script) Errno() Value { return Value{register, lastErrno} }

// Finally is done at the end, also after an error. It is appended last.
func (s *Script) Finally(f func()) {
	s.finally = len(s.ops)
	f()
}

// Fail ends the script with an error: a number of the kernel, which may be negative, or one of the caller's.
func (s *Script) Fail(errno Value) { s.add(opFail, nil, errno) }

// Give sends a descriptor with the answer.
func (s *Script) Give(fd Value) { s.add(opGive, nil, fd) }

// Door has the executor outlive its connections. It accepts the next one at a listening socket in a slot, which does
// not block.
func Door(s *Script, slot int) { s.add(opDoor, nil, Number(slot)) }

// Fork starts a child, which does what f appends, and has to end with an execve or Become. Its pid is the result; the
// executor tells its end. An error of the child is the script's.
func (s *Script) Fork(f func()) Value {
	pipe := s.Space(8)
	s.Do(unix.SYS_PIPE2, pipe, Number(unix.O_CLOEXEC))
	r, w := s.Load(pipe, 4), s.Load(pipe.At(4), 4)
	pid, child, parent := s.Var(), s.Label(), s.Label()
	s.add(opFork, &pid, Number(int(child)), w)
	s.Jump(parent)
	s.Here(child)
	f()
	s.Here(parent)
	s.Close(w)
	told := s.Space(8)
	n := s.Call(unix.SYS_READ, r, told, Number(8))
	s.add(opForked, nil, told, n, pid)
	return pid
}

// Become has a child go on with other instructions than the executor's, in memory that it has mapped: an address for
// them is in rbx, and in r12 the descriptor to which they write an error as an executor's child does. Only a script of
// amd64 has it.
func Become(s *Script, instructions, address Value) { s.add(opBecome, nil, instructions, address) }

// Close closes a descriptor.
func (s *Script) Close(fd Value) { s.Do(unix.SYS_CLOSE, fd) }

// Keep keeps a descriptor beyond the script, in the place of what was there: a slot below firstTemporary.
func (s *Script) Keep(fd Value, slot int) {
	s.Do(unix.SYS_DUP3, fd, Number(slot), Number(unix.O_CLOEXEC))
}

// ErrTooLarge is a script that an executor cannot take.
var ErrTooLarge = errors.New("the script is too large")

// encode returns the message to an executor: a header, instructions and data.
func (s *Script) encode(files int) ([]byte, error) {
	if s.err != nil {
		return nil, s.err
	}
	code := len(s.ops) * int(opSize)
	if code+len(s.data) > maxScript || len(s.ops) > math.MaxUint16 || len(s.labels) > math.MaxUint16 {
		return nil, ErrTooLarge // places are numbers of 16 bits
	}
	if files > maxFiles || s.gives() > maxFiles {
		return nil, errors.New("too many descriptors")
	}
	data := uint64(base + bodyAt + code)
	for _, p := range s.addresses {
		s.ops[p.op].args[p.arg] += data
	}
	for at, to := range s.pointers {
		binary.NativeEndian.PutUint64(s.data[at:], data+to)
	}
	for i := range s.ops {
		if err := s.resolve(&s.ops[i]); err != nil {
			return nil, err
		}
	}
	h := header{size: uint32(code + len(s.data)), ops: uint32(len(s.ops)), files: uint32(files),
		answer: uint32(s.answer), finally: uint32(s.finally)}
	b := make([]byte, 0, int(unsafe.Sizeof(h))+code+len(s.data))
	b = append(b, memoryOf(&h)...)
	if len(s.ops) > 0 {
		b = append(b, unsafe.Slice((*byte)(unsafe.Pointer(&s.ops[0])), code)...)
	}
	return append(b, s.data...), nil
}

func (s *Script) resolve(o *op) error {
	at := func(l int) (int, error) {
		if l < 0 || l >= len(s.labels) || s.labels[l] < 0 {
			return 0, fmt.Errorf("label %d is nowhere", l)
		}
		return s.labels[l], nil
	}
	for i := range o.on {
		if o.on[i].errno != 0 {
			to, err := at(int(o.on[i].to))
			if err != nil {
				return err
			}
			o.on[i].to = uint16(to)
		}
	}
	arg := map[uint32]int{opJump: 0, opUnless: 3, opFork: 0}
	if i, ok := arg[o.nr]; ok {
		to, err := at(int(o.args[i]))
		if err != nil {
			return err
		}
		o.args[i] = uint64(to)
	}
	return nil
}

// header precedes a script.
type header struct{ size, ops, files, answer, finally uint32 }

// message begins each of an executor: the answer to a script, or the end of a child.
type message struct {
	kind   uint32
	pid    uint32 // or the op that failed
	status uint32 // or the error, 0 if none
	size   uint32 // of the answer that follows
}

const (
	messageAnswer = 1 // with the descriptors that the script gives
	messageExit   = 2
)
