package instance

import (
	"bufio"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove"
)

// TestMain lets the test binary act as another instance: it holds a lock until its standard input ends or it is killed.
func TestMain(m *testing.M) {
	if dir := os.Getenv("INSTANCE_TEST_RUN_DIR"); dir != "" {
		i, err := Hold(dir)
		if err != nil {
			os.Exit(1)
		}
		os.Stdout.WriteString(string(i.ID) + "\n")
		os.Stdin.Read(make([]byte, 1))
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestLifeAndDeath(t *testing.T) {
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), "INSTANCE_TEST_RUN_DIR="+dir)
	in, _ := cmd.StdinPipe()
	defer in.Close()
	out, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	other := cove.InstanceID(strings.TrimSpace(line))
	if !Alive(dir, other) {
		t.Error("a living instance counts as dead")
	}
	Forget(dir, other)
	if ids, err := List(dir); err != nil || !slices.Equal(ids, []cove.InstanceID{other}) {
		t.Errorf("%v, %v: a living instance was forgotten", ids, err)
	}
	cmd.Process.Kill()
	cmd.Wait()
	if Alive(dir, other) {
		t.Error("a killed instance counts as living")
	}
	Forget(dir, other)
	if ids, _ := List(dir); len(ids) != 0 {
		t.Errorf("%v are left", ids)
	}
}

func TestRelease(t *testing.T) {
	dir := t.TempDir()
	i, err := Hold(dir)
	if err != nil {
		t.Fatal(err)
	}
	if !Alive(dir, i.ID) {
		t.Error("it is not alive")
	}
	if err := i.Release(); err != nil {
		t.Error(err)
	}
	if Alive(dir, i.ID) || Alive(dir, cove.NewInstanceID()) {
		t.Error("it is alive")
	}
	if left, _ := os.ReadDir(dir + "/" + Dir); len(left) != 0 {
		t.Errorf("%v are left", left)
	}
}

func TestHoldSaysWhatToDo(t *testing.T) {
	file := t.TempDir() + "/file"
	os.WriteFile(file, nil, 0o600)
	_, err := Hold(file)
	if cove.ErrorCode(err) != cove.StorageFull || !strings.Contains(err.Error(), "COVE_RUN_DIR") {
		t.Errorf("got %v", err)
	}
}
