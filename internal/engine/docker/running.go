//go:build linux

package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/linux/unixconn"
)

// connect attaches to the container's streams, has it started, and waits for the guest's hello.
func (c *running) connect(ctx context.Context, a *api) error {
	var err error
	if c.stream, err = a.attach(ctx, c.id, true); err != nil {
		return err
	}
	if err := a.start(ctx, c.id); err != nil {
		c.stream.Close()
		return err
	}
	hello, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	if c.client, err = guest.NewClient(hello, c.stream); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return c.failed("begin", err)
	}
	return nil
}

// failed explains with the guest's own words.
func (c *running) failed(doing string, err error) error {
	var failure *guest.Failure
	if errors.As(err, &failure) {
		return cove.Errorf(cove.Unavailable, "the sandbox's guest cannot %s: %w", doing, failure).
			WithHint("run \"cove doctor\" for what this host lacks")
	}
	if text := c.complaint(); text != "" {
		err = fmt.Errorf("%w: %q", err, text)
	}
	return cove.Errorf(cove.Unavailable, "the sandbox's guest did not %s: %w", doing, err).
		WithHint("cove and cove-guest must come from one build, and cove-guest must be static; look at the daemon's log")
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// called is the guest's connection, and what it says on its streams.
type called struct {
	*unixconn.Conn
	stream *stream
}

func (c called) Close() error {
	c.stream.Close()
	return c.Conn.Close()
}

// wait has the container started and waits at door for its guest's call.
func (c *running) wait(ctx context.Context, a *api, door *os.File) error {
	var err error
	if c.stream, err = a.attach(ctx, c.id, false); err != nil {
		return err
	}
	if err := a.start(ctx, c.id); err != nil {
		c.stream.Close()
		return err
	}
	c.silent = make(chan struct{})
	go func() {
		defer close(c.silent)
		io.Copy(io.Discard, c.stream) // only what it complains about is kept
		door.Close()                  // a container that has ended does not call
	}()
	hello, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	stop := context.AfterFunc(hello, func() { door.Close() })
	conn, err := unixconn.Accept(door)
	stop()
	if err == nil {
		c.client, err = guest.NewClient(hello, called{conn, c.stream})
	} else {
		defer c.stream.Close()
	}
	if err != nil && ctx.Err() == nil {
		return c.failed("begin", err)
	}
	return err
}

// complaint returns the errors that the guest has written by now, or within a moment.
func (c *running) complaint() string {
	if c.stream == nil { // adopted: it was bound long ago
		return ""
	}
	if c.silent != nil {
		select {
		case <-c.silent:
		case <-time.After(100 * time.Millisecond):
		}
	}
	return c.stream.text()
}

func (c *running) answers() bool {
	select {
	case <-c.client.Done():
		return false
	default:
		return true
	}
}
