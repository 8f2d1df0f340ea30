package cli

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/client"
	"github.com/cove-sandbox/cove/internal/config"
	"github.com/cove-sandbox/cove/internal/daemon"
	"github.com/cove-sandbox/cove/internal/instance"
)

// serverSocket is where "cove serve" listens below the run directory, and
// instanceSockets where every process of Cove does while it lives.
const (
	serverSocket    = "cove.sock"
	instanceSockets = instance.Dir + "/*.sock"
)

// closeTimeout is how long a daemon in this process may take to clean up.
const closeTimeout = 15 * time.Second

// backend is where executions of this command happen.
type backend struct {
	client *client.Client
	close  func() error
}

// connect finds the backend: the server that was named, else the one of this
// machine when it answers, else a daemon in this process, which is warm when
// something is about to run.
func (a *app) connect(ctx context.Context, warm bool) (*backend, error) {
	if address := a.serverAddress(); address != "" {
		return a.remote(address)
	}
	cfg, err := a.loadConfig()
	if err != nil {
		return nil, err
	}
	if path := cfg.Socket(); answers(ctx, path) {
		return a.remote("unix:" + path)
	}
	return a.inProcess(ctx, cfg, warm)
}

// inProcess builds a daemon in this process.
func (a *app) inProcess(ctx context.Context, cfg *config.Config, warm bool) (*backend, error) {
	a.warn(cfg)
	d, err := daemon.New(ctx, daemon.Options{Config: cfg, Log: a.quietLogger(cfg), Warm: warm})
	if err != nil {
		return nil, err
	}
	closing := func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		return d.Close(ctx)
	}
	c, err := d.Client()
	if err != nil {
		closing()
		return nil, err
	}
	return &backend{client: c, close: func() error { c.Close(); return closing() }}, nil
}

func (a *app) serverAddress() string {
	if a.server != "" {
		return a.server
	}
	return a.getenv("COVE_SERVER")
}

func (a *app) remote(address string) (*backend, error) {
	c, err := client.New(client.Options{Address: address, Key: a.getenv("COVE_API_KEY")})
	if err != nil {
		return nil, err
	}
	return &backend{client: c, close: func() error { c.Close(); return nil }}, nil
}

// peers are all backends that have executions now: the server that was named,
// or every process of Cove on this machine that shares the run directory.
func (a *app) peers(ctx context.Context) ([]*backend, error) {
	if address := a.serverAddress(); address != "" {
		b, err := a.remote(address)
		if err != nil {
			return nil, err
		}
		return []*backend{b}, nil
	}
	cfg, err := a.loadConfig()
	if err != nil {
		return nil, err
	}
	var all []*backend
	for _, path := range liveSockets(ctx, cfg.RunDir) {
		b, err := a.remote("unix:" + path)
		if err != nil {
			return nil, err
		}
		all = append(all, b)
	}
	return all, nil
}

// readRecords asks a backend that can read the records: the server that was
// named, else a process that lives, else a daemon in this process. They share
// one store, so when one ends meanwhile the next is asked.
func (a *app) readRecords(ctx context.Context, ask func(*client.Client) error) error {
	peers, err := a.peers(ctx)
	if err != nil {
		return err
	}
	asked := false
	for _, p := range peers {
		if !asked {
			err = ask(p.client)
			asked = cove.ErrorCode(err) != cove.Unavailable
		}
		p.close()
	}
	if asked || a.serverAddress() != "" {
		return err
	}
	cfg, err := a.loadConfig()
	if err != nil {
		return err
	}
	b, err := a.inProcess(ctx, cfg, false)
	if err != nil {
		return err
	}
	err = ask(b.client)
	if cerr := b.close(); err == nil {
		err = cerr
	}
	return err
}

// liveSockets lists the sockets below the run directory that answer, the
// server's first.
func liveSockets(ctx context.Context, runDir string) []string {
	var live []string
	if path := filepath.Join(runDir, serverSocket); answers(ctx, path) {
		live = append(live, path)
	}
	found, err := filepath.Glob(filepath.Join(escapeGlob(runDir), instanceSockets))
	if err != nil {
		return live
	}
	slices.Sort(found)
	for _, path := range found {
		if answers(ctx, path) {
			live = append(live, path)
		}
	}
	return live
}

// escapeGlob keeps a directory's name from being read as a pattern.
func escapeGlob(dir string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(dir)
}

// answers reports whether somebody listens on a unix socket. A file that is
// there and refuses belongs to a process that was killed.
func answers(ctx context.Context, path string) bool {
	if _, err := os.Stat(path); err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
	if err != nil {
		return false
	}
	conn.Close()
	return true
}

// notHere reports an answer that another process may give differently.
func notHere(err error) bool {
	code := cove.ErrorCode(err)
	return code == cove.NotFound || code == cove.Conflict || code == cove.Unavailable
}
