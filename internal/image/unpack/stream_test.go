package unpack

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/cove-sandbox/cove"
)

func TestLimits(t *testing.T) {
	many := func(n int) (entries []entry) {
		for i := range n {
			entries = append(entries, entry{name: fmt.Sprint("f", i), body: strings.Repeat("x", 1000)})
		}
		return entries
	}
	for _, c := range []struct {
		name   string
		limits func(*Limits)
		data   func() []byte
		code   cove.Code
	}{
		{"entries at the limit", func(l *Limits) { l.Entries = 20 }, func() []byte { return pack(t, many(20)...) }, ""},
		{"entries over it", func(l *Limits) { l.Entries = 20 }, func() []byte { return pack(t, many(21)...) }, cove.TooLarge},
		{"bytes within", func(l *Limits) { l.Bytes = 64 << 10 }, func() []byte { return pack(t, many(20)...) }, ""},
		{"bytes over", func(l *Limits) { l.Bytes = 16 << 10 }, func() []byte { return pack(t, many(20)...) }, cove.TooLarge},
		{"sparse file over", func(l *Limits) { l.Bytes = 1 << 20 }, sparse1TiB, cove.TooLarge},
		{"bomb within bytes, by ratio", func(l *Limits) {}, func() []byte { return bomb(t, 2*RatioFloor) }, cove.TooLarge},
		{"the same as allowed by a ratio", func(l *Limits) {
			l.Ratio = 10_000
		}, func() []byte { return bomb(t, 2*RatioFloor) }, ""},
		{"bomb by bytes", func(l *Limits) { l.Bytes = 1 << 20 }, func() []byte { return bomb(t, 32<<20) }, cove.TooLarge},
		{"junk after the end", func(l *Limits) {
			l.Bytes = 1 << 20
		}, func() []byte { return append(pack(t), make([]byte, 2<<20)...) }, cove.TooLarge},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRoom(t)
			c.limits(&r.limits)
			if err := r.apply(Layer, c.data()); cove.ErrorCode(err) != c.code {
				t.Errorf("code %q, want %q: %v", cove.ErrorCode(err), c.code, err)
			}
			r.untouched()
		})
	}
}

// bomb returns a gzipped archive of one file of zeros.
func bomb(t testing.TB, size int64) []byte {
	t.Helper()
	var buf bytes.Buffer
	z := gzip.NewWriter(&buf)
	w := tar.NewWriter(z)
	if err := w.WriteHeader(&tar.Header{Name: "zeros", Size: size, Mode: 0o644}); err != nil {
		t.Fatal(err)
	}
	chunk := make([]byte, 1<<20)
	for ; size > 0; size -= int64(len(chunk)) {
		if _, err := w.Write(chunk); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// sparse1TiB returns an old GNU sparse header that claims 1 TiB without content.
func sparse1TiB() []byte {
	h := make([]byte, 512)
	copy(h, "huge")
	copy(h[100:], "0000644\x000000000\x000000000\x0000000000000\x0000000000000\x00")
	h[156] = 'S'
	copy(h[257:], "ustar  \x00")
	copy(h[386:], "00000000000\x0000000000000\x00")       // one empty extent
	copy(h[483:], "\x80\x00\x00\x00\x00\x00\x01\x00\x00") // 2^40 in base 256 needs 12 bytes
	copy(h[483:], "\x80\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00")
	copy(h[148:], "        ")
	sum := 0
	for _, b := range h {
		sum += int(b)
	}
	copy(h[148:], fmt.Sprintf("%06o\x00 ", sum))
	return slices.Concat(h, make([]byte, 1024))
}

func TestCompressions(t *testing.T) {
	plain := pack(t, entry{name: "a", body: strings.Repeat("compress me ", 100_000)})
	var g, z bytes.Buffer
	gw := gzip.NewWriter(&g)
	gw.Write(plain)
	gw.Close()
	zw, err := zstd.NewWriter(&z)
	if err != nil {
		t.Fatal(err)
	}
	zw.Write(plain)
	zw.Close()
	// Two concatenated members are one stream.
	var two bytes.Buffer
	for _, half := range [][]byte{plain[:1000], plain[1000:]} {
		w := gzip.NewWriter(&two)
		w.Write(half)
		w.Close()
	}
	digests := map[string]bool{}
	for name, data := range map[string][]byte{"plain": plain, "gzip": g.Bytes(), "zstd": z.Bytes(),
		"two members": two.Bytes()} {
		t.Run(name, func(t *testing.T) {
			r := newRoom(t)
			tree, err := New(r.dir, r.limits)
			if err != nil {
				t.Fatal(err)
			}
			defer tree.Close()
			digest, err := tree.Apply(t.Context(), bytes.NewReader(data), Layer)
			if err != nil {
				t.Fatal(err)
			}
			digests[digest] = true
		})
	}
	if len(digests) != 1 {
		t.Errorf("the digest depends on the compression: %v", digests)
	}
	for name, c := range map[string]struct {
		data []byte
		code cove.Code
	}{
		"gzip cut":     {g.Bytes()[:g.Len()-20], cove.InvalidArgument},
		"zstd cut":     {z.Bytes()[:z.Len()-20], cove.InvalidArgument},
		"gzip damaged": {flip(g.Bytes(), g.Len()/2), cove.InvalidArgument}, "plain cut": {plain[:2000], cove.InvalidArgument},
		"gzip of nothing": {[]byte{0x1f, 0x8b}, cove.InvalidArgument},
		"xz of nothing":   {[]byte("\xfd7zXZ\x00"), cove.InvalidArgument},
		"xz damaged":      {[]byte("\xfd7zXZ\x00damaged"), cove.InvalidArgument},
		"not an archive":  {[]byte(strings.Repeat("hello ", 500)), cove.InvalidArgument},
	} {
		t.Run(name, func(t *testing.T) {
			if err := newRoom(t).apply(Layer, c.data); cove.ErrorCode(err) != c.code {
				t.Errorf("code %q, want %q: %v", cove.ErrorCode(err), c.code, err)
			}
		})
	}
	for name, text := range map[string]string{
		"bzip2": "QlpoOTFBWSZTWaUwjB0AAHD7gNEAAAJAAG+AAADiRJ4ACAggAFQ0IJtBHqaM" +
			"nqCRJqAaAAfa3EIQcyhCKdPKsZuxAhplYpMIloowNABD6uxpNeWrJVgiBt+vrY07vUiID8XckU4UJClMIwdA",
		"xz": "/Td6WFoAAATm1rRGAgAhARwAAAAQz1jM4Cf/AGRdADCAM1AYaImC7WIF2V3nyA/J9lAepSQ/+DOz2KNzZLwl1EHEV4zNKw6e" +
			"kOHLJLUvy9GNpBBWW+ys619+q/F6scRlIRbyEKsj+keeqc/T4qNHDUMqI0x65b01hHY7lq78FxbfRQAAJwkrJcxdMo8AAYAB" +
			"gFAAAD5xYGGxxGf7AgAAAAAEWVo=",
	} {
		t.Run(name, func(t *testing.T) {
			packed, err := base64.StdEncoding.DecodeString(text)
			if err != nil {
				t.Fatal(err)
			}
			tree, err := New(newRoom(t).dir, DefaultLimits())
			if err != nil {
				t.Fatal(err)
			}
			defer tree.Close()
			digest, err := tree.Apply(t.Context(), bytes.NewReader(packed), Layer)
			if err != nil || digest != "2dd9931e568902e8ad34661d545b2b57d69a00a924b3a97bb69f81821dd64ef7" {
				t.Errorf("%s, %v", digest, err)
			}
			if err := newRoom(t).apply(Layer, packed[:80]); cove.ErrorCode(err) != cove.InvalidArgument {
				t.Errorf("cut: %v", err)
			}
		})
	}
	t.Run("xz that needs much memory", func(t *testing.T) { // more than xz -9
		packed, err := base64.StdEncoding.DecodeString("" +
			"/Td6WFoAAATm1rRGAgAhAR8AAAD+YO3e4Cf/AGRdADCAM1AYaImC7WIF2V3nyA/J9lAepSQ/+DOz2KNzZLwl1EHE" +
			"V4zNKw6ekOHLJLUvy9GNpBBWW+ys619+q/F6scRlIRbyEKsj+keeqc/T4qNHDUMqI0x65b01hHY7lq78FxbfRQAA" +
			"JwkrJcxdMo8AAYABgFAAAD5xYGGxxGf7AgAAAAAEWVo=")
		if err != nil {
			t.Fatal(err)
		}
		if err := newRoom(t).apply(Layer, packed); cove.ErrorCode(err) != cove.Unsupported {
			t.Errorf("%v", err)
		}
	})
	t.Run("nothing at all", func(t *testing.T) { // an empty layer is valid
		if err := newRoom(t).apply(Layer, nil); err != nil {
			t.Error(err)
		}
	})
}

func flip(data []byte, at int) []byte {
	data = slices.Clone(data)
	data[at] ^= 0xff
	return data
}

func TestCancel(t *testing.T) {
	r := newRoom(t)
	tree, err := New(r.dir, r.limits)
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	ctx, cancel := context.WithCancel(t.Context())
	pr, pw := io.Pipe()
	defer pr.Close()
	go func() {
		w := tar.NewWriter(pw)
		w.WriteHeader(&tar.Header{Name: "endless", Size: 8 << 30, Mode: 0o644})
		chunk := make([]byte, 1<<20)
		for i := 0; ; i++ {
			if i == 4 {
				cancel()
			}
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	}()
	if _, err := tree.Apply(ctx, pr, Layer); cove.ErrorCode(err) != cove.Canceled {
		t.Errorf("code %q: %v", cove.ErrorCode(err), err)
	}
}

func TestIsArchive(t *testing.T) {
	plain := pack(t, entry{name: "a", body: "hello"})
	var g, text bytes.Buffer
	for w, data := range map[*bytes.Buffer][]byte{&g: plain, &text: []byte(strings.Repeat("hello ", 500))} {
		z := gzip.NewWriter(w)
		z.Write(data)
		z.Close()
	}
	for name, c := range map[string]struct {
		data []byte
		want bool
		code cove.Code
	}{
		"plain": {plain, true, ""}, "gzip": {g.Bytes(), true, ""}, "a file in gzip": {text.Bytes(), false, ""},
		"text": {[]byte("hello"), false, ""}, "nothing": {nil, false, ""}, "an empty archive": {pack(t), false, ""},
		"gzip of nothing": {[]byte{0x1f, 0x8b}, false, ""}, "xz of nothing": {[]byte("\xfd7zXZ\x00rest"), false, ""},
	} {
		r := bytes.NewReader(c.data)
		is, err := IsArchive(r)
		if is != c.want || cove.ErrorCode(err) != c.code || c.code == "" && r.Len() != len(c.data) {
			t.Errorf("%s: %v, %v, %d bytes are left of %d", name, is, err, r.Len(), len(c.data))
		}
	}
}
