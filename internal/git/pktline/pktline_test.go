package pktline

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"

	"github.com/cove-sandbox/cove"
)

func TestNext(t *testing.T) {
	for name, c := range map[string]struct {
		in   string
		kind Kind
		data string
		err  error     // of package io
		code cove.Code // of Cove
	}{
		"data":            {in: "0006a\nrest", data: "a\n"},
		"empty":           {in: "0004", data: ""},
		"capitals":        {in: "000Aabcdef", data: "abcdef"},
		"flush":           {in: "0000", kind: Flush},
		"delimiter":       {in: "0001", kind: Delim},
		"response end":    {in: "0002", kind: ResponseEnd},
		"three":           {in: "0003", code: cove.InvalidArgument},
		"largest":         {in: "fff0" + strings.Repeat("x", MaxData), data: strings.Repeat("x", MaxData)},
		"too large":       {in: "fff1" + strings.Repeat("x", MaxData+1), code: cove.InvalidArgument},
		"largest number":  {in: "ffff", code: cove.InvalidArgument},
		"no number":       {in: "00g0", code: cove.InvalidArgument},
		"sign":            {in: "+006a\n", code: cove.InvalidArgument},
		"space":           {in: " 006a\n", code: cove.InvalidArgument},
		"prefix":          {in: "0x06a\n", code: cove.InvalidArgument},
		"a pack":          {in: "PACK\x00\x00\x00\x02", code: cove.InvalidArgument},
		"nothing":         {in: "", err: io.EOF},
		"half a length":   {in: "00", err: io.ErrUnexpectedEOF},
		"no data":         {in: "0006", err: io.ErrUnexpectedEOF},
		"half the data":   {in: "0006a", err: io.ErrUnexpectedEOF},
		"more than there": {in: "fff0", err: io.ErrUnexpectedEOF},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := NewReader(iotest.OneByteReader(strings.NewReader(c.in)), 1<<20, 10).Next()
			switch {
			case c.err != nil && !errors.Is(err, c.err), c.code != "" && cove.ErrorCode(err) != c.code,
				c.err == nil && c.code == "" && err != nil:
				t.Fatal(err)
			case err == nil && (p.Kind != c.kind || string(p.Data) != c.data):
				t.Errorf("%v %q", p.Kind, p.Data)
			}
		})
	}
}

// TestLimits: lines and bytes end at the reader's limits.
func TestLimits(t *testing.T) {
	read := func(bytes int64, lines int) (n int, err error) {
		r := NewReader(strings.NewReader(strings.Repeat("0008abcd", 100)), bytes, lines)
		for ; err == nil; n++ {
			_, err = r.Next()
		}
		return n - 1, err
	}
	for _, c := range []struct {
		bytes int64
		lines int
		want  int
	}{{1 << 20, 7, 7}, {80, 1000, 10}, {87, 1000, 10}, {3, 10, 0}, {0, 0, 0}} {
		if n, err := read(c.bytes, c.lines); n != c.want || cove.ErrorCode(err) != cove.TooLarge {
			t.Errorf("%d bytes, %d lines: %d, %v", c.bytes, c.lines, n, err)
		}
	}
	if n, err := read(1<<20, 1000); n != 100 || err != io.EOF {
		t.Errorf("%d, %v", n, err)
	}
}

// TestStandsWhereThePackBegins: no byte beyond a packet is read.
func TestStandsWhereThePackBegins(t *testing.T) {
	in := strings.NewReader("0006a\n0000PACK")
	r := NewReader(in, 1<<20, 10)
	r.Next()
	r.Next()
	if rest, _ := io.ReadAll(in); string(rest) != "PACK" {
		t.Errorf("%q", rest)
	}
}

// TestRoundTrip: any written packet reads back.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kinds := rapid.SliceOfN(rapid.SampledFrom([]Kind{Data, Data, Flush, Delim, ResponseEnd}), 0, 20).Draw(t, "kinds")
		var b bytes.Buffer
		w := NewWriter(&b)
		var sent []Packet
		for _, k := range kinds {
			p := Packet{Kind: k}
			if k == Data {
				p.Data = rapid.SliceOfN(rapid.Byte(), 0, 3000).Draw(t, "data")
			}
			if err := w.Packet(p); err != nil {
				t.Fatal(err)
			}
			sent = append(sent, p)
		}
		r := NewReader(&b, 1<<20, 100)
		for i, want := range sent {
			if got, err := r.Next(); err != nil || got.Kind != want.Kind || !bytes.Equal(got.Data, want.Data) {
				t.Fatalf("%d: %v %q, %v", i, got.Kind, got.Data, err)
			}
		}
		if _, err := r.Next(); err != io.EOF {
			t.Fatal(err)
		}
	})
}

// TestBands: a payload of any length reads back, between progress.
func TestBands(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		payload := rapid.SliceOfN(rapid.Byte(), 0, 200_000).Draw(t, "payload")
		size := rapid.SampledFrom([]int{MaxBand, SmallBand}).Draw(t, "size")
		var b, progress bytes.Buffer
		w := NewWriter(&b)
		half := len(payload) / 2
		w.Band(Payload, size).Write(payload[:half])
		w.Band(Progress, size).Write([]byte("half\n"))
		w.Band(Payload, size).Write(payload[half:])
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(NewDemux(NewReader(&b, 1<<20, 1000), func(p []byte) { progress.Write(p) }))
		if err != nil || !bytes.Equal(got, payload) || progress.String() != "half\n" {
			t.Fatalf("%d bytes of %d, progress %q, %v", len(got), len(payload), progress.String(), err)
		}
	})
	for in, code := range map[string]cove.Code{
		"0009\x03full":     cove.Unavailable,
		"0009\x04full":     cove.InvalidArgument,
		"00040000":         cove.InvalidArgument,
		"0009\x01fullzzzz": cove.InvalidArgument,
	} {
		if _, err := io.ReadAll(NewDemux(NewReader(strings.NewReader(in), 1<<20, 10), nil)); cove.ErrorCode(err) != code {
			t.Errorf("%q: %v", in, err)
		}
	}
	if _, err := io.ReadAll(NewDemux(NewReader(strings.NewReader("0009\x01full"), 1<<20, 10), nil)); !errors.Is(err,
		io.ErrUnexpectedEOF) {
		t.Errorf("broken off: %v", err)
	}
}

// TestTooLong: the writer refuses lines that a reader would refuse.
func TestTooLong(t *testing.T) {
	w := NewWriter(io.Discard)
	if err := w.Data(make([]byte, MaxData+1)); cove.ErrorCode(err) != cove.TooLarge {
		t.Error(err)
	}
	if err := w.Data(make([]byte, MaxData)); err != nil {
		t.Error(err)
	}
	broken := NewWriter(brokenWriter{})
	if broken.Flush() == nil || broken.Text("x") == nil {
		t.Error("an error is forgotten")
	}
}

// FuzzNext: packets read from any input are written back identically, except for capitals in lengths.
func FuzzNext(f *testing.F) {
	for _, s := range []string{"0006a\n0000", "0001", "0003", "fff0", "000Aabcdef", "0009\x02hello0000"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		var b bytes.Buffer
		w, r := NewWriter(&b), NewReader(bytes.NewReader(in), 1<<20, 1000)
		for {
			p, err := r.Next()
			if err != nil {
				break
			}
			if err := w.Packet(p); err != nil {
				t.Fatal(err)
			}
		}
		if out := b.Bytes(); len(out) > len(in) || !bytes.EqualFold(out, in[:len(out)]) {
			t.Errorf("%q from %q", out, in)
		}
	})
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }
