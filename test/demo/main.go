// Command demo shows Cove to somebody at a terminal: ordinary programs run, hostile ones are stopped, and nothing is
// left behind. It exits non-zero when something was not stopped.
//
//	make demo
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"
)

// patience is how long one act may take; each has a limit of its own that is far below.
const patience = 90 * time.Second

func main() {
	cove := flag.String("cove", "bin/cove", "the command to show")
	recording := flag.String("record", "", "write README's recording, an SVG, to this file instead")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if *recording != "" {
		if err := makeRecording(ctx, *cove, *recording); err != nil {
			fmt.Fprintln(os.Stderr, "demo:", err)
			os.Exit(1)
		}
		return
	}
	ok, err := play(ctx, *cove, newStage(os.Stdout))
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
	if !ok {
		os.Exit(1)
	}
}

func play(ctx context.Context, cove string, s *stage) (bool, error) {
	version, err := exec.CommandContext(ctx, cove, "version").Output()
	if err != nil {
		return false, fmt.Errorf("%s does not run (\"make build\" makes it): %w", cove, err)
	}
	target, err := newTarget()
	if err != nil {
		return false, err
	}
	defer target.close()
	here, err := newPlace()
	if err != nil {
		return false, err
	}
	service, err := newService(here.dir)
	if err != nil {
		return false, err
	}
	defer service.close()
	project, err := newProject(here.dir)
	if err == nil {
		project.installed, err = showAgents(here.state)
	}
	if err != nil {
		return false, err
	}
	environ := append(here.environ(), service.environ(here.dir)...)
	left, seen := []string(nil), false
	leave := sync.OnceFunc(func() {
		perform(context.WithoutCancel(ctx), cove, environ, act{args: []string{"server", "stop"}}) // that agents have started
		left, seen = here.leave()
	})
	defer leave()
	s.title(strings.TrimSpace(string(version)))
	good := true
	for _, part := range program(target, service, project) {
		s.part(part.title)
		for _, a := range part.acts {
			if ctx.Err() != nil {
				return false, ctx.Err()
			}
			r := perform(ctx, cove, environ, a)
			why := judge(a, r)
			s.act(a, r, why)
			good = good && (why == "" || r.missing())
		}
	}
	leave()
	s.close(left, seen)
	return good && len(left) == 0, nil
}

// result is how an act ended.
type result struct {
	stdout, stderr string
	code           int
	took           time.Duration
	err            error // it could not be run at all
}

// missing reports a toolchain that this machine does not have.
func (r result) missing() bool { return r.code == 127 }

// verdict is the last line of Cove's own.
func (r result) verdict() string {
	last := ""
	for line := range strings.Lines(r.stderr) {
		if rest, ok := strings.CutPrefix(line, "cove: "); ok && !strings.HasPrefix(rest, "note: ") {
			last = strings.TrimSpace(rest)
		}
	}
	return last
}

func perform(ctx context.Context, cove string, env []string, a act) result {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, cove, a.args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.Env = env
	cmd.WaitDelay = 20 * time.Second
	if a.stdin != "" {
		cmd.Stdin = strings.NewReader(a.stdin)
	}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	began := time.Now()
	err := cmd.Run()
	r := result{stdout: stdout.String(), stderr: stderr.String(), took: time.Since(began)}
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Exited() {
		r.code, err = exit.ExitCode(), nil
	}
	r.err = err
	return r
}

// judge says what is wrong with how an act ended, or nothing.
func judge(a act, r result) string {
	switch {
	case r.err != nil:
		return "it did not end: " + r.err.Error()
	case r.missing():
		return "not shown: " + r.verdict()
	}
	return a.judge(r)
}
