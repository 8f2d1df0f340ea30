//go:build !amd64

package main

import (
	"errors"

	"golang.org/x/sys/unix"
)

// archCalls is empty: there is one system call table.
func archCalls() map[string]attempt { return nil }

func archUnsweepable() []int { return nil }

func int80(uintptr, ...uintptr) error { return errors.New("int 0x80 is an x86 instruction") }

// creat is a call that later architectures have not got.
func creat(string, uint32) error { return unix.ENOSYS }

func replaceCall(int, uint64, uint64) error { return errors.New("the registers are those of x86-64") }

func answerOf(int) (int64, error) { return 0, nil }
