package guest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"syscall"
	"time"
)

// A sandbox whose PID 1 is an executor has no program inside that could hold its processes when the host goes. A keeper
// is one: a guest below PID 1, which is there as long as there are processes, and has the same protocol.

// ErrNoKeeper is the error of a KeeperDoor behind which no keeper is.
var ErrNoKeeper = errors.New("no keeper runs")

// ErrKeeperGone is the error of processes whose keeper has ended, in a sandbox that goes on.
var ErrKeeperGone = errors.New(
	"the program that holds the sandbox's processes has ended, and ended them: the sandbox goes on, and can start others")

// Errors of starts: of one that the keeper does not answer, and of one whose keeper ends as it begins.
var (
	ErrKeeperStopped = errors.New("what holds the processes of the sandbox does not answer: a program inside may have " +
		"stopped it")
	ErrKeeperEnds = errors.New("what holds the processes of the sandbox ends as it begins: it finds no room for its " +
		"threads under the limit of processes, or a program inside ends it")
)

// KeeperDoor leads to the keeper of a sandbox.
type KeeperDoor interface {
	// Dial connects to a keeper that runs. Errors: ErrNoKeeper.
	Dial() (Conn, error)
	// Launch starts a keeper, instead of any other, and returns its first connection.
	Launch(ctx context.Context) (Conn, error)
}

const (
	// keeperPatience is how long a keeper may take to begin, and a call of the keeper's end to find out about it.
	keeperPatience = 10 * time.Second
	// keeperLinger is how long a keeper stays without a process, for the next one: it takes milliseconds to start.
	keeperLinger = time.Second
)

// Keeper is a Client's way to the guest that holds the processes of its sandbox. It starts one where it is needed, and
// lets it end: a keeper whose connection ends while it holds no process ends by itself. So a start never meets one that
// is about to end, except one that it has just connected to, which says nothing then.
type Keeper struct {
	// Linger is how long a keeper stays without a process. It is not changed once there is one.
	Linger time.Duration
	// Patience is how long it may take to start a process. It is not changed either.
	Patience time.Duration

	sandbox *Client
	door    KeeperDoor

	turn chan struct{} // held while a connection is made

	mu     sync.Mutex
	client *Client // nil while none is connected
	users  int     // calls under way
	timer  *time.Timer
	closed bool
}

// NewKeeper has the processes of a client's sandbox held by a keeper, from the client's first use on, and connects to
// the one that runs, if any.
func NewKeeper(ctx context.Context, c *Client, door KeeperDoor) (*Keeper, error) {
	k := &Keeper{sandbox: c, door: door, Linger: keeperLinger, Patience: keeperPatience, turn: make(chan struct{}, 1)}
	c.keeper = k
	there, err := k.enter(ctx, false)
	if err != nil || there == nil {
		return k, err
	}
	c.hello.Processes = there.hello.Processes
	k.leave(there)
	return k, nil
}

// holds counts the processes of a client that its guest has not been told to forget.
func holds(c *Client) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.held
}

func gone(c *Client) bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// Threads is the number of threads of the keeper, 0 if none is known to run.
func (k *Keeper) Threads() int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.client == nil || gone(k.client) {
		return 0
	}
	return min(max(k.client.hello.Threads, 0), Threads+LateThreads)
}

// kept calls f with the client of the keeper, or returns none where no keeper runs. With start one is started then.
func kept[T any](ctx context.Context, k *Keeper, start bool, none T, f func(*Client) (T, error)) (T, error) {
	c, err := k.enter(ctx, start)
	if err != nil || c == nil {
		return none, err
	}
	defer k.leave(c)
	return f(c)
}

// enter returns the client of the keeper, which is left connected until leave. Without start it may be nil.
func (k *Keeper) enter(ctx context.Context, start bool) (*Client, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	select {
	case k.turn <- struct{}{}:
		defer func() { <-k.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if c := k.connected(); c != nil {
		return c, nil
	}
	ctx, cancel := context.WithTimeout(ctx, keeperPatience)
	defer cancel()
	c, err := k.connect(ctx, k.door.Dial)
	if errors.Is(err, ErrNoKeeper) {
		if !start {
			return nil, nil
		}
		c, err = k.connect(ctx, func() (Conn, error) { return k.door.Launch(ctx) })
		if errors.Is(err, ErrNoKeeper) {
			err = ErrKeeperEnds
		}
	}
	if err != nil {
		return nil, err
	}
	return c, k.take(c)
}

// connected returns the client, for a call.
func (k *Keeper) connected() *Client {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.client == nil || gone(k.client) {
		return nil
	}
	k.users++
	return k.client
}

// take makes a client that of the keeper, for a call.
func (k *Keeper) take(c *Client) error {
	k.mu.Lock()
	if k.closed {
		k.mu.Unlock()
		c.Close()
		return ErrClosed
	}
	defer k.mu.Unlock()
	k.sandbox.mu.Lock()
	c.nextID = max(c.nextID, k.sandbox.nextID) // ids are not used again
	k.sandbox.mu.Unlock()
	k.client = c
	k.users++
	return nil
}

// connect returns a client of a new connection. A keeper that says nothing and has gone is none.
func (k *Keeper) connect(ctx context.Context, dial func() (Conn, error)) (*Client, error) {
	conn, err := dial()
	if err != nil {
		return nil, err
	}
	c := newClient(conn)
	c.idle, c.ending = k.idle, k.ending
	err = begin(ctx, c)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = ErrNoKeeper
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}

// leave ends a call.
func (k *Keeper) leave(c *Client) {
	k.mu.Lock()
	k.users--
	k.mu.Unlock()
	k.idle(c)
}

// idle has the keeper end in a moment, unless it has a process then.
func (k *Keeper) idle(c *Client) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.timer != nil {
		k.timer.Stop()
		k.timer = nil
	}
	if k.needed(c) {
		return
	}
	k.timer = time.AfterFunc(k.Linger, func() {
		k.mu.Lock()
		if k.needed(c) {
			k.mu.Unlock()
			return
		}
		k.client = nil
		k.remember(c)
		k.mu.Unlock()
		c.Close()
	})
}

// needed reports whether a client stays connected. It requires mu.
func (k *Keeper) needed(c *Client) bool { return k.client != c || k.users > 0 || holds(c) > 0 }

// remember keeps the last id that a client has used. It requires mu.
func (k *Keeper) remember(c *Client) {
	c.mu.Lock()
	last := c.nextID
	c.mu.Unlock()
	k.sandbox.mu.Lock()
	k.sandbox.nextID = max(k.sandbox.nextID, last)
	k.sandbox.mu.Unlock()
}

// ending returns what the processes of a client are told when its connection has ended. One that lies is ended, with
// all that it has started.
func (k *Keeper) ending(c *Client, err error) error {
	k.mu.Lock()
	mine := k.client == c
	if mine {
		k.client = nil
		k.remember(c)
	}
	k.mu.Unlock()
	if !mine { // this host has closed it
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), keeperPatience)
	defer cancel()
	if err != ErrClosed {
		if killed := k.sandbox.do(ctx, OpSignal, Signal{All: true, Signal: int(syscall.SIGKILL)}); killed != nil {
			return fmt.Errorf("%w; what it has started goes on: %w", err, killed)
		}
		return err
	}
	if k.sandbox.do(ctx, OpStats, nil) == nil {
		return ErrKeeperGone
	}
	return err
}

// close ends the connection to the keeper, which goes on if it has a process.
func (k *Keeper) close() {
	k.mu.Lock()
	c := k.client
	k.client, k.closed = nil, true
	if k.timer != nil {
		k.timer.Stop()
	}
	k.mu.Unlock()
	if c != nil {
		c.Close()
	}
}

// OpKeep starts a keeper: Keep → nothing. The host itself serves it where PID 1 is an executor; no guest receives it.
const OpKeep Op = "keep"

// Keep is the request to start a keeper. With it go the keeper's first connection, the listening socket for others, and
// its program.
type Keep struct {
	Env []string `json:"env"`
}

// Launch has PID 1 start a keeper, and ends an earlier one.
func Launch(ctx context.Context, c *Client, k Keep, fds ...int) error {
	return c.do(ctx, OpKeep, k, fds...)
}

// Executor describes the PID 1 of a bound sandbox, for a host that takes it over.
type Executor struct {
	Version   int // of the scripts
	UID, GID  int // the executor's own, inside
	UserUID   int
	UserGID   int
	Groups    []int `json:",omitempty"` // the user's supplementary ones
	OpenFiles int64
	Listeners []Listen `json:",omitempty"`
}
