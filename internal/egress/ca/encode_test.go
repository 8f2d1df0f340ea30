package ca

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/cove-sandbox/cove/internal/clock/clocktest"
)

// TestToSign compares the signed part of a leaf with that of the standard library.
func TestToSign(t *testing.T) {
	a := authority(t, clocktest.NewManual(time.Now()))
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat(strings.Repeat("a", 60)+".", 4) + "test"
	for _, name := range []string{"a.test", "xn--bcher-kva.example", long, "192.0.2.7", "2001:db8::7"} {
		host := host(t, name)
		for _, from := range []time.Time{time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC),
			time.Date(2049, 12, 31, 12, 0, 0, 0, time.FixedZone("", 3600))} {
			for _, serial := range []*big.Int{big.NewInt(1), big.NewInt(128), maxSerial} {
				template := &x509.Certificate{
					SerialNumber: serial, Subject: pkix.Name{Organization: []string{"Cove"}}, NotBefore: from,
					NotAfter:              from.Add(leafLife),
					BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature,
					ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
				}
				if addr, ok := host.Addr(); ok {
					template.IPAddresses = []net.IP{addr.AsSlice()}
				} else {
					template.DNSNames = []string{host.Name()}
				}
				der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
				if err != nil {
					t.Fatal(err)
				}
				want, err := x509.ParseCertificate(der)
				if err != nil {
					t.Fatal(err)
				}
				got, err := a.toSign(serial, host, &key.PublicKey, from, from.Add(leafLife))
				if err != nil || !bytes.Equal(got, want.RawTBSCertificate) {
					t.Errorf("%s from %s, number %s: %v\n%x\nwant\n%x", name, from, serial, err, got, want.RawTBSCertificate)
				}
			}
		}
	}
}
