package unpack

import (
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"fmt"
	"path/filepath"
	"testing"
)

// BenchmarkApply unpacks the equivalent of a small distribution: 2,000 files in 200 directories, half of it
// incompressible.
func BenchmarkApply(b *testing.B) {
	body := make([]byte, 20_000)
	if _, err := rand.Read(body[:10_000]); err != nil {
		b.Fatal(err)
	}
	var entries []entry
	for i := range 2000 {
		if i%10 == 0 {
			entries = append(entries, entry{name: fmt.Sprintf("usr/lib/%d/", i/10)})
		}
		entries = append(entries, entry{name: fmt.Sprintf("usr/lib/%d/%d", i/10, i), body: string(body)})
	}
	plain := pack(b, entries...)
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	if _, err := w.Write(plain); err != nil {
		b.Fatal(err)
	}
	if err := w.Close(); err != nil {
		b.Fatal(err)
	}
	for name, data := range map[string][]byte{"plain": plain, "gzip": packed.Bytes()} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(plain)))
			for b.Loop() {
				r := newRoom(b)
				if err := r.apply(Layer, data); err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				if err := RemoveAll(filepath.Join(r.dir, "usr")); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
		})
	}
}
