//go:build linux

// Command report runs "go test -json", prints one line for each package as it ends, then what failed and why, what was
// skipped and why, which tests that must run did not, and which processes were left running.
//
//	go run ./test/report -must-run test/mustrun.txt -log FILE -- go test -json ./...
//
// It exits non-zero when anything failed, a test that must run did not, or something was left. Without a command it
// reads the log on standard input. A signal ends the tests and everything they have started.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	mustRun := flag.String("must-run", "", "file with the tests that must run and pass")
	logFile := flag.String("log", "", "where to keep the JSON log")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	ok, err := run(ctx, flag.Args(), os.Stdin, os.Stdout, *mustRun, *logFile)
	if err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(2)
	}
	if !ok {
		os.Exit(1)
	}
}

func run(ctx context.Context, command []string, in io.Reader, out io.Writer, mustRun, logFile string) (bool, error) {
	must, err := readRequirements(mustRun)
	if err != nil {
		return false, err
	}
	keep := io.Discard
	if logFile != "" {
		f, err := os.Create(logFile)
		if err != nil {
			return false, err
		}
		defer f.Close()
		keep = f
	}
	r := newResults(out)
	if len(command) == 0 {
		err := r.read(io.TeeReader(in, keep))
		return err == nil && r.conclude(must), err
	}
	t, err := startTests(command)
	if err != nil {
		return false, err
	}
	reading := make(chan error, 1)
	go func() { reading <- r.read(io.TeeReader(t.output, keep)) }()
	left, failed := t.end(ctx)
	// Whoever held the other end has been ended, so all that was written is
	// there, and after it the end; the deadline is for what cannot be ended.
	t.output.SetReadDeadline(time.Now().Add(time.Minute))
	unread := <-reading
	t.output.Close()
	if ctx.Err() != nil {
		return false, errors.New("ended by a signal, and every test with it")
	}
	if unread != nil {
		return false, fmt.Errorf("the log of the tests has no end: %w", unread)
	}
	for _, l := range left {
		fmt.Fprintf(out, "left running: %s\n", l)
	}
	r.left = len(left)
	ok := r.conclude(must)
	if ok && failed != nil {
		return false, fmt.Errorf("the tests passed, but their command failed: %w", failed)
	}
	return ok, nil
}

// read takes a whole log.
func (r *results) read(in io.Reader) error {
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			r.take(line)
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func readRequirements(path string) ([]requirement, error) {
	if path == "" {
		return nil, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	all, err := parseRequirements(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return all, nil
}
