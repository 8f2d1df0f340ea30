//go:build linux

package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/guest"
	"github.com/cove-sandbox/cove/internal/linux/unixconn"
)

// connect attaches to the container's streams, has it started, and waits for the guest's hello: over the streams, or at
// door if there is one.
func (c *running) connect(ctx context.Context, a *api, door *os.File) error {
	err := a.ready(ctx, c.id)
	if err != nil {
		return err
	}
	if c.stream, err = a.attach(ctx, c.id, door == nil); err != nil {
		return err
	}
	if err := a.start(ctx, c.id); err != nil {
		c.stream.Close()
		return err
	}
	hello, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	var conn guest.Conn = c.stream
	if door != nil {
		conn, err = c.called(hello, door)
	}
	if err == nil {
		c.client, err = guest.NewClient(hello, conn)
	}
	if err == nil {
		return nil
	}
	defer c.stream.Close()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return c.failed("begin", err)
}

func (c *running) called(ctx context.Context, door *os.File) (guest.Conn, error) {
	c.silent = make(chan struct{})
	go func() {
		defer close(c.silent)
		io.Copy(io.Discard, c.stream) // only what it complains about is kept
		door.Close()                  // a container that has ended does not call
	}()
	defer context.AfterFunc(ctx, func() { door.Close() })()
	conn, err := unixconn.Accept(door)
	if err != nil {
		return nil, err
	}
	return called{conn, c.stream}, nil
}

// failed explains with the guest's own words.
func (c *running) failed(doing string, err error) error {
	if failure, ok := errors.AsType[*guest.Failure](err); ok {
		return cove.Errorf(cove.Unavailable, "the sandbox's guest cannot %s: %w", doing, failure).
			WithHint("run \"cove doctor\" for what this host lacks")
	}
	if text := c.complaint(); text != "" {
		err = fmt.Errorf("%w: %q", err, text)
	}
	return cove.Errorf(cove.Unavailable, "the sandbox's guest did not %s: %w", doing, err).
		WithHint("cove and cove-guest must come from one build, and cove-guest must be static; look at the daemon's log")
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

// complaint returns the errors that the guest has written by now, or within a moment.
func (c *running) complaint() string {
	if c.stream == nil { // adopted: it was bound long ago
		return ""
	}
	return c.stream.complaint.Text(c.silent)
}

func (c *running) answers() bool {
	select {
	case <-c.client.Done():
		return false
	default:
		return true
	}
}
