// Package ca owns the certificate authority of one sandbox: its key, the leaf certificates it signs, and the
// configuration that makes programs inside trust it (invariant C5).
//
// Each sandbox has its own authority, so no other sandbox trusts its leaves, and trust ends with the sandbox. The key
// is on the host only: in memory, and for sandboxes that outlive the server in a file (see [Store]).
package ca

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/clock"
	"github.com/cove-sandbox/cove/internal/egress/policy"
)

const (
	// leafBackdate and authorityBackdate are how far before its creation a certificate becomes valid, so that it stays
	// valid after the clock is set back. An invalid leaf is replaced; the authority cannot be.
	leafBackdate      = 24 * time.Hour
	authorityBackdate = 365 * 24 * time.Hour
	// authorityLife must exceed any sandbox's life: the authority ends when its key is removed, not by its date.
	authorityLife = 10 * 365 * 24 * time.Hour
	leafLife      = 24 * time.Hour
	// leafRenewal is the remaining validity below which a leaf is replaced.
	leafRenewal = 12 * time.Hour
	// maxLeaves bounds the cache, at about 1 KiB each.
	maxLeaves = 256
)

// Authority signs leaves for the hosts of one sandbox.
type Authority struct {
	sandbox cove.SandboxID
	clock   clock.Clock
	cert    *x509.Certificate
	key     *ecdsa.PrivateKey

	mu     sync.Mutex
	leaves *simplelru.LRU[policy.Host, *leaf]
}

// leaf is a cache entry. Its first user mints the certificate while others wait for it.
type leaf struct{ mint func() (*minted, error) }

// minted is a certificate and its validity. It is kept unparsed: parsed it takes another 3 KiB, which clients can spend
// themselves.
type minted struct {
	cert        tls.Certificate
	from, until time.Time
}

// New returns an authority in memory.
func New(sandbox cove.SandboxID, c clock.Clock) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, cove.Errorf(cove.Internal, "cannot make a key: %w", err)
	}
	now := c.Now()
	template := &x509.Certificate{
		Subject:               subject(sandbox),
		NotBefore:             now.Add(-authorityBackdate),
		NotAfter:              now.Add(authorityLife),
		IsCA:                  true,
		BasicConstraintsValid: true,
		MaxPathLenZero:        true, // it signs leaves and no other authorities
		KeyUsage:              x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		// Policy changes while the sandbox runs, so this excludes only what no policy can allow: the sandbox's own loopback.
		ExcludedDNSDomains:          []string{localhost},
		ExcludedIPRanges:            loopback,
		PermittedDNSDomainsCritical: true, // applies to all constraints (RFC 5280, 4.2.1.10)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, cove.Errorf(cove.Internal, "cannot make the certificate authority: %w", err)
	}
	return assemble(sandbox, c, der, key)
}

func assemble(sandbox cove.SandboxID, c clock.Clock, der []byte, key *ecdsa.PrivateKey) (*Authority, error) {
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, cove.Errorf(cove.Corrupt, "the authority's certificate cannot be read: %w", err)
	}
	leaves, err := simplelru.NewLRU[policy.Host, *leaf](maxLeaves, nil)
	return &Authority{sandbox: sandbox, clock: c, cert: cert, key: key, leaves: leaves}, err
}

func subject(sandbox cove.SandboxID) pkix.Name {
	return pkix.Name{Organization: []string{"Cove"}, CommonName: string(sandbox)}
}

const localhost = "localhost"

var loopback = []*net.IPNet{
	{IP: net.IP{127, 0, 0, 0}, Mask: net.CIDRMask(8, 32)},
	{IP: net.IPv6loopback, Mask: net.CIDRMask(128, 128)},
}

// Certificate returns the authority's certificate as PEM, for the sandbox to trust.
func (a *Authority) Certificate() []byte { return encode(a.cert.Raw) }

func encode(certificate []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate})
}

// Leaf returns a certificate with its own key for one host, new or cached, also for a host that policy denies: the
// refusal of a request is read inside TLS. Errors: Forbidden for loopback.
func (a *Authority) Leaf(host policy.Host) (*tls.Certificate, error) {
	if host.IsZero() || constrained(host) {
		return nil, cove.Errorf(cove.Forbidden, "no certificate is made for %q: it is no host beyond the sandbox", host)
	}
	for {
		l := a.leaf(host)
		m, err := l.mint()
		if err == nil && a.fresh(m) {
			return &m.cert, nil
		}
		a.forget(host, l)
		if err != nil {
			return nil, err
		}
	}
}

// constrained reports whether the authority's own certificate excludes host.
func constrained(host policy.Host) bool {
	addr, ok := host.Addr()
	if ok {
		return addr.IsLoopback()
	}
	return host.Name() == localhost || strings.HasSuffix(host.Name(), "."+localhost)
}

// leaf returns the host's cache entry, possibly new.
func (a *Authority) leaf(host policy.Host) *leaf {
	a.mu.Lock()
	defer a.mu.Unlock()
	l, ok := a.leaves.Get(host)
	if !ok {
		l = &leaf{sync.OnceValues(func() (*minted, error) { return a.sign(host) })}
		a.leaves.Add(host, l)
	}
	return l
}

func (a *Authority) forget(host policy.Host, l *leaf) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if present, _ := a.leaves.Peek(host); present == l {
		a.leaves.Remove(host)
	}
}

// fresh reports whether a leaf is still usable: the wall clock may have been set in either direction since it was made.
func (a *Authority) fresh(m *minted) bool {
	now := a.clock.Now()
	return !now.Before(m.from) && now.Add(leafRenewal).Before(m.until)
}

func (a *Authority) sign(host policy.Host) (*minted, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, cove.Errorf(cove.Internal, "cannot make a key: %w", err)
	}
	serial, err := rand.Int(rand.Reader, maxSerial)
	if err != nil {
		return nil, cove.Errorf(cove.Internal, "cannot make a serial number: %w", err)
	}
	now := a.clock.Now()
	from, until := now.Add(-leafBackdate), now.Add(leafLife)
	signed, err := a.toSign(serial.Add(serial, one), host, &key.PublicKey, from, until)
	var signature, certificate []byte
	if err == nil {
		digest := sha256.Sum256(signed)
		signature, err = ecdsa.SignASN1(rand.Reader, a.key, digest[:])
	}
	if err == nil {
		certificate, err = assembleCertificate(signed, signature)
	}
	if err != nil {
		return nil, cove.Errorf(cove.Internal, "cannot sign a certificate for %s: %w", host, err)
	}
	return &minted{tls.Certificate{Certificate: [][]byte{certificate}, PrivateKey: key}, from, until}, nil
}

// Serial numbers are random, positive and at most 20 bytes long.
var (
	one       = big.NewInt(1)
	maxSerial = new(big.Int).Lsh(one, 158)
)
