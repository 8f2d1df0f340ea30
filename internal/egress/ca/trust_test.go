package ca

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/clock"
)

func none(string) string { return "" }

func TestSystemRoots(t *testing.T) {
	mine := authority(t, clock.Real()).Certificate()
	key := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("canary")})
	broken := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("broken")})
	file := filepath.Join(t.TempDir(), "roots.pem")
	// A hand-written file: comments, a key, an invalid certificate, no final newline.
	write(t, file, slices.Concat([]byte("# Company\n"), key, broken, bytes.TrimSpace(mine)))
	got, err := SystemRoots(func(name string) string { return map[string]string{"SSL_CERT_FILE": file}[name] })
	if err != nil || !bytes.Equal(got, mine) {
		t.Errorf("SystemRoots = %s, %v; want\n%s", got, err, mine)
	}

	roots, err := SystemRoots(none)
	if cove.ErrorCode(err) == cove.NotFound {
		t.Skip("this machine has no trusted certificates")
	}
	pool := x509.NewCertPool()
	if err != nil || !pool.AppendCertsFromPEM(roots) {
		t.Errorf("the machine's roots: %v", err)
	}
}

func FuzzRoots(f *testing.F) {
	cert := authority(f, clock.Real()).Certificate()
	f.Add(cert)
	f.Add(bytes.ReplaceAll(cert, []byte("\n"), []byte("\r\n")))
	f.Add([]byte("-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----"))
	f.Fuzz(func(t *testing.T, file []byte) {
		roots := certificates(file)
		if again := certificates(roots); !bytes.Equal(again, roots) {
			t.Errorf("what was kept is not what is read:\n%s\n%s", roots, again)
		}
		if n := len(file)/64 + 1; bytes.Count(roots, []byte("BEGIN")) > n {
			t.Errorf("%d bytes became more than %d certificates", len(file), n)
		}
	})
}

func TestBundle(t *testing.T) {
	a, b := authority(t, clock.Real()), authority(t, clock.Real())
	needOpenSSL(t)
	file := filepath.Join(t.TempDir(), "bundle.pem")
	write(t, file, a.Bundle(b.Certificate()))
	for name, signer := range map[string]*Authority{"the authority": a, "a root": b} {
		leaf := filepath.Join(t.TempDir(), "leaf.pem")
		write(t, leaf, encode(mint(t, signer, "example.com").Certificate[0]))
		out, err := exec.CommandContext(t.Context(), "openssl", "verify", "-no-CApath", "-no-CAstore", "-CAfile", file,
			leaf).CombinedOutput()
		if err != nil {
			t.Errorf("signed by %s: %s", name, out)
		}
	}
	if got := a.Bundle(nil); !bytes.Equal(got, a.Certificate()) {
		t.Errorf("without roots: %s", got)
	}
}

func TestEnvironment(t *testing.T) {
	env := Environment("/etc/cove/ca/bundle.pem", "/etc/cove/ca/cove.pem")
	for name, want := range map[string]string{
		"SSL_CERT_FILE": "bundle.pem", "SSL_CERT_DIR": "/etc/cove/ca", "REQUESTS_CA_BUNDLE": "bundle.pem",
		"CURL_CA_BUNDLE": "bundle.pem",
		"GIT_SSL_CAINFO": "bundle.pem", "PIP_CERT": "bundle.pem", "CARGO_HTTP_CAINFO": "bundle.pem",
		"AWS_CA_BUNDLE":       "bundle.pem",
		"NODE_EXTRA_CA_CERTS": "cove.pem", "DENO_CERT": "cove.pem", "NODE_USE_ENV_PROXY": "1",
	} {
		if !strings.HasSuffix(env[name], want) {
			t.Errorf("%s=%s, want …%s", name, env[name], want)
		}
		delete(env, name)
	}
	if len(env) != 0 {
		t.Errorf("besides: %v", env)
	}
}
