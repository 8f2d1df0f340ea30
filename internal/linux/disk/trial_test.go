//go:build linux

package disk

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove/test/await"
)

// TestTrialOfKilled: the next trial removes what one of a killed process has left, with its mount and its device, but
// neither what a process is trying nor what belongs to another account.
func TestTrialOfKilled(t *testing.T) {
	needRoot(t)
	below := t.TempDir()
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestTrialVictim$", "-test.count=1")
	cmd.Env = append(os.Environ(), "COVE_TEST_TRIAL_BELOW="+below)
	_, err := cmd.StdinPipe()
	out, e := cmd.StdoutPipe()
	if err = errors.Join(err, e); err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	if n, err := out.Read(make([]byte, 1)); n != 1 {
		t.Fatal(err)
	}
	left, err := filepath.Glob(filepath.Join(below, Trial+"*"))
	if err != nil || len(left) != 1 {
		t.Fatalf("not tested: %v, %v", left, err)
	}
	i := trialIn(left[0])
	t.Cleanup(func() { i.Unmount() })
	loop := loopOf(t, i)
	if err := Sweep(below); err != nil {
		t.Error(err)
	}
	if at, err := point(i.Dir); err != nil || at != above {
		t.Errorf("the trial of a process was swept: %d, %v", at, err)
	}
	cmd.Process.Kill()
	cmd.Wait()
	others, file := filepath.Join(below, Trial+"others"), filepath.Join(below, Trial+"1")
	if err := errors.Join(os.Mkdir(others, 0o700), os.Chown(others, 1000, 1000), os.WriteFile(file, nil, 0o600),
		Try(t.Context(), below)); err != nil {
		t.Fatal(err)
	}
	if left, err := filepath.Glob(filepath.Join(below, Trial+"*")); err != nil || len(left) != 1 || left[0] != others {
		t.Errorf("left: %v, %v", left, err)
	}
	await.That(t, "its device is gone", func() bool {
		image, err := os.ReadFile("/sys/block/" + loop + "/loop/backing_file")
		return err != nil || !strings.HasPrefix(string(image), i.File)
	})
}

// TestTrialVictim is the process that TestTrialOfKilled kills.
func TestTrialVictim(t *testing.T) {
	below := os.Getenv("COVE_TEST_TRIAL_BELOW")
	if below == "" {
		t.Skip("TestTrialOfKilled starts it")
	}
	trying, err := os.Open(below)
	if err == nil {
		err = unix.Flock(int(trying.Fd()), unix.LOCK_SH)
	}
	if err != nil {
		t.Fatal(err)
	}
	i, err := newTrial(below)
	if err := errors.Join(err, i.Make(t.Context(), Size{1 << 20, 64}), i.Mount(t.Context())); err != nil {
		t.Fatal(err)
	}
	os.Stdout.WriteString(".")
	io.Copy(io.Discard, os.Stdin) // until it is killed, or its parent has gone
}
