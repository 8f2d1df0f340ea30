package engine

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"

	"github.com/cove-sandbox/cove"
)

// The engines that Cove knows. Package engines opens them.
const (
	Native = "native"
	Docker = "docker"
	Podman = "podman"
	// Auto chooses the first engine that can be used.
	Auto = "auto"
)

// Names lists the engines in the order in which Auto tries them.
func Names() []string { return []string{Native, Docker, Podman} }

// PodmanHost returns the address of the Podman service that an account uses.
func PodmanHost(getenv func(string) string, uid int) string {
	if host := getenv("CONTAINER_HOST"); host != "" {
		return host
	}
	dir := "/run"
	if uid != 0 {
		dir = cmp.Or(getenv("XDG_RUNTIME_DIR"), "/run/user/"+strconv.Itoa(uid))
	}
	return "unix://" + dir + "/podman/podman.sock"
}

// Unused is the health of an engine that no caller has needed yet.
const Unused = "not used yet"

// Source opens an engine when it is first needed.
type Source struct {
	Name string
	Open func() (Engine, error)
	// Note, if not nil, records that the engine is open. It is never called once Set.Close has returned, and an engine
	// that it cannot record is closed.
	Note func() error
}

// Set holds the engines of a process. It opens each at most once at a time, and tries one that failed again: its daemon
// may have come up meanwhile.
type Set struct {
	sources  []Source // in order of preference
	fallback string

	openings chan struct{}          // has room for one
	opening  map[string]*sync.Mutex // held while a source is opened, by name: a daemon may take its time

	mu     sync.Mutex // taken after one of opening
	opened map[string]Engine
	failed map[string]error
	closed bool
}

// NewSet makes a Set. Auto tries sources in their order; fallback is the name of the default engine, or Auto.
func NewSet(fallback string, sources ...Source) *Set {
	s := &Set{sources: sources, fallback: fallback, opened: map[string]Engine{}, opening: map[string]*sync.Mutex{},
		openings: make(chan struct{}, 1), failed: map[string]error{}}
	for _, source := range sources {
		s.opening[source.Name] = new(sync.Mutex)
	}
	return s
}

// Get returns the engine of that name; empty is the default, Auto the first that can be used. Errors: InvalidArgument
// for an unknown name, and those of opening.
func (s *Set) Get(name string) (Engine, error) {
	return s.first(name, func(Capabilities) error { return nil })
}

// GetUntil is Get that waits until the end of ctx at most. The opening goes on beside the caller then.
func (s *Set) GetUntil(ctx context.Context, name string) (Engine, error) {
	var opened Engine
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		opened, err = s.Get(name)
	}()
	select {
	case <-done:
		return opened, err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Able returns the default engine, or else the first that can do what check asks for. The error is of the engine that
// came closest: the default's.
func (s *Set) Able(check func(Capabilities) error) (Engine, error) {
	e, err := s.first("", check)
	if err == nil {
		return e, nil
	}
	if e, other := s.first(Auto, check); other == nil {
		return e, nil
	}
	return nil, err
}

// first returns the first engine of a name that check accepts.
func (s *Set) first(name string, check func(Capabilities) error) (Engine, error) {
	if name == "" {
		name = s.fallback
	}
	var errs []error
	for _, source := range s.sources {
		if name != Auto && name != source.Name {
			continue
		}
		opened, err := s.open(source)
		if err == nil {
			err = check(opened.Capabilities())
		}
		if err == nil {
			return opened, nil
		}
		errs = append(errs, err)
	}
	if len(errs) == 0 {
		return nil, cove.Errorf(cove.InvalidArgument, "there is no engine %.64q", name).
			WithHint("choose one of %s or %s", strings.Join(s.Names(), ", "), Auto)
	}
	return nil, errors.Join(errs...)
}

// Names lists the engines in order of preference.
func (s *Set) Names() []string {
	var names []string
	for _, source := range s.sources {
		names = append(names, source.Name)
	}
	return names
}

func (s *Set) open(source Source) (Engine, error) {
	if opened, err := s.has(source.Name); opened != nil || err != nil {
		return opened, err
	}
	opening := s.opening[source.Name]
	opening.Lock()
	defer opening.Unlock()
	if opened, err := s.has(source.Name); opened != nil || err != nil {
		return opened, err
	}
	opened, err := source.Open()
	if err == nil {
		if err = s.add(source, opened); err != nil {
			err = errors.Join(err, opened.Close())
			opened = nil
		}
	}
	if err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.failed[source.Name] = err
	}
	return opened, err
}

// has returns an engine that is open, or nil. Errors: Shutdown, where it is not and will not be.
func (s *Set) has(name string) (Engine, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if opened := s.opened[name]; opened != nil || !s.closed {
		return opened, nil
	}
	return nil, cove.ShuttingDown()
}

// add adds an engine that has been opened. Errors: Shutdown, where s is closed, and those of its source's Note.
func (s *Set) add(source Source, opened Engine) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return cove.ShuttingDown()
	}
	if source.Note != nil {
		if err := source.Note(); err != nil {
			return err
		}
	}
	s.opened[source.Name], s.failed[source.Name] = opened, nil
	select {
	case s.openings <- struct{}{}:
	default: // it is to be received yet
	}
	return nil
}

// Openings receives after an engine has been opened, once for several since the last time.
func (s *Set) Openings() <-chan struct{} { return s.openings }

// Opened lists the engines that are open, in order of preference.
func (s *Set) Opened() []Engine {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []Engine
	for _, source := range s.sources {
		if opened := s.opened[source.Name]; opened != nil {
			all = append(all, opened)
		}
	}
	return all
}

// Health maps each engine to "ok", Unused, or the reason why it cannot be used.
func (s *Set) Health() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	health := map[string]string{}
	for _, source := range s.sources {
		switch {
		case s.opened[source.Name] != nil:
			health[source.Name] = "ok"
		case s.failed[source.Name] != nil:
			health[source.Name] = s.failed[source.Name].Error()
		default:
			health[source.Name] = Unused
		}
	}
	return health
}

// Close closes the engines that are open, and those that are being opened, once they are.
func (s *Set) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	var errs []error
	for _, opened := range s.Opened() {
		errs = append(errs, opened.Close())
	}
	return errors.Join(errs...)
}
