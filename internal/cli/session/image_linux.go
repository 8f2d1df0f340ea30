package session

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"syscall"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/cli/ui"
	"github.com/cove-sandbox/cove/internal/compose"
	"github.com/cove-sandbox/cove/internal/filelock"
)

// EnsureImage has the program with the daemon build an image, unless one of the same is there, and returns its name.
// The build's progress is shown. A signal ends it, and so does the end of this process.
func EnsureImage(ctx context.Context, sess *Session, wanted NewBuild) (name string, err error) {
	wanted.Once = true
	var said struct {
		Name string `json:"name"`
	}
	err = inDaemon(ctx, sess, ImageEnsure, wanted, &said)
	return said.Name, err
}

// FetchImage has the program with the daemon pull an image, unless the store has it. Its progress is shown.
func FetchImage(ctx context.Context, sess *Session, ref string) error {
	return inDaemon(ctx, sess, ImageFetch, ref, new(any))
}

// FetchArtifact has the program with the daemon get an artifact of a registry.
func FetchArtifact(ctx context.Context, sess *Session, ref string) (a Artifact, err error) {
	err = inDaemon(ctx, sess, ImageArtifact, ref, &a)
	return a, err
}

// MergeCompose has the program with the daemon merge files of Compose.
func MergeCompose(ctx context.Context, sess *Session, wanted compose.Request) (m compose.Merged, err error) {
	err = inDaemon(ctx, sess, ImageCompose, wanted, &m)
	return m, err
}

// inDaemon runs a command below "image" of the program with the daemon, which reads wanted and prints said. A signal
// ends it, and so does the end of this process.
func inDaemon(ctx context.Context, sess *Session, command string, wanted, said any) error {
	cfg, err := sess.Config()
	if err != nil {
		return err
	}
	program, err := daemonProgram()
	if err != nil {
		return err
	}
	data, err := json.Marshal(wanted)
	if err != nil {
		return err
	}
	ctx, interrupts := ui.CoverSignals(ctx)
	defer interrupts.Stop()
	args := append([]string{"image", command, "--json"}, flagsOf(sess, cfg)...)
	c := exec.CommandContext(ctx, program, args...)
	c.Args[0] = title
	var out bytes.Buffer
	c.Env, c.Stdin, c.Stdout, c.Stderr = callerEnvironment(), bytes.NewReader(data), &out, sess.Err
	// A terminal's signal comes once, from here. The kernel sends one when the thread ends that has started the program.
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGINT}
	goruntime.LockOSThread()
	defer goruntime.UnlockOSThread()
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGINT) }
	failed := c.Run()
	if failed == nil {
		if err := json.Unmarshal(out.Bytes(), said); err != nil {
			return cove.Errorf(cove.Internal, "the answer of \"image %s\": %w", command, err)
		}
		return nil
	}
	var problem Problem
	switch json.Unmarshal(out.Bytes(), &problem); {
	case ctx.Err() != nil:
		return interrupts.Explain(cove.Errorf(cove.Canceled, "it was ended"))
	case problem.Error != "":
		return cove.Errorf(cove.Code(problem.Code), "%s", problem.Error).WithHint("%s", problem.Hint)
	case c.ProcessState == nil:
		return noProgram(failed)
	}
	return cove.Errorf(cove.Unavailable, "\"image %s\" has ended: %w", command, failed)
}

// Alone returns when no other command holds a file of the user's state, which this one then holds until release.
func Alone(ctx context.Context, file string) (release func(), err error) {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return nil, err
	}
	f, err := filelock.OpenWaiting(ctx, file, filelock.Exclusive)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, cove.Errorf(cove.Canceled, "another command is about the same")
	case err != nil:
		return nil, cove.Errorf(cove.Unavailable, "cannot lock %s: %w", file, err).
			WithHint("choose a directory whose file system has locks: --home DIR")
	}
	return func() { os.Remove(file); f.Close() }, nil // its holder removes it
}
