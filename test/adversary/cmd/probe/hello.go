package main

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"github.com/cove-sandbox/cove/test/adversary/outcome"
)

// rawHello sends a ClientHello with any bytes for a name, or with an encrypted
// one beside it, and says whether the other side goes along.
func rawHello(c net.Conn, t outcome.Talk) (report, error) {
	hello, err := clientHello(t.Name)
	if err != nil {
		return report{}, err
	}
	if t.Hello == outcome.HelloECH {
		hello = withExtension(hello, 0xfe0d, append([]byte{0, 0, 1, 0, 1, 7, 0, 32},
			append(make([]byte, 32), 0, 4, 1, 2, 3, 4)...))
	}
	c.Write(hello)
	b := make([]byte, 7)
	n, err := io.ReadFull(c, b)
	switch {
	case n > 0 && b[0] == 22:
		return report{detail: "the handshake goes on"}, nil
	case n == 7 && b[0] == 21:
		return report{detail: fmt.Sprintf("alert %d", b[6])}, refusal("TLS")
	case errors.Is(err, os.ErrDeadlineExceeded):
		return report{}, err
	}
	return report{detail: fmt.Sprintf("%x", b[:n])}, refusal("CLOSED")
}

// clientHello is Go's own, with another name of any length inside, or without.
func clientHello(name string) ([]byte, error) {
	const stand = "placeholder.lab"
	client, server := net.Pipe()
	go func() {
		tls.Client(client, &tls.Config{ServerName: stand, InsecureSkipVerify: true}).Handshake()
		client.Close()
	}()
	defer server.Close()
	r := bufio.NewReaderSize(server, 1<<16)
	head, err := r.Peek(5)
	if err != nil {
		return nil, err
	}
	record := make([]byte, 5+int(binary.BigEndian.Uint16(head[3:])))
	if _, err := io.ReadFull(r, record); err != nil {
		return nil, err
	}
	body := record[5:]
	at := bytes.Index(body, []byte(stand))
	out := append(append(bytes.Clone(body[:at]), name...), body[at+len(stand):]...)
	if name == "" { // the extension becomes one that nobody knows
		out = bytes.Clone(body)
		out[at-9], out[at-8] = 0xfa, 0xfa
		name = stand
	}
	by := len(name) - len(stand)
	for _, length := range []int{at - 2, at - 5, at - 7} { // of the name, the list, the extension
		grow(out[length:], by)
	}
	grow(out[extensionsAt(out):], by)
	grow(out[2:], by) // the message's third byte is never needed
	return withHead(out), nil
}

// withExtension adds one at the end.
func withExtension(record []byte, kind uint16, data []byte) []byte {
	out := bytes.Clone(record[5:])
	out = binary.BigEndian.AppendUint16(out, kind)
	out = binary.BigEndian.AppendUint16(out, uint16(len(data)))
	out = append(out, data...)
	grow(out[extensionsAt(out):], 4+len(data))
	grow(out[2:], 4+len(data))
	return withHead(out)
}

func withHead(body []byte) []byte {
	return append(binary.BigEndian.AppendUint16([]byte{22, 3, 1}, uint16(len(body))), body...)
}

func grow(length []byte, by int) {
	binary.BigEndian.PutUint16(length, uint16(int(binary.BigEndian.Uint16(length))+by))
}

// extensionsAt is where the length of all extensions stands in a ClientHello.
func extensionsAt(hello []byte) int {
	p := 4 + 2 + 32
	p += 1 + int(hello[p])
	p += 2 + int(binary.BigEndian.Uint16(hello[p:]))
	return p + 1 + int(hello[p])
}
