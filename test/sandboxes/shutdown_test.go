package sandboxes

import (
	"bytes"
	"encoding/json"
	"errors"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/api"
	"github.com/cove-sandbox/cove/client"
)

// TestEndsAreToldApart: an execution and a command that end with a server which was told to stop say so, with a word
// that they may be asked for again. They differ from those that a user has killed, and from those of a server that was
// itself killed.
func TestEndsAreToldApart(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(l *lab, execution string)
		// Of an execution: how "cove run" exits and what it says, and the status of the record.
		exit   int
		says   string
		status api.Status
		// Of a command: how "cove exec" exits, and the code that it prints. It goes on when nothing happens to its server.
		command int
		code    string
	}{
		{"by a user", func(l *lab, id string) { l.must("cove", "kill", id) }, 137, "stopped: killed", api.StatusKilled, 0,
			""},
		{"by a shutdown", func(l *lab, _ string) { l.must("cove", "server", "stop") }, 123,
			"stopped: the server was told to stop while it ran; run it again", api.StatusShutdown, 123, "shutdown"},
		{"by a signal", func(l *lab, _ string) { syscall.Kill(l.serverPID(), syscall.SIGTERM) }, 123,
			"stopped: the server was told to stop while it ran; run it again", api.StatusShutdown, 123, "shutdown"},
		{"by a death", func(l *lab, _ string) { syscall.Kill(l.serverPID(), syscall.SIGKILL) }, 123,
			"the connection ended before the execution did", api.StatusFailed, 123, "unavailable"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t)
			l.env = append(l.env, "COVE_SHUTDOWN_GRACE=200ms")
			l.must("cove", "new", "--empty", "--no-attach", "--name", "lasts")
			l.must("cove", "exec", "--detach", "lasts", "--", "sleep", "4001")
			command := l.begun("cove", "exec", "--json", "lasts", "--", "sh", "-c", "echo >/tmp/begun; exec sleep 4002")
			execution := l.begun("cove", "run", "bash", "-c", "echo begun; exec sleep 4003")
			l.eventually("the command runs", func() bool {
				_, err := l.run("cove", "exec", "lasts", "--", "test", "-e", "/tmp/begun")
				return err == nil
			})
			var all api.ExecutionList
			l.eventually("the execution runs", func() bool {
				err := json.Unmarshal([]byte(l.must("cove", "ps", "--json")), &all)
				return err == nil && len(all.Executions) == 1
			})
			id := all.Executions[0].ID
			c.end(l, id)
			exit, said := execution.wait(t)
			if exit != c.exit || !strings.Contains(said, c.says) {
				t.Errorf("the execution exits with %d and says %q", exit, said)
			}
			if c.code == "" {
				l.must("cove", "exec", "lasts", "--", "pkill", "-f", "sleep 4002")
				command.wait(t)
			} else if exit, said := command.wait(t); exit != c.command || !strings.Contains(said, `"code": "`+c.code+`"`) {
				t.Errorf("the command exits with %d and says %q", exit, said)
			}
			l.must("cove", "list") // by the next server
			var record api.Execution
			l.eventually("the end is recorded", func() bool {
				err := json.Unmarshal([]byte(l.must("cove", "ps", "--all", "--json")), &all)
				if err != nil || len(all.Executions) != 1 {
					t.Fatalf("%+v, %v", all, err)
				}
				record = all.Executions[0]
				return record.Status != api.StatusRunning
			})
			if record.Status != c.status || record.ExitCode != -1 {
				t.Errorf("recorded is %+v", record)
			}
			var ps string
			l.eventually("the next server answers", func() bool { // the one before may be about to end
				out, err := l.run("cove", "exec", "lasts", "--", "ps", "-ef")
				ps = out
				return err == nil
			})
			if !strings.Contains(ps, "sleep 4001") || strings.Contains(ps, "sleep 4002") {
				t.Errorf("in the sandbox runs %s", ps)
			}
		})
	}
}

// TestShutdownOverHTTP: a caller of the API is told by a status, and by a code where nothing had begun.
func TestShutdownOverHTTP(t *testing.T) {
	l := newLab(t)
	l.env = append(l.env, "COVE_SHUTDOWN_GRACE=1s")
	l.must("cove", "server", "start")
	c, err := client.New(client.Options{Address: "unix:" + l.in("run/cove.sock")})
	if err != nil {
		t.Fatal(err)
	}
	begun, done := make(chan string, 1), make(chan api.Execution, 1)
	go func() {
		e, err := c.ExecuteStream(t.Context(), api.ExecuteRequest{Language: "bash", Code: "sleep 4004"},
			client.Stream{Started: func(id string) { begun <- id }})
		if err != nil {
			t.Error(err)
		}
		done <- e
	}()
	select {
	case <-begun:
	case e := <-done:
		t.Fatalf("it has not begun: %+v", e)
	}
	server := l.serverPID()
	if err := syscall.Kill(server, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	l.eventually("the server refuses", func() bool {
		_, err := c.Execute(t.Context(), api.ExecuteRequest{Language: "bash", Code: "true"})
		return cove.ErrorCode(err) == cove.Shutdown
	})
	var e api.Execution
	select {
	case e = <-done:
	case <-time.After(time.Minute):
		t.Fatal("the execution does not end with its server")
	}
	if e.Status != api.StatusShutdown || e.ExitCode != -1 || !strings.Contains(e.Error, "run it again") {
		t.Errorf("%+v", e)
	}
	l.eventually("the server ends", func() bool { return syscall.Kill(server, 0) == syscall.ESRCH })
}

// running is a command of the lab that runs.
type running struct {
	*exec.Cmd
	said bytes.Buffer // on both streams
}

// begun starts a command.
func (l *lab) begun(args ...string) *running {
	l.t.Helper()
	r := &running{Cmd: l.command(args...)}
	r.Stdout, r.Stderr = &r.said, &r.said
	if err := r.Start(); err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { // also when the test has failed; one that was waited for has ended
		r.Process.Signal(syscall.SIGTERM)
		r.Wait()
	})
	return r
}

// wait returns how the command exits, and what it has said.
func (r *running) wait(t *testing.T) (int, string) {
	t.Helper()
	err := r.Wait()
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return r.ProcessState.ExitCode(), r.said.String()
}
