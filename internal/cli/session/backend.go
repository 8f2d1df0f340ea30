package session

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/cove-sandbox/cove/client"
)

// StartTimeout is how long a server may take until it answers, and another one
// until it has ended. It takes over sandboxes and sweeps up before.
const StartTimeout = time.Minute

// CloseTimeout is how long a daemon in this process may take to clean up.
const CloseTimeout = 15 * time.Second

// Dial speaks to the server at an address, with the key of the environment.
func (sess *Session) Dial(address string) (*Backend, error) {
	c, err := client.New(client.Options{Address: address, Key: sess.Getenv(keyVariable)})
	if err != nil {
		return nil, err
	}
	closed := make(chan struct{})
	go watch(c, closed, func() { sess.Say.Line("the server at %s does not answer; this command waits for it", address) })
	end := func() error { close(closed); c.Close(); return nil }
	return &Backend{address: address, Client: c, Close: sync.OnceValue(end)}, nil
}

// How long a server that is used goes unwatched, and how long it may then take to say that it lives.
const (
	unwatched = 2 * time.Second
	unheard   = time.Second
)

// watch calls say once if a server, asked beside whatever a command asks of it, does not answer.
func watch(c *client.Client, closed <-chan struct{}, say func()) {
	select {
	case <-closed:
		return
	case <-time.After(unwatched):
	}
	ctx, cancel := context.WithTimeout(context.Background(), unheard)
	defer cancel()
	c.Health(ctx)
	if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return
	}
	select {
	case <-closed:
	default:
		say()
	}
}
