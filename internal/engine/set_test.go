package engine

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove"
)

// bare is an engine with capabilities and nothing else.
type bare struct {
	Engine
	name   string
	able   bool
	closed *int
}

func (b bare) Name() string               { return b.name }
func (b bare) Capabilities() Capabilities { return Capabilities{LateMount: b.able} }
func (b bare) Close() error               { *b.closed++; return nil }

// TestSet opens engines by name, by default, by what works, and by what they can do.
func TestSet(t *testing.T) {
	var closed, opened int
	broken := errors.New("no daemon answers")
	s := NewSet("plain",
		Source{Name: "broken", Open: func() (Engine, error) { opened++; return nil, broken }},
		Source{Name: "plain", Open: func() (Engine, error) { opened++; return bare{name: "plain", closed: &closed}, nil }},
		Source{Name: "able", Open: func() (Engine, error) {
			opened++
			return bare{name: "able", able: true, closed: &closed}, nil
		}})
	mounts := func(c Capabilities) error {
		if !c.LateMount {
			return cove.Errorf(cove.Unsupported, "no mounts")
		}
		return nil
	}
	if h := s.Health(); h["plain"] != Unused || len(h) != 3 {
		t.Errorf("health before: %v", h)
	}
	for _, tt := range []struct {
		name string
		get  func() (Engine, error)
		want string
	}{
		{"the default", func() (Engine, error) { return s.Get("") }, "plain"},
		{"by name", func() (Engine, error) { return s.Get("able") }, "able"},
		{"the first that works", func() (Engine, error) { return s.Get(Auto) }, "plain"},
		{"the first that can", func() (Engine, error) { return s.Able(mounts) }, "able"},
	} {
		e, err := tt.get()
		if err != nil || e.Name() != tt.want {
			t.Errorf("%s: %v, %v, want %s", tt.name, e, err, tt.want)
		}
	}
	if _, err := s.Get("other"); cove.ErrorCode(err) != cove.InvalidArgument || !strings.Contains(err.Error(), "other") {
		t.Errorf("an unknown name: %v", err)
	}
	before := opened
	if _, err := s.Get("broken"); !errors.Is(err, broken) {
		t.Errorf("a broken one: %v", err)
	}
	if opened != before+1 {
		t.Errorf("%d sources were opened, want a broken one tried again and no other", opened-before)
	}
	nothing := func(Capabilities) error { return cove.Errorf(cove.Unsupported, "too much asked") }
	if _, err := s.Able(nothing); cove.ErrorCode(err) != cove.Unsupported {
		t.Errorf("none is able: %v", err)
	}
	if h := s.Health(); h["plain"] != "ok" || h["broken"] != broken.Error() {
		t.Errorf("health after: %v", h)
	}
	if err := s.Close(); err != nil || closed != 2 {
		t.Errorf("closed %d, %v", closed, err)
	}
}

// TestSlowSource: while one engine is slow to open, the others can be used; one that opens after Close is closed, and
// not noted.
func TestSlowSource(t *testing.T) {
	var closed int
	var noted []string
	note := func(name string) func() error {
		return func() error { noted = append(noted, name); return nil }
	}
	begun, daemon := make(chan bool), make(chan bool)
	s := NewSet("plain",
		Source{Name: "slow", Open: func() (Engine, error) {
			begun <- true
			<-daemon
			return bare{name: "slow", closed: &closed}, nil
		}, Note: note("slow")},
		Source{Name: "plain", Open: func() (Engine, error) { return bare{name: "plain", closed: &closed}, nil },
			Note: note("plain")})
	late := make(chan error)
	go func() { _, err := s.Get("slow"); late <- err }()
	<-begun
	if e, err := s.Get(""); err != nil || e.Name() != "plain" {
		t.Errorf("beside it: %v, %v", e, err)
	}
	if h := s.Health(); h["slow"] != Unused || h["plain"] != "ok" || len(s.Opened()) != 1 {
		t.Errorf("health beside it: %v", h)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.GetUntil(ctx, "slow"); !errors.Is(err, context.Canceled) {
		t.Errorf("until the end: %v", err)
	}
	if err := s.Close(); err != nil || closed != 1 {
		t.Errorf("closed %d, %v", closed, err)
	}
	close(daemon)
	if err := <-late; cove.ErrorCode(err) != cove.Shutdown || closed != 2 {
		t.Errorf("late: %v, closed %d", err, closed)
	}
	if !slices.Equal(noted, []string{"plain"}) {
		t.Errorf("noted: %q", noted)
	}
}

// TestUnnoted: an engine that its source cannot note is closed, and tried again.
func TestUnnoted(t *testing.T) {
	var closed int
	full := errors.New("the disk is full")
	s := NewSet("plain", Source{Name: "plain",
		Open: func() (Engine, error) { return bare{name: "plain", closed: &closed}, nil },
		Note: func() error { return full }})
	if e, err := s.Get(""); e != nil || !errors.Is(err, full) || closed != 1 || len(s.Opened()) != 0 {
		t.Errorf("%v, %v, closed %d", e, err, closed)
	}
	if full = nil; s.Health()["plain"] == "ok" {
		t.Error("its health is ok")
	}
	if _, err := s.Get(""); err != nil || s.Health()["plain"] != "ok" {
		t.Errorf("again: %v", err)
	}
}
