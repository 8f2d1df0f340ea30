// Command probe is the attacker of the adversarial suite: a static program that is put into a sandbox, makes one named
// attempt with raw system calls, and prints one JSON line (package outcome).
//
//	probe NAME [ARG…]
//
// As "probe serve" it makes the attempts that its standard input asks for.
//
// The same program, run outside any sandbox, is the positive control: it shows that the attempt works where nothing
// refuses it. So every attempt is harmless when it succeeds: it opens without writing, asks with arguments the kernel
// rejects only after its permission checks, and stops at a bound.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove/test/adversary/outcome"
)

// attempt tries one thing. A nil error means that it worked.
type attempt func(args []string) (report, error)

// report is what an attempt has to tell beside its success.
type report struct {
	detail string
	lines  []string
	count  int64
}

// refusal is a refusal that is no errno.
type refusal string

func (r refusal) Error() string { return string(r) }

// empty says that something opened and held nothing: it is masked.
const empty = refusal("EMPTY")

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: probe NAME [ARG...]; names:", strings.Join(names(), " "))
		os.Exit(64)
	}
	emit(attempted(os.Args[1:]))
}

// attempted makes the attempt of a command line.
func attempted(line []string) outcome.Result {
	name := strings.Join(line, " ")
	if len(line) == 0 || find(line[0]) == nil {
		return outcome.Result{Name: name, Outcome: outcome.Broken, Detail: "no such attempt"}
	}
	r, err := find(line[0])(line[1:])
	return result(name, r, err)
}

func emit(r outcome.Result) { os.Stdout.Write(line(r)) }

func line(r outcome.Result) []byte {
	b, err := json.Marshal(r)
	if err != nil {
		panic(err)
	}
	return append(b, '\n')
}

func result(name string, r report, err error) outcome.Result {
	res := outcome.Result{Name: name, Outcome: outcome.Succeeded, Detail: r.detail, Lines: r.lines, Count: r.count}
	var errno unix.Errno
	var word refusal
	switch {
	case err == nil:
	case errors.As(err, &errno):
		res.Outcome, res.Errno = outcome.Refused, unix.ErrnoName(errno)
		if res.Errno == "" {
			res.Errno = fmt.Sprintf("errno %d", int(errno))
		}
		res.Detail = strings.TrimSpace(r.detail + " " + err.Error())
	case errors.As(err, &word):
		res.Outcome, res.Errno = outcome.Refused, string(word)
	default:
		res.Outcome, res.Detail = outcome.Broken, err.Error()
	}
	return res
}

// groups are all attempts, by theme; each file declares one.
func groups() []map[string]attempt {
	return []map[string]attempt{kernelCalls(), archCalls(), sockets(), namespaces(), mounts(), privileges(),
		files(), devices(), ipc(), exhaustion(), processes(), terminals(), conversations(), plumbing(), debuggers(),
		inodes()}
}

func find(name string) attempt {
	for _, g := range groups() {
		if a := g[name]; a != nil {
			return a
		}
	}
	return nil
}

func names() []string {
	var all []string
	for _, g := range groups() {
		for name := range g {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all
}

// call makes a raw system call and keeps its errno only.
func call(nr uintptr, args ...uintptr) error {
	_, err := value(nr, args...)
	return err
}

// value makes a raw system call.
func value(nr uintptr, args ...uintptr) (uintptr, error) {
	var a [6]uintptr
	copy(a[:], args)
	r, _, errno := unix.RawSyscall6(nr, a[0], a[1], a[2], a[3], a[4], a[5])
	if errno != 0 {
		return r, errno
	}
	return r, nil
}

// simple wraps an attempt that reports nothing but its success.
func simple(f func() error) attempt {
	return func([]string) (report, error) { return report{}, f() }
}

// all is every bit: an invalid descriptor, pointer, size and signal at once.
const all = ^uintptr(0)
