// Package clients registers clients of a gateway: containers that Cove did not start. Each has an egress route with a
// listener of its own, which identifies it. The next process finds the clients again.
package clients

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/egress/model"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/engine"
	"github.com/cove-sandbox/cove/internal/gateway"
	"github.com/cove-sandbox/cove/internal/localsocket"
	"github.com/cove-sandbox/cove/internal/pattern"
	"github.com/cove-sandbox/cove/internal/store"
)

// Options of a Registry. All are required but BeyondLoopback.
type Options struct {
	Gateway        *gateway.Gateway // with Keep
	Store          store.Vault
	BeyondLoopback bool // clients may listen where other machines reach them
	Version        string
	Clock          clock.Clock
	Log            *slog.Logger
}

// Registry holds the registered clients of one gateway. Its methods may be called concurrently.
type Registry struct {
	o Options

	mu     sync.Mutex
	all    map[string]*client
	closed bool
}

// client is a registered client. Its route exists always, because its files do, and is open while it serves sockets.
type client struct {
	store.GatewayClient
	route   *gateway.Route // nil if it could not be opened; see problem
	proxy   net.Listener   // of a client that is not transparent
	session *Session       // of a transparent client with sockets
	problem error
}

// View describes a client at present.
type View struct {
	store.GatewayClient
	Open    bool              // its route is open
	Files   string            // directory on this machine of the files that it trusts
	Env     map[string]string // leads programs to the route
	Problem string            // why there is no route
	Models  []model.ProviderUsage
	Cut     int // connections and requests that the change has cut
}

// Health describes the health of a gateway.
type Health struct {
	Status  string // ok or closing
	Version string
	Clients int
	Open    int // of their routes
}

// New returns a Registry with the stored clients. One whose address is taken is closed, and logged.
func New(ctx context.Context, o Options) (*Registry, error) {
	r := &Registry{o: o, all: map[string]*client{}}
	known, err := o.Store.For(cove.System("")).GatewayClients(ctx)
	if err != nil {
		return nil, err
	}
	for _, k := range known {
		if k.Name == Default {
			continue // the command line says whether there is one
		}
		c := &client{GatewayClient: k}
		r.all[k.Name] = c
		r.tryOpen(c)
	}
	return r, nil
}

// Default is the name of the client that the command line of the gateway describes.
const Default = "default"

// SetDefault registers the default client, or replaces its policy. Errors: those of Register.
func (r *Registry) SetDefault(ctx context.Context, who cove.Principal, g store.GatewayRegistration) (View, error) {
	g.Name = Default
	return r.register(ctx, who, g)
}

var namePattern = pattern.New(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$`)

// Register opens a client's route, or replaces the policy of a registered client: at once, narrowing first, and cutting
// what is no longer allowed. Errors: InvalidArgument, NotFound for a credential, Conflict when the client is registered
// with another address or other credentials, StorageFull.
func (r *Registry) Register(ctx context.Context, who cove.Principal, g store.GatewayRegistration) (View, error) {
	if g.Name == Default {
		return View{}, cove.Errorf(cove.Conflict,
			"the client %q is the one that the gateway's command line describes", Default).WithHint("choose another name")
	}
	return r.register(ctx, who, g)
}

func (r *Registry) register(ctx context.Context, who cove.Principal, g store.GatewayRegistration) (View, error) {
	if !who.Sees(cove.MachineOwner()) {
		return View{}, cove.Errorf(cove.Forbidden, "the clients of the gateway are the machine owner's").
			WithHint("use the command line on that machine")
	}
	documents, err := check(g)
	if err != nil {
		return View{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return View{}, errClosed
	}
	if c := r.all[g.Name]; c != nil && c.route != nil {
		return r.replace(ctx, who, c, g, documents)
	}
	c := &client{GatewayClient: store.GatewayClient{GatewayRegistration: g, Sandbox: cove.NewSandboxID(),
		CreatedAt: r.o.Clock.Now()}}
	fresh := true
	if known, err := r.known(ctx, who, g.Name); err != nil {
		return View{}, err
	} else if known != "" {
		c.Sandbox, fresh = known, false
	}
	if err = r.open(c); err == nil {
		if err = r.o.Store.For(who).PutGatewayClient(ctx, c.GatewayClient); err != nil {
			c.route.Close()
		}
	}
	if err != nil {
		if fresh {
			r.o.Gateway.Discard(c.Sandbox)
		}
		return View{}, err
	}
	r.all[g.Name] = c
	return c.describe(), nil
}

var errClosed = cove.Errorf(cove.Unavailable, "the gateway is closing").WithHint("try again when it is back")

// known returns the identity of the stored client of a name; "" if there is none.
func (r *Registry) known(ctx context.Context, who cove.Principal, name string) (cove.SandboxID, error) {
	all, err := r.o.Store.For(who).GatewayClients(ctx)
	if i := slices.IndexFunc(all, func(c store.GatewayClient) bool { return c.Name == name }); i >= 0 {
		return all[i].Sandbox, err
	}
	return "", err
}

// check checks a registration, and returns its policy.
func check(g store.GatewayRegistration) ([]*policy.Document, error) {
	if !namePattern.MatchString(g.Name) {
		return nil, cove.Errorf(cove.InvalidArgument, "%.64q is no name for a client", g.Name).
			WithHint("use letters, digits, dots, dashes and underscores, 63 at most")
	}
	if _, err := cove.ParseExecutionID(g.Name); err == nil {
		return nil, cove.Errorf(cove.InvalidArgument, "%q is the id of an execution, not a name for a client", g.Name).
			WithHint("choose another name")
	}
	if g.Transparent && g.Listen != "" {
		return nil, cove.Errorf(cove.InvalidArgument, "the client %s would hand over its sockets and listen on %.100q",
			g.Name, g.Listen).WithHint("leave out transparent or listen")
	}
	return policy.Documents(g.Network)
}

// open opens a client's route, and serves it unless the client is transparent.
func (r *Registry) open(c *client) error {
	documents, err := check(c.GatewayRegistration)
	if err != nil {
		return err
	}
	if c.route, err = r.o.Gateway.Open(gateway.Spec{Sandbox: c.Sandbox, Name: c.Name, Object: c.Name,
		Owner: cove.RegisteredClient(c.Name), Policy: documents, Credentials: c.Credentials,
		Providers: c.Providers, Budget: c.Budget}); err != nil {
		return err
	}
	if c.Transparent {
		return nil
	}
	if c.Listen == "" {
		c.Listen = "127.0.0.1:0"
	}
	var address string
	if c.proxy, address, err = Listen(c.Listen, r.o.BeyondLoopback); err != nil {
		c.route.Close()
		c.route = nil
		return err
	}
	c.Listen = address // a port that was free is the client's from now on
	c.route.ServeProxy(c.proxy)
	return nil
}

// Extend adds to the policy of a client, as Register would replace it. Additions to the default client are lost when
// its files are read again. Errors: InvalidArgument, NotFound, Unavailable when the client has no route.
func (r *Registry) Extend(ctx context.Context, who cove.Principal, name string, more store.NetworkChange) (
	cut int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, err := r.routed(who, name)
	if err != nil {
		return 0, err
	}
	g := c.GatewayRegistration
	g.Allow = append(slices.Clip(g.Allow), more.Allow...)
	g.Deny = append(slices.Clip(g.Deny), more.Deny...)
	g.Presets = append(slices.Clip(g.Presets), more.Presets...)
	g.PassThrough = append(slices.Clip(g.PassThrough), more.PassThrough...)
	documents, err := check(g)
	if err != nil {
		return 0, err
	}
	changed, err := r.replace(ctx, who, c, g, documents)
	return changed.Cut, err
}

func (r *Registry) replace(ctx context.Context, who cove.Principal, c *client, g store.GatewayRegistration,
	documents []*policy.Document) (View, error) {
	differs := ""
	switch {
	case g.Transparent != c.Transparent:
		differs = "way to listen"
	case g.Listen != "" && g.Listen != c.Listen && g.Listen != "127.0.0.1:0":
		differs = "address"
	case !slices.Equal(g.Credentials, c.Credentials):
		differs = "set of credentials"
	case !slices.Equal(g.Providers, c.Providers) || g.Budget != c.Budget:
		differs = "set of model providers, or another budget"
	}
	if differs != "" {
		return View{}, cove.Errorf(cove.Conflict, "the client %s is there with another %s", c.Name, differs).
			WithHint("remove it first, or leave that as it is")
	}
	cut, err := c.route.Replace(documents...)
	if err != nil {
		return View{}, err
	}
	c.Network = g.Network // whose other fields are the same
	c.Dir = cmp.Or(g.Dir, c.Dir)
	if err := r.o.Store.For(who).PutGatewayClient(ctx, c.GatewayClient); err != nil {
		return View{}, cove.Errorf(cove.ErrorCode(err), "the policy of %s is in force, but not kept: %w",
			c.Name, err).WithHint("%s", cove.ErrorHint(err))
	}
	d := c.describe()
	d.Cut = cut
	return d, nil
}

func (c *client) describe() View {
	v := View{GatewayClient: c.GatewayClient, Env: map[string]string{}}
	if c.route == nil {
		v.Problem = fmt.Sprint(c.problem)
		return v
	}
	v.Models = c.route.Models()
	v.Open, v.Files = c.proxy != nil || c.session != nil, c.route.Files()
	proxy := ""
	if c.Transparent {
		proxy = fmt.Sprintf("127.0.0.1:%d", engine.ProxyPort) // in the namespace of its sockets
	} else if c.proxy != nil {
		if tcp, ok := c.proxy.Addr().(*net.TCPAddr); ok {
			proxy = tcp.String()
		}
	}
	v.Env = c.route.EnvAt(proxy, cmp.Or(c.Dir, v.Files))
	return v
}

// List lists the clients by name.
func (r *Registry) List(who cove.Principal) []View {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := []View{}
	if !who.Sees(cove.MachineOwner()) {
		return all
	}
	for _, name := range slices.Sorted(maps.Keys(r.all)) {
		all = append(all, r.all[name].describe())
	}
	return all
}

// find returns a client; mu must be held. Clients are the machine owner's.
func (r *Registry) find(who cove.Principal, name string) (*client, error) {
	if r.closed {
		return nil, errClosed
	}
	c := r.all[name]
	if c == nil || !who.Sees(cove.MachineOwner()) {
		return nil, cove.Errorf(cove.NotFound, "the gateway has no client %.64q", name).
			WithHint("\"cove gateway list\" lists them")
	}
	return c, nil
}

// routed returns a client with a route; mu must be held.
func (r *Registry) routed(who cove.Principal, name string) (*client, error) {
	c, err := r.find(who, name)
	if err == nil && c.route == nil {
		err = cove.Errorf(cove.Unavailable, "the client %s has no egress route: %w", name, c.problem)
	}
	return c, err
}

// Certificate returns that of a client's authority, as PEM. Errors: NotFound, Unavailable when the client has no route.
func (r *Registry) Certificate(who cove.Principal, name string) ([]byte, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, err := r.routed(who, name)
	if err != nil {
		return nil, err
	}
	return c.route.Certificate(), nil
}

// Remove closes a client's route for good. Errors: NotFound, Conflict for the default client, StorageFull.
func (r *Registry) Remove(ctx context.Context, who cove.Principal, name string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, err := r.find(who, name)
	if err != nil {
		return err
	}
	if name == Default {
		return cove.Errorf(cove.Conflict, "the client %q is the one that the gateway's command line describes", Default).
			WithHint("run the gateway without --listen")
	}
	if err := r.o.Store.For(who).RemoveGatewayClient(ctx, name); err != nil {
		return err
	}
	delete(r.all, name)
	c.close()
	return r.o.Gateway.Discard(c.Sandbox)
}

func (c *client) close() {
	if c.session != nil {
		close(c.session.done)
		c.session = nil
	}
	if c.route != nil {
		c.route.Close()
	}
}

// Session serves a transparent client's sockets for as long as a process attends to them.
type Session struct {
	registry *Registry
	client   *client
	done     chan struct{}
}

// Attach opens a transparent client's route on sockets of its network namespace (engine.RouteListeners), and takes them
// over, until the session ends. Errors: NotFound, Conflict when the route is open or the client is not transparent.
func (r *Registry) Attach(who cove.Principal, name string, sockets []*os.File) (_ *Session, err error) {
	defer func() {
		for _, f := range sockets {
			if err != nil {
				f.Close()
			}
		}
	}()
	r.mu.Lock()
	defer r.mu.Unlock()
	c, err := r.find(who, name)
	switch {
	case err != nil:
		return nil, err
	case !c.Transparent:
		return nil, cove.Errorf(cove.Conflict, "the client %s listens on %s", name, c.Listen).
			WithHint("register another with transparent")
	case c.session != nil:
		return nil, cove.Errorf(cove.Conflict, "the client %s is attached already", name).
			WithHint("choose another name, or end what holds it")
	case c.route == nil:
		return nil, cove.Errorf(cove.Unavailable, "the client %s has no egress route: %w", name, c.problem)
	}
	c.session = &Session{registry: r, client: c, done: make(chan struct{})}
	if err := c.route.Serve(sockets); err != nil {
		r.reopen(c)
		return nil, err
	}
	return c.session, nil
}

// Done is closed when the gateway has ended the session.
func (s *Session) Done() <-chan struct{} { return s.done }

// End closes the route, after the process that attended to the sockets has gone. It may be called again.
func (s *Session) End() {
	s.registry.mu.Lock()
	defer s.registry.mu.Unlock()
	if s.client.session == s {
		s.registry.reopen(s.client)
	}
}

// reopen closes the route of a session, and opens one for the next session.
func (r *Registry) reopen(c *client) {
	c.session = nil
	c.route.Close()
	c.route = nil
	r.tryOpen(c)
}

// tryOpen opens a client's route, or logs the problem.
func (r *Registry) tryOpen(c *client) {
	if c.problem = r.open(c); c.problem != nil {
		r.o.Log.Error("a client of the gateway has no egress route", "client", c.Name, "error", c.problem)
	}
}

// Health describes the gateway at present.
func (r *Registry) Health() Health {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := Health{Status: "ok", Version: r.o.Version, Clients: len(r.all)}
	if r.closed {
		h.Status = "closing"
	}
	for _, c := range r.all {
		if c.route != nil && (c.proxy != nil || c.session != nil) {
			h.Open++
		}
	}
	return h
}

// Close closes every route. The stored clients stay.
func (r *Registry) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	r.closed = true
	for _, c := range r.all {
		c.close()
	}
}

// Listen listens at "HOST:PORT" or "unix:/PATH", for its owner alone, and returns the address: port 0 is any that is
// free. A program that reaches the address goes out as the client, so it must be loopback or a unix socket unless
// beyond is set (invariant A1). Errors: InvalidArgument, Conflict when another program listens there.
func Listen(address string, beyond bool) (net.Listener, string, error) {
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		l, err := listenUnix(path)
		return l, address, err
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, "", cove.Errorf(cove.InvalidArgument, "%.100q is no address to listen on", address).
			WithHint("write 127.0.0.1:3128 or unix:/path")
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return nil, "", cove.Errorf(cove.InvalidArgument, "%.100q: %.64q is no numeric address", address, host).
			WithHint("write 127.0.0.1:3128 or unix:/path")
	}
	if !beyond && !ip.IsLoopback() {
		return nil, "", cove.Errorf(cove.InvalidArgument,
			"refusing to listen on %s: every program that reaches it would go out with this policy and its credentials",
			address).
			WithHint("listen on 127.0.0.1 or a unix socket, or run the gateway with --beyond-loopback")
	}
	l, err := net.Listen("tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, "", cove.Errorf(cove.Conflict, "%s is in use by another program", address).
			WithHint("choose another address")
	}
	if err != nil {
		return nil, "", cove.Errorf(cove.InvalidArgument, "cannot listen on %.100q: %w", address, err).
			WithHint("choose another address")
	}
	return l, l.Addr().String(), nil
}

// listenUnix listens at a path, and replaces a socket that is not served any more.
func listenUnix(path string) (net.Listener, error) {
	fail := func(err error) (net.Listener, error) {
		return nil, cove.Errorf(cove.InvalidArgument, "cannot listen on unix:%s: %w", path, err).
			WithHint("a socket's path is absolute and has about 90 bytes at most")
	}
	if !filepath.IsAbs(path) {
		return fail(errors.New("the path is not absolute"))
	}
	if info, err := os.Lstat(path); err == nil && info.Mode().Type() != os.ModeSocket {
		return nil, cove.Errorf(cove.Conflict, "there is something else at %s", path).
			WithHint("choose another path, or move it away")
	}
	if c, err := net.Dial("unix", path); err == nil {
		c.Close()
		return nil, cove.Errorf(cove.Conflict, "another program listens on unix:%s already", path).
			WithHint("choose another path, or end that program")
	}
	l, err := localsocket.Listen(path)
	if err != nil {
		return fail(err)
	}
	return l, nil
}
