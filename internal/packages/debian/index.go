package debian

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/mikelolasagasti/xz"
)

const (
	// MaxIndex bounds an index of packages as it is transferred, in bytes.
	MaxIndex = 32 << 20

	maxUnpacked = 512 << 20
	maxPackages = 400_000
	maxLine     = 1 << 20 // of descriptions and dependencies
)

// Index has the digests of the packages of an index. It takes 48 bytes of memory for each.
type Index struct {
	entries []entry // sorted by path, each path once
}

type entry struct {
	path [16]byte // the beginning of the path's own digest
	sum  [sha256.Size]byte
}

func pathKey(path string) (key [16]byte) {
	sum := sha256.Sum256([]byte(path))
	copy(key[:], sum[:])
	return key
}

func byPath(a, b entry) int { return bytes.Compare(a.path[:], b.path[:]) }

// ReadIndex reads an index, of which name says how it is compressed.
func ReadIndex(body []byte, name string) (*Index, error) {
	if len(body) > MaxIndex {
		return nil, errTooLarge
	}
	var r io.Reader = bytes.NewReader(body)
	var err error
	switch path.Ext(name) {
	case ".xz":
		r, err = xz.NewReader(r, xz.DefaultDictMax)
	case ".gz":
		r, err = gzip.NewReader(r)
	}
	if err != nil {
		return nil, fmt.Errorf("the index cannot be unpacked: %w", err)
	}
	return readStanzas(io.LimitReader(r, maxUnpacked))
}

// readStanzas reads stanzas with the fields Filename and SHA256 (deb822(5)).
func readStanzas(r io.Reader) (*Index, error) {
	lines := bufio.NewReaderSize(r, 64<<10)
	x := &Index{}
	var filename, digest string
	end := func() error {
		defer func() { filename, digest = "", "" }()
		if filename == "" || !sha256Hex.Regexp().MatchString(digest) {
			return nil
		}
		if len(x.entries) >= maxPackages {
			return errTooLarge
		}
		e := entry{path: pathKey(strings.TrimPrefix(filename, "./"))}
		_, _ = hex.Decode(e.sum[:], []byte(digest)) // it has the form
		x.entries = append(x.entries, e)
		return nil
	}
	for {
		line, err := readLine(lines)
		if err != nil && err != io.EOF {
			return nil, fmt.Errorf("the index cannot be read: %w", err)
		}
		switch field, value, _ := strings.Cut(string(line), ":"); {
		case len(bytes.TrimSpace(line)) == 0:
			if err := end(); err != nil {
				return nil, err
			}
		case strings.EqualFold(field, "filename"):
			filename = strings.TrimSpace(value)
		case strings.EqualFold(field, "sha256"):
			digest = strings.ToLower(strings.TrimSpace(value))
		}
		if err == io.EOF {
			break
		}
	}
	if err := end(); err != nil {
		return nil, err
	}
	x.settle()
	return x, nil
}

// settle sorts the packages. A path with several digests has none.
func (x *Index) settle() {
	slices.SortFunc(x.entries, byPath)
	kept := x.entries[:0]
	for i := 0; i < len(x.entries); {
		first, n, one := x.entries[i], i+1, true
		for ; n < len(x.entries) && x.entries[n].path == first.path; n++ {
			one = one && x.entries[n].sum == first.sum
		}
		if i = n; one {
			kept = append(kept, first)
		}
	}
	x.entries = slices.Clip(kept)
}

var errLine = errors.New("a line is too long")

// readLine returns the beginning of the next line, which may be all of it: no field that matters is as long as a
// buffer. It skips what remains.
func readLine(r *bufio.Reader) (line []byte, err error) {
	line, err = r.ReadSlice('\n')
	if err != bufio.ErrBufferFull {
		return line, err
	}
	line = slices.Clone(line)
	for n := len(line); err == bufio.ErrBufferFull; {
		var more []byte
		if more, err = r.ReadSlice('\n'); n+len(more) > maxLine {
			return nil, errLine
		}
		n += len(more)
	}
	return line, err
}

// SHA256 returns the digest of a package by its path below the repository's base, in hex; false if there is none.
func (x *Index) SHA256(path string) (string, bool) {
	at, ok := slices.BinarySearchFunc(x.entries, entry{path: pathKey(path)}, byPath)
	if !ok {
		return "", false
	}
	return hex.EncodeToString(x.entries[at].sum[:]), true
}

// Len returns the number of packages.
func (x *Index) Len() int { return len(x.entries) }

// A table is an index in the form in which it is read again at once: the digest of the index, and its entries.

const entrySize = 16 + sha256.Size

// Table returns the table of the index with a digest, in hex.
func (x *Index) Table(of string) []byte {
	table := make([]byte, 0, sha256.Size+len(x.entries)*entrySize)
	sum, _ := hex.DecodeString(of) // it is that of a list
	table = append(table, sum...)
	for _, e := range x.entries {
		table = append(append(table, e.path[:]...), e.sum[:]...)
	}
	return table
}

// ReadTable reads the table of the index with a digest; false if it is none, or that of another.
func ReadTable(table []byte, of string) (*Index, bool) {
	if len(table) < sha256.Size || hex.EncodeToString(table[:sha256.Size]) != of ||
		(len(table)-sha256.Size)%entrySize != 0 {
		return nil, false
	}
	x := &Index{entries: make([]entry, 0, len(table)/entrySize)}
	for rest := table[sha256.Size:]; len(rest) > 0; rest = rest[entrySize:] {
		x.entries = append(x.entries, entry{[16]byte(rest[:16]), [sha256.Size]byte(rest[16:entrySize])})
	}
	return x, slices.IsSortedFunc(x.entries, byPath)
}
