package image

import (
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cove-sandbox/cove"
)

func TestGuard(t *testing.T) {
	for _, c := range []struct {
		name            string
		registry        string
		insecure, plain bool
		inside          bool // the registry has a private address
		host, address   string
		refused         bool
	}{
		{name: "public registry", registry: "r.example", host: "r.example", address: "93.184.216.34:443"},
		{name: "private registry", registry: "r.example", host: "r.example", address: "10.1.2.3:443"},
		{name: "metadata as registry", registry: "169.254.169.254", host: "169.254.169.254", address: "169.254.169.254:443",
			refused: true},
		{name: "metadata by name", registry: "r.example", host: "r.example", address: "169.254.169.254:443", refused: true},
		{name: "metadata, insecure", registry: "r.example", insecure: true, plain: true, host: "r.example",
			address: "169.254.169.254:80", refused: true},
		{name: "metadata mapped", registry: "r.example", host: "r.example", address: "[::ffff:169.254.169.254]:443",
			refused: true},
		{name: "metadata by NAT64", registry: "r.example", host: "r.example", address: "[64:ff9b::a9fe:a9fe]:443",
			refused: true},
		{name: "metadata by 6to4", registry: "r.example", host: "r.example", address: "[2002:a9fe:a9fe::1]:443",
			refused: true},
		{name: "metadata IPv6", registry: "r.example", host: "r.example", address: "[fd00:ec2::254]:443", refused: true},
		{name: "link-local IPv6", registry: "r.example", host: "r.example", address: "[fe80::1%eth0]:443", refused: true},
		{name: "unspecified", registry: "r.example", host: "r.example", address: "0.0.0.0:443", refused: true},
		{name: "multicast", registry: "r.example", host: "r.example", address: "224.0.0.1:443", refused: true},
		{name: "redirect outside", registry: "r.example", host: "cdn.example", address: "93.184.216.35:443"},
		{name: "redirect to loopback", registry: "r.example", host: "cdn.example", address: "127.0.0.1:443", refused: true},
		{name: "redirect inside", registry: "r.example", host: "cdn.example", address: "10.0.0.1:443", refused: true},
		{name: "redirect to shared space", registry: "r.example", host: "cdn.example", address: "100.64.0.1:443",
			refused: true},
		{name: "redirect to ULA", registry: "r.example", host: "cdn.example", address: "[fd12::1]:443", refused: true},
		{name: "redirect inside from inside", registry: "r.example", inside: true, host: "cdn.example",
			address: "10.0.0.1:443"},
		{name: "redirect to metadata from inside", registry: "r.example", inside: true, host: "cdn.example",
			address: "169.254.169.254:443", refused: true},
		{name: "plain HTTP on loopback", registry: "localhost:5000", plain: true, host: "localhost",
			address: "127.0.0.1:5000"},
		{name: "plain HTTP on loopback IPv6", registry: "[::1]:5000", plain: true, host: "::1", address: "[::1]:5000"},
		{name: "plain HTTP to a private address", registry: "10.0.0.1:5000", plain: true, host: "10.0.0.1",
			address: "10.0.0.1:5000", refused: true},
		{name: "plain HTTP to a name like loopback", registry: "x.localhost:5000", plain: true, host: "x.localhost",
			address: "93.184.216.34:5000", refused: true},
		{name: "plain HTTP, allowed", registry: "10.0.0.1:5000", insecure: true, plain: true, host: "10.0.0.1",
			address: "10.0.0.1:5000"},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := newGuard(c.registry, c.insecure)
			g.inside.Store(c.inside)
			err := g.check(c.host, c.address, c.plain)
			if (err != nil) != c.refused {
				t.Errorf("err = %v, refused should be %v", err, c.refused)
			}
		})
	}
}

// TestRedirects: the registry on loopback counts as inside, so that the address alone does not decide; a guard for an
// outside registry refuses.
func TestRedirects(t *testing.T) {
	img := hostImage(t)
	var target string
	back := startRegistry(t, nil)
	front := startRegistry(t, tamper("/blobs/", func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
		http.Redirect(w, r, target+r.URL.Path, http.StatusTemporaryRedirect)
	}))
	push(t, back+"/app:1", img)
	push(t, front+"/app:1", img)
	for _, c := range []struct {
		name, target string
		code         cove.Code
	}{
		{"to another port", "http://" + back, ""},
		{"to metadata", "http://169.254.169.254", cove.Unavailable}, // refused by the library itself
		{"to metadata by name", "http://metadata.localhost.invalid", cove.Unavailable},
		{"to a file", "file:///etc/passwd?", cove.Unavailable},
	} {
		t.Run(c.name, func(t *testing.T) {
			target = c.target
			s := newStore(t)
			_, err := s.Pull(t.Context(), front+"/app:1", PullOptions{})
			if cove.ErrorCode(err) != c.code {
				t.Errorf("code %q, want %q: %v", cove.ErrorCode(err), c.code, err)
			}
			if err != nil {
				wantNoLitter(t, s, 0)
			}
		})
	}
}

// TestForeignLayersAreNotFetched: addresses of layers in a manifest are ignored.
func TestForeignLayersAreNotFetched(t *testing.T) {
	var asked atomic.Int64
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { asked.Add(1) }))
	defer elsewhere.Close()
	layer := layerOf(t, item{name: "bin/sh", body: "x"})
	host := startRegistry(t, func(h http.Handler) http.Handler {
		return tamper("/blobs/", func(w http.ResponseWriter, r *http.Request, h http.Handler) {
			if d, _ := layer.Digest(); strings.Contains(r.URL.Path, d.String()) {
				w.WriteHeader(http.StatusNotFound)
				return
			}
			h.ServeHTTP(w, r)
		})(tamper("/manifests/", func(w http.ResponseWriter, r *http.Request, h http.Handler) {
			rec := record(h, r)
			w.Header().Set("Content-Type", rec.Header().Get("Content-Type"))
			d, _ := layer.Digest()
			io.WriteString(w, strings.Replace(rec.Body.String(), `"digest":"`+d.String()+`"`,
				`"digest":"`+d.String()+`","urls":["`+elsewhere.URL+`/layer"]`, 1))
		})(h))
	})
	push(t, host+"/app:1", imageOf(t, runtime.GOARCH, layer))
	if _, err := newStore(t).Pull(t.Context(), host+"/app:1", PullOptions{}); err == nil {
		t.Error("pulled without its layer")
	}
	if asked.Load() != 0 {
		t.Error("the address in the manifest was asked")
	}
}
