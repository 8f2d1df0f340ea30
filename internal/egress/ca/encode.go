package ca

import (
	"crypto/ecdsa"
	"encoding/asn1"
	"math/big"
	"time"

	"golang.org/x/crypto/cryptobyte"
	der "golang.org/x/crypto/cryptobyte/asn1"

	"github.com/cove-sandbox/cove/internal/egress/policy"
)

// Object identifiers in a leaf (RFC 5280, RFC 5480, RFC 5758).
var (
	oidECDSAWithSHA256  = asn1.ObjectIdentifier{1, 2, 840, 10045, 4, 3, 2}
	oidECPublicKey      = asn1.ObjectIdentifier{1, 2, 840, 10045, 2, 1}
	oidP256             = asn1.ObjectIdentifier{1, 2, 840, 10045, 3, 1, 7}
	oidOrganization     = asn1.ObjectIdentifier{2, 5, 4, 10}
	oidKeyUsage         = asn1.ObjectIdentifier{2, 5, 29, 15}
	oidSubjectAltName   = asn1.ObjectIdentifier{2, 5, 29, 17}
	oidBasicConstraints = asn1.ObjectIdentifier{2, 5, 29, 19}
	oidAuthorityKeyID   = asn1.ObjectIdentifier{2, 5, 29, 35}
	oidExtKeyUsage      = asn1.ObjectIdentifier{2, 5, 29, 37}
	oidServerAuth       = asn1.ObjectIdentifier{1, 3, 6, 1, 5, 5, 7, 3, 1}
)

// organization is the subject of every leaf. The subject has no common name: it cannot hold names longer than 64 bytes,
// and a client that reads it ignores the alternative names, which count.
const organization = "Cove"

// toSign returns the signed part of a leaf, byte for byte as x509.CreateCertificate would encode it; a test compares
// them. CreateCertificate takes twice as long, because it verifies its own signature, and the first connection to a
// host waits for it.
func (a *Authority) toSign(serial *big.Int, host policy.Host, key *ecdsa.PublicKey,
	from, until time.Time) ([]byte, error) {
	point, err := key.Bytes()
	if err != nil {
		return nil, err
	}
	var b cryptobyte.Builder
	b.AddASN1(der.SEQUENCE, func(b *cryptobyte.Builder) {
		b.AddASN1(der.Tag(0).ContextSpecific().Constructed(), func(b *cryptobyte.Builder) { b.AddASN1Int64(2) }) // version 3
		b.AddASN1BigInt(serial)
		addAlgorithm(b)
		b.AddBytes(a.cert.RawSubject)
		b.AddASN1(der.SEQUENCE, func(b *cryptobyte.Builder) {
			addTime(b, from)
			addTime(b, until)
		})
		b.AddASN1(der.SEQUENCE, func(b *cryptobyte.Builder) {
			b.AddASN1(der.SET, func(b *cryptobyte.Builder) {
				b.AddASN1(der.SEQUENCE, func(b *cryptobyte.Builder) {
					b.AddASN1ObjectIdentifier(oidOrganization)
					b.AddASN1(der.PrintableString, func(b *cryptobyte.Builder) { b.AddBytes([]byte(organization)) })
				})
			})
		})
		b.AddASN1(der.SEQUENCE, func(b *cryptobyte.Builder) {
			b.AddASN1(der.SEQUENCE, func(b *cryptobyte.Builder) {
				b.AddASN1ObjectIdentifier(oidECPublicKey)
				b.AddASN1ObjectIdentifier(oidP256)
			})
			b.AddASN1BitString(point)
		})
		b.AddASN1(der.Tag(3).ContextSpecific().Constructed(), func(b *cryptobyte.Builder) {
			b.AddASN1(der.SEQUENCE, func(b *cryptobyte.Builder) { a.addExtensions(b, host) })
		})
	})
	return b.Bytes()
}

func (a *Authority) addExtensions(b *cryptobyte.Builder, host policy.Host) {
	addExtension(b, oidKeyUsage, true, func(b *cryptobyte.Builder) {
		// digitalSignature, the first of one bit
		b.AddASN1(der.BIT_STRING, func(b *cryptobyte.Builder) { b.AddBytes([]byte{7, 0x80}) })
	})
	addExtension(b, oidExtKeyUsage, false, func(b *cryptobyte.Builder) {
		b.AddASN1(der.SEQUENCE, func(b *cryptobyte.Builder) { b.AddASN1ObjectIdentifier(oidServerAuth) })
	})
	addExtension(b, oidBasicConstraints, true, func(b *cryptobyte.Builder) {
		b.AddASN1(der.SEQUENCE, func(*cryptobyte.Builder) {}) // basic constraints: no authority
	})
	addExtension(b, oidAuthorityKeyID, false, func(b *cryptobyte.Builder) {
		b.AddASN1(der.SEQUENCE, func(b *cryptobyte.Builder) {
			b.AddASN1(der.Tag(0).ContextSpecific(), func(b *cryptobyte.Builder) { b.AddBytes(a.cert.SubjectKeyId) })
		})
	})
	addExtension(b, oidSubjectAltName, false, func(b *cryptobyte.Builder) {
		b.AddASN1(der.SEQUENCE, func(b *cryptobyte.Builder) {
			tag, name := der.Tag(2), []byte(host.Name())
			if addr, ok := host.Addr(); ok {
				tag, name = der.Tag(7), addr.Unmap().AsSlice()
			}
			b.AddASN1(tag.ContextSpecific(), func(b *cryptobyte.Builder) { b.AddBytes(name) })
		})
	})
}

// assembleCertificate returns the certificate of a signed part and its signature.
func assembleCertificate(signed, signature []byte) ([]byte, error) {
	var b cryptobyte.Builder
	b.AddASN1(der.SEQUENCE, func(b *cryptobyte.Builder) {
		b.AddBytes(signed)
		addAlgorithm(b)
		b.AddASN1BitString(signature)
	})
	return b.Bytes()
}

func addAlgorithm(b *cryptobyte.Builder) {
	b.AddASN1(der.SEQUENCE, func(b *cryptobyte.Builder) { b.AddASN1ObjectIdentifier(oidECDSAWithSHA256) })
}

// addTime adds a time in whole seconds; years up to 2049 have two digits.
func addTime(b *cryptobyte.Builder, t time.Time) {
	if t = t.UTC(); t.Year() < 2050 {
		b.AddASN1UTCTime(t)
	} else {
		b.AddASN1GeneralizedTime(t)
	}
}

func addExtension(b *cryptobyte.Builder, id asn1.ObjectIdentifier, critical bool, value func(*cryptobyte.Builder)) {
	b.AddASN1(der.SEQUENCE, func(b *cryptobyte.Builder) {
		b.AddASN1ObjectIdentifier(id)
		if critical {
			b.AddASN1Boolean(true)
		}
		b.AddASN1(der.OCTET_STRING, value)
	})
}
