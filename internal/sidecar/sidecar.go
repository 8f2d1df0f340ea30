// Package sidecar is the protocol between a sidecar, a small container in a sandbox's network, and the host, which
// cannot enter that network: the engine's daemon is on another machine, or Cove is not root. The sidecar leads
// everything that wants to leave to itself (package transparent) and carries it to the host, over the streams that the
// engine's API gives. It decides nothing and knows no secret. Package inside is its end, outside is the host's; here is
// what both share, without package net, which the guest does not link.
//
// # Frames
//
//	kind    1 byte
//	id      4 bytes, big endian
//	length  2 bytes, big endian, of what follows, at most MaxPayload
//
// The host begins with a setup, of which id is 0; the sidecar answers that it is ready, or why not. Then the sidecar
// opens streams, with ids that rise, and either side sends on them what its credit allows: Window at first, more as the
// other side says. A stream ends when both sides have ended it, or when one breaks it off. A packet has the index of
// its socket as its id, and begins with the address of the client in the sandbox's network.
//
// The host's end takes every byte for hostile: what breaks these rules ends the session, and with it the network of
// the sandbox.
package sidecar

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
)

// kind is the kind of a frame.
type kind byte

const (
	kindSetup  kind = 1 + iota // to the sidecar: a Setup, as JSON
	kindReady                  // from it: nothing, or what failed
	kindOpen                   // from it: the index of the socket, 1 byte, and where the client wanted to go
	kindData                   // at most maxData bytes
	kindCredit                 // 4 bytes, big endian: so many more may be sent
	kindEnd                    // nothing more is sent
	kindBreak                  // neither side sends any more
	kindPacket                 // the client's address and a datagram
)

const (
	// MaxPayload bounds what a frame carries.
	MaxPayload = 1<<16 - 1
	maxData    = 16 << 10
	header     = 7
	// Window is how much of a stream may be on its way, in one direction.
	Window = 128 << 10
	// MaxStreams bounds the streams that a sidecar has open at a time. The host lets it have twice as many, since it hears
	// of their ends later.
	MaxStreams = 512
	// MaxDatagram bounds a datagram: queries and answers for names are smaller.
	MaxDatagram = 8 << 10
)

// Setup says what a sidecar is to do in its network.
type Setup struct {
	Routes, Firewall []byte // messages for the kernel; see package transparent
	Filter           []byte // of system calls, from then on; see package seccomp
	Sockets          []Socket
}

// Socket is a socket to make: a network ("tcp4", "tcp6", "udp4", "udp6") and a numeric address with its port.
type Socket struct{ Network, Address string }

// MaxSockets bounds the sockets of a setup.
const MaxSockets = 64

// errFrame is of a peer that breaks the rules.
var errFrame = errors.New("the other end breaks the protocol")

func broken(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errFrame, fmt.Sprintf(format, args...))
}

type frame struct {
	kind    kind
	id      uint32
	payload []byte // valid until the next one is read
}

// reader reads frames.
type reader struct {
	r   io.Reader
	buf [header + MaxPayload]byte
}

func (r *reader) next() (f frame, err error) {
	if _, err := io.ReadFull(r.r, r.buf[:header]); err != nil {
		return f, err
	}
	f.kind, f.id = kind(r.buf[0]), binary.BigEndian.Uint32(r.buf[1:])
	n := int(binary.BigEndian.Uint16(r.buf[5:]))
	f.payload = r.buf[header : header+n]
	if int(f.kind) >= len(longest) || f.kind < kindSetup || n > longest[f.kind] {
		return f, broken("a frame of kind %d with %d bytes", f.kind, n)
	}
	_, err = io.ReadFull(r.r, f.payload)
	return f, err
}

// longest bounds the payload of each kind.
var longest = [...]int{kindSetup: MaxPayload, kindReady: maxReason, kindOpen: 1 + maxAddress, kindData: maxData,
	kindCredit: 4, kindEnd: 0, kindBreak: 0, kindPacket: maxAddress + MaxDatagram}

// maxReason bounds the text that says what failed.
const maxReason = 1 << 10

// Addresses are a port, the number of bytes of the address, and these: none, 4 or 16.
const maxAddress = 2 + 1 + 16

func appendAddress(p []byte, a netip.AddrPort) []byte {
	ip := a.Addr().Unmap().AsSlice()
	p = binary.BigEndian.AppendUint16(p, a.Port())
	return append(append(p, byte(len(ip))), ip...)
}

// parseAddress returns the address that p begins with, and what follows.
func parseAddress(p []byte) (a netip.AddrPort, rest []byte, err error) {
	if len(p) < 3 || len(p) < 3+int(p[2]) {
		return a, nil, broken("half an address")
	}
	ip, ok := netip.AddrFromSlice(p[3 : 3+int(p[2])])
	if !ok && p[2] > 0 {
		return a, nil, broken("an address of %d bytes", p[2])
	}
	return netip.AddrPortFrom(ip.Unmap(), binary.BigEndian.Uint16(p)), p[3+int(p[2]):], nil
}
