package ca

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path"
	"slices"

	"github.com/cove-sandbox/cove"
)

// SystemBundles are the paths of distributions' trusted roots, in Go's order (crypto/x509, root_linux.go).
var SystemBundles = []string{
	"/etc/ssl/certs/ca-certificates.crt",                // Debian, Ubuntu, Gentoo, Arch
	"/etc/pki/tls/certs/ca-bundle.crt",                  // Fedora, RHEL 6
	"/etc/ssl/ca-bundle.pem",                            // openSUSE
	"/etc/pki/tls/cacert.pem",                           // OpenELEC
	"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", // CentOS, RHEL 7
	"/etc/ssl/cert.pem",                                 // Alpine
}

// SystemRoots returns the host's trusted roots as PEM, certificates only; the host's SSL_CERT_FILE comes first.
// Sandboxes trust them in addition to their authority, for hosts whose TLS is passed through. Errors: NotFound.
func SystemRoots(getenv func(string) string) ([]byte, error) {
	files := SystemBundles
	if named := getenv("SSL_CERT_FILE"); named != "" {
		files = slices.Insert(slices.Clone(files), 0, named)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		if roots := certificates(data); len(roots) > 0 {
			return roots, nil
		}
	}
	return nil, cove.Errorf(cove.NotFound, "this machine has no trusted certificates").
		WithHint("install the package ca-certificates, or name a bundle in SSL_CERT_FILE")
}

// certificates returns only the certificates of a PEM file.
func certificates(file []byte) []byte {
	var out bytes.Buffer
	for {
		var block *pem.Block
		if block, file = pem.Decode(file); block == nil {
			return out.Bytes()
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		if _, err := x509.ParseCertificate(block.Bytes); err == nil {
			out.Write(encode(block.Bytes))
		}
	}
}

// Bundle returns the certificates that a sandbox trusts: its authority and the roots of SystemRoots.
func (a *Authority) Bundle(roots []byte) []byte { return slices.Concat(a.Certificate(), roots) }

// Environment returns variables that point tools at files inside the sandbox: bundle holds all trusted certificates,
// certificate the authority alone, for tools that add it to their own.
func Environment(bundle, certificate string) map[string]string {
	return map[string]string{
		"SSL_CERT_FILE":       bundle, // OpenSSL, Go, Python, Ruby, rustls, curl of some systems
		"SSL_CERT_DIR":        path.Dir(bundle),
		"REQUESTS_CA_BUNDLE":  bundle,
		"CURL_CA_BUNDLE":      bundle,
		"GIT_SSL_CAINFO":      bundle,
		"PIP_CERT":            bundle,
		"CARGO_HTTP_CAINFO":   bundle,
		"AWS_CA_BUNDLE":       bundle,
		"NODE_EXTRA_CA_CERTS": certificate,
		"DENO_CERT":           certificate,
		"NODE_USE_ENV_PROXY":  "1", // Node's fetch looks at HTTPS_PROXY only when told to
	}
}
