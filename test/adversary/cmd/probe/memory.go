package main

import (
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// held keeps what the kernel has been pointed at: a uintptr alone keeps
// nothing alive, and a value on a goroutine's stack can move.
var held struct {
	mu     sync.Mutex
	values []any
}

// at is the address of *p as a system call's argument, valid for the program's short life.
func at[T any](p *T) uintptr {
	held.mu.Lock()
	defer held.mu.Unlock()
	held.values = append(held.values, p)
	return uintptr(unsafe.Pointer(p))
}

// text is the address of a NUL-terminated copy of s.
func text(s string) uintptr {
	p, err := unix.BytePtrFromString(s)
	if err != nil {
		panic(err)
	}
	return at(p)
}
