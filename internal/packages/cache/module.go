//go:build linux

package cache

import (
	"archive/zip"
	"errors"
	"io"
	"os"

	"golang.org/x/mod/sumdb/dirhash"
)

const (
	maxModule = 500 << 20 // bytes of an archive's files together, for go itself
	maxGoMod  = 16 << 20
)

var errModule = errors.New("the module is larger than go takes")

// hashModule returns the hash of an archive of a Go module as go.sum has it: of its files' names and contents.
func hashModule(f *os.File, size int64) (string, error) {
	z, err := zip.NewReader(f, size)
	if err != nil {
		return "", err
	}
	var total uint64
	for _, file := range z.File { // the reader holds each file to the size that it states
		if total += file.UncompressedSize64; file.UncompressedSize64 > maxModule || total > maxModule {
			return "", errModule
		}
	}
	return dirhash.HashZip(f.Name(), dirhash.Hash1)
}

// hashGoMod returns the hash of a module's go.mod as go.sum has it.
func hashGoMod(f *os.File, size int64) (string, error) {
	if size > maxGoMod {
		return "", errModule
	}
	return dirhash.Hash1([]string{"go.mod"}, func(string) (io.ReadCloser, error) {
		return io.NopCloser(io.NewSectionReader(f, 0, size)), nil
	})
}
