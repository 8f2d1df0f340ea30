//go:build linux

package docker

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/engine/enginetest"
)

// overTLS is an address of the daemon at which it shows a certificate and wants one; dir gets ca.pem, cert.pem and
// key.pem, which are both's.
func overTLS(t *testing.T, address, dir string) string {
	t.Helper()
	s := httptest.NewTLSServer(nil)
	defer s.Close()
	pair := s.TLS.Certificates[0]
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{"ca.pem": {Type: "CERTIFICATE", Bytes: pair.Certificate[0]},
		"cert.pem": {Type: "CERTIFICATE", Bytes: pair.Certificate[0]}, "key.pem": {Type: "PRIVATE KEY", Bytes: key}} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	l, err := tls.Listen("tcp4", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair},
		ClientAuth: tls.RequireAnyClientCert})
	if err != nil {
		t.Fatal(err)
	}
	return enginetest.Over(t, l, address)
}

// TestContexts: the daemon of the current context of the docker command is used, and an error names the context.
func TestContexts(t *testing.T) {
	o := options(t)
	address := o.Host
	o.Host = ""
	dir := t.TempDir()
	t.Setenv("DOCKER_CONFIG", dir)
	t.Setenv("DOCKER_HOST", "")
	docker := func(args ...string) {
		t.Helper()
		if _, err := exec.LookPath("docker"); err != nil {
			t.Skip("needs the docker command: apt-get install docker.io")
		}
		if out, err := exec.Command("docker", args...).CombinedOutput(); err != nil {
			t.Fatalf("docker %q: %s", args, out)
		}
	}
	certs := t.TempDir()
	secure := "host=" + overTLS(t, address, certs)
	overSSH, _ := overSSHD(t, address)
	for name, endpoint := range map[string]string{
		"near": "host=" + address, "shell": "host=" + overSSH, "open": secure,
		"safe": secure + ",ca=" + certs + "/ca.pem,cert=" + certs + "/cert.pem,key=" + certs + "/key.pem",
		"lax":  secure + ",skip-tls-verify=true,cert=" + certs + "/cert.pem,key=" + certs + "/key.pem",
		"none": "host=unix://" + dir + "/none",
	} {
		docker("context", "create", name, "--docker", endpoint)
	}
	for _, name := range []string{"near", "shell", "safe", "lax"} {
		docker("context", "use", name)
		e := open(t, o)
		sb, err := e.Prepare(t.Context(), template())
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if here := name == "near"; e.here != here {
			t.Errorf("%s: here is %t", name, e.here)
		}
		if err := sb.Destroy(t.Context()); err != nil {
			t.Error(err)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{"open", "none", "missing"} {
		t.Setenv("DOCKER_CONTEXT", name)
		if e, err := New(o); err == nil || !strings.Contains(err.Error(), `ontext "`+name+`"`) {
			t.Errorf("%s: %v, %v", name, e, err)
		} else if name == "none" && !strings.Contains(cove.ErrorHint(err), `check the Docker context "none"`) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
