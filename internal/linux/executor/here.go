//go:build linux

package executor

import (
	"bytes"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Here executes a script in this process, on the calling thread, and returns its answer. The script must neither fork
// nor give descriptors, and what it does not close stays open. The error is an *Error.
func Here(s *Script, fds ...int) ([]byte, error) {
	text, err := s.encode(len(fds))
	if err != nil {
		return nil, err
	}
	area.Lock()
	defer area.Unlock()
	c, err := reserve()
	if err != nil {
		return nil, err
	}
	size := copy(memoryOf(&c.in), text)
	body := unsafe.Slice((*byte)(unsafe.Add(unsafe.Pointer(c), bodyAt)), maxScript)
	copy(body, text[size:])
	for i, fd := range fds {
		c.registers[i] = uint64(fd)
	}
	run(c)
	if c.errno != 0 {
		return nil, &Error{s.what[c.failed], unix.Errno(c.errno)}
	}
	return bytes.Clone(body[uintptr(c.in.ops)*opSize:][:s.answer]), nil
}
