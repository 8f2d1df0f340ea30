package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// hostName is how programs inside call this machine.
const hostName = "host.cove.internal"

// service is a server on this machine that knows its callers by a key, which
// only the gateway has. Below /v1/ it is a model for agents.
type service struct {
	http *http.Server
	port int
	key  string
}

// newService starts it, and writes below dir how the gateway reaches it.
func newService(dir string) (*service, error) {
	s := &service{key: "key-" + strings.ToLower(rand.Text())}
	certificate, authority, err := selfSigned()
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s.port = l.Addr().(*net.TCPAddr).Port
	models, err := agentModels(s.key)
	if err != nil {
		l.Close()
		return nil, err
	}
	for name, text := range map[string]string{
		"service.pem": authority,
		"credentials.yaml": fmt.Sprintf("credentials:\n  - name: demo\n    source: env:DEMO_KEY\n    variables: DEMO_KEY\n "+
			"   shape: placeholder-{16}\n"+
			"    to:\n      - {form: bearer, hosts: %[1]s, ports: %[2]d, methods: GET, paths: /**}\n      - {form: bearer, "+
			"hosts: %[1]s, ports: %[2]d, methods: POST, paths: /v1/**}\n", hostName, s.port),
		"providers.yaml": fmt.Sprintf("providers:\n  - {name: anthropic, base_url: \"https://localhost:%d/v1\", "+
			"credential: demo}\n", s.port),
		"cove.yaml": fmt.Sprintf("gateway:\n  extra_cas: [%s]\n  credentials: %s\n  providers: %s\n",
			filepath.Join(dir, "service.pem"), filepath.Join(dir, "credentials.yaml"), filepath.Join(dir, "providers.yaml")),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			l.Close()
			return nil, err
		}
	}
	s.http = &http.Server{ErrorLog: log.New(io.Discard, "", 0),
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasPrefix(r.URL.Path, "/v1/") {
				models.ServeHTTP(w, r)
				return
			}
			sent := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
			if sent != s.key {
				http.Error(w, "who are you?", http.StatusUnauthorized)
				return
			}
			fmt.Fprintf(w, "welcome, you sent %s\n", sent)
		})}
	go s.http.ServeTLS(l, "", "")
	return s, nil
}

func (s *service) close() { s.http.Close() }

// environ is what Cove needs to know of it.
func (s *service) environ(dir string) []string {
	return []string{"COVE_CONFIG=" + filepath.Join(dir, "cove.yaml"), "DEMO_KEY=" + s.key}
}

// selfSigned is a certificate for this machine as programs inside call it.
func selfSigned() (tls.Certificate, string, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, "", err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "Cove's demonstration"}, IsCA: true,
		BasicConstraintsValid: true,
		NotBefore:             now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour), DNSNames: []string{hostName},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, "", err
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key},
		string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), nil
}

// call asks the service with what the program believes is the key.
func (s *service) call() []string {
	code := fmt.Sprintf(`import os, urllib.request
key = os.environ["DEMO_KEY"]
print("my key is", key)
request = urllib.request.Request("https://%s:%d/", headers={"Authorization": "Bearer " + key})
print(urllib.request.urlopen(request).read().decode(), end="")`, hostName, s.port)
	return append(run("python", code), "--network", "host-only", "--allow", fmt.Sprintf("%s:%d", hostName, s.port),
		"--credential", "demo")
}

// elsewhere is a place that no rule allows.
const elsewhere = `import json, urllib.request, urllib.error
try:
    print(urllib.request.urlopen("http://elsewhere.example/").read())
except urllib.error.HTTPError as e:
    told = json.load(e)
    print(e.code, told["error"]["type"] + ":", told["reason"])`
