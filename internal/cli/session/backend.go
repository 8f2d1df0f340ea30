package session

import (
	"time"

	"github.com/cove-sandbox/cove/client"
)

// StartTimeout is how long a server may take until it answers, and another one
// until it has ended. It takes over sandboxes and sweeps up before.
const StartTimeout = time.Minute

// CloseTimeout is how long a daemon in this process may take to clean up.
const CloseTimeout = 15 * time.Second

// Backend is the server that this command uses: another process, or this one.
type Backend struct {
	Client *client.Client
	Close  func() error
}

// Dial speaks to the server at an address, with the key of the environment.
func (sess *Session) Dial(address string) (*Backend, error) {
	c, err := client.New(client.Options{Address: address, Key: sess.Getenv(keyVariable)})
	if err != nil {
		return nil, err
	}
	return &Backend{Client: c, Close: func() error { c.Close(); return nil }}, nil
}
