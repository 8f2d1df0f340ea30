package adversary

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os/exec"
	"strings"
	"time"

	"github.com/cove-sandbox/cove/test/adversary/outcome"
)

// prober makes attempts one after the other in one process, "probe serve", where each has a thread of its own. The
// process is started for the first attempt, and again after one that ended it.
type prober struct {
	start func() (*serving, error)
	now   *serving
}

// serving is the process, inside a sandbox or not.
type serving struct {
	stdin  io.WriteCloser
	stdout *bufio.Reader
	kill   func()
	wait   func() (stderr string, code, signal int) // its end
}

// try makes one attempt.
func (p *prober) try(attempt string) outcome.Result {
	attempt = strings.Join(strings.Fields(attempt), " ")
	broken := func(detail string) outcome.Result {
		p.end()
		return outcome.Result{Name: attempt, Outcome: outcome.Broken, Detail: detail}
	}
	if p.now == nil {
		s, err := p.start()
		if err != nil {
			return broken(err.Error())
		}
		p.now = s
	}
	now := p.now
	timer := time.AfterFunc(patience, now.kill)
	_, err := io.WriteString(now.stdin, attempt+"\n")
	var line string
	if err == nil {
		line, err = now.stdout.ReadString('\n')
	}
	if !timer.Stop() {
		return broken("did not end in " + patience.String())
	}
	if err != nil { // it has ended
		stderr, code, signal := now.wait()
		p.now = nil
		return interpret(attempt, line, stderr, code, signal)
	}
	var r outcome.Result
	if err := json.Unmarshal([]byte(line), &r); err != nil || r.Name != attempt {
		return broken("answered " + line)
	}
	return r
}

// end ends the process.
func (p *prober) end() {
	if p.now == nil {
		return
	}
	p.now.stdin.Close()
	p.now.kill()
	p.now.wait()
	p.now = nil
}

// serveInside starts a prober's process in a sandbox.
func (b *box) serveInside() (*serving, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	s := b.here(spec("serve"))
	s.Stdin, s.StdoutLimit, s.StderrLimit = true, 1<<30, b.limits.Stderr
	p, stdin, err := b.begin(ctx, s)
	if err != nil {
		return nil, err
	}
	stderr := make(chan string, 1)
	go func() {
		text, _ := io.ReadAll(p.Stderr())
		stderr <- string(text)
	}()
	return &serving{stdin: stdin, stdout: bufio.NewReader(p.Stdout()),
		kill: func() { p.Signal(context.Background(), 9) },
		wait: func() (string, int, int) {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			exit, err := p.Wait(ctx)
			if err != nil {
				return err.Error(), -1, 0 // with its sandbox
			}
			return <-stderr, exit.Code, exit.Signal
		}}, nil
}

// serveOutside starts a prober's process in the environment of controls.
func (s *suite) serveOutside(dir string) (*serving, error) {
	return serveAs(s.throwAway(context.Background(), dir, "serve", "mounts"))
}

// serveHere starts one on the machine as it is, with its network.
func (s *suite) serveHere() (*serving, error) {
	cmd := exec.Command(s.path, "serve")
	cmd.Env = plainEnvironment()
	return serveAs(cmd)
}

func serveAs(cmd *exec.Cmd) (*serving, error) {
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &serving{stdin: stdin, stdout: bufio.NewReader(stdout),
		kill: func() { cmd.Process.Kill() },
		wait: func() (string, int, int) {
			code, signal, err := ended(cmd.Wait())
			if err != nil {
				return err.Error(), -1, 0
			}
			return stderr.String(), code, signal
		}}, nil
}
