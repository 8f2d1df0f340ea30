package ca

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pavlo-v-chernykh/keystore-go/v4"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/rootfs"
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

// The places of a sandbox's files inside, and those of a container that a gateway is attached to.
const (
	Dir         = "/etc/cove"
	Bundle      = Dir + "/ca-certificates.crt" // all trusted certificates
	Certificate = Dir + "/ca.pem"              // the authority alone
)

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

// javaPassword is that of every cacerts file as shipped. It protects nothing: Java reads the file without it.
const javaPassword = "changeit"

// JavaRoots holds the roots of SystemRoots in JavaKeystore's form, for use in several keystores.
type JavaRoots struct {
	entries []keystore.TrustedCertificateEntry
}

// NewJavaRoots parses PEM.
func NewJavaRoots(roots []byte) JavaRoots {
	var r JavaRoots
	for {
		var block *pem.Block
		if block, roots = pem.Decode(roots); block == nil {
			return r
		}
		r.entries = append(r.entries, javaEntry(block.Bytes))
	}
}

func javaEntry(certificate []byte) keystore.TrustedCertificateEntry {
	return keystore.TrustedCertificateEntry{
		CreationTime: time.Unix(0, 0), // the same bytes for the same certificates
		Certificate:  keystore.Certificate{Type: "X.509", Content: certificate},
	}
}

// JavaKeystore returns the trusted certificates for Java programs: a JKS file, which every version of Java reads in
// place of its cacerts. It corresponds to Bundle.
func (a *Authority) JavaKeystore(roots JavaRoots) ([]byte, error) {
	ks := keystore.New(keystore.WithOrderedAliases())
	err := ks.SetTrustedCertificateEntry("cove", javaEntry(a.cert.Raw))
	for i, e := range roots.entries {
		err = errors.Join(err, ks.SetTrustedCertificateEntry("root-"+strconv.Itoa(i), e))
	}
	var out bytes.Buffer
	if err == nil {
		err = ks.Store(&out, []byte(javaPassword))
	}
	if err != nil {
		return nil, cove.Errorf(cove.Internal, "cannot make a Java keystore: %w", err)
	}
	return out.Bytes(), nil
}

// javaStores are the paths of Java's trusted certificates, relative to the root.
var javaStores = []string{
	"etc/ssl/certs/java/cacerts",              // Debian, Ubuntu: of all versions
	"etc/pki/java/cacerts",                    // Fedora, older
	"etc/pki/ca-trust/extracted/java/cacerts", // Fedora, RHEL
	"usr/lib/jvm/*/lib/security/cacerts",      // distributions
	"usr/lib/jvm/*/jre/lib/security/cacerts",  // Java 8
	"opt/*/lib/security/cacerts",              // manual installations, and images
	"opt/*/*/lib/security/cacerts",            // /opt/java/openjdk
	"usr/local/*/lib/security/cacerts",        // /usr/local/openjdk-21
	"usr/java/*/lib/security/cacerts",         // Oracle
}

// JavaStores returns Java's files of trusted certificates in a root filesystem, as absolute paths inside. It reads
// nothing outside, whatever symlinks it contains.
func JavaStores(of rootfs.Stack) []string {
	root, err := of.Open()
	if err != nil {
		return nil // a missing directory is reported by its user
	}
	defer root.Close()
	var found []string
	for _, pattern := range javaStores {
		for _, m := range expand(root, "", strings.Split(pattern, "/")) {
			if real, err := root.Resolve(m); err == nil {
				m = real
			}
			if at := path.Join("/", m); !slices.Contains(found, at) {
				found = append(found, at)
			}
		}
	}
	return found
}

const maxNames = 256 // bounds the names read from one directory

// expand returns the files that match a pattern, in which "*" is any one name.
func expand(root *rootfs.View, at string, pattern []string) (found []string) {
	for i, p := range pattern {
		if p != "*" {
			at = path.Join(at, p)
			continue
		}
		real, err := root.Resolve(at)
		if err != nil {
			return nil
		}
		names, _ := root.Names(real, maxNames) // unreadable names count as absent
		for _, name := range names {
			found = append(found, expand(root, path.Join(at, name), pattern[i+1:])...)
		}
		return found
	}
	dir, err := root.Resolve(path.Dir(at))
	if err != nil {
		return nil
	}
	if _, err := root.Lstat(path.Join(dir, path.Base(at))); err != nil {
		return nil
	}
	return []string{at}
}
