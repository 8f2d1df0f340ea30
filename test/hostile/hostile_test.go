// Package hostile proves what a guest that lies can do to the host: the real server and the real engines run it.
package hostile

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/test/await"
	"github.com/cove-sandbox/cove/test/hostile/lie"
)

const groups = "cove-hostile-test"

// maxResident bounds a server's memory whatever its guests say, in bytes.
const maxResident = 400 << 20

// server is a server whose guests are liars.
type server struct {
	*client.Client
	t       *testing.T
	engine  string
	process *os.Process
}

// serve starts a server whose guests tell a lie from their beginning on, unless that is empty.
func serve(t *testing.T, engine, order string) *server {
	t.Helper()
	dir := newDir(t)
	cmd := exec.Command(filepath.Join(built, "cove"), "serve", "--listen", "")
	cmd.Env = append(os.Environ(), "COVE_HOME="+filepath.Join(dir, "home"), "COVE_RUN_DIR="+filepath.Join(dir, "run"),
		"COVE_GUEST="+liarIn(t, dir, order), "COVE_SANDBOX_CGROUP_PARENT="+groups, "COVE_ENGINE="+engine, "HOME="+dir)
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		if t.Failed() {
			t.Logf("the end of the server's log:\n%s", log.Bytes()[max(0, log.Len()-4000):])
		}
	})
	c, err := client.New(client.Options{Address: "unix:" + filepath.Join(dir, "run/cove.sock")})
	if err != nil {
		t.Fatal(err)
	}
	await.That(t, "the server answers", func() bool { _, err := c.Health(t.Context()); return err == nil })
	return &server{c, t, engine, cmd.Process}
}

// truth runs a program in a sandbox whose guest does not lie.
func (s *server) truth(t *testing.T) {
	t.Helper()
	e, err := s.Execute(t.Context(), api.ExecuteRequest{Language: "bash", Code: "echo hello"})
	if err != nil || e.Status != api.StatusCompleted || e.Output != "hello\n" || e.ExitCode != 0 {
		t.Errorf("a guest that does not lie: %+v, %v", e, err)
	}
}

// drain has the server destroy what it has prepared: how many sandboxes those are follows from what was asked for.
func (s *server) drain(t *testing.T) {
	t.Helper()
	if err := client.PoolOf(s.Client).Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// end is how an execution has ended, for its caller and in the history.
type end struct {
	code   cove.Code // that the caller was answered with; empty is a result
	status api.Status
	exit   int
	output string
}

// wrong returns what is wrong with the end of an execution whose guest lies about its program. The program prints a
// word, and takes longer than it may. A guest knows how its own program has ended, and nothing else that is believed:
// what it makes impossible fails, and what it leaves out ends with the time. It is pure.
func (e end) wrong(op guest.Op, l lie.Lie) string {
	want := map[lie.Reaction]end{
		lie.Ends: {code: cove.Internal, status: api.StatusFailed, exit: -1}, lie.Waits: {status: api.StatusTimeout, exit: -1},
		lie.Believed: {status: api.StatusTimeout, exit: -1}}
	want[lie.Fails] = want[lie.Ends]
	w := want[l.Want]
	if l.Name == "two exits" && op != lie.Executes || op == lie.Executes && l.Want == lie.Believed {
		w = end{status: api.StatusCompleted, exit: 7}
	}
	if op == guest.OpSignal { // the time was up before, and the sandbox is killed
		w = want[lie.Waits]
	}
	output := "word\n"
	if op == lie.Executes {
		switch l.Name {
		case "output without end":
			output = strings.Repeat(output, len(e.output))
		case "a failure": // to find the program
			w.code = cove.RuntimeMissing
		}
	}
	if e.code == w.code && e.status == w.status && e.exit == w.exit && strings.HasPrefix(output, e.output) {
		return ""
	}
	return fmt.Sprintf("it ends with %+v, want %+v", e, w)
}

// TestEnds: a result that a lie must not lead to is wrong.
func TestEnds(t *testing.T) {
	gap, _ := lie.Find("stream", "a gap")
	silence, _ := lie.Find("stream", "silence")
	good := end{code: cove.Internal, status: api.StatusFailed, exit: -1, output: "word\n"}
	if wrong := good.wrong("stream", gap); wrong != "" {
		t.Error(wrong)
	}
	for name, e := range map[string]end{
		"completed":     {status: api.StatusCompleted, output: "word\n"},
		"forged output": {code: cove.Internal, status: api.StatusFailed, exit: -1, output: "x"},
		"forged exit":   {code: cove.Internal, status: api.StatusFailed, exit: 0},
		"waited":        {status: api.StatusTimeout, exit: -1},
	} {
		if e.wrong("stream", gap) == "" {
			t.Errorf("%s is right", name)
		}
	}
	if good.wrong("stream", silence) == "" {
		t.Error("a failure of a silent guest is right")
	}
}

// TestHostileGuest: whatever a guest says, its execution ends as it has to, others go on, and nothing is left.
func TestHostileGuest(t *testing.T) {
	for _, engine := range engine.Names() {
		t.Run(engine, func(t *testing.T) {
			needs(t, engine)
			s := serve(t, engine, "")
			for range 3 { // what is made once, and the guests that wait
				s.truth(t)
			}
			s.drain(t)
			before := held(s.process.Pid)
			if engine == "native" {
				s.lieInExecutors(t)
			} else {
				s.lieInGuests(t)
			}
			s.drain(t)
			var more string
			for end := time.Now().Add(20 * time.Second); time.Now().Before(end); {
				now := held(s.process.Pid)
				now["descriptors"] -= 8 // of connections that are kept
				if more = leaked(before, now); more == "" {
					break
				}
				time.Sleep(20 * time.Millisecond) // sleep: no event reports that a descriptor is closed
			}
			if more != "" {
				t.Errorf("the server holds more than before: %s", more)
			}
			if now := resident(t, s.process.Pid); now > maxResident {
				t.Errorf("the server has %d MiB", now>>20)
			}
		})
	}
}

// lieInGuests has guests that are programs lie.
func (s *server) lieInGuests(t *testing.T) {
	for _, l := range lie.Streams {
		t.Run(l.Name, func(t *testing.T) { s.lieOnce(t, "stream", l) })
	}
	for _, op := range []guest.Op{guest.OpStart, guest.OpSignal} {
		for _, l := range lie.About(op) {
			if l.Want == lie.Waits && op == guest.OpStart {
				continue // a guest has a minute to answer; TestEveryMessage has less
			}
			if op == guest.OpStart || l.Want != lie.Ends || l.Name == "an answer to another" { // they are alike
				t.Run(string(op)+" "+l.Name, func(t *testing.T) { s.lieOnce(t, op, l) })
			}
		}
	}
}

// lieInExecutors has executors lie about the program that they start.
func (s *server) lieInExecutors(t *testing.T) {
	for _, l := range slices.Concat(lie.Executors, lie.Descriptors) {
		if l.Name != "silence" { // it has a minute to answer, too
			t.Run(l.Name, func(t *testing.T) { s.lieOnce(t, lie.Executes, lie.Lie{Name: l.Name, Want: l.Want}) })
		}
	}
}

// lieOnce has a guest lie in an execution, beside others.
func (s *server) lieOnce(t *testing.T, op guest.Op, l lie.Lie) {
	t.Helper()
	labels := map[string]string{"lie": string(op) + "." + strings.ReplaceAll(l.Name, " ", "-")}
	done := make(chan end, 1)
	go func() {
		answer, err := s.Execute(t.Context(), api.ExecuteRequest{Language: "bash", Code: "echo word; sleep 3; exit 3",
			Timeout: 2, Spec: api.Spec{Labels: labels, Env: map[string]string{"LIE": string(op) + "=" + l.Name}}})
		e := end{status: answer.Status, exit: answer.ExitCode, output: answer.Output}
		if err != nil {
			e.code = cove.ErrorCode(err)
		}
		done <- e
	}()
	s.truth(t) // beside it
	var e end
	select {
	case e = <-done:
	case <-time.After(30 * time.Second):
		t.Fatal("it does not end")
	}
	page, err := s.List(t.Context(), client.ListOptions{Labels: labels})
	if err != nil || len(page.Executions) != 1 {
		t.Fatalf("the history has %d of it, %v", len(page.Executions), err)
	}
	recorded, err := s.Get(t.Context(), page.Executions[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	if e.code == "" && (recorded.Status != e.status || recorded.ExitCode != e.exit || recorded.Output != e.output) {
		t.Errorf("the history says %+v, and the answer %+v", recorded, e)
	}
	e.status, e.exit, e.output = recorded.Status, recorded.ExitCode, recorded.Output
	if wrong := e.wrong(op, l); wrong != "" {
		t.Error(wrong)
	}
	s.truth(t)
}

// TestGuestsThatLieFromTheBeginning: with guests that lie before a program runs, every execution fails with a reason;
// the server answers, does not try for ever, and holds nothing of them.
func TestGuestsThatLieFromTheBeginning(t *testing.T) {
	for _, engine := range engine.Names() {
		orders := []string{"hello=another version", "bind=no failure", "write=an answer to another"}
		if engine == "native" {
			orders = []string{"executor=death", "executor=a message of no kind", "executor=an answer without a script",
				"executor=a failure", "executor=a flood of exits"}
		}
		for _, order := range orders {
			t.Run(engine+" "+order, func(t *testing.T) {
				needs(t, engine)
				s := serve(t, engine, order)
				try := func() {
					t.Helper()
					e, err := s.Execute(t.Context(), api.ExecuteRequest{Language: "bash", Code: "echo hello",
						Args: []string{"with arguments no interpreter is parked, to which the code is not written"}})
					code := cove.ErrorCode(err)
					if code != cove.Internal && code != cove.Unavailable || len(cove.ErrorMessage(err)) > 8<<10 {
						t.Errorf("it ends with %+v, %.200v", e, err)
					}
				}
				try()
				s.drain(t)
				before := held(s.process.Pid)
				used := processorTime(t, s.process.Pid)
				for range 3 {
					try()
				}
				time.Sleep(time.Second) // sleep: a server that tries again and again is busy meanwhile
				if now := processorTime(t, s.process.Pid) - used; now > 2*time.Second {
					t.Errorf("it has used %v of the processor", now)
				}
				s.drain(t)
				await.That(t, "it holds what it held", func() bool {
					now := held(s.process.Pid)
					now["descriptors"] -= 8
					return leaked(before, now) == ""
				})
				if _, err := s.Health(t.Context()); err != nil {
					t.Errorf("the server: %v", err)
				}
			})
		}
	}
}

// resident is a process's memory, in bytes.
func resident(t *testing.T, process int) int64 {
	t.Helper()
	return number(t, process, "statm", 1) * int64(os.Getpagesize())
}

// processorTime is what a process has used.
func processorTime(t *testing.T, process int) time.Duration {
	t.Helper()
	const tick = 10 * time.Millisecond
	return time.Duration(number(t, process, "stat", 13)+number(t, process, "stat", 14)) * tick
}

// number reads a field of a process's file in /proc.
func number(t *testing.T, process int, file string, field int) int64 {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(process), file))
	fields := strings.Fields(string(b))
	if err != nil || len(fields) <= field {
		t.Fatalf("%s: %q, %v", file, b, err)
	}
	n, err := strconv.ParseInt(fields[field], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// held counts what a process of Cove holds.
func held(process int) map[string]int {
	open, _ := os.ReadDir(filepath.Join("/proc", strconv.Itoa(process), "fd"))
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
