package ca

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/clock/clocktest"
	"github.com/cove-sandbox/cove/internal/egress/policy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func host(t testing.TB, s string) policy.Host {
	t.Helper()
	h, err := policy.ParseHost(s)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func authority(t testing.TB, c clock.Clock) *Authority {
	t.Helper()
	a, err := New(cove.NewSandboxID(), c)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func mint(t testing.TB, a *Authority, name string) *tls.Certificate {
	t.Helper()
	leaf, err := a.Leaf(host(t, name))
	if err != nil {
		t.Fatalf("no leaf for %s: %v", name, err)
	}
	return leaf
}

func parsed(t testing.TB, leaf *tls.Certificate) *x509.Certificate {
	t.Helper()
	c, err := x509.ParseCertificate(leaf.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func trust(a *Authority) *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(a.Certificate())
	return pool
}

func TestAuthority(t *testing.T) {
	now := time.Now()
	a := authority(t, clocktest.NewManual(now))
	c := a.cert
	switch {
	case !c.IsCA || !c.MaxPathLenZero || c.KeyUsage != x509.KeyUsageCertSign:
		t.Errorf("the authority may do more than sign leaves: CA %v, path %d, usage %b", c.IsCA, c.MaxPathLen, c.KeyUsage)
	case len(c.ExtKeyUsage) != 1 || c.ExtKeyUsage[0] != x509.ExtKeyUsageServerAuth:
		t.Errorf("the authority is for %v, not for servers only", c.ExtKeyUsage)
	case c.PublicKey.(*ecdsa.PublicKey).Curve != elliptic.P256():
		t.Error("the authority's key is not on P-256")
	case c.Subject.CommonName != string(a.sandbox):
		t.Errorf("the authority is called %s", c.Subject)
	case !c.NotBefore.Before(now.Add(-time.Hour)):
		t.Error("the authority is not backdated")
	}
	if b := authority(t, clocktest.NewManual(now)); b.cert.SerialNumber.Cmp(c.SerialNumber) == 0 || b.key.Equal(a.key) {
		t.Error("two authorities share key or serial number")
	}
}

func TestLeaves(t *testing.T) {
	now := time.Now()
	a := authority(t, clocktest.NewManual(now))
	seen := map[string]bool{}
	long := strings.Repeat(strings.Repeat("a", 60)+".", 4) + "example"
	for _, name := range []string{"api.example.com", "example.com", "api.example.com.", "xn--mnchen-3ya.example", long,
		"192.0.2.1", "2001:db8::1", "::ffff:192.0.2.2"} {
		h := host(t, name)
		leaf := mint(t, a, name)
		c := parsed(t, leaf)
		if _, err := c.Verify(x509.VerifyOptions{Roots: trust(a), DNSName: verifyName(h), CurrentTime: now}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if n := len(c.DNSNames) + len(c.IPAddresses); n != 1 || len(c.EmailAddresses)+len(c.URIs) != 0 {
			t.Errorf("%s: the leaf is for %d hosts: %v %v", name, n, c.DNSNames, c.IPAddresses)
		}
		if c.IsCA || c.KeyUsage != x509.KeyUsageDigitalSignature || c.Subject.CommonName != "" {
			t.Errorf("%s: the leaf may do more than it should: CA %v, usage %b, subject %s", name, c.IsCA, c.KeyUsage, c.Subject)
		}
		if c.NotAfter.After(now.Add(48*time.Hour)) || !c.NotBefore.Before(now.Add(-time.Hour)) {
			t.Errorf("%s: valid from %v to %v, now %v", name, c.NotBefore, c.NotAfter, now)
		}
		if !leaf.PrivateKey.(*ecdsa.PrivateKey).PublicKey.Equal(c.PublicKey) || a.key.PublicKey.Equal(c.PublicKey) {
			t.Errorf("%s: the leaf's key is not its own", name)
		}
		fingerprint := c.SerialNumber.String() + fmt.Sprintf("%x", c.RawSubjectPublicKeyInfo)
		if seen[fingerprint] != (name == "api.example.com.") { // the one repeated name
			t.Errorf("%s: shares a leaf: %v", name, seen[fingerprint])
		}
		seen[fingerprint] = true
		if _, err := c.Verify(x509.VerifyOptions{Roots: trust(a), DNSName: "other.example.com",
			CurrentTime: now}); err == nil {
			t.Errorf("%s: the leaf is good for another name", name)
		}
	}
}

func verifyName(h policy.Host) string {
	if _, isAddr := h.Addr(); isAddr {
		return "[" + h.String() + "]"
	}
	return h.String()
}

func TestALeafConvincesNoOtherSandbox(t *testing.T) {
	a, b := authority(t, clock.Real()), authority(t, clock.Real())
	for name, pool := range map[string]struct {
		pool *x509.CertPool
		ok   bool
	}{"its own": {trust(a), true}, "another": {trust(b), false}} {
		_, err := parsed(t, mint(t, a, "example.com")).Verify(x509.VerifyOptions{Roots: pool.pool, DNSName: "example.com"})
		if (err == nil) != pool.ok {
			t.Errorf("%s sandbox: %v", name, err)
		}
	}
}

func TestNoLeafForLoopback(t *testing.T) {
	a := authority(t, clock.Real())
	for _, name := range []string{"localhost", "db.localhost", "127.0.0.1", "127.9.9.9", "::1"} {
		if _, err := a.Leaf(host(t, name)); cove.ErrorCode(err) != cove.Forbidden {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := a.Leaf(policy.Host{}); cove.ErrorCode(err) != cove.Forbidden {
		t.Errorf("no host at all: %v", err)
	}
}

// TestConstraints: even with its key, the authority cannot certify the loopback, a client or another authority for the
// sandbox.
func TestConstraints(t *testing.T) {
	a := authority(t, clock.Real())
	for _, name := range []string{"localhost", "db.localhost", "127.0.0.1", "::1"} {
		made, err := a.sign(host(t, name))
		if err != nil {
			t.Fatal(err)
		}
		_, err = parsed(t, &made.cert).Verify(x509.VerifyOptions{Roots: trust(a)})
		var invalid x509.CertificateInvalidError
		if !errors.As(err, &invalid) || invalid.Reason != x509.CANotAuthorizedForThisName {
			t.Errorf("%s: %v", name, err)
		}
		out, err := openssl(t, a, &made.cert, "-purpose", "sslserver")
		if err == nil || !strings.Contains(out, "excluded subtree") {
			t.Errorf("openssl believes %s: %s", name, out)
		}
	}
	if out, err := openssl(t, a, mint(t, a, "example.com"), "-purpose", "sslclient"); err == nil {
		t.Errorf("the leaf is good for clients: %s", out)
	}
}

func TestCache(t *testing.T) {
	a := authority(t, clock.Real())
	first := mint(t, a, "example.com")
	if mint(t, a, "EXAMPLE.com.") != first {
		t.Error("the second call made another leaf")
	}
	for i := range maxLeaves + 10 {
		mint(t, a, fmt.Sprintf("host-%d.example.com", i))
		if i%100 == 0 {
			mint(t, a, "example.com") // in use
		}
	}
	if a.leaves.Len() != maxLeaves {
		t.Errorf("the cache holds %d leaves, at most %d are allowed", a.leaves.Len(), maxLeaves)
	}
	if mint(t, a, "example.com") != first {
		t.Error("a leaf in use was dropped")
	}
	if a.leaves.Contains(host(t, "host-0.example.com")) {
		t.Error("the oldest leaf is still there")
	}
}

func TestManyAskAtOnce(t *testing.T) {
	a := authority(t, clock.Real())
	var all sync.Map
	var group sync.WaitGroup
	for range 64 {
		group.Go(func() { all.Store(parsed(t, mint(t, a, "example.com")).SerialNumber.String(), true) })
	}
	group.Wait()
	n := 0
	all.Range(func(any, any) bool { n++; return true })
	if n != 1 {
		t.Errorf("%d leaves were made for one host", n)
	}
}

func TestClockJumps(t *testing.T) {
	for _, jump := range []time.Duration{13 * time.Hour, 300 * time.Hour, -25 * time.Hour} {
		c := clocktest.NewManual(time.Now())
		a := authority(t, c)
		first := mint(t, a, "example.com")
		c.Jump(jump)
		second := mint(t, a, "example.com")
		if second == first {
			t.Errorf("after a jump of %v the old leaf is given out", jump)
		}
		if _, err := parsed(t, second).Verify(x509.VerifyOptions{
			Roots: trust(a), DNSName: "example.com", CurrentTime: c.Now(),
		}); err != nil {
			t.Errorf("after a jump of %v: %v", jump, err)
		}
		if mint(t, a, "example.com") != second {
			t.Errorf("after a jump of %v nothing is cached", jump)
		}
	}
	c := clocktest.NewManual(time.Now())
	a := authority(t, c)
	first := mint(t, a, "example.com")
	c.Jump(11 * time.Hour)
	if mint(t, a, "example.com") != first {
		t.Error("a leaf with enough time left was made anew")
	}
}

// TestHandshake uses a real client and a real server.
func TestHandshake(t *testing.T) {
	a := authority(t, clock.Real())
	for _, name := range []string{"example.com", "192.0.2.1"} {
		client, server := net.Pipe()
		done := make(chan error, 1)
		go func() {
			defer server.Close()
			s := tls.Server(server, &tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
				return a.Leaf(host(t, name))
			}})
			done <- s.HandshakeContext(t.Context())
		}()
		c := tls.Client(client, &tls.Config{ServerName: name, RootCAs: trust(a)})
		if err := c.HandshakeContext(t.Context()); err != nil {
			t.Errorf("%s: client: %v", name, err)
		}
		if err := <-done; err != nil {
			t.Errorf("%s: server: %v", name, err)
		}
		client.Close()
	}
}

// openssl verifies a leaf with the real program.
func openssl(t *testing.T, a *Authority, leaf *tls.Certificate, args ...string) (string, error) {
	t.Helper()
	needOpenSSL(t)
	dir := t.TempDir()
	write(t, filepath.Join(dir, "ca.pem"), a.Certificate())
	write(t, filepath.Join(dir, "leaf.pem"), encode(leaf.Certificate[0]))
	args = append([]string{"verify", "-x509_strict", "-check_ss_sig", "-no-CApath", "-no-CAstore", "-CAfile",
		filepath.Join(dir, "ca.pem")}, args...)
	out, err := exec.CommandContext(t.Context(), "openssl",
		append(args, filepath.Join(dir, "leaf.pem"))...).CombinedOutput()
	return string(out), err
}

func needOpenSSL(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("openssl"); err != nil {
		t.Skip("openssl is not installed")
	}
}

func write(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestOpenSSLAgrees(t *testing.T) {
	a, b := authority(t, clock.Real()), authority(t, clock.Real())
	for _, c := range []struct {
		name    string
		trusted *Authority
		args    []string
		ok      bool
	}{
		{"example.com", a, []string{"-purpose", "sslserver", "-verify_hostname", "example.com"}, true},
		{"example.com", a, []string{"-verify_hostname", "www.example.com"}, false},
		{"example.com", b, nil, false},
		{"192.0.2.1", a, []string{"-purpose", "sslserver", "-verify_ip", "192.0.2.1"}, true},
		{"192.0.2.1", a, []string{"-verify_ip", "192.0.2.2"}, false},
		{"2001:db8::1", a, []string{"-verify_ip", "2001:db8::1"}, true},
	} {
		if out, err := openssl(t, c.trusted, mint(t, a, c.name), c.args...); (err == nil) != c.ok {
			t.Errorf("%s %v: %v: %s", c.name, c.args, err, out)
		}
	}
}

func TestOpenSSLReadsIt(t *testing.T) {
	needOpenSSL(t)
	a := authority(t, clock.Real())
	text := func(cert []byte) string {
		cmd := exec.CommandContext(t.Context(), "openssl", "x509", "-noout", "-text")
		cmd.Stdin = bytes.NewReader(cert)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("openssl x509: %v: %s", err, out)
		}
		return string(out)
	}
	for _, want := range []string{"CN = " + string(a.sandbox), "CA:TRUE, pathlen:0", "Name Constraints: critical",
		"DNS:localhost", "IP:127.0.0.0/255.0.0.0",
		"Certificate Sign\n", "TLS Web Server Authentication\n", "prime256v1", "ecdsa-with-SHA256"} {
		if out := text(a.Certificate()); !strings.Contains(out, want) {
			t.Errorf("the authority has no %q:\n%s", want, out)
		}
	}
	for name, wants := range map[string][]string{
		"example.com": {"DNS:example.com", "CA:FALSE", "Digital Signature\n",
			"TLS Web Server Authentication\n", "prime256v1"},
		"192.0.2.1":   {"IP Address:192.0.2.1"},
		"2001:db8::1": {"IP Address:2001:DB8:0:0:0:0:0:1"},
	} {
		out := text(encode(mint(t, a, name).Certificate[0]))
		for _, want := range wants {
			if !strings.Contains(out, want) {
				t.Errorf("the leaf for %s has no %q:\n%s", name, want, out)
			}
		}
	}
}

func BenchmarkNew(b *testing.B) {
	c := clock.Real()
	for b.Loop() {
		if _, err := New("sb_00000000000000000000000000", c); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkLeaf(b *testing.B) {
	a, h := authority(b, clock.Real()), host(b, "example.com")
	b.Run("minted", func(b *testing.B) {
		for b.Loop() {
			if _, err := a.sign(h); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("cached", func(b *testing.B) {
		for b.Loop() {
			if _, err := a.Leaf(h); err != nil {
				b.Fatal(err)
			}
		}
	})
}
