package gateway

import (
	"bytes"
	"crypto/x509"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cove-sandbox/cove/internal/clock/clocktest"
	"github.com/cove-sandbox/cove/internal/egress/policy"
	"github.com/cove-sandbox/cove/internal/engine"
)

// TestTrustMadeAhead: an authority belongs to one sandbox, whenever it was made. Only this sandbox trusts it, it signs
// for hosts that this sandbox may reach, and its files end with it.
func TestTrustMadeAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		roots := func() []byte { return []byte("roots\n") }
		g := New(Options{Dir: dir, Ahead: 1, Bundle: roots, Clock: clocktest.NewManual(time.Now()),
			Log: slog.New(slog.DiscardHandler)})
		defer g.Close()
		there := func() []string {
			t.Helper()
			synctest.Wait()
			all, err := filepath.Glob(filepath.Join(dir, "*"))
			if err != nil {
				t.Fatal(err)
			}
			return all
		}
		open := func(host string) *Route {
			t.Helper()
			w, err := g.Open(Spec{Sandbox: g.Next(), Policy: []*policy.Document{allow(t, host)}})
			if err != nil {
				t.Fatal(err)
			}
			return w
		}
		if all := there(); len(all) != 0 {
			t.Errorf("before there is any sandbox: %q", all)
		}
		open("first.test").Close()
		ready := there()
		if len(ready) != 1 {
			t.Fatalf("after the first: %q", ready)
		}
		hosts := []string{"ahead.test", "now.test"}
		routes := []*Route{open(hosts[0]), open(hosts[1])}
		if routes[0].Files() != ready[0] || routes[1].Files() == ready[0] {
			t.Errorf("%q was ready, and there are %q and %q", ready, routes[0].Files(), routes[1].Files())
		}
		for i, w := range routes {
			h := requestOf(t, hosts[i], "GET", "/").Host
			if name := w.trust.sandbox; name != w.sandbox || filepath.Base(w.Files()) != string(name) {
				t.Errorf("%s, of sandbox %s, has what is called %s and is in %s", hosts[i], w.sandbox, name, w.Files())
			}
			leaf, err := w.trust.Leaf(h)
			if err != nil {
				t.Fatal(err)
			}
			c, err := x509.ParseCertificate(leaf.Certificate[0])
			if err != nil {
				t.Fatal(err)
			}
			for j, reader := range routes {
				bundle, err := os.ReadFile(filepath.Join(reader.Files(), "ca-certificates.crt"))
				if err != nil || !bytes.HasSuffix(bundle, []byte("roots\n")) || !bytes.HasPrefix(bundle, reader.Certificate()) {
					t.Errorf("%s: the bundle is %q, %v", hosts[j], bundle, err)
				}
				pool := x509.NewCertPool()
				pool.AppendCertsFromPEM(bundle)
				if _, err := c.Verify(x509.VerifyOptions{Roots: pool, DNSName: hosts[i],
					CurrentTime: g.o.Clock.Now()}); (err == nil) != (i == j) {
					t.Errorf("the leaf of %s, to %s: %v", hosts[i], hosts[j], err)
				}
			}
		}
		for _, w := range routes {
			w.Close()
		}
		if _, err := g.Open(Spec{Sandbox: g.Next(), Providers: []string{"nobody's"}}); err == nil {
			t.Error("a route that cannot be is open")
		}
		if all := there(); len(all) != 1 || all[0] == routes[0].Files() || all[0] == routes[1].Files() {
			t.Errorf("after %q and %q: %q", routes[0].Files(), routes[1].Files(), all)
		}
		g.Next() // never opened
		g.Close()
		if all := there(); len(all) != 0 {
			t.Errorf("after the gateway: %q", all)
		}
	})
}

// TestKeystoreMadeAhead: Java's keystore is made ahead once a sandbox has had Java, and contains the sandbox's own
// authority.
func TestKeystoreMadeAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		image := t.TempDir()
		store := filepath.Join(image, "etc/ssl/certs/java/cacerts")
		if err := os.MkdirAll(filepath.Dir(store), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(store, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		g := New(Options{Dir: t.TempDir(), Ahead: 1, Clock: clocktest.NewManual(time.Now()),
			Log: slog.New(slog.DiscardHandler)})
		defer g.Close()
		for i, ahead := range []bool{false, false, true} {
			w, err := g.Open(Spec{Sandbox: g.Next()})
			if err != nil {
				t.Fatal(err)
			}
			if w.trust.keystore != ahead {
				t.Errorf("the keystore of sandbox %d is there: %v", i, !ahead)
			}
			root := engine.Rootfs{Kind: engine.RootfsDir, Dir: image}
			if i == 0 {
				root.Dir = t.TempDir() // without Java
			}
			var b engine.Binding
			if err := w.Bind(&b, root); err != nil {
				t.Fatal(err)
			}
			last := b.Files[len(b.Files)-1]
			if (last.Target == "/etc/ssl/certs/java/cacerts") != (i > 0) {
				t.Errorf("sandbox %d is shown %+v", i, last)
			}
			if i > 0 {
				wanted, err := w.trust.JavaKeystore(g.authorities.java.roots())
				if err != nil {
					t.Fatal(err)
				}
				if shown, err := os.ReadFile(last.Place.Name()); err != nil || !bytes.Equal(shown, wanted) {
					t.Errorf("sandbox %d is shown another keystore than its own, %v", i, err)
				}
			}
			b.Close()
			w.Close()
			synctest.Wait()
		}
	})
}
