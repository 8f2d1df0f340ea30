package daemon_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove/test/await"
)

// TestProfiles: the owner reads profiles at a socket of their own where that is configured, and nowhere otherwise; the
// sockets of the API, on the network too, never have them.
func TestProfiles(t *testing.T) {
	for name, on := range map[string]bool{"by default": false, "configured": true} {
		t.Run(name, func(t *testing.T) {
			cfg := settings(t)
			cfg.Listen = "127.0.0.1:0"
			cfg.Server.Debug = cfg.Server.Debug || on
			socket := filepath.Join(cfg.RunDir, "cove-debug.sock")
			d, c := start(t, cfg)
			ctx, cancel := context.WithCancel(t.Context())
			served := make(chan error)
			go func() { served <- d.Serve(ctx) }()
			var network string
			await.That(t, "the server listens", func() bool {
				h, err := c.Health(t.Context())
				if err == nil && len(h.Listens) > 0 {
					network = strings.TrimPrefix(h.Listens[0], "http://")
				}
				return network != ""
			})
			get := func(kind, at, path string) (int, string) {
				asks := http.Client{Transport: &http.Transport{DisableKeepAlives: true,
					DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
						return new(net.Dialer).DialContext(ctx, kind, at)
					}}}
				r, err := asks.Get("http://localhost" + path)
				if err != nil {
					return 0, err.Error()
				}
				defer r.Body.Close()
				body, _ := io.ReadAll(r.Body)
				return r.StatusCode, string(body)
			}
			status, body := get("unix", socket, "/debug/pprof/goroutine?debug=1")
			if (status == 200) != on || strings.Contains(body, "daemon.(*Daemon).Serve") != on {
				t.Errorf("status %d: %.200s", status, body)
			}
			for _, path := range []string{"/debug/pprof/", "/debug/pprof/cmdline", "/debug/flight"} {
				for at, kind := range map[string]string{cfg.Socket(): "unix", network: "tcp"} {
					if status, body := get(kind, at, path); status != 404 {
						t.Errorf("%s at %s: status %d, %.200s", path, at, status, body)
					}
				}
			}
			cancel()
			if err := <-served; err != nil {
				t.Error(err)
			}
			if _, err := os.Stat(socket); err == nil {
				t.Error("the socket is left")
			}
		})
	}
}
