package job_test

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"go.uber.org/goleak"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/engine/enginetest/fake"
	"github.com/cove-sandbox/cove/internal/engine/job"
	"github.com/cove-sandbox/cove/internal/engine/process"
	"github.com/cove-sandbox/cove/internal/engine/provision"
	"github.com/cove-sandbox/cove/internal/guest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T) (*fake.Engine, *job.Job) {
	t.Helper()
	e := fake.New(fake.Options{})
	j, err := job.Open(t.Context(), e, clock.Real(), provision.Plan{Shape: cove.Shape{User: cove.CodeUser}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := j.Close(); err != nil {
			t.Error(err)
		}
		if e.Close(); len(e.Live()) != 0 {
			t.Error("the sandbox of a job is left")
		}
	})
	return e, j
}

func script(text string) guest.ProcessSpec {
	return guest.ProcessSpec{Args: []string{"sh", "-c", text}, Env: []string{"PATH=/usr/bin:/bin"}, Dir: "/"}
}

func TestRun(t *testing.T) {
	_, j := open(t)
	for _, want := range []string{"one\n", "two\n"} { // a job may run several
		var said bytes.Buffer
		o, err := j.Run(t.Context(), script("echo "+want), process.Attendance{Stdout: &said})
		if err != nil || o.Code != 0 || said.String() != want {
			t.Errorf("%+v, %v, %q", o, err, said.String())
		}
	}
	_, err := j.Run(t.Context(), guest.ProcessSpec{Args: []string{"nothing"}, Dir: "/"}, process.Attendance{})
	if failure := new(guest.Failure); !errors.As(err, &failure) || failure.Kind != guest.FailNotFound {
		t.Errorf("a program that is not there: %v", err)
	}
}

// deafener makes the guests of an engine deaf as soon as a program of theirs says anything, and then ends a context.
type deafener struct {
	engine *fake.Engine
	cancel context.CancelFunc
}

func (d deafener) Write(p []byte) (int, error) {
	d.engine.Inject(fake.Faults{Deaf: true})
	d.cancel()
	return len(p), nil
}

// TestRunOfADeafGuest ends with its context, and the sandbox with it.
func TestRunOfADeafGuest(t *testing.T) {
	e, j := open(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	o, err := j.Run(ctx, script("echo started; sleep 100"), process.Attendance{Stdout: deafener{e, cancel}})
	if !errors.Is(err, context.Canceled) || o.Lost == nil {
		t.Fatalf("%+v, %v", o, err)
	}
	<-j.Done()
	e.Inject(fake.Faults{})
}
