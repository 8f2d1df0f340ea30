package session

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/cli/ui"
)

// EnsureImage has the program with the daemon build an image, unless one of the same is there, and returns its name.
// The build's progress is shown. A signal ends it.
func EnsureImage(ctx context.Context, sess *Session, wanted NewBuild) (name string, err error) {
	cfg, err := sess.Config()
	if err != nil {
		return "", err
	}
	program, err := daemonProgram()
	if err != nil {
		return "", err
	}
	wanted.Once = true
	data, err := json.Marshal(wanted)
	if err != nil {
		return "", err
	}
	ctx, interrupts := ui.CoverSignals(ctx)
	defer interrupts.Stop()
	args := append([]string{"image", ImageEnsure, "--json"}, flagsOf(sess, cfg)...)
	c := exec.CommandContext(ctx, program, args...)
	c.Args[0] = title
	var out bytes.Buffer
	c.Env, c.Stdin, c.Stdout, c.Stderr = callerEnvironment(), bytes.NewReader(data), &out, sess.Err
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a terminal's signal comes once, from here
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGINT) }
	failed := c.Run()
	var said struct {
		Problem
		Name string `json:"name"`
	}
	if err := json.Unmarshal(out.Bytes(), &said); err != nil && failed == nil {
		return "", cove.Errorf(cove.Internal, "the image is not known: %w", err)
	}
	switch {
	case failed == nil:
		return said.Name, nil
	case said.Error != "":
		return "", interrupts.Explain(cove.Errorf(cove.Code(said.Code), "%s", said.Error).WithHint("%s", said.Hint))
	case c.ProcessState == nil:
		return "", interrupts.Explain(noProgram(failed))
	}
	return "", interrupts.Explain(cove.Errorf(cove.Unavailable, "the build has ended: %w", failed))
}

// Alone returns when no other command holds a file of the user's state, which this one then holds until release.
func Alone(ctx context.Context, file string) (release func(), err error) {
	for {
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			return nil, err
		}
		f, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return nil, err
		}
		held := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil
		mine, err := f.Stat()
		if err != nil {
			f.Close()
			return nil, err
		}
		// its holder removes it
		if current, err := os.Lstat(file); held && err == nil && os.SameFile(mine, current) {
			return func() { os.Remove(file); f.Close() }, nil
		}
		f.Close()
		select {
		case <-ctx.Done():
			return nil, cove.Errorf(cove.Canceled, "another command is about the same")
		case <-time.After(startPoll):
		}
	}
}
