// Package hostile proves what a guest that lies can do to the host: the real server and the real engine run it.
package hostile

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/test/await"
)

var lies = []string{"silence", "death", "half a frame", "four gigabytes", "garbage", "flood", "gap", "acknowledgement",
	"hello", "stranger", "another exit", "long failure", "no JSON", "descriptors"}

const groups = "cove-hostile-test"

// TestHostileGuest: whatever a guest says, its execution ends, others go on, and nothing is left.
func TestHostileGuest(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: control groups are not this user's to make")
	}
	dir, err := os.MkdirTemp("", "cove-ho-") // short: a unix socket's path has 107 bytes
	if err := errors.Join(err, os.Chmod(dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	build := exec.Command("go", "build", "-o", dir+"/", "../../cmd/cove", "./liar")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	server := exec.Command(filepath.Join(dir, "cove"), "serve", "--listen", "")
	server.Env = append(os.Environ(), "COVE_HOME="+filepath.Join(dir, "home"), "COVE_RUN_DIR="+filepath.Join(dir, "run"),
		"COVE_GUEST="+filepath.Join(dir, "liar"), "COVE_SANDBOX_CGROUP_PARENT="+groups, "HOME="+dir)
	var log bytes.Buffer
	server.Stdout, server.Stderr = &log, &log
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		server.Process.Kill()
		server.Wait()
		if t.Failed() {
			t.Logf("the end of the server's log:\n%s", log.Bytes()[max(0, log.Len()-4000):])
		}
	})
	c, err := client.New(client.Options{Address: "unix:" + filepath.Join(dir, "run/cove.sock")})
	if err != nil {
		t.Fatal(err)
	}
	truth := func() {
		t.Helper()
		e, err := c.Execute(t.Context(), api.ExecuteRequest{Language: "bash", Code: "echo hello"})
		if err != nil || e.Output != "hello\n" {
			t.Errorf("a guest that does not lie: %+v, %v", e, err)
		}
	}
	await.That(t, "the server answers", func() bool { _, err := c.Health(t.Context()); return err == nil })
	for range 3 { // what is made once, and the guests that wait
		truth()
	}
	await.That(t, "the guests wait", func() bool { return held(server.Process.Pid)["control groups"] > 0 })
	before := held(server.Process.Pid)
	for _, lie := range lies {
		t.Run(lie, func(t *testing.T) {
			began, done := time.Now(), make(chan string, 1)
			go func() {
				e, err := c.Execute(t.Context(), api.ExecuteRequest{Language: "bash", Code: "sleep 3; echo truth", Timeout: 2,
					Spec: api.Spec{Env: map[string]string{"LIE": lie}}})
				done <- fmt.Sprintf("%s, exit code %d, %v", e.Status, e.ExitCode, err)
			}()
			truth() // beside it
			select {
			case end := <-done:
				t.Logf("it ends after %v: %s", time.Since(began).Round(time.Millisecond), end)
				if strings.HasPrefix(end, string(api.StatusCompleted)) && lie != "another exit" {
					t.Error("the lie is believed")
				}
			case <-time.After(2 * time.Minute): // a guest has a minute to answer
				t.Error("it does not end")
			}
			truth()
		})
	}
	now := map[string]int{}
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); {
		time.Sleep(20 * time.Millisecond) // sleep: no event reports that a descriptor is closed
		if now = held(server.Process.Pid); now["descriptors"] <= before["descriptors"]+8 &&
			now["control groups"] <= before["control groups"] {
			return
		}
	}
	t.Errorf("the server holds %v, and held %v", now, before)
}

// held counts what a server holds.
func held(server int) map[string]int {
	open, _ := os.ReadDir(filepath.Join("/proc", strconv.Itoa(server), "fd"))
	count := map[string]int{"descriptors": len(open)}
	for _, pattern := range []string{"/sys/fs/cgroup/pids/" + groups + "/*", "/sys/fs/cgroup/" + groups + "/*"} {
		found, _ := filepath.Glob(pattern)
		for _, path := range found {
			if info, err := os.Stat(path); err == nil && info.IsDir() {
				count["control groups"]++
			}
		}
	}
	return count
}
