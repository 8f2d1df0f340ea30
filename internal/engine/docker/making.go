//go:build linux

package docker

import (
	"context"
	"slices"

	"github.com/moby/moby/api/types/container"

	"github.com/cove-sandbox/cove"
)

// make runs f, which makes containers, unless and until the sandbox is destroyed.
func (s *sandbox) make(ctx context.Context, f func(context.Context) error) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	making, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.life, cancel)()
	var err error
	select {
	case s.engine.slots <- struct{}{}:
		err = f(making)
		<-s.engine.slots
	case <-making.Done():
	}
	switch {
	case s.life.Err() != nil:
		return cove.Errorf(cove.Conflict, "sandbox %s has been destroyed", s.ID())
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return err
}

// create makes a container, leaves a trace of it, and refuses one that is weaker than asked for.
func create(ctx context.Context, s *sandbox, name string, config *container.Config,
	host *container.HostConfig) (id string, err error) {
	e := s.engine
	s.traces = append(s.traces, trace{name: name, nonce: config.Labels[labelNonce]})
	id, err = e.api.create(ctx, name, config, host)
	if err != nil {
		return "", err
	}
	s.traces[len(s.traces)-1].id = id
	if e.api.podman.engine {
		return id, e.plain(ctx, id)
	}
	made, err := e.api.inspect(ctx, id)
	if err != nil {
		return "", err
	}
	if weaker := differences(host, made.HostConfig); len(weaker) > 0 {
		return "", e.notAsked(weaker)
	}
	return id, nil
}

// erase removes every container that has been made, the last first, on which no other one depends, and the image;
// called with changing held.
func (s *sandbox) erase(ctx context.Context) error {
	for len(s.traces) > 0 {
		if err := eraseTrace(ctx, s, len(s.traces)-1); err != nil {
			return err
		}
	}
	if s.image == "" {
		return nil
	}
	err := s.engine.api.removeImage(ctx, s.image)
	if err == nil {
		s.image = ""
	}
	return err
}

// eraseTrace removes the container of the trace at i; called with changing held.
func eraseTrace(ctx context.Context, s *sandbox, i int) error {
	t := s.traces[i]
	if t.id == "" { // its creation has failed, or the answer was lost
		found, err := s.engine.api.identify(ctx, t.name, t.nonce)
		if err != nil {
			return err
		}
		t.id = found
	}
	if t.id != "" {
		if err := s.engine.api.remove(ctx, t.id); err != nil {
			return err
		}
	}
	if t.group != nil {
		if err := t.group.Remove(groupPatience); err != nil {
			return cove.Errorf(cove.Unavailable, "a control group cannot be removed: %w", err)
		}
	}
	s.engine.disown(s.traces[i : i+1])
	s.traces = slices.Delete(s.traces, i, i+1)
	return nil
}
