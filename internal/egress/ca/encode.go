package ca

import (
	"crypto/ecdsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"math/big"
	"time"

	"github.com/cove-sandbox/cove/internal/egress/policy"
)

var ecdsaWithSHA256 = pkix.AlgorithmIdentifier{Algorithm: asn1.ObjectIdentifier{1, 2, 840, 10045, 4, 3, 2}} // RFC 5758

// organization is the subject of every leaf. The subject has no common name: it cannot hold names longer than 64 bytes,
// and a client that reads it ignores the alternative names, which count.
const organization = "Cove"

// Parts of a certificate (RFC 5280, 4.1).
type (
	certificate struct {
		Signed    asn1.RawValue
		Algorithm pkix.AlgorithmIdentifier
		Signature asn1.BitString
	}
	toBeSigned struct {
		Version    int `asn1:"explicit,tag:0"`
		Serial     *big.Int
		Algorithm  pkix.AlgorithmIdentifier
		Issuer     asn1.RawValue
		Validity   validity
		Subject    pkix.RDNSequence
		PublicKey  asn1.RawValue
		Extensions []pkix.Extension `asn1:"explicit,tag:3"`
	}
	validity struct{ From, Until time.Time }
)

// toSign returns the signed part of a leaf, byte for byte as x509.CreateCertificate would encode it; a test compares
// them. CreateCertificate also verifies its signature, for which a host's first connection would wait.
func (a *Authority) toSign(serial *big.Int, host policy.Host, key *ecdsa.PublicKey,
	from, until time.Time) ([]byte, error) {
	public, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return nil, err
	}
	authority, err := asn1.Marshal(struct {
		ID []byte `asn1:"tag:0"`
	}{a.cert.SubjectKeyId})
	if err != nil {
		return nil, err
	}
	name := asn1.RawValue{Class: asn1.ClassContextSpecific, Tag: 2, Bytes: []byte(host.Name())}
	if addr, ok := host.Addr(); ok {
		name.Tag, name.Bytes = 7, addr.Unmap().AsSlice()
	}
	all := []asn1.RawValue{name}
	if host.Name() == policy.HostService {
		name.Bytes = []byte(policy.HostServiceAlias)
		all = append(all, name)
	}
	names, err := asn1.Marshal(all)
	if err != nil {
		return nil, err
	}
	of := func(number int) asn1.ObjectIdentifier { return asn1.ObjectIdentifier{2, 5, 29, number} }
	return asn1.Marshal(toBeSigned{
		Version: 2, Serial: serial, Algorithm: ecdsaWithSHA256, // version 3
		Issuer: asn1.RawValue{FullBytes: a.cert.RawSubject}, Validity: validity{from.UTC(), until.UTC()},
		Subject:   pkix.Name{Organization: []string{organization}}.ToRDNSequence(),
		PublicKey: asn1.RawValue{FullBytes: public},
		Extensions: []pkix.Extension{
			{Id: of(15), Critical: true, Value: []byte{3, 2, 7, 0x80}},                      // key usage: digitalSignature
			{Id: of(37), Value: []byte("\x30\x0a\x06\x08\x2b\x06\x01\x05\x05\x07\x03\x01")}, // extended key usage: serverAuth
			{Id: of(19), Critical: true, Value: []byte{0x30, 0}},                            // basic constraints: no authority
			{Id: of(35), Value: authority},                                                  // key of the authority
			{Id: of(17), Value: names},                                                      // alternative names of the subject
		},
	})
}

func assembleCertificate(signed, signature []byte) ([]byte, error) {
	return asn1.Marshal(certificate{asn1.RawValue{FullBytes: signed}, ecdsaWithSHA256,
		asn1.BitString{Bytes: signature, BitLength: 8 * len(signature)}})
}
