//go:build linux

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// roles are what this program does as a process of its own. Each reads its setup as JSON from its arguments, answers
// with a line of JSON on standard output, and ends with its standard input.
var roles = map[string]func(setup []byte, out *json.Encoder) error{
	"origin": originRole, "reverse": reverseRole, "gateway": gatewayRole, "load": loadRole, "alone": aloneRole,
}

// On two processors, whoever is measured has one for itself.
const (
	measuredCore = 0
	otherCore    = 1
)

// onCore is a command that runs on one processor.
func onCore(core int, name string, args ...string) []string {
	return append([]string{"taskset", "-c", strconv.Itoa(min(core, runtime.NumCPU()-1)), name}, args...)
}

// process is a program that serves until it is stopped.
type process struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines *bufio.Reader
}

func start(argv []string, env ...string) (*process, error) {
	p := &process{cmd: exec.Command(argv[0], argv[1:]...)}
	p.cmd.Env, p.cmd.Stderr = append(os.Environ(), env...), os.Stderr
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.lines = bufio.NewReader(out)
	return p, p.cmd.Start()
}

// startRole starts this program in a role and reads its first answer.
func startRole(core int, role string, setup, answer any, env ...string) (*process, error) {
	data, err := json.Marshal(setup)
	if err != nil {
		return nil, err
	}
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p, err := start(onCore(core, program, "role", role, string(data)), env...)
	if err != nil {
		return nil, err
	}
	if err := p.answer(answer); err != nil {
		p.stop()
		return nil, fmt.Errorf("%s: %w", role, err)
	}
	return p, nil
}

func (p *process) answer(to any) error {
	line, err := p.lines.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("no answer: %w", err)
	}
	return json.Unmarshal(line, to)
}

func (p *process) stop() error {
	p.in.Close()
	done := make(chan error)
	go func() { done <- p.cmd.Wait() }()
	select {
	case err := <-done:
		return err
	case <-time.After(2 * time.Second): // who does not look at its input
		p.cmd.Process.Signal(unix.SIGTERM)
		<-done
		return nil
	}
}

// cpuOf is the processor time that a process has used.
func cpuOf(pid int) (time.Duration, error) {
	const schedClock = 2 // of all its threads, ended ones too (linux/posix-timers.h)
	var at unix.Timespec
	err := unix.ClockGettime(int32(^pid<<3|schedClock), &at)
	return time.Duration(at.Nano()), err
}

// untilInputEnds keeps a role serving.
func untilInputEnds() { io.Copy(io.Discard, os.Stdin) }
