package guestd

import (
	"bytes"
	"strconv"
)

// MaxEntries bounds the entries of a directory that are listed.
const MaxEntries = 10_000

// WindowSize returns the size of a terminal: that of a VT100 where none is asked for.
func WindowSize(rows, cols uint16) (uint16, uint16) {
	if rows == 0 || cols == 0 {
		return 24, 80
	}
	return rows, cols
}

// Number returns the number after a name in a /proc file of lines, or 0.
func Number(data []byte, name string) int64 {
	_, rest, _ := bytes.Cut(data, []byte(name))
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	n, _ := strconv.ParseInt(string(line), 10, 64)
	return n
}
