//go:build linux

package forkserver

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cove-sandbox/cove/internal/linux/cgroup"
)

// handOver starts a fork server, and executes this program in the place of this process. The fork server is then taken
// if it is of the program at a path.
func handOver(path string) {
	variable, err := Ahead("/proc/self/exe")
	if err == nil {
		err = syscall.Exec("/proc/self/exe", []string{"test", "--takes", path}, []string{variable})
	}
	fmt.Println(err)
}

func takeOver(path string) {
	pid := 0
	fmt.Sscanf(os.Getenv(aheadVariable), "%d %d", new(int), &pid)
	Inherit()
	program, err := OpenProgram(path)
	if err != nil {
		fmt.Println(err)
		return
	}
	if path == "/bin/false" {
		EndInherited()
	}
	c, ok := Take(context.Background(), program)
	fmt.Println("taken", ok, "variable", os.Getenv(aheadVariable))
	if !ok {
		fmt.Println("ended", unix.Kill(pid, 0))
		return
	}
	_, again := Take(context.Background(), program)
	fmt.Println("again", again, "the same", c.PID() == pid)
	_, err = c.Fork(context.Background(), apart, cgroup.Door{})
	fmt.Println(err)
	c.Close()
	fmt.Println("ended", unix.Kill(pid, 0))
}

// TestAhead: a fork server that a process has started serves the program that takes its place, once, and ends where it
// is of another one.
func TestAhead(t *testing.T) {
	for path, want := range map[string]string{
		"/proc/self/exe": "taken true variable |again false the same true|fork: an executor has four files|" +
			"ended no such process",
		"/bin/true":  "taken false variable |ended no such process",
		"/bin/false": "taken false variable |ended no such process", // EndInherited is called before
	} {
		c := exec.Command("/proc/self/exe", "--ahead", path)
		c.Stderr = os.Stderr
		out, err := c.Output()
		if got := strings.ReplaceAll(strings.TrimSpace(string(out)), "\n", "|"); err != nil || got != want {
			t.Errorf("%s: %q, want %q (%v)", path, got, want, err)
		}
	}
}

// TestInheritNothing: what others have left in the environment is no fork server.
func TestInheritNothing(t *testing.T) {
	file, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, value := range []string{"", "x", "1 2", "-1 5", fmt.Sprint(file.Fd(), os.Getpid(), 1, 1),
		"99999 99999 1 1"} {
		t.Setenv(aheadVariable, value)
		Inherit()
		if _, told := os.LookupEnv(aheadVariable); told || inherited.server != nil {
			t.Errorf("%q: inherited %v, told on %v", value, inherited.server, told)
		}
	}
	if _, err := file.Stat(); err != nil {
		t.Errorf("a file that is none of the fork server's: %v", err)
	}
}
