package guest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"
)

func TestFrames(t *testing.T) {
	var wire []byte
	frames := []Frame{
		{Type: FrameHello, Payload: []byte(`{}`)},
		{Type: FrameStdout, ID: 7, Payload: Chunk{Offset: 1 << 40, Data: bytes.Repeat([]byte("x"), MaxChunk)}.Payload()},
		{Type: FrameRequest, ID: 1<<32 - 1, Payload: bytes.Repeat([]byte("y"), MaxPayload)},
		{Type: FrameExit, ID: 1},
	}
	for _, f := range frames {
		var err error
		if wire, err = AppendFrame(wire, f); err != nil {
			t.Fatal(err)
		}
	}
	r := bytes.NewReader(wire)
	for _, want := range frames {
		got, err := ReadFrame(r)
		if err != nil || got.Type != want.Type || got.ID != want.ID || !bytes.Equal(got.Payload, want.Payload) {
			t.Fatalf("frame type %d: %v", want.Type, err)
		}
	}
	if _, err := ReadFrame(r); err != io.EOF {
		t.Errorf("at the end: %v", err)
	}
}

func TestHostileFrames(t *testing.T) {
	tests := map[string][]byte{
		"unknown type":             {0, 0, 0, 0, 99, 0, 0, 0, 0},
		"type zero":                {0, 0, 0, 0, 0, 0, 0, 0, 0},
		"claims more than allowed": append(binary.BigEndian.AppendUint32(nil, MaxPayload+1), byte(FrameStdout), 0, 0, 0, 0),
		"claims four gigabytes":    {255, 255, 255, 255, byte(FrameStdout), 0, 0, 0, 0},
	}
	for name, wire := range tests {
		t.Run(name, func(t *testing.T) {
			var v *ProtocolError
			if _, err := ReadFrame(bytes.NewReader(wire)); !errors.As(err, &v) {
				t.Errorf("got %v", err)
			}
		})
	}
	cut, _ := AppendFrame(nil, Frame{Type: FrameExit, Payload: []byte("{}")})
	if _, err := ReadFrame(bytes.NewReader(cut[:len(cut)-1])); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a frame cut short: %v", err)
	}
	if _, err := AppendFrame(nil, Frame{Payload: make([]byte, MaxPayload+1)}); err == nil {
		t.Error("an oversized frame was made")
	}
}

// TestLengthAloneCostsNothing: memory grows with the bytes that arrive, not with the length that is announced.
func TestLengthAloneCostsNothing(t *testing.T) {
	header := append(binary.BigEndian.AppendUint32(nil, MaxPayload), byte(FrameStdout), 0, 0, 0, 0)
	n := testing.AllocsPerRun(10, func() { ReadFrame(io.MultiReader(bytes.NewReader(header), strings.NewReader("x"))) })
	if n > 20 {
		t.Errorf("%v allocations for one byte", n)
	}
}

func FuzzReadFrame(f *testing.F) {
	ok, _ := AppendFrame(nil, Frame{Type: FrameStdout, ID: 1, Payload: Chunk{Data: []byte("x")}.Payload()})
	f.Add(ok)
	f.Add([]byte{255, 255, 255, 255, 6, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, wire []byte) {
		r := bytes.NewReader(wire)
		for {
			frame, err := ReadFrame(r)
			if err != nil {
				return
			}
			again, err := AppendFrame(nil, frame)
			if err != nil || !bytes.Contains(wire, again) {
				t.Fatalf("%x was read as %x", wire, again)
			}
		}
	})
}

// FuzzPayloads: a payload that parses encodes to the same bytes.
func FuzzPayloads(f *testing.F) {
	f.Add(Chunk{Offset: 3, Data: []byte("abc")}.Payload())
	f.Add(Ack{Stream: Stderr, Offset: 1}.Payload())
	f.Add(Body{JSON: []byte(`{}`), Raw: []byte("raw")}.Payload())
	f.Fuzz(func(t *testing.T, p []byte) {
		if c, err := ParseChunk(p); err == nil && !bytes.Equal(c.Payload(), p) {
			t.Errorf("chunk %x", p)
		}
		if a, err := ParseAck(p); err == nil && !bytes.Equal(a.Payload(), p) {
			t.Errorf("ack %x", p)
		}
		if b, err := ParseBody(p); err == nil && !bytes.Equal(b.Payload(), p) {
			t.Errorf("body %x", p)
		}
	})
}
